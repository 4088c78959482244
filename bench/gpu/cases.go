package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A measurement is one kernel to measure.
type measurement struct {
	name         string
	bytes, flops float64
	memory       bool                // the memory beside the arguments is of interest
	make         func() func() error // makes the arguments, and returns a run
}

// copyName is the kernel with which the others are compared.
const copyName = "copy of 1 GiB"

// cases returns the kernels. Those whose memory is measured come first, the smaller
// before the larger, because the pool remembers the most memory that was ever in use.
func cases(ctx context.Context, mesh *dtensor.Mesh, scale int) []measurement {
	dev := mesh.Device()
	tokens, classes := 8192/scale, 131072/scale
	kernels := []measurement{
		linear(ctx, mesh, tensor.BFloat16, tokens, 256000/scale, 2304/min(scale, 16)),
		linear(ctx, mesh, tensor.Float32, tokens, 256000/scale, 2304/min(scale, 16)),
	}
	kernels = append(kernels, elementwise(dev, scale)...)
	kernels = append(kernels, byIndex(dev, scale)...)
	kernels = append(kernels, byRow(dev, scale)...)
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		kernels = append(kernels, trainingStep(ctx, mesh, dt, scale))
		kernels = append(kernels, sums(dev, dt, 16384/scale, 8192)...)
		kernels = append(kernels, crossEntropy(dev, dt, tokens, classes)...)
		kernels = append(kernels, product(dev, dt, 8192/scale))
		kernels = append(kernels, attention(dev, dt, 64, 2048/scale, 64)...)
	}
	return kernels
}

// moves returns a measurement whose figure is the bytes that it has to move.
func moves(name string, bytes int, prepare func() (run func())) measurement {
	return measurement{name: name, bytes: float64(bytes), make: func() func() error {
		run := prepare()
		return func() error { run(); return nil }
	}}
}

// elementwise returns the element-wise kernels.
func elementwise(dev tensor.Device, scale int) []measurement {
	n := (1 << 28) / scale // elements of 1 GiB
	zeros := func(dt tensor.DType, n int) *tensor.Tensor { return tensor.Zeros(dev, dt, n) }
	add := func(name string, dt tensor.DType, n int) measurement {
		return moves(name, 3*dt.Size()*n, func() func() {
			from, to := zeros(dt, n), zeros(dt, n)
			return func() { tensor.BinaryTo(to, kernel.OpAdd, from, to) }
		})
	}
	cast := func(from, to tensor.DType) measurement {
		return moves(fmt.Sprintf("cast of %v to %v", from, to), (from.Size()+to.Size())*n/2, func() func() {
			x, y := normal(dev, from, 1, n/2), tensor.New(dev, to, n/2)
			return func() { tensor.CastTo(y, x) }
		})
	}
	return []measurement{
		moves(copyName, 8*n, func() func() {
			from, to := zeros(tensor.Float32, n), zeros(tensor.Float32, n)
			return func() { tensor.Copy(to, from) }
		}),
		add("add of 1 GiB", tensor.Float32, n),
		add("add, bfloat16", tensor.BFloat16, n/2),
		cast(tensor.Float32, tensor.BFloat16),
		cast(tensor.BFloat16, tensor.Float32),
		moves("gelu forward", 8*n/4, func() func() {
			x := normal(dev, tensor.Float32, 1, n/4)
			return func() { tensor.Unary(kernel.OpGelu, x) }
		}),
		moves("gelu backward", 12*n/4, func() func() {
			dy, x := normal(dev, tensor.Float32, 1, n/4), normal(dev, tensor.Float32, 1, n/4)
			return func() { tensor.UnaryGrad(kernel.OpGelu, dy, x, nil) }
		}),
		moves("AdamW step", 28*n/2, func() func() {
			param, grad := normal(dev, tensor.Float32, 1, n/2), normal(dev, tensor.Float32, 1, n/2)
			m, v, step := zeros(tensor.Float32, n/2), zeros(tensor.Float32, n/2), 0
			adamW := tensor.Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2}
			return func() { step++; adamW.Step(param, grad, m, v, step) }
		}),
		moves("random numbers, uniform", 4*n, func() func() {
			x := zeros(tensor.Float32, n)
			return func() { tensor.FillUniform(x, tensor.Key{Seed: 1}, 0, 1, nil, nil) }
		}),
		moves("random numbers, normal", 4*n, func() func() {
			x := zeros(tensor.Float32, n)
			return func() { tensor.FillNormal(x, tensor.Key{Seed: 1}, 0, 1, nil, nil) }
		}),
		moves("transpose", 8*(8192/scale)*(8192/scale), func() func() {
			x := normal(dev, tensor.Float32, 1, 8192/scale, 8192/scale)
			return func() { tensor.Transpose(x, 0, 1) }
		}),
	}
}

// byIndex returns the kernels that work on the rows in a list.
func byIndex(dev tensor.Device, scale int) []measurement {
	rows, dim, count := (1<<20)/scale, 256, (1<<18)/scale
	rowBytes := 4 * dim * count
	zeros := func(shape ...int) *tensor.Tensor { return tensor.Zeros(dev, tensor.Float32, shape...) }
	gradient := func(name string, ids []int64, rows, dim int) measurement {
		return moves(name, 8*len(ids)+4*dim*(len(ids)+distinct(ids)), func() func() {
			dy, ids := zeros(len(ids), dim), tensor.FromSlice(dev, ids, len(ids))
			return func() { tensor.Coalesce(ids, dy, 0, rows) }
		})
	}
	add := func(name string, ids []int64, rows, dim int, shape ...int) measurement {
		return moves(name, 8*len(ids)+4*dim*(len(ids)+2*distinct(ids)), func() func() {
			dst, src := zeros(append([]int{rows}, shape...)...), zeros(append([]int{len(ids)}, shape...)...)
			ids := tensor.FromSlice(dev, ids, len(ids))
			return func() { tensor.IndexAddTo(dst, 0, ids, src) }
		})
	}
	half, four := spread(count, 2*rows), spread(rows, rows/4) // half are another rank's; each row comes four times
	return []measurement{
		moves("masked gather", rowBytes+rowBytes/2, func() func() {
			table, ids, dst := zeros(rows, dim), tensor.FromSlice(dev, half, count), zeros(count, dim)
			return func() { tensor.TakeRowsTo(dst, table, ids, 0, true) }
		}),
		moves("row gradient", rowBytes, func() func() {
			dy, ids := zeros(count, dim), tensor.FromSlice(dev, half, count)
			return func() { tensor.Coalesce(ids, dy, 0, rows) }
		}),
		gradient("row gradient, a few rows often", often(count, rows), rows, dim),
		gradient("row gradient, short rows", four, rows/4, 64),
		add("index add of rows", four, rows/4, 64, 64),
		add("index add of numbers", four, rows/4, 1),
	}
}

// byRow returns the kernels that work along rows.
func byRow(dev tensor.Device, scale int) []measurement {
	one := func(name string, passes, rows, n int, run func(x *tensor.Tensor)) measurement {
		return moves(name, 4*passes*(rows/scale)*n, func() func() {
			x := normal(dev, tensor.Float32, 1, rows/scale, n)
			return func() { run(x) }
		})
	}
	return append([]measurement{
		one("softmax", 2, 8192, 131072/scale, func(x *tensor.Tensor) { tensor.Softmax(x, 1) }),
		one("softmax, short rows", 2, 65536, 1024, func(x *tensor.Tensor) { tensor.Softmax(x, 1) }),
		one("cumulative sum of rows", 2, 4096, 16384, func(x *tensor.Tensor) { tensor.Cumsum(x, 1) }),
		one("top 10 of rows", 1, 8192, 32768, func(x *tensor.Tensor) { tensor.TopK(x, 10, 1) }),
	}, norms(dev, 32768/scale, 2304)...)
}

// norms returns layer norm and RMS norm of [rows, n], and their gradients, with those of
// weight and bias.
func norms(dev tensor.Device, rows, n int) []measurement {
	one := func(name string, passes int, prepare func(dy, x, weight, bias *tensor.Tensor) func()) measurement {
		return moves(name, 4*passes*rows*n, func() func() {
			dy, x := normal(dev, tensor.Float32, 1, rows, n), normal(dev, tensor.Float32, 1, rows, n)
			return prepare(dy, x, normal(dev, tensor.Float32, 1, n), normal(dev, tensor.Float32, 1, n))
		})
	}
	return []measurement{
		one("layer norm forward", 2, func(_, x, weight, bias *tensor.Tensor) func() {
			return func() { tensor.LayerNorm(x, weight, bias, 1, 1e-5) }
		}),
		one("layer norm backward", 3, func(dy, x, weight, bias *tensor.Tensor) func() {
			_, stats := tensor.LayerNorm(x, weight, bias, 1, 1e-5)
			return func() { tensor.LayerNormGrad(dy, x, weight, stats, 1, true, true) }
		}),
		one("RMS norm forward", 2, func(_, x, weight, _ *tensor.Tensor) func() {
			return func() { tensor.RMSNorm(x, weight, 1, 1e-5) }
		}),
		one("RMS norm backward", 3, func(dy, x, weight, _ *tensor.Tensor) func() {
			_, stats := tensor.RMSNorm(x, weight, 1, 1e-5)
			return func() { tensor.RMSNormGrad(dy, x, weight, stats, 1, true) }
		}),
	}
}

// sums returns the sums of all elements, of each row and of each column of [rows, n].
func sums(dev tensor.Device, dt tensor.DType, rows, n int) (kernels []measurement) {
	for _, of := range []struct {
		what string
		dims []int
	}{{"all", nil}, {"rows", []int{1}}, {"columns", []int{0}}} {
		kernels = append(kernels, moves(fmt.Sprintf("sum of %s, %v", of.what, dt), dt.Size()*rows*n, func() func() {
			x := normal(dev, dt, 1, rows, n)
			return func() { tensor.Sum(x, of.dims, false) }
		}))
	}
	return kernels
}

func product(dev tensor.Device, dt tensor.DType, side int) measurement {
	return measurement{name: fmt.Sprint("product, ", dt), flops: 2 * float64(side) * float64(side) * float64(side), make: func() func() error {
		a, b, c := normal(dev, dt, 1, side, side), normal(dev, dt, 1, side, side), tensor.New(dev, dt, side, side)
		return func() error { tensor.MatMulTo(c, a, b, false, false, false); return nil }
	}}
}

// attention returns causal attention, forward and backward. A head has two products forward and
// five backward, of which half is needed.
func attention(dev tensor.Device, dt tensor.DType, heads, length, width int) []measurement {
	one := func(what string, products float64, run func(dy, q, k, v *tensor.Tensor)) measurement {
		flops := products * float64(heads) * float64(length) * float64(length) * float64(width)
		return measurement{name: fmt.Sprintf("attention %s, %v", what, dt), flops: flops, make: func() func() error {
			x := func() *tensor.Tensor { return normal(dev, dt, 1, 1, heads, length, width) }
			dy, q, k, v := x(), x(), x(), x()
			return func() error { run(dy, q, k, v); return nil }
		}}
	}
	return []measurement{
		one("forward", 2, func(_, q, k, v *tensor.Tensor) { tensor.Attention(q, k, v, true) }),
		one("forward + backward", 7, func(dy, q, k, v *tensor.Tensor) {
			y, lse := tensor.Attention(q, k, v, true)
			tensor.AttentionGrad(dy, q, k, v, y, lse, true)
		}),
	}
}

// crossEntropy returns the forward kernel, the backward kernel in place, and both together, which
// write a new gradient. It leaves out the few numbers of each position that the host adds up.
func crossEntropy(dev tensor.Device, dt tensor.DType, tokens, classes int) []measurement {
	bytes := float64(dt.Size() * tokens * classes)
	one := func(what string, passes float64, run func(logits, targets, lse, coef *tensor.Tensor)) measurement {
		return measurement{name: fmt.Sprintf("cross-entropy %s, %v", what, dt), bytes: passes * bytes, make: func() func() error {
			logits, targets := normal(dev, dt, 1, tokens, classes), tensor.Zeros(dev, tensor.Int64, tokens)
			lse, coef := tensor.Zeros(dev, tensor.Float32, tokens), tensor.Full(dev, tensor.Float32, 1, tokens, 3)
			return func() error { run(logits, targets, lse, coef); return nil }
		}}
	}
	return []measurement{
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

// linear returns the fused loss of a product, with both gradients, in the shape of
// Gemma-2-2B. It counts the operations of three products, of which bfloat16 may compute
// one twice.
func linear(ctx context.Context, mesh *dtensor.Mesh, dt tensor.DType, tokens, classes, width int) measurement {
	name, flops := fmt.Sprint("linear + cross-entropy, fused, ", dt), 6*float64(tokens)*float64(classes)*float64(width)
	return measurement{name: name, memory: true, flops: flops, make: func() func() error {
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

// spread returns ids such that neighbours in the list are far apart in the table.
func spread(count, rows int) []int64 {
	list := make([]int64, count)
	for i := range list {
		list[i] = int64(i) * 2654435761 % int64(rows)
	}
	return list
}

// often returns ids of which small ones come often, as common words do. Each is rows times the
// fourth power of a number that is evenly distributed from 0 to 1.
func often(count, rows int) []int64 {
	list := make([]int64, count)
	for i := range list {
		u := float64(uint32(i*2654435761)) / (1 << 32)
		list[i] = int64(float64(rows) * u * u * u * u)
	}
	return list
}

// distinct returns the number of distinct ids.
func distinct(ids []int64) int {
	seen := map[int64]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}

func normal(dev tensor.Device, dt tensor.DType, size float64, shape ...int) *tensor.Tensor {
	x := tensor.New(dev, dt, shape...)
	tensor.FillNormal(x, tensor.Key{Seed: 1}, 0, size, nil, nil)
	return x
}
