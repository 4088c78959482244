// Command kernels measures the kernels of one rank on [4096, 1024] float32 or
// bfloat16, each beside a copy of as many bytes.
//
//	gorun -np 1 ./bench/kernels                    a table
//	gorun -np 1 ./bench/kernels -dtype bfloat16    of bfloat16; an optimizer's state is float32
//	gorun -np 1 ./bench/kernels -json              a line of JSON for each kernel
//
// "gbs" counts the bytes that a kernel has to read and write, each once. "copy_gbs" is the rate
// of a copy of as many bytes, read and written, right before: the better of Go's copy and package
// simd's. "of_copy" is gbs divided by copy_gbs. "gelem_s" counts elements of the input, in
// thousands of millions per second. Each rank measures its own matrix, so that ranks load the
// machine.
package main

import (
	"fmt"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

func main() {
	dt := measure.DTypeFlag()
	measure.Main(func(b *measure.Bench) error { return run(b, *dt, 4096, 1024) })
}

// A measurement is one case. reads and writes count matrices of the type.
type measurement struct {
	name     string
	matrices float64
	run      func()
}

// run measures all kernels on matrices of [n, d] of a type.
func run(b *measure.Bench, dt tensor.DType, n, d int) error {
	copies := newCopies(b, n*d)
	for _, k := range kernels(b.Mesh.Device(), dt, n, d) {
		if !b.Wants(k.name) {
			continue
		}
		bytes := k.matrices * float64(n*d*dt.Size())
		copyGBs, err := copies.rate(int(bytes))
		if err != nil {
			return err
		}
		err = b.Case(k.name, k.run, func(t measure.Timing) []measure.Field {
			gbs := bytes / t.NS
			return []measure.Field{
				{Name: "n", Value: n}, {Name: "d", Value: d},
				measure.Rate("gelem_s", n*d, t), {Name: "gbs", Value: gbs},
				{Name: "copy_gbs", Value: copyGBs}, {Name: "of_copy", Value: gbs / copyGBs},
			}
		})
		if err != nil {
			return fmt.Errorf("kernels: %w", err)
		}
	}
	return nil
}

// kernels makes the matrices of a type and returns the cases that use them.
func kernels(cpu tensor.Device, dt tensor.DType, n, d int) []measurement {
	normal := func(seed uint64, shape ...int) *tensor.Tensor {
		t := tensor.New(cpu, tensor.Float32, shape...)
		tensor.FillNormal(t, tensor.Key{Seed: seed}, 0, 1, nil, nil)
		return tensor.Cast(t, dt)
	}
	x, y, row, column := normal(1, n, d), normal(2, n, d), normal(3, d), normal(4, n, 1)
	out := tensor.New(cpu, dt, n, d)
	state := func(shape ...int) *tensor.Tensor { return tensor.Zeros(cpu, tensor.Float32, shape...) }
	m, v, accumulated := state(n, d), state(n, d), state(n)
	states := float64(tensor.Float32.Size() / dt.Size()) // matrices of the type in one of those
	param := normal(5, n, d)
	soft, logs := tensor.Softmax(x, 1), tensor.LogSoftmax(x, 1)
	_, stats := tensor.LayerNorm(x, row, row, 1, 1e-5)
	ids := tensor.New(cpu, tensor.Int64, n)
	for i := range tensor.Data[int64](ids) {
		tensor.Data[int64](ids)[i] = int64(i) * 7919 % int64(n)
	}
	rows := tensor.Coalesce(ids, y, 0, n)
	columns := tensor.New(cpu, tensor.Int64, n, d)
	for i := range tensor.Data[int64](columns) {
		tensor.Data[int64](columns)[i] = int64(i) * 7919 % int64(d)
	}
	divisors, doubles := tensor.AddScalar(columns, 1), tensor.Cast(x, tensor.Float64)
	wide := float64(tensor.Int64.Size() / dt.Size()) // matrices of the type in one of int64 or float64
	size, small, mask := tensor.Unary(kernel.OpAbs, x), tensor.Unary(kernel.OpTanh, x), tensor.CompareScalar(kernel.OpGt, y, 0)
	sizes, other, never := tensor.Cast(size, tensor.Float64), tensor.CompareScalar(kernel.OpGt, x, 0), tensor.Zeros(cpu, tensor.Bool)
	narrow := 1 / float64(dt.Size()) // matrices of the type in one of Bool
	adamW := tensor.Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2}
	return []measurement{
		{"copy", 2, func() { tensor.Copy(out, x) }},
		{"add", 3, func() { tensor.Add(x, y) }},
		{"add in place", 3, func() { tensor.AddTo(out, x) }},
		{"mul", 3, func() { tensor.Mul(x, y) }},
		{"add row", 2, func() { tensor.Add(x, row) }},
		{"mul column", 2, func() { tensor.Mul(x, column) }},
		{"add scalar", 2, func() { tensor.AddScalar(x, 1) }},
		{"exp", 2, func() { tensor.Unary(kernel.OpExp, x) }},
		{"tanh", 2, func() { tensor.Unary(kernel.OpTanh, x) }},
		{"gelu", 2, func() { tensor.Unary(kernel.OpGelu, x) }},
		{"gelu gradient", 3, func() { tensor.UnaryGrad(kernel.OpGelu, y, x, nil) }},
		{"silu", 2, func() { tensor.Unary(kernel.OpSilu, x) }},
		{"sqrt", 2, func() { tensor.Unary(kernel.OpSqrt, size) }},
		{"log", 2, func() { tensor.Unary(kernel.OpLog, size) }},
		{"erf", 2, func() { tensor.Unary(kernel.OpErf, x) }},
		{"sin", 2, func() { tensor.Unary(kernel.OpSin, x) }},
		{"tan", 2, func() { tensor.Unary(kernel.OpTan, x) }},
		{"asin", 2, func() { tensor.Unary(kernel.OpAsin, small) }},
		{"asinh", 2, func() { tensor.Unary(kernel.OpAsinh, x) }},
		{"round", 2, func() { tensor.Unary(kernel.OpRound, x) }},
		{"elu", 2, func() { tensor.Unary(kernel.OpELU, x) }},
		{"elu gradient", 3, func() { tensor.UnaryGrad(kernel.OpELU, y, x, nil) }},
		{"softplus", 2, func() { tensor.Unary(kernel.OpSoftplus, x) }},
		{"softplus gradient", 3, func() { tensor.UnaryGrad(kernel.OpSoftplus, y, x, nil) }},
		{"mish", 2, func() { tensor.Unary(kernel.OpMish, x) }},
		{"mish gradient", 3, func() { tensor.UnaryGrad(kernel.OpMish, y, x, nil) }},
		{"hardswish", 2, func() { tensor.Unary(kernel.OpHardswish, x) }},
		{"hardswish gradient", 3, func() { tensor.UnaryGrad(kernel.OpHardswish, y, x, nil) }},
		{"leaky relu", 2, func() { tensor.Leaky(x, x, 0.01) }},
		{"leaky relu gradient", 3, func() { tensor.Leaky(y, x, 0.01) }},
		{"clamp", 2, func() { tensor.Clamp(x, -1, 1) }},
		{"clamp gradient", 3, func() { tensor.ClampGrad(y, x, -1, 1) }},
		{"pow", 3, func() { tensor.Binary(kernel.OpPow, size, y) }},
		{"cube", 2, func() { tensor.BinaryScalar(kernel.OpPow, x, 3) }},
		{"atan2", 3, func() { tensor.Binary(kernel.OpAtan2, x, y) }},
		{"fmod", 3, func() { tensor.Binary(kernel.OpFmod, x, y) }},
		{"remainder", 3, func() { tensor.Binary(kernel.OpRemainder, x, y) }},
		{"floor divide", 3, func() { tensor.Binary(kernel.OpFloorDivide, x, y) }},
		{"divide by column", 2, func() { tensor.Binary(kernel.OpDiv, x, column) }},
		{"maximum with column", 2, func() { tensor.Binary(kernel.OpMaximum, x, column) }},
		{"expand column", 1, func() { tensor.Expand(column, n, d) }},
		{"less than", 2, func() { tensor.Compare(kernel.OpLt, x, y) }},
		{"cast to bool", 1 + 1/float64(dt.Size()), func() { tensor.Cast(x, tensor.Bool) }},
		{"cast to float64", 1 + wide, func() { tensor.Cast(x, tensor.Float64) }},
		{"cast from float64", 1 + wide, func() { tensor.Cast(doubles, dt) }},
		{"exp of float64", 2 * wide, func() { tensor.Unary(kernel.OpExp, doubles) }},
		{"log of float64", 2 * wide, func() { tensor.Unary(kernel.OpLog, sizes) }},
		{"tanh of float64", 2 * wide, func() { tensor.Unary(kernel.OpTanh, doubles) }},
		{"sigmoid of float64", 2 * wide, func() { tensor.Unary(kernel.OpSigmoid, doubles) }},
		{"softplus of float64", 2 * wide, func() { tensor.Unary(kernel.OpSoftplus, doubles) }},
		{"clamp of float64", 2 * wide, func() { tensor.Clamp(doubles, -1, 1) }},
		{"less than of float64", 2 * wide, func() { tensor.Compare(kernel.OpLt, doubles, sizes) }},
		{"logical and", 3 * narrow, func() { tensor.Where(mask, other, never) }}, // as dtensor does
		{"logical xor", 3 * narrow, func() { tensor.Compare(kernel.OpNe, mask, other) }},
		{"logical not", 2 * narrow, func() { tensor.CompareScalar(kernel.OpEq, mask, 0) }},
		{"cast to int32", 1 + 4/float64(dt.Size()), func() { tensor.Cast(x, tensor.Int32) }},
		{"cast to int64", 1 + wide, func() { tensor.Cast(x, tensor.Int64) }},
		{"where", 3, func() { tensor.Where(mask, x, y) }},
		{"masked fill", 2, func() { tensor.MaskedFill(x, mask, 0) }},
		{"any of rows", 0.25, func() { tensor.Reduce(kernel.OpAmax, mask, []int{1}, false) }},
		{"softmax", 2, func() { tensor.Softmax(x, 1) }},
		{"softmax gradient", 3, func() { tensor.SoftmaxGrad(y, soft, 1) }},
		{"log-softmax", 2, func() { tensor.LogSoftmax(x, 1) }},
		{"log-softmax gradient", 3, func() { tensor.LogSoftmaxGrad(y, logs, 1) }},
		{"layer norm", 2, func() { tensor.LayerNorm(x, row, row, 1, 1e-5) }},
		{"layer norm gradient", 3, func() { tensor.LayerNormGrad(y, x, row, stats, 1, true, true) }},
		{"sum", 1, func() { tensor.Sum(x, nil, false) }},
		{"sum of columns", 1, func() { tensor.Sum(x, []int{0}, false) }},
		{"sum of rows", 1, func() { tensor.Sum(x, []int{1}, false) }},
		{"max of rows", 1, func() { tensor.Reduce(kernel.OpAmax, x, []int{1}, false) }},
		{"argmax of rows", 1, func() { tensor.Argmax(x, 1, false) }},
		{"top 4 of rows", 1, func() { tensor.TopK(x, 4, 1) }},
		{"top 64 of rows", 1, func() { tensor.TopK(x, min(64, d), 1) }},
		{"sort rows of int64", 2 * wide, func() { tensor.Sort(columns, 1, false) }},
		{"sort rows", 2, func() { tensor.Sort(x, 1, false) }},
		{"norm of rows", 1, func() { tensor.SquareSums(x, []int{1}) }},
		{"product of rows", 1, func() { tensor.Reduce(kernel.OpProd, x, []int{1}, false) }},
		{"cumulative sum", 2, func() { tensor.Cumsum(x, 1) }},
		{"lower triangle", 2, func() { tensor.Triangle(x, 0, false) }},
		{"flip", 2, func() { tensor.Flip(x, 1) }},
		{"gather", 2, func() { tensor.Gather(x, 1, columns) }},
		{"scatter add", 2, func() { tensor.ScatterAddTo(out, 1, columns, y) }},
		{"scatter maximum", 2 + wide, func() { tensor.ScatterReduceTo(out, 1, columns, y, kernel.OpAmax, false) }},
		{"remainder of int64", 3 * wide, func() { tensor.Binary(kernel.OpRemainder, columns, divisors) }},
		{"gather rows", 2, func() { tensor.TakeRows(x, ids, 0) }},
		{"gather rows gradient", 2, func() { tensor.Coalesce(ids, y, 0, n) }},
		{"normal", 1, func() { tensor.FillNormal(out, tensor.Key{Seed: 1}, 0, 1, nil, nil) }},
		{"uniform", 1, func() { tensor.FillUniform(out, tensor.Key{Seed: 1}, 0, 1, nil, nil) }},
		{"bernoulli", 1, func() { tensor.FillBernoulli(out, tensor.Key{Seed: 1}, 0.1, nil, nil) }},
		{"sgd", 3, func() { tensor.SGD{LR: 1e-3}.Step(param, y, nil, true) }},
		{"sgd momentum", 3 + 2*states, func() { tensor.SGD{LR: 1e-3, Momentum: 0.9}.Step(param, y, m, false) }},
		{"adamw", 3 + 4*states, func() { adamW.Step(param, y, m, v, 10) }},
		{"sgd rows", 3, func() { tensor.SGD{LR: 1e-3}.StepRows(param, rows) }},
		{"row-wise adagrad", 3, func() { tensor.Adagrad{LR: 1e-3, Eps: 1e-10}.StepRows(param, rows, accumulated, nil) }},
	}
}
