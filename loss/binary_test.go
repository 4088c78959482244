package loss_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestBinaryCrossEntropy(t *testing.T) {
	for _, c := range []struct {
		mesh   []int
		places [][2]layout.Placement // of logits and of targets, one pair an axis
	}{
		{[]int{1}, [][2]layout.Placement{{layout.Shard(0), layout.Replicate()}}},
		{[]int{2}, [][2]layout.Placement{{layout.Replicate(), layout.Shard(1)}}},
		{[]int{3}, [][2]layout.Placement{{layout.Shard(0), layout.Replicate()}}},
		{[]int{4}, [][2]layout.Placement{{layout.Shard(0), layout.Shard(0)}}},
		{[]int{2, 2}, [][2]layout.Placement{{layout.Shard(0), layout.Shard(0)}, {layout.Shard(1), layout.Replicate()}}},
		{[]int{2, 2}, [][2]layout.Placement{{layout.Shard(0), layout.Shard(0)}, {layout.Shard(0), layout.Shard(0)}}},
	} {
		for _, rows := range []int{1, 5} {
			meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				shape := []int{rows, 3}
				x, y := make([]float64, 3*rows), make([]float64, 3*rows)
				for i := range x {
					x[i], y[i] = 3*math.Sin(float64(i*i)), float64(i%2)
				}
				x[0], x[1], x[2], y[2] = 1e4, -1e4, 0, 0.25
				var px, py []layout.Placement
				for _, p := range c.places {
					px, py = append(px, p[0]), append(py, p[1])
				}
				logits := dtensor.Distribute(m, tensor.FromSlice(m.Device(), x, shape...), px...)
				targets := dtensor.Distribute(m, tensor.FromSlice(m.Device(), y, shape...), py...)
				for r := range loss.None + 1 {
					factor, total := 1.0, 0.0
					if r == loss.Mean {
						factor = 1 / float64(len(x))
					}
					var got *dtensor.Tensor
					_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						got = loss.BinaryCrossEntropy(logits, targets, r)
						dtensor.Keep(got)
						return got.Scale(2).Sum(nil, false)
					}, logits, targets)
					if err != nil {
						return err
					}
					losses, g := tensor.Data[float64](got.Full()), tensor.Data[float64](grads[0].Dense().Full())
					gy := tensor.Data[float64](grads[1].Dense().Full())
					for i := range x {
						want := max(x[i], 0) - x[i]*y[i] + math.Log1p(math.Exp(-math.Abs(x[i])))
						total += factor * want
						if r == loss.None && math.Abs(losses[i]-want) > 1e-9 {
							return fmt.Errorf("loss %d is %v, want %v", i, losses[i], want)
						}
						if want := 2 * factor * (1/(1+math.Exp(-x[i])) - y[i]); math.Abs(g[i]-want) > 1e-9 {
							return fmt.Errorf("%v: gradient %d is %v, want %v", r, i, g[i], want)
						}
						if want := -2 * factor * x[i]; math.Abs(gy[i]-want) > 1e-9 {
							return fmt.Errorf("%v: gradient %d of the targets is %v, want %v", r, i, gy[i], want)
						}
					}
					if r != loss.None && math.Abs(losses[0]-total) > 1e-9*total {
						return fmt.Errorf("%v is %v, want %v", r, losses[0], total)
					}
				}
				return nil
			})
		}
	}
}

// TestBinaryCrossEntropyOfSureLogits has losses in float32 that are far below 1 and
// keep their digits.
func TestBinaryCrossEntropyOfSureLogits(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		var x, y, want []float64
		for _, v := range []float64{0.5, 3, 9, 12, 15, 16, 17, 20, 40, 80} {
			x, y = append(x, v, -v), append(y, 1, 0)
			want = append(want, math.Log1p(math.Exp(-v)), math.Log1p(math.Exp(-v)))
		}
		logits, targets := meshtest.Place(m, single(x), []int{len(x)}, shard0), meshtest.Place(m, single(y), []int{len(x)}, shard0)
		return meshtest.Near("loss", loss.BinaryCrossEntropy(logits, targets, loss.None).Full(), want, 1e-6, 0)
	})
}

// TestBinaryCrossEntropyOfHalves holds that bfloat16 logits and targets are those of float32, and
// the gradient theirs, rounded.
func TestBinaryCrossEntropyOfHalves(t *testing.T) {
	for _, mesh := range [][]int{{1}, {3}} {
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			half := meshtest.Place(m, single(meshtest.Numbers(15, 1, 3)), []int{5, 3}, shard0).Cast(tensor.BFloat16)
			wide := half.Cast(tensor.Float32)
			narrow := meshtest.Place(m, single(meshtest.Numbers(15, 2, 0.5)), []int{5, 3}, replicate).Cast(tensor.BFloat16)
			targets := narrow.Cast(tensor.Float32)
			for r := range loss.None + 1 {
				var got, want *dtensor.Tensor
				_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					got, want = loss.BinaryCrossEntropy(half, narrow, r), loss.BinaryCrossEntropy(wide, targets, r)
					dtensor.Keep(got, want)
					return got.Add(want).Sum(nil, false)
				}, half, wide)
				if err != nil {
					return err
				}
				if got.DType() != tensor.Float32 || grads[0].Dense().DType() != tensor.BFloat16 {
					return fmt.Errorf("%v: the loss is %v, the gradient %v", r, got, grads[0].Dense())
				}
				if err := meshtest.Near("loss", got.Full(), meshtest.Values(want.Full()), 0, 0); err != nil {
					return err
				}
				rounded := tensor.Cast(grads[1].Dense().Full(), tensor.BFloat16)
				if err := meshtest.Near("gradient", grads[0].Dense().Full(), meshtest.Values(rounded), 0, 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func TestBinaryCrossEntropyRefusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		float := func(shape ...int) *dtensor.Tensor { return dtensor.Zeros(m, tensor.Float32, shape, layout.Replicate()) }
		for _, c := range []struct {
			x, y *dtensor.Tensor
			r    loss.Reduction
			says string
		}{
			{float(2), float(3), loss.Mean, "one target for each logit"},
			{float(2), dtensor.Zeros(m, tensor.Int64, []int{2}, layout.Replicate()), loss.Mean, "one floating-point type"},
			{float(2), float(2), 9, "Reduction is 9"},
		} {
			err := dtensor.Try(ctx, m, func() { loss.BinaryCrossEntropy(c.x, c.y, c.r) })
			if err == nil || !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
		}
		return nil
	})
}
