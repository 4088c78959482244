package dtensor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// A MaskPartial tensor goes to every other layout that keeps its mask, and the mask goes
// with its rows, whether it knows their owners or not. Ids go to any other mask too.
func TestMaskMoves(t *testing.T) {
	R, S := layout.Replicate(), layout.Shard
	for _, mesh := range testenv.Fewer([][]int{{2}, {2, 2}, {3, 2}, {2, 1, 2}}, 2) {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			rng := rand.New(rand.NewPCG(18, 15))
			for trial := range 60 {
				V, D := 1+rng.IntN(9), 1+rng.IntN(3)
				shape := [][]int{{6}, {5}, {1}, {0}, {2, 3}, {3, 1}, {4, 3}}[rng.IntN(7)]
				data := make([]int64, ints.Product(shape))
				for i := range data {
					data[i] = int64(rng.IntN(V))
				}
				mask := layout.MaskPartial([]int{V, D}, 0)
				// Each axis masks rows, or shards ids and rows, then columns, or nothing.
				p := func(dims int) []layout.Placement {
					list := make([]layout.Placement, len(mesh))
					for axis := range list {
						if d := rng.IntN(dims + 1); d < dims {
							list[axis] = S(d)
						}
					}
					return list
				}
				from, to, ids := p(len(shape)+1), p(len(shape)+1), p(len(shape))
				masked := slices.Clone(ids)
				table := make([]layout.Placement, len(mesh))
				for axis := range mesh {
					if axis == trial%len(mesh) || rng.IntN(3) == 0 {
						from[axis], to[axis], masked[axis], ids[axis], table[axis] = mask, mask, mask, R, S(0)
					} else if from[axis].Shards(len(shape)) {
						ids[axis], table[axis], masked[axis] = R, S(1), R
					} else {
						ids[axis], masked[axis] = from[axis], from[axis]
					}
				}
				var want []float32
				for _, id := range data {
					for d := range D {
						want = append(want, float32(int(id)*D+d+1))
					}
				}
				label := fmt.Sprintf("trial %d: table [%d %d], ids %v, %v → %v", trial, V, D, shape, from, to)
				err := accounted(m, func() error {
					return dtensor.Try(ctx, m, func() {
						w := dtensor.Distribute(m, numbers(m, []int{V, D}), table...)
						at := dtensor.Distribute(m, tensor.FromSlice(m.Device(), data, shape...), ids...)
						h := ownedLookup(m, w, at, append(slices.Clone(shape), D), from)
						if trial%2 == 0 { // nobody knows who owns a row
							h = m.Wrap("place", h.ToLocal(), dtensor.NewMask(h.Mask().Masked(), 0), false, h.Shape(), from...)
						}
						held := h.Scale(2).Redistribute(to...)
						if got := held.Placements(); !slices.Equal(got, to) {
							failf("%s: became %v", label, held)
						}
						for _, y := range []T{held, held.Redistribute(from...), held.Reshape(-1, D)} {
							if got := tensor.ToSlice[float32](y.Scale(0.5).Full()); !slices.Equal(got, want) {
								failf("%s: %v is %v, want %v", label, y, got, want)
							}
						}
						// Ids keep a mask, or get another.
						shifted := at.Redistribute(masked...)
						other := slices.Clone(masked)
						other[rng.IntN(len(other))] = layout.MaskPartial([]int{V, D}, 0)
						elsewhere := slices.Repeat([]layout.Placement{R}, len(mesh))
						elsewhere[len(mesh)-1] = layout.MaskPartial([]int{V + 3, 1}, 0)
						for _, next := range [][]layout.Placement{p(len(shape)), other, elsewhere} {
							for axis := range mesh {
								if !slices.Equal(next, elsewhere) && masked[axis].IsMask() {
									next[axis] = mask
								}
							}
							y := shifted.Redistribute(next...)
							if got := tensor.ToSlice[int64](y.Full()); !slices.Equal(got, data) || !slices.Equal(y.Placements(), next) {
								failf("%s: ids %v → %v are %v, want %v", label, shifted, y, got, data)
							}
							if got := tensor.ToSlice[int64](y.Redistribute(masked...).Full()); !slices.Equal(got, data) {
								failf("%s: ids %v → %v and back are %v, want %v", label, shifted, y, got, data)
							}
						}
					})
				})
				if err != nil {
					return fmt.Errorf("%s: %w", label, err)
				}
			}
			return nil
		})
	}
}

// Gather by a masked index along a sharded dimension gives a masked result, without a
// collective; it and its gradient are those of the whole tensor.
func TestGatherStaysMasked(t *testing.T) {
	R, S := layout.Replicate(), layout.Shard
	for _, c := range []struct {
		mesh     []int
		x, index []layout.Placement // MaskPartial stands where the index is to be masked
	}{
		{[]int{3}, []layout.Placement{S(1)}, []layout.Placement{R}},
		{[]int{4}, []layout.Placement{S(1)}, []layout.Placement{R}},
		{[]int{2, 2}, []layout.Placement{S(1), S(1)}, []layout.Placement{R, R}},
		{[]int{2, 2}, []layout.Placement{S(0), S(1)}, []layout.Placement{S(0), R}},
		{[]int{2, 2}, []layout.Placement{S(1), R}, []layout.Placement{R, S(1)}},
		{[]int{2, 1, 2}, []layout.Placement{R, S(1), S(1)}, []layout.Placement{R, R, R}},
	} {
		onMesh(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			x := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1, []int{4, 5}, c.x...)
			at := dtensor.Uniform(m, dtensor.Key{Seed: 2}, 0, 5, []int{4, 7}, c.index...).Cast(tensor.Int64)
			masked := slices.Clone(c.index)
			for axis, p := range c.x {
				if p.Shards(1) {
					masked[axis] = layout.MaskPartial(x.Shape(), 1)
				}
			}
			var results [2][]float32
			for k, index := range []T{at, at.Redistribute(masked...)} {
				_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
					var y T
					calls := counted(m, func() { y = x.Gather(1, index) }).Total().Calls
					for axis, p := range y.Placements() {
						if k == 1 && (p.IsMask() != masked[axis].IsMask() || calls > 0) {
							failf("%v gathered by %v is %v, with %d collectives", x, index, y, calls)
						}
					}
					y = y.Scale(2).Reshape(7, 4) // masks stay with the elements
					results[k] = append(results[k], tensor.ToSlice[float32](y.Full())...)
					return y.Mul(y).Sum(nil, false)
				}, x)
				if err != nil {
					return err
				}
				if err := dtensor.Try(ctx, m, func() {
					results[k] = append(results[k],
						tensor.ToSlice[float32](grads[0].Dense().Full())...)
				}); err != nil {
					return err
				}
			}
			if !slices.EqualFunc(results[0], results[1], func(a, b float32) bool { return a-b < 1e-5 && b-a < 1e-5 }) {
				return fmt.Errorf("%v by %v: %v, want %v", c.x, masked, results[1], results[0])
			}
			return nil
		})
	}
}
