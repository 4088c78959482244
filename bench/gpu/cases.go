package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// A kernel is one thing to measure.
type kernel struct {
	name         string
	bytes, flops float64
	memory       bool                // the memory beside the arguments is of interest
	make         func() func() error // makes the arguments, and returns a run
}

// copyName is what the others are compared with.
const copyName = "copy of 1 GiB"

// cases returns the kernels. Those whose memory is measured come first, the smaller
// one before the larger, since the pool remembers the most that was ever in use.
func cases(ctx context.Context, mesh *dtensor.Mesh, scale int) []kernel {
	dev := mesh.Device()
	n := (1 << 28) / scale // elements of 1 GiB
	rows, dim, count := (1<<20)/scale, 256, (1<<18)/scale
	tokens, classes, side := 8192/scale, 131072/scale, 8192/scale
	rowBytes, logitBytes := float64(4*dim*count), float64(4*tokens*classes)
	zeros := func(shape ...int) *tensor.Tensor { return tensor.Zeros(dev, tensor.Float32, shape...) }
	kernels := []kernel{
		linear(ctx, mesh, tensor.BFloat16, tokens, 256000/scale, 2304/min(scale, 16)),
		linear(ctx, mesh, tensor.Float32, tokens, 256000/scale, 2304/min(scale, 16)),
		{name: copyName, bytes: float64(8 * n), make: func() func() error {
			from, to := zeros(n), zeros(n)
			return func() error { tensor.Copy(to, from); return nil }
		}},
		{name: "add of 1 GiB", bytes: float64(12 * n), make: func() func() error {
			from, to := zeros(n), zeros(n)
			return func() error { tensor.BinaryTo(to, tensor.OpAdd, from, to); return nil }
		}},
		{name: "masked gather", bytes: 1.5 * rowBytes, make: func() func() error {
			table, ids, dst := zeros(rows, dim), someIDs(dev, count, rows), zeros(count, dim)
			return func() error { tensor.TakeRowsTo(dst, table, ids, 0, true); return nil }
		}},
		{name: "row gradient", bytes: rowBytes, make: func() func() error {
			dy, ids := zeros(count, dim), someIDs(dev, count, rows)
			return func() error { tensor.TakeRowsGrad(dy, ids, 0, rows); return nil }
		}},
		{name: "softmax", bytes: 2 * logitBytes, make: func() func() error {
			logits := normal(dev, tensor.Float32, 1, tokens, classes)
			return func() error { tensor.Softmax(logits, 1); return nil }
		}},
	}
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		kernels = append(kernels, crossEntropy(dev, dt, tokens, classes)...)
		kernels = append(kernels, kernel{name: fmt.Sprint("product, ", dt), flops: 2 * float64(side) * float64(side) * float64(side), make: func() func() error {
			a, b, c := normal(dev, dt, 1, side, side), normal(dev, dt, 1, side, side), tensor.New(dev, dt, side, side)
			return func() error { tensor.MatMulTo(c, a, b, false, false, false); return nil }
		}})
	}
	return kernels
}

// crossEntropy is forward, backward in place, and both, which write a new gradient.
// They are the kernels, without the few numbers of each position that the host adds up.
func crossEntropy(dev tensor.Device, dt tensor.DType, tokens, classes int) []kernel {
	bytes := float64(dt.Size() * tokens * classes)
	one := func(what string, passes float64, run func(logits, targets, lse, coef *tensor.Tensor)) kernel {
		return kernel{name: fmt.Sprintf("cross-entropy %s, %v", what, dt), bytes: passes * bytes, make: func() func() error {
			logits, targets := normal(dev, dt, 1, tokens, classes), tensor.Zeros(dev, tensor.Int64, tokens)
			lse, coef := tensor.Zeros(dev, tensor.Float32, tokens), tensor.Full(dev, tensor.Float32, 1, tokens, 3)
			return func() error { run(logits, targets, lse, coef); return nil }
		}}
	}
	return []kernel{
		one("forward", 1, func(logits, targets, _, _ *tensor.Tensor) {
			tensor.CrossEntropyStats(logits, targets, 0, nil, false)
		}),
		one("backward, in place", 2, func(logits, targets, lse, coef *tensor.Tensor) {
			tensor.CrossEntropyGrad(logits, logits, targets, 0, lse, coef, nil)
		}),
		one("forward + backward", 3, func(logits, targets, lse, coef *tensor.Tensor) {
			tensor.CrossEntropyStats(logits, targets, 0, nil, false)
			tensor.CrossEntropyGrad(nil, logits, targets, 0, lse, coef, nil)
		}),
	}
}

// linear is the fused loss of a product, with both gradients, in the shape of
// Gemma-2-2B. The operations are those of three products, of which bfloat16 may compute
// one twice.
func linear(ctx context.Context, mesh *dtensor.Mesh, dt tensor.DType, tokens, classes, width int) kernel {
	return kernel{name: fmt.Sprint("linear + cross-entropy, fused, ", dt), memory: true, flops: 6 * float64(tokens) * float64(classes) * float64(width), make: func() func() error {
		place := func(t *tensor.Tensor) *dtensor.Tensor { return dtensor.Distribute(mesh, t, layout.Replicate()) }
		dev := mesh.Device()
		h, w := place(normal(dev, dt, 1, tokens, width)), place(normal(dev, dt, 0.02, classes, width))
		y := place(tensor.Zeros(dev, tensor.Int64, tokens))
		return func() error {
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.LinearCrossEntropy(h, w, y, loss.Options{}) }, h, w)
			return err
		}
	}}
}

// someIDs are rows, half of which belong to another rank.
func someIDs(dev tensor.Device, count, rows int) *tensor.Tensor {
	list := make([]int64, count)
	for i := range list {
		list[i] = int64(i) * 2654435761 % int64(2*rows)
	}
	return tensor.FromSlice(dev, list, count)
}

func normal(dev tensor.Device, dt tensor.DType, size float64, shape ...int) *tensor.Tensor {
	x := tensor.New(dev, dt, shape...)
	tensor.FillNormal(x, tensor.Key{Seed: 1}, 0, size, nil, nil)
	return x
}
