package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// meshes are the mesh shapes that lookups are tried on.
var meshes = testenv.Fewer([][]int{{1}, {2}, {3}, {4}, {2, 2}, {1, 3}, {2, 1}}, 2, 4)

// A size is a table and ids: many, few, none, more ranks than rows.
type size struct {
	rows, width int
	ids         []int
}

var sizes = []size{
	{11, 5, []int{3, 4}},
	{3, 2, []int{7}},
	{8, 1, []int{0, 3}},
	{5, 3, []int{1}},
	{1, 4, []int{2, 3}},
	{0, 3, []int{0, 2}},
}

// TestEveryLayout compares values and gradients with the loops, for every
// placement of table and ids on every axis.
func TestEveryLayout(t *testing.T) {
	weights := []layout.Placement{replicate, shard0, shard1}
	for _, mesh := range meshes {
		for _, s := range sizes {
			t.Run(fmt.Sprintf("%v/%v", mesh, s), func(t *testing.T) {
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					idOptions := []layout.Placement{replicate}
					for d := range s.ids {
						idOptions = append(idOptions, layout.Shard(d))
					}
					for i, w := range meshtest.Combinations(len(mesh), weights...) {
						for j, at := range meshtest.Combinations(len(mesh), idOptions...) {
							o := embedding.Options{}
							if i%2 == 0 && s.rows > 0 {
								o.PaddingIdx = new(-1)
							}
							o.ScaleGradByFreq = j%2 == 1
							if err := checkLookup(ctx, m, double, s, w, at, o); err != nil {
								return fmt.Errorf("weight %v, ids %v: %w", w, at, err)
							}
						}
					}
					return nil
				})
			})
		}
	}
}

func checkLookup(ctx context.Context, m *dtensor.Mesh, p precision, s size, weight, at []layout.Placement, o embedding.Options) error {
	n := 1
	for _, d := range s.ids {
		n *= d
	}
	table, ids := p.numbers(meshtest.Numbers(s.rows*s.width, 1, 1)), someIDs(n, s.rows, 3)
	gy := p.numbers(meshtest.Numbers(n*s.width, 2, 1))
	w, x := p.place(m, table, []int{s.rows, s.width}, weight...), meshtest.Place(m, ids, s.ids, at...)
	whole := make([]layout.Placement, len(at))
	g := meshtest.Place(m, gy, append(slices.Clone(s.ids), s.width), whole...)
	after := table
	if o.MaxNorm != nil {
		after = renormed(table, s.width, ids, *o.MaxNorm, *o.NormType)
	}
	var failed error
	record := m.Comm().Record()
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		y := embedding.Lookup(w, x, o)
		failed = p.near("output", y.Full(), lookUp(after, s.width, ids), 0)
		return y.Cast(tensor.Float64).Mul(g).Sum(nil, false)
	}, w)
	events := record.Stop()
	if err != nil || failed != nil {
		return fmt.Errorf("%v %v", err, failed)
	}
	if err := p.near("table", w.Full(), after, 0); err != nil {
		return err
	}
	ranks := m.Comm().Size()
	most := 8 * max(n*(s.width+2), ranks*(ranks+2)) // each id once, with its row and a count, or the heads of all ranks
	if err := lookupTally(m, weight, at, o.MaxNorm != nil).check(events, "Lookup", most); err != nil {
		return err
	}
	padding := -1
	if o.PaddingIdx != nil {
		padding = *o.PaddingIdx + s.rows
	}
	rows, ok := grads[0].Rows()
	if !ok {
		return errors.New("the gradient is not sparse")
	}
	if n := rows.Index.Numel(); n > len(ids) {
		return fmt.Errorf("the gradient has %d rows for %d ids", n, len(ids))
	}
	return p.near("gradient", rows.Dense().Full(), gradOf(s.rows, s.width, ids, gy, padding, o.ScaleGradByFreq), 0)
}

// TestUnevenShards looks up in a table whose shards have explicit sizes, one of
// them empty, with ids of explicit sizes.
func TestUnevenShards(t *testing.T) {
	s := size{9, 3, []int{6}}
	meshtest.On(t, []int{4}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, w := range []layout.Placement{layout.ShardSizes(0, 1, 0, 6, 2), layout.ShardSizes(1, 0, 2, 1, 0)} {
			for _, at := range []layout.Placement{replicate, shard0, layout.ShardSizes(0, 3, 0, 1, 2)} {
				if err := checkLookup(ctx, m, double, s, []layout.Placement{w}, []layout.Placement{at}, embedding.Options{}); err != nil {
					return fmt.Errorf("weight %v, ids %v: %w", w, at, err)
				}
			}
		}
		return nil
	})
}

// TestUnevenShardsOfShards looks up where one axis divides in explicit sizes what
// another left over, and that other has to be undone, of ids or of columns.
func TestUnevenShardsOfShards(t *testing.T) {
	meshtest.On(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, w := range meshtest.Combinations(2, replicate, shard0, shard1) {
			for _, rows := range []int{6, 7} { // 7: the ranks of one axis have not as much
				at := []layout.Placement{shard0, layout.ShardSizes(0, 3, 1)}
				if err := checkLookup(ctx, m, double, size{rows, 3, []int{8, 3}}, w, at, embedding.Options{}); err != nil {
					return fmt.Errorf("weight %v, ids %v: %w", w, at, err)
				}
			}
		}
		w := []layout.Placement{shard1, layout.ShardSizes(1, 0, 2)}
		for _, at := range meshtest.Combinations(2, replicate, shard0, shard1) {
			if err := checkLookup(ctx, m, double, size{5, 4, []int{4, 3}}, w, at, embedding.Options{}); err != nil {
				return fmt.Errorf("weight %v, ids %v: %w", w, at, err)
			}
		}
		return nil
	})
}

// TestMaxNorm compares the changed table and the result with the loop, for every
// layout: only rows that were looked up change, on every replica alike.
func TestMaxNorm(t *testing.T) {
	const rows, width = 9, 4
	table, ids := meshtest.Numbers(rows*width, 5, 1), []int64{8, 1, 4, 1, 0, 4}
	for _, mesh := range [][]int{{1}, {2}, {3}, {2, 2}} {
		for _, p := range []float64{1, 2, 3, math.Inf(1)} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				want := renormed(table, width, ids, 0.7, p)
				for _, wp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
					for _, ip := range meshtest.Combinations(len(mesh), replicate, shard0) {
						w, x := meshtest.Place(m, table, []int{rows, width}, wp...), meshtest.Place(m, ids, []int{len(ids)}, ip...)
						y := embedding.Lookup(w, x, embedding.Options{MaxNorm: new(0.7), NormType: new(p)})
						if err := near("table", w.Full(), want); err != nil {
							return fmt.Errorf("p %v, weight %v, ids %v: %w", p, wp, ip, err)
						}
						if err := near("output", y.Full(), lookUp(want, width, ids)); err != nil {
							return fmt.Errorf("p %v, weight %v, ids %v: %w", p, wp, ip, err)
						}
						// Every replica has the same, not only the first.
						local := dtensor.Distribute(m, meshtest.Place(m, want, []int{rows, width}, make([]layout.Placement, len(mesh))...).Local(), wp...)
						if err := near("local table", w.Local(), floats(local)); err != nil {
							return fmt.Errorf("p %v, weight %v, ids %v: %w", p, wp, ip, err)
						}
					}
				}
				return nil
			})
		}
	}
}

// TestMaxNormWhereNothingIsMasked: one rank owns every id and the other none.
func TestMaxNormWhereNothingIsMasked(t *testing.T) {
	const rows, width = 6, 3
	table := meshtest.Numbers(rows*width, 5, 1)
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, ids := range [][]int64{{0, 1, 2, 1}, {3, 5, 4}} {
			w, x := meshtest.Place(m, table, []int{rows, width}, shard0), meshtest.Place(m, ids, []int{len(ids)}, replicate)
			embedding.Lookup(w, x, embedding.Options{MaxNorm: new(0.2)})
			if err := near("table", w.Full(), renormed(table, width, ids, 0.2, 2)); err != nil {
				return fmt.Errorf("ids %v: %w", ids, err)
			}
		}
		return nil
	})
}

// TestTiedHead gives a table both kinds of gradient: rows from the lookup, dense
// from a product.
func TestTiedHead(t *testing.T) {
	const rows, width = 7, 3
	table, ids := meshtest.Numbers(rows*width, 1, 1), []int64{2, 6, 2}
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		w, x := meshtest.Place(m, table, []int{rows, width}, shard0), meshtest.Place(m, ids, []int{3}, replicate)
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return embedding.Lookup(w, x, embedding.Options{}).Linear(w, nil).Sum(nil, false)
		}, w)
		if err != nil {
			return err
		}
		// Σ_i Σ_v Σ_j table[ids[i]][j]·table[v][j]
		want := make([]float64, len(table))
		for _, id := range ids {
			for v := range rows {
				for j := range width {
					want[int(id)*width+j] += table[v*width+j]
					want[v*width+j] += table[int(id)*width+j]
				}
			}
		}
		return near("gradient", grads[0].Dense().Full(), want)
	})
}
