package embedding_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// Bags of one id each are copies of rows. They and their gradients have the bits of bags with weights of one, which are
// summed, and both make the same calls; without an id too many, and a row for padding, which take the other way.
func TestEvenBags(t *testing.T) {
	padding := 2
	for _, mesh := range [][]int{{1}, {2}, {3}, {2, 2}} {
		axis := string(rune('a' + len(mesh) - 1))
		for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
			for _, samples := range []int{1, 7, 16} {
				for name, change := range map[string]func(lists []embedding.Lists){
					"even": func([]embedding.Lists) {},
					"padded": func(lists []embedding.Lists) {
						if len(lists[3].IDs) > 0 {
							lists[3].IDs[0] = int64(padding)
						}
					},
					"uneven": func(lists []embedding.Lists) {
						if len(lists[0].IDs) > 0 {
							lists[0].IDs = append(lists[0].IDs, 1)
							lists[0].Lengths[len(lists[0].Lengths)-1]++
						}
					},
				} {
					meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
						table := func(name string, rows int, l embedding.Layout, features ...string) embedding.CollectionTable {
							return embedding.CollectionTable{Mode: embedding.Sum, Features: features, Config: embedding.Config{Name: name, Rows: rows,
								Dim: 6, Layout: l, DType: dt, Key: dtensor.Key{Seed: uint64(rows)}}}
						}
						padded := table("padded", 13, embedding.RowWise(axis), "p")
						padded.PaddingIdx = &padding
						configs := []embedding.CollectionTable{table("two", 9, embedding.RowWise(axis), "x", "y"), table("none", 4, embedding.Replicated()),
							table("one", 5, embedding.TableWise(axis, 0), "z"), padded, table("all", 8, embedding.Replicated(), "r"),
							table("turns", 11, embedding.RowCyclic(axis), "t")}
						var c *embedding.Collection
						if err := dtensor.Try(ctx, m, func() {
							c = embedding.NewCollection(m, configs...)
							dtensor.Keep(c.Params()...)
						}); err != nil {
							return err
						}
						var got [2][]float64
						for way := range got {
							values, err := evenWay(ctx, m, c, samples, way == 1, change)
							if err != nil {
								return err
							}
							got[way] = values
						}
						if !slices.Equal(got[0], got[1]) {
							return fmt.Errorf("%v %v, %d samples, %s: got %v, with weights %v", mesh, dt, samples, name, got[0], got[1])
						}
						return nil
					})
				}
			}
		}
	}
}

// evenWay returns the bags and the gradients of all tables.
func evenWay(ctx context.Context, m *dtensor.Mesh, c *embedding.Collection, samples int, weighted bool,
	change func([]embedding.Lists)) (all []float64, err error) {
	places := m.Every(layout.Replicate())
	places[len(places)-1] = layout.Shard(0)
	rows := map[string]int{"x": 9, "y": 9, "z": 5, "p": 13, "r": 8, "t": 11}
	var bags *dtensor.Tensor
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		mine := tensor.ToSlice[int64](dtensor.Distribute(m, tensor.Arange(m.Device(), tensor.Int64, 0, samples), places...).Local())
		var lists []embedding.Lists
		for f, name := range []string{"t", "x", "y", "p", "z", "r"} {
			l := embedding.Lists{Feature: name}
			for _, s := range mine {
				id := (7*s*s + int64(3*f)) % int64(rows[name])
				if name == "p" && id == 2 {
					id = 3
				}
				l.IDs, l.Lengths = append(l.IDs, id), append(l.Lengths, 1)
			}
			lists = append(lists, l)
		}
		change(lists)
		for f := range lists {
			if weighted {
				lists[f].Weights = slices.Repeat([]float32{1}, len(lists[f].IDs))
			}
		}
		j, failed := embedding.JaggedOf(m, samples, lists, places...)
		if failed != nil {
			panic(failed)
		}
		bags = c.Bags(j).Values()
		dtensor.Keep(bags)
		return bags.Mul(bags).Sum(nil, false)
	}, c.Params()...)
	if err != nil {
		return nil, err
	}
	err = dtensor.Try(ctx, m, func() {
		all = whole(bags)
		for _, g := range grads {
			rows, _ := g.Rows()
			all = append(all, whole(rows.Dense())...)
		}
	})
	return all, err
}
