// Command conv measures convolutions, pooling and BatchNorm, forward and with the gradients.
//
//	gorun -np 1 ./bench/conv            a table
//	gorun -np 1 ./bench/conv -dtype bfloat16    images and parameters of bfloat16
//	gorun -np 2 ./bench/conv            the batch divided over two ranks
//	gorun -np 1 ./bench/conv -json      a line of JSON for each case
//
// "3x3/forward" is the layer alone, "3x3/both" the sum of its elements times a constant, with the gradients of x and of the layer's
// parameters; of "stem" and "digits", whose x is data, those of the parameters. "gflops" counts the products of all ranks, and "gbs" of
// the layers without products the bytes of x and y, each once. "arena_mib" is the most memory that the call takes, results included.
package main

import (
	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() {
	dt := measure.DTypeFlag()
	measure.Main(func(b *measure.Bench) error { return run(b, *dt, layers, 1) })
}

// A layer is a case: what it is applied to, and how it is made.
type layer struct {
	name  string
	shape []int // of x, [B, C, …]
	data  bool  // x has no gradient
	make  func(init *nn.Init) nn.Module
}

var layers = []layer{
	conv2d("3x3", []int{8, 64, 56, 56}, nn.ConvConfig{In: 64, Out: 64, Kernel: 3, Padding: 1}),
	conv2d("3x3 of 128", []int{8, 128, 28, 28}, nn.ConvConfig{In: 128, Out: 128, Kernel: 3, Padding: 1}),
	conv2d("3x3 of 512", []int{8, 512, 7, 7}, nn.ConvConfig{In: 512, Out: 512, Kernel: 3, Padding: 1}),
	conv2d("3x3/2", []int{8, 64, 56, 56}, nn.ConvConfig{In: 64, Out: 128, Kernel: 3, Stride: 2, Padding: 1}),
	conv2d("1x1", []int{8, 256, 56, 56}, nn.ConvConfig{In: 256, Out: 64, Kernel: 1}),
	conv2d("small", []int{32, 3, 32, 32}, nn.ConvConfig{In: 3, Out: 32, Kernel: 3, Padding: 1}),
	data(conv2d("stem", []int{8, 3, 224, 224}, nn.ConvConfig{In: 3, Out: 64, Kernel: 7, Stride: 2, Padding: 3})),
	data(conv2d("digits", []int{32, 1, 28, 28}, nn.ConvConfig{In: 1, Out: 32, Kernel: 3, Padding: 1})),
	conv2d("depthwise", []int{8, 64, 56, 56}, nn.ConvConfig{In: 64, Out: 64, Kernel: 3, Padding: 1, Groups: 64}),
	conv2d("grouped", []int{8, 64, 56, 56}, nn.ConvConfig{In: 64, Out: 64, Kernel: 3, Padding: 1, Groups: 4}),
	{"conv1d", []int{16, 64, 1024}, false, func(init *nn.Init) nn.Module {
		return nn.NewConv1d(init, nn.ConvConfig{In: 64, Out: 64, Kernel: 5, Padding: 2})
	}},
	{"conv3d", []int{2, 16, 16, 32, 32}, false, func(init *nn.Init) nn.Module {
		return nn.NewConv3d(init, nn.ConvConfig{In: 16, Out: 32, Kernel: 3, Padding: 1})
	}},
	{"transpose", []int{8, 64, 28, 28}, false, func(init *nn.Init) nn.Module {
		return nn.NewConvTranspose2d(init, nn.ConvConfig{In: 64, Out: 32, Kernel: 4, Stride: 2, Padding: 1})
	}},
	pool("max 2x2", func() nn.Module { return nn.NewMaxPool2d(nn.PoolConfig{Kernel: 2}) }),
	pool("max 3x3/2", func() nn.Module { return nn.NewMaxPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1}) }),
	pool("mean 2x2", func() nn.Module { return nn.NewAvgPool2d(nn.PoolConfig{Kernel: 2}) }),
	pool("mean 3x3/2", func() nn.Module { return nn.NewAvgPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1}) }),
	pool("adaptive 7x7", func() nn.Module { return nn.NewAdaptiveAvgPool(7, 7) }),
	pool("global mean", func() nn.Module { return nn.NewAdaptiveAvgPool(1, 1) }),
	{"batch norm", []int{8, 64, 56, 56}, false, func(init *nn.Init) nn.Module { return nn.NewBatchNorm(init, 64) }},
}

// conv2d is a convolution of images.
func conv2d(name string, shape []int, c nn.ConvConfig) layer {
	return layer{name, shape, false, func(init *nn.Init) nn.Module { return nn.NewConv2d(init, c) }}
}

// data is l applied to data.
func data(l layer) layer {
	l.data = true
	return l
}

// pool is a layer without parameters, on [8, 64, 56, 56].
func pool(name string, made func() nn.Module) layer {
	return layer{name, []int{8, 64, 56, 56}, false, func(*nn.Init) nn.Module { return made() }}
}

// run measures layers on images whose positions are divided by smaller along each dimension.
func run(b *measure.Bench, dt tensor.DType, layers []layer, smaller int) error {
	for _, l := range layers {
		if !b.Wants(l.name+"/forward") && !b.Wants(l.name+"/both") {
			continue
		}
		if err := l.measure(b, dt, smaller); err != nil {
			return err
		}
	}
	return nil
}

// measure measures a layer forward and with its gradients.
func (l layer) measure(b *measure.Bench, dt tensor.DType, smaller int) error {
	shape := append([]int(nil), l.shape...)
	for d := 2; d < len(shape); d++ {
		shape[d] /= smaller
	}
	batch := layout.Shard(0)
	x := dtensor.Normal(b.Mesh, dtensor.Key{Seed: 1}, 0, 1, shape, batch).Cast(dt)
	init := nn.NewInit(b.Mesh, 2)
	init.DType = dt
	module := l.make(init)
	var gy *dtensor.Tensor
	err := dtensor.Try(b.Context(), b.Mesh, func() {
		y := module.Forward(x)
		gy = dtensor.Normal(b.Mesh, dtensor.Key{Seed: 3}, 0, 1, y.Shape(), batch).Cast(dt)
		dtensor.Keep(gy)
	})
	if err != nil {
		return err
	}
	defer x.Local().Free()
	defer gy.Local().Free()
	params := nn.Tensors(module.Params())
	if !l.data {
		params = append(params, x)
	}
	work, bytes := 0, dt.Size()*(x.Numel()+gy.Numel())
	switch m := module.(type) {
	case *nn.Conv:
		work = 2 * gy.Numel() * m.Weight.Numel() / m.Weight.Dim(0)
	case *nn.ConvTranspose:
		work = 2 * x.Numel() * m.Weight.Numel() / m.Weight.Dim(0)
	}
	figures := func(call func() error, results, products, passes int) func(measure.Timing) []measure.Field {
		return func(t measure.Timing) []measure.Field {
			rate := measure.Rate("gbs", bytes*passes, t)
			if work > 0 {
				rate = measure.Rate("gflops", work*products, t)
			}
			memory, err := b.Memory(call)
			if err != nil {
				return []measure.Field{rate} // the communicator is dead: the next case says so
			}
			return append([]measure.Field{rate}, memory.Fields(results)...)
		}
	}
	forward := func() error {
		return dtensor.Try(b.Context(), b.Mesh, func() { module.Forward(x) })
	}
	both := func() error {
		_, _, err := dtensor.ValueAndGrad(b.Context(), func() *dtensor.Tensor {
			return module.Forward(x).Mul(gy).Sum(nil, false)
		}, params...)
		return err
	}
	if err := b.CaseErr(l.name+"/forward", forward, figures(forward, dt.Size()*gy.Numel()/b.World.Size(), 1, 1)); err != nil {
		return err
	}
	gradients, products := 0, 3
	if l.data {
		products = 2
	}
	for _, p := range params {
		gradients += p.Local().Bytes()
	}
	return b.CaseErr(l.name+"/both", both, figures(both, gradients, products, 2))
}
