package dtensor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// Attention round a ring has the values and gradients of ScaledDotProductAttention, on any
// number of ranks, beside a divided batch or divided heads.
func TestRingAttention(t *testing.T) {
	for _, size := range [][]int{{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 2}} {
		meshtest.On(t, size, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, other := range []layout.Placement{layout.Replicate(), layout.Shard(0), layout.Shard(1)} {
				for _, causal := range []bool{false, true} {
					for _, same := range []bool{false, true} { // the bits of the whole
						m.SetSameBits(same)
						if err := ringCase(ctx, m, 24, causal, other, layout.Shard(2)); err != nil {
							return fmt.Errorf("%v, causal %v, same bits %v: %w", other, causal, same, err)
						}
					}
				}
			}
			return nil
		})
	}
}

// Ranks may have any number of positions, none too.
func TestRingAttentionUneven(t *testing.T) {
	for n, places := range map[int][]layout.Placement{
		1: {layout.Shard(2)},
		2: {layout.Shard(2), layout.ShardSizes(2, 5, 8), layout.ShardSizes(2, 0, 13)},
		3: {layout.Shard(2), layout.ShardSizes(2, 4, 0, 9), layout.ShardSizes(2, 13, 0, 0)},
		4: {layout.ShardSizes(2, 0, 5, 4, 4)},
	} {
		meshtest.On(t, []int{1, n}, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, p := range places {
				for _, causal := range []bool{false, true} {
					if err := ringCase(ctx, m, 13, causal, layout.Shard(0), p); err != nil {
						return fmt.Errorf("%v, causal %v: %w", p, causal, err)
					}
				}
			}
			for _, causal := range []bool{false, true} { // a sequence of nothing
				if err := ringCase(ctx, m, 0, causal, layout.Shard(0), layout.Shard(2)); err != nil {
					return fmt.Errorf("of no positions, causal %v: %w", causal, err)
				}
			}
			return nil
		})
	}
}

func ringCase(ctx context.Context, m *dtensor.Mesh, t int, causal bool, places ...layout.Placement) error {
	const b, h, d, e = 2, 2, 5, 3
	axis := m.Axes()[1].Name
	whole := func(key uint64, last int) *dtensor.Tensor {
		return dtensor.Normal(m, dtensor.Key{Seed: key}, 0, 1, []int{b, h, t, last}, m.Every(layout.Replicate())...)
	}
	weights := whole(9, e)
	q, k, v := whole(1, d), whole(2, d), whole(3, e)
	want, wantGrads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		return dtensor.ScaledDotProductAttention(q, k, v, causal).Mul(weights).Sum(nil, false)
	}, q, k, v)
	if err != nil {
		return err
	}
	list := []*dtensor.Tensor{q, k, v}
	for i, x := range list {
		list[i] = x.Redistribute(places...)
	}
	// the gradient by q of the sum of the squares of the gradients by k
	twice := func(attend func() *dtensor.Tensor, q, k *dtensor.Tensor) (*dtensor.Tensor, error) {
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return dtensor.Gradients(func() *dtensor.Tensor { return attend().Mul(weights).Sum(nil, false) }, k)[0].Square().Sum(nil, false)
		}, q)
		if err != nil {
			return nil, err
		}
		return grads[0].Dense(), nil
	}
	wantSecond, err := twice(func() *dtensor.Tensor { return dtensor.ScaledDotProductAttention(q, k, v, causal) }, q, k)
	if err != nil {
		return err
	}
	second, err := twice(func() *dtensor.Tensor { return dtensor.RingAttention(list[0], list[1], list[2], causal, axis) }, list[0], list[1])
	if err != nil {
		return err
	}
	if err := meshtest.Near("second derivative", second.Full(), meshtest.Values(wantSecond.Full()), 1e-3, 1e-3); err != nil {
		return err
	}
	record := m.Comm().Record()
	got, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		return dtensor.RingAttention(list[0], list[1], list[2], causal, axis).Mul(weights).Sum(nil, false)
	}, list...)
	record.Stop()
	if err != nil {
		return err
	}
	tolerance := 1e-4
	if m.SameBits() {
		tolerance = 0
	}
	if err := meshtest.Near("the sum", got.Full(), meshtest.Values(want.Full()), tolerance, tolerance); err != nil {
		return err
	}
	for i, g := range grads {
		want := meshtest.Values(wantGrads[i].Dense().Full())
		if err := meshtest.Near(fmt.Sprint("gradient ", i), g.Dense().Full(), want, tolerance, tolerance); err != nil {
			return err
		}
	}
	if n := m.Axes()[1].Size; n > 1 && !m.SameBits() {
		calls := n - 1 + n // rings
		if causal && t > 0 && t%(2*n) == 0 {
			calls += 4 // exchanges there and back, twice
		}
		if got, _ := meshtest.Calls(record.Events(), "RingAttention"); got != calls {
			return fmt.Errorf("%d calls, want %d: %v", got, calls, record.Stats().Causes)
		}
	}
	return nil
}

// Bfloat16 goes round as float32. What does not fit is refused by name.
func TestRingAttentionLimits(t *testing.T) {
	meshtest.On(t, []int{1, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		axis := m.Axes()[1].Name
		zeros := func(t int, dt tensor.DType, p layout.Placement) *dtensor.Tensor {
			return dtensor.Zeros(m, dt, []int{1, 1, t, 4}, layout.Replicate(), p)
		}
		half := zeros(4, tensor.BFloat16, layout.Shard(2))
		if y := dtensor.RingAttention(half, half, half, true, axis); y.DType() != tensor.BFloat16 || y.Dim(2) != 4 {
			return fmt.Errorf("of bfloat16 it is %v", y)
		}
		for says, f := range map[string]func(){
			"k.RepeatInterleave(2, 1)": func() {
				heads := func(n int) *dtensor.Tensor {
					return dtensor.Zeros(m, tensor.Float32, []int{1, n, 4, 2}, layout.Replicate(), layout.Shard(2))
				}
				dtensor.RingAttention(heads(4), heads(2), heads(2), true, axis)
			},
			"S(2) on axis": func() {
				x := zeros(4, tensor.Float32, layout.Shard(1))
				dtensor.RingAttention(x, x, x, true, axis)
			},
			"no axis": func() {
				x := zeros(4, tensor.Float32, layout.Shard(2))
				dtensor.RingAttention(x, x, x, true, "other")
			},
			"are not [B, H, T, D]": func() {
				dtensor.RingAttention(half, half, zeros(8, tensor.BFloat16, layout.Shard(2)), true, axis)
			},
		} {
			if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), says) {
				return fmt.Errorf("got %v, want %q", err, says)
			}
		}
		return nil
	})
}
