package dtensor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits queries, keys and values of one tensor give its gradient in the calls and bytes that it takes without; keys and
// values may be fewer than queries, and have fewer than 128 a rank.
func TestJoinedProductsAreAddedUpAtOnce(t *testing.T) {
	const rows, width = 64, 96
	for _, outputs := range [][]int{{512, 512, 512}, {512, 64, 64}} {
		for ranks, want := range map[int]string{2: "map[AllGather:1]", 4: "map[AllGatherV:1 AllToAllV:1]"} {
			onMesh(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				normal := func(stream uint64, p layout.Placement, shape ...int) T {
					return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, p)
				}
				x := normal(9, layout.Replicate(), rows, width)
				var params []T
				for i, out := range outputs {
					params = append(params, normal(uint64(i), layout.Shard(0), out, width))
				}
				record := m.Comm().Record()
				_, _, err := dtensor.ValueAndGrad(ctx, func() T {
					h := x.Add(params[0].Narrow(0, 0, 1)) // which depends on a parameter
					var sum T
					for _, w := range params {
						y := h.Linear(w, nil).Square().Sum([]int{1}, false).Redistribute(layout.Replicate())
						if sum == nil {
							sum = y
						} else {
							sum = sum.Add(y)
						}
					}
					return sum.Sum(nil, false)
				}, params...)
				record.Stop()
				if err != nil {
					return err
				}
				calls, bytes := map[string]int{}, 0
				for by, n := range record.Stats().Causes {
					if by.Cause == "gradient of Add: a: P(nodes) → R all-reduce" {
						calls[by.Kind.String()] += n.Calls
						bytes += n.Bytes
					}
				}
				if got := fmt.Sprint(calls); got != want || bytes > 4*rows*width*(ranks+2)/ranks {
					return fmt.Errorf("mesh %v, outputs %v: %v of %d bytes, want %v: %v", m, outputs, got, bytes, want, record.Stats().Causes)
				}
				return nil
			})
		}
	}
}

// With SameBits it makes no difference whether such products are within one Recompute, or whether each takes the tensor in a layout of
// its own.
func TestJoinedProductsHaveTheSameBits(t *testing.T) {
	R, S := layout.Replicate(), layout.Shard
	var want [][]float64
	for _, grid := range testenv.Fewer([][]int{{1}, {2}, {3}, {4}, {2, 2}}, 0, 1) {
		for _, p := range []layout.Placement{S(0), S(1), R} { // of the weights
			onMesh(t, grid, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				normal := func(stream uint64, p layout.Placement, shape ...int) T {
					return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, m.Every(p)...)
				}
				params := []T{normal(1, R, 8, 6, 40), normal(2, p, 512, 40), normal(3, p, 256, 40), normal(4, p, 256, 40)}
				uneven := m.Every(R)
				uneven[0] = S(0)
				if n := m.Axes()[0].Size; n > 1 {
					sizes := make([]int, n)
					sizes[0], sizes[n-1] = 7, 1
					uneven[0] = layout.ShardSizes(0, sizes...)
				}
				sum := func(x, w T) T { return x.Linear(w, nil).Square().Sum([]int{-1}, true) }
				qkv := func(x T) T {
					return sum(x, params[1]).Add(sum(x.Redistribute(m.Every(S(0))...), params[2])).Add(sum(x.Redistribute(m.Every(S(1))...), params[3])).
						Add(sum(x.Redistribute(uneven...), params[3]))
				}
				for way, f := range []func(x T) T{
					qkv,
					func(x T) T { return dtensor.Recompute(qkv, x) },
					func(x T) T { // one of them outside
						return sum(x, params[1]).Add(dtensor.Recompute(func(x T) T { return sum(x, params[2]).Add(sum(x, params[3])) }, x)).
							Add(sum(x, params[3]))
					},
				} {
					_, grads, err := dtensor.ValueAndGrad(ctx, func() T { return f(params[0].Tanh()).Sum(nil, false) }, params...)
					if err != nil {
						return fmt.Errorf("way %d, mesh %v: %w", way, m, err)
					}
					var got [][]float64
					for _, g := range grads {
						got = append(got, tensor.ToSlice[float64](tensor.Cast(g.Dense().Full(), tensor.Float64)))
					}
					if want == nil {
						want = got
					}
					for i := range want {
						if k := differ(got[i], want[i]); k >= 0 {
							return fmt.Errorf("way %d, mesh %v, weights %v: gradient %d: element %d is %v, want %v", way, m, p, i, k, got[i][k], want[i][k])
						}
					}
				}
				return nil
			})
		}
	}
}
