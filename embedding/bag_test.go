package embedding_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
)

// TestBags tries every mode with bags of any length, empty ones and all padding
// among them, in every layout.
func TestBags(t *testing.T) {
	const rows, width = 7, 3
	ids := []int64{3, 3, 6, 2, 2, 0, 1, 5, 2, 4, 6}
	starts := []int{0, 0, 3, 5, 9, 11, 11}
	for _, mesh := range [][]int{{1}, {2}, {3}, {4}, {2, 2}} {
		for _, mode := range []embedding.Mode{embedding.Mean, embedding.Sum, embedding.Max} {
			for _, padding := range []int{-1, 2} {
				for _, weighted := range []bool{false, true} {
					if weighted && mode != embedding.Sum {
						continue
					}
					t.Run(fmt.Sprintf("%v/%v/padding=%d/weighted=%v", mesh, mode, padding, weighted), func(t *testing.T) {
						meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
							p := &pooled{rows: rows, width: width, table: meshtest.Numbers(rows*width, 1, 1), ids: ids, starts: starts, padding: padding,
								mode: mode, length: -1}
							if weighted {
								p.factors = meshtest.Numbers(len(ids), 8, 1)
							}
							for i, wp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
								for _, ip := range meshtest.Combinations(len(mesh), replicate, shard0) {
									p.last = i%2 == 0
									if err := p.check(ctx, m, wholeBags(wp, ip)); err != nil {
										return fmt.Errorf("weight %v, ids %v: %w", wp, ip, err)
									}
								}
							}
							return nil
						})
					})
				}
			}
		}
	}
}

// TestBagsOfOneLength shards the ids by bags, within bags, and not at all.
func TestBagsOfOneLength(t *testing.T) {
	const rows, width = 7, 2
	ids := []int64{3, 3, 6, 2, 2, 2, 1, 5, 2, 4, 6, 0, 0, 1, 5, 6, 4, 6}
	starts := []int{0, 3, 6, 9, 12, 15, 18}
	for _, mesh := range [][]int{{1}, {2}, {4}, {2, 2}} {
		shards := meshtest.Combinations(len(mesh), replicate, shard0, shard1)
		if len(mesh) == 2 {
			shards = append(shards, []layout.Placement{shard0, layout.ShardSizes(0, 1, 2)})
		}
		for _, mode := range []embedding.Mode{embedding.Mean, embedding.Sum, embedding.Max} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				p := &pooled{rows: rows, width: width, table: meshtest.Numbers(rows*width, 1, 1), ids: ids, starts: starts, padding: 2, mode: mode,
					length: 3}
				if mode == embedding.Sum {
					p.factors = meshtest.Numbers(len(ids), 8, 1)
				}
				for _, wp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
					for _, ip := range shards {
						if err := p.check(ctx, m, wholeBags(wp, ip)); err != nil {
							return fmt.Errorf("%v, weight %v, ids %v: %w", mode, wp, ip, err)
						}
					}
				}
				return nil
			})
		}
	}
}

// TestMaxOfEqualRows gives the gradient to the first id, whichever rank has its row.
func TestMaxOfEqualRows(t *testing.T) {
	table := slices.Repeat([]float64{1, -2}, 6)
	table[4] = math.Inf(-1)
	for _, ids := range [][]int64{{5, 0, 3}, {0, 5}, {2, 2}} {
		meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
			p := &pooled{rows: 6, width: 2, table: table, ids: ids, starts: []int{0, len(ids)}, padding: -1, mode: embedding.Max}
			out, dTable, _, _ := p.run([]float64{1, 1})
			w, x := meshtest.Place(m, table, []int{6, 2}, shard0), meshtest.Place(m, ids, []int{len(ids)}, replicate)
			offsets := meshtest.Place(m, []int64{0}, []int{1}, replicate)
			var got []float64
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				y := embedding.Bag(w, x, offsets, nil, embedding.BagOptions{Mode: embedding.Max})
				got = floats(y)
				return y.Sum(nil, false)
			}, w)
			if err != nil {
				return err
			}
			if !slices.Equal(got, out) {
				return fmt.Errorf("maxima %v, want %v", got, out)
			}
			return near("gradient", grads[0].Dense().Full(), dTable)
		})
	}
}

// TestBagMaxNorm changes the rows of all ids, padding too, before they are pooled.
func TestBagMaxNorm(t *testing.T) {
	p := &pooled{rows: 7, width: 2, table: meshtest.Numbers(14, 1, 1), ids: []int64{6, 1, 1, 3}, starts: []int{0, 2, 4}, padding: 3,
		mode: embedding.Sum, norm: 0.4, length: -1}
	for _, wp := range []layout.Placement{replicate, shard0, shard1} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			return p.check(ctx, m, wholeBags(one(wp), one(replicate)))
		})
	}
}
