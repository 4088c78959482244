package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// lookup is a row-wise lookup as a test needs it: ids MaskP, table S(0).
func lookup(m *dtensor.Mesh, table, ids *dtensor.Tensor) *dtensor.Tensor {
	mask := ids.Mask()
	local := tensor.New(m.Device(), tensor.Float32, ids.Numel(), table.Dim(1))
	if table.Local().Dim(0) > 0 {
		local = tensor.IndexSelect(table.Local(), 0, ids.Local())
	}
	return m.Wrap("lookup", local, mask, false, []int{ids.Numel(), table.Dim(1)}, ids.Placements()...)
}

func TestMaskPartial(t *testing.T) {
	for _, mesh := range [][]int{{1}, {2}, {3}, {4}, {2, 2}} {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			const V, D = 7, 3
			ids := []int64{6, 0, 3, 3, 5}
			replicated := make([]layout.Placement, len(mesh))
			masked, rows := slices.Clone(replicated), slices.Clone(replicated)
			for i := range masked {
				masked[i], rows[i] = layout.MaskPartial([]int{V, D}, 0), layout.Shard(0)
			}
			table := dtensor.Distribute(m, numbers(m, []int{V, D}), rows...)
			whole := dtensor.Distribute(m, tensor.FromSlice(m.Device(), ids, len(ids)), replicated...)
			return dtensor.Try(ctx, m, func() {
				at := whole.Redistribute(masked...)
				if back := at.Redistribute(replicated...); !slices.Equal(tensor.ToSlice[int64](back.Local()), ids) {
					failf("ids came back as %v, want %v", back.Local(), ids)
				}
				h := lookup(m, table, at)
				if !strings.HasSuffix(h.Scale(2).Layout().String(), strings.TrimSuffix(strings.Repeat("MaskP,", len(mesh)), ",")) {
					failf("a scaled lookup is %v", h.Scale(2))
				}
				var want []float32
				for _, id := range ids {
					for d := range D {
						want = append(want, float32(int(id)*D+d+1))
					}
				}
				for range 2 { // reducing twice gives the same answer twice
					if got := tensor.ToSlice[float32](h.Full()); !slices.Equal(got, want) {
						failf("got %v, want %v", got, want)
					}
				}
				for _, f := range []func(h T) T{func(h T) T { return h.Reshape(1, len(ids), D).Reshape(len(ids), D) },
					func(h T) T { return h.Scale(2).Scale(0.5) }, func(h T) T { return h.Transpose(0, 1).Transpose(0, 1) },
					func(h T) T { return h.Cast(tensor.Float64).Cast(tensor.Float32) }, func(h T) T { return h.Redistribute(rows...) },
					func(h T) T { return h.AddScalar(1).AddScalar(-1) }} {
					if got := tensor.ToSlice[float32](f(h).Full()); !slices.Equal(got, want) {
						failf("after an operator: got %v, want %v", got, want)
					}
				}
				owned := 0
				local := tensor.ToSlice[float32](h.ToLocal())
				for i := range ids {
					if local[i*D] != 0 {
						owned++
						if !slices.Equal(local[i*D:i*D+D], want[i*D:i*D+D]) {
							failf("row %d is %v", i, local[i*D:i*D+D])
						}
					}
				}
				if size := m.Size(); size == 1 && owned != len(ids) || size > 1 && owned == len(ids) {
					failf("rank at %v owns %d of %d rows", m.Coord(), owned, len(ids))
				}
			})
		})
	}
}

func TestMaskHolders(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		return dtensor.Try(ctx, m, func() {
			p := layout.MaskPartial([]int{7, 3}, 0)
			at := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 6}, 2), layout.Replicate()).Redistribute(p)
			table := dtensor.Distribute(m, numbers(m, []int{7, 3}), layout.Shard(0))
			a, b := lookup(m, table, at), lookup(m, table, at)
			mask := at.Mask()
			if a.Mask() != mask || b.Mask() != mask || mask.Holders() != 3 {
				failf("%d hold the mask, want 3", mask.Holders())
			}
			for range 3 {
				mask.Release()
			}
			var wrong *dtensor.LayoutError
			if err := dtensor.Try(ctx, m, mask.Release); !errors.As(err, &wrong) {
				failf("a release too many: %v", err)
			}
			if err := dtensor.Try(ctx, m, func() { a.Full() }); !errors.As(err, &wrong) {
				failf("reduced without a mask: %v", err)
			}
		})
	})
}

// Ids that are sharded as well as masked have a mask of their own part, however
// uneven it is, and come back as they were.
func TestMaskOfShards(t *testing.T) {
	for _, mesh := range [][]int{{2, 2}, {2, 1, 2}, {1, 3}} {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			last := mesh[len(mesh)-1]
			replicated := make([]layout.Placement, len(mesh))
			data := []int64{6, 0, 3, 3, 5}
			ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), data, len(data)), replicated...)
			return dtensor.Try(ctx, m, func() {
				for first := range len(data) + 1 {
					sizes := make([]int, last)
					sizes[0], sizes[last-1] = first, len(data)-first
					for _, shard := range []layout.Placement{layout.ShardSizes(0, sizes...), layout.Shard(0)} {
						p := slices.Repeat([]layout.Placement{layout.MaskPartial([]int{7, 3}, 0)}, len(mesh))
						p[len(p)-1] = shard
						at := ids.Redistribute(p...)
						if rows := at.Mask().Masked().Numel(); rows != at.LocalShape()[0] {
							failf("%v: the mask has %d rows, the part %v", at, rows, at.LocalShape())
						}
						if back := at.Full(); !slices.Equal(tensor.ToSlice[int64](back), data) {
							failf("%v: came back as %v", at, back)
						}
					}
				}
			})
		})
	}
}

// A reshape keeps MaskP as long as it does not cut or join rows.
func TestMaskReshape(t *testing.T) {
	onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		p := layout.MaskPartial([]int{7, 3}, 0)
		table := dtensor.Distribute(m, numbers(m, []int{7, 3}), layout.Shard(0))
		return dtensor.Try(ctx, m, func() {
			at := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 6, 4, 2}, 4), layout.Replicate()).Redistribute(p)
			h := lookup(m, table, at)
			want := tensor.ToSlice[float32](h.Full())
			for _, c := range []struct {
				shape  []int
				masked bool
			}{{[]int{2, 2, 3}, true}, {[]int{4, 1, 3}, true}, {[]int{4, 3, 1}, true}, {[]int{12}, false}, {[]int{2, 6}, false}, {[]int{3, 4},
				false}} {
				got := h.Reshape(c.shape...)
				if got.Placements()[0].IsMask() != c.masked {
					failf("%v → %v, want MaskP: %v", h, got, c.masked)
				}
				if v := tensor.ToSlice[float32](got.Full()); !slices.Equal(v, want) {
					failf("%v → %v: %v, want %v", h, got, v, want)
				}
			}
		})
	})
}

// Multiplied or divided by a tensor of one element MaskP stays; ids are brought
// back first.
func TestMaskTimesOne(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		p := layout.MaskPartial([]int{7, 3}, 0)
		table := dtensor.Distribute(m, numbers(m, []int{7, 3}), layout.Shard(0))
		return dtensor.Try(ctx, m, func() {
			at := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 6}, 2), layout.Replicate()).Redistribute(p)
			h := lookup(m, table, at)
			two := dtensor.Full(m, tensor.Float32, 2, []int{1}, layout.Replicate())
			for _, y := range []T{h.Mul(two), h.Div(two)} {
				if !y.Placements()[0].IsMask() || y.Mask() != h.Mask() {
					failf("%v by %v is %v", h, two, y)
				}
			}
			if got := tensor.ToSlice[float32](h.Mul(two).Div(two).Full()); !slices.Equal(got, []float32{4, 5, 6, 19, 20, 21}) {
				failf("got %v", got)
			}
			if got := tensor.ToSlice[int64](at.Mul(two.Cast(tensor.Int64)).Full()); !slices.Equal(got, []int64{2, 12}) {
				failf("ids by two are %v", got)
			}
		})
	})
}

func TestMaskRefusals(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		p := layout.MaskPartial([]int{7, 3}, 0)
		for name, f := range map[string]func(){
			"floats":       func() { dtensor.Zeros(m, tensor.Float32, []int{2}, layout.Replicate()).Redistribute(p) },
			"out of range": func() { dtensor.Full(m, tensor.Int64, 7, []int{2}, layout.Replicate()).Redistribute(p) },
			"rows to another mask": func() {
				ids := dtensor.Zeros(m, tensor.Int64, []int{2}, p)
				lookup(m, dtensor.Zeros(m, tensor.Float32, []int{7, 3}, layout.Shard(0)), ids).Redistribute(layout.MaskPartial([]int{9, 3}, 0))
			},
		} {
			var wrong *dtensor.LayoutError
			if err := dtensor.Try(ctx, m, f); !errors.As(err, &wrong) {
				return fmt.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
}
