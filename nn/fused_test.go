package nn_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// Convolutions, pools and a BatchNorm by kernels, and their gradients, also of gradients, are those of the operators that SameBits
// uses, for uneven, empty and whole batches.
func TestFusedIsComposed(t *testing.T) {
	conv := nn.ConvConfig{In: 4, Out: 6, Kernel: 3, Stride: 2, Padding: 1, Bias: true, Groups: 2}
	deep := nn.ConvConfig{In: 4, Out: 4, Kernel: 3, Padding: 1, Groups: 4}
	for _, c := range []struct {
		name  string
		shape []int
		make  func(init *nn.Init) layer
	}{
		{"Conv1d", []int{5, 4, 41}, func(init *nn.Init) layer { return nn.NewConv1d(init, conv) }},
		{"Conv2d", []int{2, 4, 9, 40}, func(init *nn.Init) layer { return nn.NewConv2d(init, conv) }},
		{"depthwise", []int{5, 4, 6, 35}, func(init *nn.Init) layer { return nn.NewConv2d(init, deep) }},
		{"Conv3d", []int{3, 4, 5, 6, 7}, func(init *nn.Init) layer { return nn.NewConv3d(init, conv) }},
		{"ConvTranspose2d", []int{5, 4, 6, 19}, func(init *nn.Init) layer { return nn.NewConvTranspose2d(init, conv) }},
		{"MaxPool2d", []int{5, 4, 9, 8}, func(*nn.Init) layer {
			return nn.NewMaxPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1, Ceil: true})
		}},
		{"AvgPool2d", []int{5, 4, 9, 8}, func(*nn.Init) layer {
			return nn.NewAvgPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1, Ceil: true, ExcludePadding: true})
		}},
		{"AdaptiveMaxPool", []int{5, 4, 9, 8}, func(*nn.Init) layer { return nn.NewAdaptiveMaxPool(4, 3) }},
		{"AdaptiveAvgPool", []int{5, 4, 9, 8}, func(*nn.Init) layer { return nn.NewAdaptiveAvgPool(4, 0) }},
		{"BatchNorm", []int{5, 4, 9, 8}, func(init *nn.Init) layer { return nn.NewBatchNorm(init, 4) }},
	} {
		for i, shape := range [][]int{{1}, {2}, {3}, {2, 2}, {1}, {3}} {
			dt, rounding := tensor.Float32, 1e-4
			if i >= 4 {
				dt, rounding = tensor.BFloat16, 0.1
			}
			meshtest.On(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
				layer := func() layer {
					init := nn.NewInit(m, 1)
					init.DType = dt
					return c.make(init)
				}
				place := m.Every(layout.Replicate())
				place[0] = layout.Shard(0)
				x := wave(m, 1, c.shape, place...).Cast(dt)
				want, err := slopes(ctx, layer(), x, true)
				if err != nil {
					return err
				}
				got, err := slopes(ctx, layer(), x, false)
				if err != nil {
					return err
				}
				largest := 1.0
				for _, v := range want {
					largest = max(largest, math.Abs(v))
				}
				for i := range want { // sums of numbers up to the largest may be near 0
					if math.Abs(got[i]-want[i]) > rounding*(math.Abs(want[i])+0.02*largest) {
						return fmt.Errorf("%s on mesh %v: number %d is %v, want %v", c.name, m, i, got[i], want[i])
					}
				}
				return nil
			})
		}
	}
}

// slopes returns the result of a layer, the gradients of its cubes and those of the squares of these by x.
func slopes(ctx context.Context, l layer, x *dtensor.Tensor, sameBits bool) (all []float64, err error) {
	m := x.Mesh()
	m.SetSameBits(sameBits)
	defer m.SetSameBits(false)
	if n, ok := l.(*nn.BatchNorm); ok {
		n.Weight = wave(m, 1, n.Weight.Shape(), n.Weight.Placements()...).Cast(n.Weight.DType())
		n.Bias = wave(m, 2, n.Bias.Shape(), n.Bias.Placements()...).Cast(n.Bias.DType())
	}
	add := func(t *dtensor.Tensor) {
		all = append(all, tensor.ToSlice[float64](tensor.Cast(t.Full(), tensor.Float64))...)
	}
	params := append(nn.Tensors(l.Params()), x)
	cubes := func() *dtensor.Tensor {
		y := l.Forward(x)
		return y.Mul(y).Mul(y).Sum(nil, false)
	}
	err = dtensor.Try(ctx, m, func() {
		add(l.Forward(x))
		for _, f := range []func() *dtensor.Tensor{cubes, func() *dtensor.Tensor {
			return dtensor.Gradients(cubes, x)[0].Square().Sum(nil, false)
		}} {
			_, grads, err := dtensor.ValueAndGrad(ctx, f, params...)
			dtensor.Check(err)
			for _, g := range grads {
				add(g.Dense())
			}
		}
		if n, ok := l.(nn.Buffered); ok { // which the forward passes have changed
			for _, b := range n.Buffers() {
				add(b)
			}
			add(l.Forward(x))
		}
	})
	return all, err
}
