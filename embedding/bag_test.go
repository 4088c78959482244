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

// A pooled is a lookup of bags, whole.
type pooled struct {
	rows, width int
	table       []float64
	ids         []int64
	starts      []int // of the bags, and the end of the last
	factors     []float64
	padding     int
	mode        embedding.Mode
}

// forward and gradients of the bags as loops; gy is [bags, width].
func (p *pooled) run(gy []float64) (out, dTable, dFactors []float64) {
	bags := len(p.starts) - 1
	out, dTable, dFactors = make([]float64, bags*p.width), make([]float64, len(p.table)), make([]float64, len(p.ids))
	for b := range bags {
		var used []int
		for i := p.starts[b]; i < p.starts[b+1]; i++ {
			if int(p.ids[i]) != p.padding {
				used = append(used, i)
			}
		}
		for j := range p.width {
			at := func(i int) int { return int(p.ids[i])*p.width + j }
			o, g := &out[b*p.width+j], gy[b*p.width+j]
			if p.mode == embedding.Max {
				best := -1
				for _, i := range used {
					if best < 0 || p.table[at(i)] > p.table[at(best)] {
						best = i
					}
				}
				if best >= 0 {
					*o = p.table[at(best)]
					dTable[at(best)] += g
				}
				continue
			}
			for _, i := range used {
				f := 1.0
				switch {
				case p.mode == embedding.Mean:
					f = 1 / float64(len(used))
				case p.factors != nil:
					f = p.factors[i]
				}
				*o += f * p.table[at(i)]
				dTable[at(i)] += f * g
				dFactors[i] += p.table[at(i)] * g
			}
		}
	}
	return out, dTable, dFactors
}

// check runs the bags on the mesh in the given layouts.
func (p *pooled) check(ctx context.Context, m *dtensor.Mesh, weight, at []layout.Placement, fixed, last bool) error {
	bags := len(p.starts) - 1
	gy := meshtest.Numbers(bags*p.width, 3, 1)
	out, dTable, dFactors := p.run(gy)
	whole := make([]layout.Placement, len(weight))
	w := meshtest.Place(m, p.table, []int{p.rows, p.width}, weight...)
	shape := []int{len(p.ids)}
	var offsets, factors *dtensor.Tensor
	if fixed {
		shape = []int{bags, p.starts[1]}
	} else {
		var list []int64
		for _, s := range p.starts {
			list = append(list, int64(s))
		}
		if !last {
			list = list[:bags]
		}
		offsets = meshtest.Place(m, list, []int{len(list)}, whole...)
	}
	x := meshtest.Place(m, p.ids, shape, at...)
	params := []*dtensor.Tensor{w}
	if p.factors != nil {
		factors = meshtest.Place(m, p.factors, shape, whole...)
		params = append(params, factors)
	}
	o := embedding.BagOptions{Mode: p.mode, IncludeLastOffset: last}
	if p.padding >= 0 {
		o.PaddingIdx = &p.padding
	}
	g := meshtest.Place(m, gy, []int{bags, p.width}, whole...)
	var failed error
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		y := embedding.Bag(w, x, offsets, factors, o)
		failed = near("output", y.Full(), out)
		return y.Mul(g).Sum(nil, false)
	}, params...)
	if err != nil || failed != nil {
		return fmt.Errorf("%v %v", err, failed)
	}
	if _, ok := grads[0].Rows(); !ok {
		return fmt.Errorf("the gradient of the table is dense")
	}
	if err := near("gradient of the table", grads[0].Dense().Full(), dTable); err != nil {
		return err
	}
	if factors != nil {
		return near("gradient of the weights", grads[1].Dense().Full(), dFactors)
	}
	return nil
}

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
							p := &pooled{rows: rows, width: width, table: meshtest.Numbers(rows*width, 1, 1), ids: ids, starts: starts, padding: padding, mode: mode}
							if weighted {
								p.factors = meshtest.Numbers(len(ids), 8, 1)
							}
							for i, wp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
								for _, ip := range meshtest.Combinations(len(mesh), replicate, shard0) {
									if err := p.check(ctx, m, wp, ip, false, i%2 == 0); err != nil {
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
	ids := []int64{3, 3, 6, 2, 2, 2, 1, 5, 2, 4, 6, 0, 0, 1, 5}
	starts := []int{0, 3, 6, 9, 12, 15}
	for _, mesh := range [][]int{{1}, {2}, {4}, {2, 2}} {
		for _, mode := range []embedding.Mode{embedding.Mean, embedding.Sum, embedding.Max} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				p := &pooled{rows: rows, width: width, table: meshtest.Numbers(rows*width, 1, 1), ids: ids, starts: starts, padding: 2, mode: mode}
				if mode == embedding.Sum {
					p.factors = meshtest.Numbers(len(ids), 8, 1)
				}
				for _, wp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
					for _, ip := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
						if err := p.check(ctx, m, wp, ip, true, false); err != nil {
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
			out, dTable, _ := p.run([]float64{1, 1})
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
	table, ids := meshtest.Numbers(14, 1, 1), []int64{6, 1, 1, 3}
	want := renormed(table, 2, ids, 0.4, 2)
	p := &pooled{rows: 7, width: 2, table: want, ids: ids, starts: []int{0, 2, 4}, padding: 3, mode: embedding.Sum}
	out, _, _ := p.run(make([]float64, 4))
	for _, wp := range []layout.Placement{replicate, shard0, shard1} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			w, x := meshtest.Place(m, table, []int{7, 2}, wp), meshtest.Place(m, ids, []int{4}, replicate)
			y := embedding.Bag(w, x, meshtest.Place(m, []int64{0, 2}, []int{2}, replicate), nil,
				embedding.BagOptions{Mode: embedding.Sum, Options: embedding.Options{MaxNorm: new(0.4), PaddingIdx: new(3)}})
			if err := near("table", w.Full(), want); err != nil {
				return err
			}
			return near("output", y.Full(), out)
		})
	}
}
