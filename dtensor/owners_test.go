package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// ownedLookup is a lookup whose mask knows the owners; rows of other ranks are
// NaN, so that any that is read shows.
func ownedLookup(m *dtensor.Mesh, table, ids *dtensor.Tensor, shape []int, p []layout.Placement) *dtensor.Tensor {
	offset, _ := table.Offset()
	part, list := table.Local(), tensor.ToSlice[int64](ids.Local())
	rows, width := part.Dim(0), part.Dim(1)
	values := tensor.ToSlice[float32](part)
	var local []float32
	masked := make([]float64, len(list))
	for i, id := range list {
		at := int(id) - offset[0]
		if at < 0 || at >= rows {
			masked[i] = 1
			local = append(local, slices.Repeat([]float32{float32(math.NaN())}, width)...)
			continue
		}
		local = append(local, values[at*width:at*width+width]...)
	}
	flags := tensor.CompareScalar(kernel.OpNe, tensor.FromSlice(m.Device(), masked, len(masked)), 0)
	mask := dtensor.NewMask(flags, 0).OwnedBy(table.Layout(), 0, ids.Local())
	out := tensor.FromSlice(m.Device(), local, append(slices.Clone(ids.LocalShape()), width)...)
	return m.Wrap("lookup", out, mask, false, shape, p...)
}

// Rows come from their owners in one collective, whatever they are brought to,
// and the rows of others are never read.
func TestRowsFromOwners(t *testing.T) {
	R, S := layout.Replicate(), layout.Shard
	for _, mesh := range [][]int{{1}, {2}, {3}, {4}, {2, 2}, {2, 1, 2}} {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			rng := rand.New(rand.NewPCG(8, 9))
			for trial := range 60 {
				V, D := 1+rng.IntN(9), 1+rng.IntN(5)
				shape := [][]int{{6}, {5}, {1}, {0}, {2, 3}, {3, 1}, {4, 3}}[rng.IntN(7)]
				ids := make([]int64, ints.Product(shape))
				for i := range ids {
					ids[i] = int64(rng.IntN(V))
				}
				if trial%4 == 0 {
					slices.Sort(ids)
				}
				full := append(slices.Clone(shape), D)
				// Each axis shards the rows, the ids, the columns, or nothing.
				table, at := make([]layout.Placement, len(mesh)), make([]layout.Placement, len(mesh))
				from, to := make([]layout.Placement, len(mesh)), make([]layout.Placement, len(mesh))
				masks := 0
				for axis := range mesh {
					switch rng.IntN(4) {
					case 0, 1:
						table[axis], from[axis] = S(0), layout.MaskPartial([]int{V, D}, 0)
						if mesh[axis] > 1 {
							masks++
						}
					case 2:
						d := rng.IntN(len(shape))
						at[axis], from[axis] = S(d), S(d)
					default:
						table[axis], from[axis] = S(1), S(len(shape))
					}
					to[axis] = []layout.Placement{R, S(0), S(len(shape)), from[axis]}[rng.IntN(4)]
					if to[axis].IsMask() {
						to[axis] = R
					}
				}
				if !slices.ContainsFunc(from, layout.Placement.IsMask) {
					continue
				}
				label := fmt.Sprintf("trial %d: table [%d %d] %v, ids %v %v of %v → %v", trial, V, D, table, ids, at, from, to)
				var want []float32
				for _, id := range ids {
					for d := range D {
						want = append(want, float32(int(id)*D+d+1))
					}
				}
				err := dtensor.Try(ctx, m, func() {
					w := dtensor.Distribute(m, numbers(m, []int{V, D}), table...)
					h := ownedLookup(m, w, dtensor.Distribute(m, tensor.FromSlice(m.Device(), ids, shape...), at...), full, from)
					h.Redistribute(to...) // groups are made
					record := m.Comm().Record()
					y := h.Redistribute(to...)
					record.Stop()
					only := true // only masks change
					for axis := range mesh {
						only = only && (from[axis].IsMask() || from[axis] == to[axis])
					}
					if calls := record.Stats().Total().Calls; only && len(mesh) == 1 && calls != min(masks, 1) {
						failf("%s: %d collectives", label, calls)
					}
					for _, z := range []T{y, h.Reduced(), h.Scale(2).Scale(0.5).Reduced()} {
						if got := tensor.ToSlice[float32](z.Full()); !slices.Equal(got, want) {
							failf("%s: %v is %v, want %v", label, z, got, want)
						}
					}
				})
				if err != nil {
					return fmt.Errorf("%s: %w", label, err)
				}
			}
			return nil
		})
	}
}

// To Shard each rank sends the rows that others want of it and no more: to
// Replicate its rows, half the bytes of a sum with zeros.
func TestRowsFromOwnersBytes(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		return dtensor.Try(ctx, m, func() {
			w := dtensor.Distribute(m, numbers(m, []int{8, 4}), layout.Shard(0))
			ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{7, 0, 1, 6, 2, 5, 4, 3}, 8), layout.Replicate())
			h := ownedLookup(m, w, ids, []int{8, 4}, []layout.Placement{layout.MaskPartial([]int{8, 4}, 0)})
			for _, c := range []struct {
				to   layout.Placement
				want string
			}{
				{layout.Replicate(), "AllToAllV 64"}, // its 4 rows of 16 bytes to the other
				{layout.Shard(0), "AllToAllV 32"},    // 2 of them
				{layout.Shard(1), "AllToAllV 32"},    // the halves of all
			} {
				record := m.Comm().Record()
				h.Redistribute(c.to)
				var got []string
				for _, e := range record.Stop() {
					got = append(got, fmt.Sprintf("%v %d", e.Kind, e.Bytes))
				}
				if !slices.Equal(got, []string{c.want}) {
					failf("to %v: %v, want %s", c.to, got, c.want)
				}
			}
		})
	})
}

// BenchmarkMaskPartial reduces [8192, 256] rows of random ids over two ranks,
// from their owners and as a sum with zeros.
func BenchmarkMaskPartial(b *testing.B) {
	const V, D, n = 131072, 256, 8192
	for _, to := range []layout.Placement{layout.Replicate(), layout.Shard(0)} {
		for _, owned := range []bool{true, false} {
			b.Run(fmt.Sprintf("to %v, owned %v", to, owned), func(b *testing.B) {
				onMesh(b, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
					rng := rand.New(rand.NewPCG(1, 2))
					ids := make([]int64, n)
					for i := range ids {
						ids[i] = rng.Int64N(V)
					}
					w := dtensor.Zeros(m, tensor.Float32, []int{V, D}, layout.Shard(0))
					at := dtensor.Distribute(m, tensor.FromSlice(m.Device(), ids, n), layout.Replicate())
					offset, _ := w.Offset()
					rows := w.Local().Dim(0)
					for i := range b.N + 1 {
						if i == 1 && m.Coord()[0] == 0 {
							b.ResetTimer()
						}
						err := dtensor.Try(ctx, m, func() {
							own := tensor.Clamp(at.Local(), float64(offset[0]), float64(offset[0]+rows-1))
							mask := dtensor.NewMask(tensor.Compare(kernel.OpNe, at.Local(), own), 0)
							if owned {
								mask.OwnedBy(w.Layout(), 0, at.Local())
							}
							local := tensor.New(m.Device(), tensor.Float32, n, D)
							tensor.TakeRowsTo(local, w.Local(), at.Local(), offset[0], !owned)
							m.Wrap("lookup", local, mask, !owned, []int{n, D}, layout.MaskPartial([]int{V, D}, 0)).Redistribute(to)
						})
						if err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
