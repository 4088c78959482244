package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestBadIDs gives one rank, or all, an id that is not in the table: every rank
// gets the same error and the next batch works.
// Tables that a Try has made are used after it, with a Store and without: of a collection only the ranks whose rows were wanted
// noticed that these were gone.
func TestTablesOutliveTry(t *testing.T) {
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		var c *embedding.Collection
		if err := dtensor.Try(ctx, m, func() {
			config := embedding.Config{Name: "users", Rows: 30, Dim: 6, Layout: embedding.RowWise("a"), DType: tensor.BFloat16}
			c = embedding.NewCollection(m, embedding.CollectionTable{Config: config, Features: []string{"user"}})
		}); err != nil {
			return err
		}
		return dtensor.Try(ctx, m, func() {
			j, err := embedding.NewJagged(m, []string{"user"}, 3, []int{1}, []int64{int64(m.Comm().Rank())}, nil, layout.Shard(0))
			dtensor.Check(err)
			c.Bags(j)
			c.Tables()[0].Weight().Full()
		})
	})
}

func TestBadIDs(t *testing.T) {
	const rows, width = 6, 2
	table := meshtest.Numbers(rows*width, 1, 1)
	good := []int64{5, 0, 2, 2, 1, 3, 3, 4}
	for _, mesh := range [][]int{{1}, {2}, {4}, {2, 2}} {
		for _, bad := range []struct {
			at int
			id int64
		}{{0, -1}, {7, 6}, {5, 1 << 40}} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				for _, wp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
					for _, ip := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
						ids := append([]int64(nil), good...)
						ids[bad.at] = bad.id
						w := meshtest.Place(m, table, []int{rows, width}, wp...)
						look := func(ids []int64) error {
							x := meshtest.Place(m, ids, []int{2, 4}, ip...)
							_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
								return embedding.Lookup(w, x, embedding.Options{Table: "words"}).Sum(nil, false)
							}, w)
							return err
						}
						err := look(ids)
						var wrong *embedding.IDError
						if !errors.As(err, &wrong) {
							return fmt.Errorf("weight %v, ids %v: got %v", wp, ip, err)
						}
						want := fmt.Sprintf(`embedding: Lookup: id %d at [%d %d] is out of range for table "words" of 6 rows; ids are from 0 to 5`, bad.id,
							bad.at/4, bad.at%4)
						if wrong.Error() != want {
							return fmt.Errorf("weight %v, ids %v: got %q, want %q", wp, ip, wrong, want)
						}
						if err := look(good); err != nil {
							return fmt.Errorf("weight %v, ids %v: the next batch: %w", wp, ip, err)
						}
					}
				}
				return nil
			})
		}
	}
}

// TestFirstOfSeveralBadIDs: all ranks name the first one in the global tensor.
func TestFirstOfSeveralBadIDs(t *testing.T) {
	meshtest.On(t, []int{4}, func(ctx context.Context, m *dtensor.Mesh) error {
		w := meshtest.Place(m, meshtest.Numbers(12, 1, 1), []int{6, 2}, shard0)
		x := meshtest.Place(m, []int64{0, 1, 2, 3, 77, 5, 99, 88}, []int{8}, shard0)
		err := dtensor.Try(ctx, m, func() { embedding.Lookup(w, x, embedding.Options{}) })
		if err == nil || !strings.Contains(err.Error(), "id 77 at [4]") {
			return fmt.Errorf("got %v", err)
		}
		return comm.Barrier(ctx, m.Comm())
	})
}

func TestRefusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		w := meshtest.Place(m, meshtest.Numbers(12, 1, 1), []int{6, 2}, shard0)
		cube := meshtest.Place(m, meshtest.Numbers(24, 1, 1), []int{3, 4, 2}, shard0)
		x := meshtest.Place(m, []int64{1}, []int{1}, replicate)
		floats := meshtest.Place(m, []float64{1}, []int{1}, replicate)
		other, err := dtensor.NewMesh(m.Comm(), dtensor.Axis{Name: "other", Size: 2})
		if err != nil {
			return err
		}
		elsewhere := meshtest.Place(other, []int64{1}, []int{1}, replicate)
		look := func(w, x *dtensor.Tensor, o embedding.Options) func() {
			return func() { embedding.Lookup(w, x, o) }
		}
		bag := func(ids, offsets, weights *dtensor.Tensor, o embedding.BagOptions) func() {
			return func() { embedding.Bag(w, ids, offsets, weights, o) }
		}
		list := meshtest.Place(m, []int64{1, 2, 3}, []int{3}, replicate)
		for want, f := range map[string]func(){
			"has 3 dimensions; a table has 2": look(cube, x, embedding.Options{}),
			"holds int64":                     look(x.Reshape(1, 1), x, embedding.Options{}),
			"are float64 [1] R":               look(w, floats, embedding.Options{}),
			"MaxNorm is 0":                    look(w, x, embedding.Options{MaxNorm: new(0.0)}),
			"MaxNorm is -2":                   look(w, x, embedding.Options{MaxNorm: new(-2.0)}),
			"NormType is 0":                   look(w, x, embedding.Options{NormType: new(0.0)}),
			"NormType is NaN":                 look(w, x, embedding.Options{NormType: new(math.NaN())}),
			"PaddingIdx is 6":                 look(w, x, embedding.Options{PaddingIdx: new(6)}),
			"PaddingIdx is -7":                look(w, x, embedding.Options{PaddingIdx: new(-7)}),
			"on another":                      look(w, elsewhere, embedding.Options{}),
			"holds uint8":                     func() { embedding.NewTable(m, embedding.Config{Rows: 3, Dim: 2, DType: tensor.Uint8}) },
			"bfloat16; make a collection for each type": func() {
				embedding.NewCollection(m, embedding.CollectionTable{Config: embedding.Config{Name: "a"}},
					embedding.CollectionTable{Config: embedding.Config{Name: "b", DType: tensor.BFloat16}})
			},
			"holds float64; use float32 or bfloat16": func() {
				embedding.NewCollection(m, embedding.CollectionTable{Config: embedding.Config{DType: tensor.Float64}})
			},
			`no axis "z"`: func() {
				embedding.NewTable(m, embedding.Config{Rows: 3, Dim: 2, Layout: embedding.RowWise("z")})
			},
			"named twice": func() {
				embedding.NewTable(m, embedding.Config{Rows: 3, Dim: 2, Layout: embedding.Grid("a", "a")})
			},
			"-1 rows":                   func() { embedding.NewTable(m, embedding.Config{Rows: -1, Dim: 2}) },
			"no offsets":                bag(list, nil, nil, embedding.BagOptions{}),
			"offsets[0] is 1":           bag(list, meshtest.Place(m, []int64{1}, []int{1}, replicate), nil, embedding.BagOptions{}),
			"offsets[2] is 1":           bag(list, meshtest.Place(m, []int64{0, 2, 1}, []int{3}, replicate), nil, embedding.BagOptions{}),
			"past the end of the 3 ids": bag(list, meshtest.Place(m, []int64{0, 4}, []int{2}, replicate), nil, embedding.BagOptions{}),
			"offsets[1] is 2, but there are 3 ids": bag(list, meshtest.Place(m, []int64{0, 2}, []int{2}, replicate), nil,
				embedding.BagOptions{IncludeLastOffset: true}),
			"weights are given with Mode mean": bag(list, meshtest.Place(m, []int64{0}, []int{1}, replicate),
				meshtest.Place(m, meshtest.Numbers(3, 1, 1), []int{3}, replicate), embedding.BagOptions{}),
			"give one for each id": bag(list, meshtest.Place(m, []int64{0}, []int{1}, replicate), floats,
				embedding.BagOptions{Mode: embedding.Sum}),
			"ScaleGradByFreq is not defined": bag(list, meshtest.Place(m, []int64{0}, []int{1}, replicate), nil,
				embedding.BagOptions{Mode: embedding.Max, Options: embedding.Options{ScaleGradByFreq: true}}),
			"Mode is 9": bag(list, meshtest.Place(m, []int64{0}, []int{1}, replicate), nil,
				embedding.BagOptions{Mode: 9}),
			"offsets float64 [1] R are not a list": bag(list, floats, nil, embedding.BagOptions{}),
		} {
			if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), strings.SplitN(want, " R are", 2)[0]) ||
				!strings.HasPrefix(err.Error(), "embedding: ") {
				return fmt.Errorf("got %v, want an error with %q", err, want)
			}
		}
		return comm.Barrier(ctx, m.Comm())
	})
}

// TestTable makes tables: the same numbers in every layout, zeros for padding.
func TestTable(t *testing.T) {
	var want []float64
	for _, mesh := range [][]int{{1, 1}, {2, 2}, {1, 3}, {4, 1}} {
		for _, l := range []embedding.Layout{embedding.Replicated(), embedding.RowWise("b"), embedding.RowWise("a", "b"),
			embedding.ColumnWise("a"), embedding.Grid("b", "a")} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				table := embedding.NewTable(m, embedding.Config{Name: "words", Rows: 10, Dim: 3, Layout: l, Std: 0.5, PaddingIdx: new(-2)})
				full := tensor.ToSlice[float32](table.Weight().Full())
				if m.Comm().Rank() == 0 && want == nil {
					for _, v := range full {
						want = append(want, float64(v))
					}
				}
				if err := comm.Barrier(ctx, m.Comm()); err != nil {
					return err
				}
				for j := range 3 {
					if full[8*3+j] != 0 || full[7*3+j] == 0 {
						return fmt.Errorf("rows 7 and 8 are %v", full[7*3:9*3])
					}
				}
				if err := near("table", table.Weight().Full(), want); err != nil {
					return err
				}
				y := table.Lookup(meshtest.Place(m, []int64{8, 9}, []int{2}, replicate, replicate))
				return near("output", y.Full(), want[8*3:])
			})
		}
	}
	meshtest.On(t, []int{4}, func(ctx context.Context, m *dtensor.Mesh) error {
		table := embedding.NewTable(m, embedding.Config{Rows: 8, Dim: 3, Layout: embedding.RowWiseSizes("a", 1, 3, 1, 3)})
		if got := table.Weight().Local().Dim(0); got != []int{1, 3, 1, 3}[m.Comm().Rank()] {
			return fmt.Errorf("this rank holds %d rows", got)
		}
		return nil
	})
}

// TestOutsideTheMesh: a rank that is in no position holds empty tensors, makes
// the same calls and takes part in nothing.
func TestOutsideTheMesh(t *testing.T) {
	for _, wp := range []layout.Placement{replicate, shard0, shard1} {
		for _, ip := range []layout.Placement{replicate, shard0, shard1} {
			commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
				m, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "a", Size: 2})
				if err != nil {
					return err
				}
				table, ids := meshtest.Numbers(12, 1, 1), []int64{5, 0, 3, 3}
				w, x := meshtest.Place(m, table, []int{6, 2}, wp), meshtest.Place(m, ids, []int{2, 2}, ip)
				l, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					y := embedding.Lookup(w, x, embedding.Options{MaxNorm: new(100.0)})
					bags := embedding.Bag(w, x, nil, nil, embedding.BagOptions{})
					if fmt.Sprint(y.Shape(), bags.Shape()) != "[2 2 2] [2 2]" {
						panic(fmt.Sprint(y.Shape(), bags.Shape()))
					}
					return y.Sum(nil, false).Add(bags.Sum(nil, false))
				}, w)
				if err != nil {
					return fmt.Errorf("rank %d: %w", world.Rank(), err)
				}
				if world.Rank() == 1 {
					if n := l.Local().Numel() + w.Local().Numel(); n != 0 && l.Local().NDim() > 0 {
						return fmt.Errorf("the rank outside holds %d elements", n)
					}
					return nil
				}
				ones := []float64{1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5} // itself, and half of a mean of two
				return near("gradient", grads[0].Dense().Full(), gradOf(6, 2, ids, ones, -1, false))
			})
		}
	}
}
