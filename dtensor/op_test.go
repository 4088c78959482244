package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

type T = *dtensor.Tensor

func one(f func(x T) T) func(in []T) T    { return func(in []T) T { return f(in[0]) } }
func two(f func(x, y T) T) func(in []T) T { return func(in []T) T { return f(in[0], in[1]) } }

// Shapes: even over 2 and 4, uneven, smaller than the mesh, empty.
var unaryShapes = [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}, {{0, 3}}, {{}}}
var pairShapes = [][][]int{{{4, 8}, {4, 8}}, {{5, 3}, {3}}, {{2, 1, 3}, {5, 1}}, {{0, 3}, {3}}, {{3}, {}}}

var bitShapes = [][][]int{{{4, 8}, {4, 8}}, {{5, 3}, {3}}, {{0, 3}, {3}}}

var statShapes = [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}}

var (
	matrixShapes   = [][][]int{{{4, 4}}, {{5, 3, 3}}, {{2, 3, 1, 1}}, {{0, 3, 3}}}
	equationShapes = [][][]int{{{4, 4}, {4, 8}}, {{5, 3, 3}, {5, 3, 1}}, {{2, 1, 2, 2}, {2, 1, 2, 5}}, {{3, 3}, {3, 0}}}
)

var decomposed = [][][]int{{{5, 3}}, {{4, 4}}, {{2, 3, 4}}, {{2, 3, 1, 1}}, {{0, 3, 2}}}

// apart returns small parts of x with 2, 4, 6, … added to the diagonals of its matrices, so that no two values of theirs are near.
func apart(x T) T {
	m, n := x.Dim(-2), x.Dim(-1)
	i := dtensor.Arange(x.Mesh(), tensor.Int64, 0, m, x.Mesh().Every(layout.Replicate())...)
	return x.Scale(0.2).Add(i.OneHot(m+n, x.DType()).Narrow(-1, 0, n).Mul(i.Cast(x.DType()).AddScalar(1).Scale(2).Unsqueeze(-1)))
}

// onDiagonal returns x with v added to the diagonals of its matrices.
func onDiagonal(x T, v float64) T {
	n, r := x.Dim(-1), x.Mesh().Every(layout.Replicate())
	return x.Add(dtensor.Arange(x.Mesh(), tensor.Int64, 0, n, r...).OneHot(n, x.DType()).Scale(v))
}

var opCases = []opCase{
	{name: "Add", shapes: pairShapes, f: two(T.Add)},
	{name: "Sub", shapes: pairShapes, f: two(T.Sub)},
	{name: "Mul", shapes: pairShapes, f: two(T.Mul)},
	{name: "Div", shapes: pairShapes, f: two(func(x, y T) T { return x.Div(y.Square().AddScalar(1)) })},
	{name: "Maximum", shapes: pairShapes, f: two(T.Maximum)},
	{name: "Minimum", shapes: pairShapes, f: two(T.Minimum)},
	{name: "Maximum of equals", shapes: unaryShapes, f: one(func(x T) T { return x.Maximum(x.Scale(1)) })},
	{name: "Pow", shapes: pairShapes, f: two(func(x, y T) T { return x.Abs().Pow(y) }), tol: 1e-4},
	{name: "Neg", shapes: unaryShapes, f: one(T.Neg)},
	{name: "Exp", shapes: unaryShapes, f: one(T.Exp)},
	{name: "Gelu", shapes: unaryShapes, f: one(T.Gelu)},
	{name: "GeluTanh", shapes: unaryShapes, f: one(T.GeluTanh)},
	{name: "Silu", shapes: unaryShapes, f: one(T.Silu)},
	{name: "Relu", shapes: unaryShapes, f: one(T.Relu)},
	{name: "Tanh", shapes: unaryShapes, f: one(T.Tanh)},
	{name: "Sigmoid", shapes: unaryShapes, f: one(T.Sigmoid)},
	{name: "Abs", shapes: unaryShapes, f: one(T.Abs)},
	{name: "Square", shapes: unaryShapes, f: one(T.Square)},
	{name: "Sign", shapes: unaryShapes, f: one(T.Sign)},
	{name: "Erf", shapes: unaryShapes, f: one(T.Erf)},
	{name: "Sin", shapes: unaryShapes, f: one(T.Sin)},
	{name: "Cos", shapes: unaryShapes, f: one(T.Cos)},
	{name: "Log1p", shapes: unaryShapes, f: one(func(x T) T { return x.Abs().Log1p() })},
	{name: "Expm1", shapes: unaryShapes, f: one(T.Expm1)},
	{name: "Tan", shapes: unaryShapes, f: one(func(x T) T { return x.Tanh().Tan() })},
	{name: "Asin", shapes: unaryShapes, f: one(func(x T) T { return x.Tanh().Scale(0.9).Asin() })},
	{name: "Acos", shapes: unaryShapes, f: one(func(x T) T { return x.Tanh().Scale(0.9).Acos() })},
	{name: "Atan", shapes: unaryShapes, f: one(T.Atan)},
	{name: "Sinh", shapes: unaryShapes, f: one(T.Sinh)},
	{name: "Cosh", shapes: unaryShapes, f: one(T.Cosh)},
	{name: "Asinh", shapes: unaryShapes, f: one(T.Asinh)},
	{name: "Acosh", shapes: unaryShapes, f: one(func(x T) T { return x.Abs().AddScalar(1.5).Acosh() })},
	{name: "Atanh", shapes: unaryShapes, f: one(func(x T) T { return x.Tanh().Scale(0.9).Atanh() })},
	{name: "Erfc", shapes: unaryShapes, f: one(T.Erfc)},
	{name: "Erfinv", shapes: unaryShapes, f: one(func(x T) T { return x.Tanh().Scale(0.9).Erfinv() })},
	{name: "Exp2", shapes: unaryShapes, f: one(T.Exp2)},
	{name: "Log2", shapes: unaryShapes, f: one(func(x T) T { return x.Abs().AddScalar(0.5).Log2() })},
	{name: "Log10", shapes: unaryShapes, f: one(func(x T) T { return x.Abs().AddScalar(0.5).Log10() })},
	{name: "Lgamma", shapes: unaryShapes, f: one(func(x T) T { return x.Abs().AddScalar(0.5).Lgamma() })},
	{name: "Digamma", shapes: unaryShapes, f: one(func(x T) T { return x.Abs().AddScalar(0.5).Digamma() })},
	{name: "I0", shapes: unaryShapes, f: one(T.I0)},
	{name: "Floor", shapes: unaryShapes, f: one(T.Floor)},
	{name: "Ceil", shapes: unaryShapes, f: one(T.Ceil)},
	{name: "Round", shapes: unaryShapes, f: one(func(x T) T { return x.Scale(2).Round() })},
	{name: "Trunc", shapes: unaryShapes, f: one(T.Trunc)},
	{name: "Remainder", shapes: pairShapes, f: two(func(x, y T) T { return x.Remainder(y.Square().AddScalar(1)) })},
	{name: "Fmod", shapes: pairShapes, f: two(func(x, y T) T { return x.Fmod(y.Square().AddScalar(1)) })},
	{name: "FloorDivide", shapes: pairShapes, f: two(func(x, y T) T { return x.Scale(4).FloorDivide(y.Sign().Scale(2).AddScalar(1)) })},
	{name: "Atan2", shapes: pairShapes, f: two(T.Atan2)},
	{name: "BitwiseNot", shapes: [][][]int{{{5, 3}}}, dt: tensor.Int32, nograd: true, f: one(T.BitwiseNot)},
	{name: "BitwiseAnd", shapes: bitShapes, dt: tensor.Int32, nograd: true, f: two(T.BitwiseAnd)},
	{name: "BitwiseOr", shapes: bitShapes, dt: tensor.Int32, nograd: true, f: two(T.BitwiseOr)},
	{name: "BitwiseXor", shapes: bitShapes, dt: tensor.Int32, nograd: true, f: two(T.BitwiseXor)},
	{name: "ShiftLeft", shapes: bitShapes, dt: tensor.Int32, nograd: true, f: two(T.ShiftLeft)},
	{name: "ShiftRight", shapes: bitShapes, dt: tensor.Int32, nograd: true, f: two(T.ShiftRight)},
	{name: "ELU", shapes: unaryShapes, f: one(func(x T) T { return x.ELU(0.7) })},
	{name: "LeakyReLU", shapes: unaryShapes, f: one(func(x T) T { return x.LeakyReLU(0.1) })},
	{name: "Softplus", shapes: unaryShapes, f: one(T.Softplus)},
	{name: "LogSigmoid", shapes: unaryShapes, f: one(T.LogSigmoid)},
	{name: "Mish", shapes: unaryShapes, f: one(T.Mish)},
	{name: "Hardsigmoid", shapes: unaryShapes, f: one(T.Hardsigmoid)},
	{name: "Hardswish", shapes: unaryShapes, f: one(T.Hardswish)},
	{name: "Flip", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}, {{0, 3}}}, f: one(func(x T) T { return x.Flip(0, -1) })},
	{name: "Repeat", shapes: unaryShapes, f: one(func(x T) T { return x.Repeat(2, 1, 3) })},
	{name: "RepeatInterleave", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}, {{0, 3}}},
		f: one(func(x T) T { return x.RepeatInterleave(3, 0).RepeatInterleave(2, -1) })},
	{name: "Log", shapes: unaryShapes, f: one(func(x T) T { return x.Abs().AddScalar(0.1).Log() })},
	{name: "Sqrt", shapes: unaryShapes, f: one(func(x T) T { return x.Square().AddScalar(1).Sqrt() })},
	{name: "Rsqrt", shapes: unaryShapes, f: one(func(x T) T { return x.Square().AddScalar(1).Rsqrt() })},
	{name: "AddScalar", shapes: unaryShapes, f: one(func(x T) T { return x.AddScalar(2) })},
	{name: "Scale", shapes: unaryShapes, f: one(func(x T) T { return x.Scale(-3) })},
	{name: "PowScalar", shapes: unaryShapes, f: one(func(x T) T { return x.Abs().PowScalar(1.5) })},
	{name: "Clamp", shapes: unaryShapes, f: one(func(x T) T { return x.Clamp(-0.5, 0.5) })},
	{name: "Cast", shapes: unaryShapes, f: one(func(x T) T { return x.Cast(tensor.Float64).Scale(2).Cast(tensor.Float32) })},
	{name: "Where", shapes: [][][]int{{{4, 8}, {8}}, {{5, 3}, {5, 1}}},
		f: two(func(x, y T) T { return x.CompareScalar(kernel.OpGt, 0).Where(x, y) })},
	{name: "Compare", shapes: pairShapes, nograd: true, f: two(func(x, y T) T { return x.Compare(kernel.OpLt, y) })},
	{name: "MaskedFill", shapes: unaryShapes, f: one(func(x T) T { return x.MaskedFill(x.CompareScalar(kernel.OpLt, 0), 5) })},
	{name: "Dropout of all", shapes: unaryShapes, f: one(func(x T) T { return x.Dropout(1, dtensor.Key{Seed: 9}).Add(x) })},
	{name: "Dropout", shapes: unaryShapes, f: one(func(x T) T { return x.Dropout(0.3, dtensor.Key{Seed: 9}) })},

	{name: "MatMul", shapes: [][][]int{{{4, 6}, {6, 8}}, {{5, 3}, {3, 7}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 3, 4}, {4, 5}},
		{{3, 1, 2, 2}, {4, 2, 3}}, {{0, 3}, {3, 2}}, {{4}, {4, 3}}, {{5, 4}, {4}}}, f: two(T.MatMul)},
	{name: "Linear", shapes: [][][]int{{{4, 6}, {8, 6}, {8}}, {{5, 3}, {7, 3}, {7}}, {{2, 3, 4}, {5, 4}, {5}}, {{0, 3}, {2, 3}, {2}},
		{{3, 2}, {1, 2}, {1}}, {{4}, {6, 4}, {6}}}, f: func(in []T) T { return in[0].Linear(in[1], in[2]) }},
	{name: "Linear without bias", shapes: [][][]int{{{4, 6}, {8, 6}}, {{2, 3, 4}, {5, 4}}},
		f: two(func(x, w T) T { return x.Linear(w, nil) })},

	{name: "Sum", shapes: unaryShapes, f: one(func(x T) T { return x.Sum(nil, false) })},
	{name: "Sum first", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{0, 3}}, {{1, 2, 3}}}, f: one(func(x T) T { return x.Sum([]int{0}, false) })},
	{name: "Sum last kept", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}}, f: one(func(x T) T { return x.Sum([]int{-1}, true) })},
	{name: "Mean", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}}, f: one(func(x T) T { return x.Mean([]int{0, 1}, false) })},
	{name: "Amax", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}}, f: one(func(x T) T { return x.Amax([]int{0}, false) })},
	{name: "Amin", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}}, f: one(func(x T) T { return x.Amin([]int{-1}, true) })},
	{name: "Prod", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}}, f: one(func(x T) T { return x.Prod([]int{1}, false) })},
	{name: "Softmax", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}, {{0, 3}}}, f: one(func(x T) T { return x.Softmax(-1) })},
	{name: "Softmax first", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}}, f: one(func(x T) T { return x.Softmax(0) })},
	{name: "LogSoftmax", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{1, 2, 3}}}, f: one(func(x T) T { return x.LogSoftmax(1) })},
	{name: "Cumsum", shapes: [][][]int{{{4, 8}}, {{5, 3}}}, f: one(func(x T) T { return x.Cumsum(0) })},
	{name: "Cumprod", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{0, 3}}}, f: one(func(x T) T { return x.Cumprod(0) })},
	{name: "LayerNorm", shapes: [][][]int{{{4, 8}, {8}, {8}}, {{5, 3}, {3}, {3}}, {{2, 3, 4}, {3, 4}, {3, 4}}}, tol: 1e-4,
		f: func(in []T) T { return in[0].LayerNorm(in[1], in[2], 1e-5) }},
	{name: "RMSNorm", shapes: [][][]int{{{4, 8}, {8}}, {{5, 3}, {3}}}, f: two(func(x, w T) T { return x.RMSNorm(w, 1e-6) })},
	{name: "LayerNorm without weight", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{0, 3}}}, tol: 1e-4,
		f: one(func(x T) T { return x.LayerNorm(nil, nil, 1e-5).Add(x.RMSNorm(nil, 1e-6)) })},
	{name: "Attention", shapes: [][][]int{{{2, 4, 3, 2}, {2, 4, 3, 2}, {2, 4, 3, 2}}, {{1, 3, 5, 4}, {1, 3, 5, 4}, {1, 3, 5, 2}},
		{{2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 2}}}, f: func(in []T) T { return dtensor.ScaledDotProductAttention(in[0], in[1], in[2], true) }},

	{name: "Attention of other ranks", shapes: [][][]int{{{3, 2}, {5, 2}, {5, 4}}, {{2, 3, 2}, {2, 5, 2}, {2, 5, 3}},
		{{2, 1, 3, 3, 2}, {2, 1, 3, 3, 2}, {2, 1, 3, 3, 2}}},
		f: func(in []T) T { return dtensor.ScaledDotProductAttention(in[0], in[1], in[2], false) }},
	{name: "Attention of shared heads", shapes: [][][]int{{{2, 4, 3, 2}, {2, 1, 3, 2}, {2, 1, 3, 2}}, {{1, 3, 2, 2}, {2, 1, 5, 2}, {3, 5, 1}}},
		f: func(in []T) T { return dtensor.ScaledDotProductAttention(in[0], in[1], in[2], false) }},

	{name: "Reshape merge", shapes: [][][]int{{{4, 6, 8}}, {{3, 2, 5}}, {{0, 2, 5}}}, f: one(func(x T) T { return x.Reshape(-1, x.Dim(2)) })},
	{name: "Reshape split", shapes: [][][]int{{{4, 6, 8}}, {{3, 2, 4}}},
		f: one(func(x T) T { return x.Reshape(x.Dim(0), x.Dim(1), 2, x.Dim(2)/2) })},
	{name: "Reshape flat", shapes: [][][]int{{{4, 6}}, {{5, 3}}, {{1, 3}}}, f: one(func(x T) T { return x.Reshape(x.Numel()) })},
	{name: "Squeeze", shapes: [][][]int{{{4, 6}}, {{5, 3}}}, f: one(func(x T) T { return x.Unsqueeze(1).Squeeze(1).Unsqueeze(-1) })},
	{name: "Transpose", shapes: [][][]int{{{4, 6, 8}}, {{3, 2, 5}}}, f: one(func(x T) T { return x.Transpose(0, -1) })},
	{name: "Permute", shapes: [][][]int{{{4, 6, 8}}, {{3, 2, 5}}}, f: one(func(x T) T { return x.Permute(2, 0, 1) })},
	{name: "Expand", shapes: [][][]int{{{4, 1}}, {{1, 1}}, {{3, 1}}}, f: one(func(x T) T { return x.Expand(2, -1, 5) })},
	{name: "Narrow", shapes: [][][]int{{{4, 8}}, {{5, 3}}}, f: one(func(x T) T { return x.Narrow(0, 1, 2).Narrow(1, 0, 3) })},
	{name: "Split", shapes: [][][]int{{{4, 9}}, {{5, 3}}}, f: one(func(x T) T { p := x.Chunk(1, 3); return p[0].Add(p[2]).Mul(p[1]) })},
	{name: "Pad", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{0, 3}}}, f: one(func(x T) T { return x.Pad(0, 1, 2, 0.5).Pad(-1, 3, 0, 0) })},
	{name: "Pad of nothing", shapes: [][][]int{{{0}}}, f: one(func(x T) T { return x.Pad(0, 1, 2, 0.5) })},
	{name: "Cat", shapes: [][][]int{{{4, 8}, {4, 3}}, {{5, 3}, {5, 0}}}, f: two(func(x, y T) T { return dtensor.Cat(1, x, y) })},
	{name: "Stack", shapes: [][][]int{{{4, 8}, {4, 8}}, {{3}, {3}}}, f: two(func(x, y T) T { return dtensor.Stack(-1, x, y) })},
	{name: "IndexSelect", shapes: [][][]int{{{4, 8}, {6}}, {{6, 3, 2}, {5}}}, ints: []int{0, 3},
		f: two(func(x, i T) T { return x.IndexSelect(1, i) })},
	{name: "IndexSelect first", shapes: [][][]int{{{4, 8}, {6}}, {{6, 3, 2}, {5}}}, ints: []int{0, 4},
		f: two(func(x, i T) T { return x.IndexSelect(0, i) })},
	{name: "Gather", shapes: [][][]int{{{4, 8}, {4, 3}}, {{6, 3, 2}, {6, 5, 1}}}, ints: []int{0, 3},
		f: two(func(x, i T) T { return x.Gather(1, i) })},
	{name: "Gather first", shapes: [][][]int{{{4, 8}, {2, 8}}, {{6, 3, 2}, {5, 3, 2}}}, ints: []int{0, 4},
		f: two(func(x, i T) T { return x.Gather(0, i) })},
	{name: "Var", shapes: statShapes, f: one(func(x T) T { return x.Var([]int{0}, 1, false) })},
	{name: "Std", shapes: statShapes, f: one(func(x T) T { return x.Std([]int{0}, 1, false) })},
	{name: "LogAddExp", shapes: pairShapes, f: two(T.LogAddExp)},
	{name: "LogSumExp", shapes: statShapes, f: one(func(x T) T { return x.LogSumExp([]int{1}, false) })},
	{name: "Norm 2", shapes: statShapes, f: one(func(x T) T { return x.Norm(2, nil, false) })},
	{name: "Norm 3", shapes: statShapes, f: one(func(x T) T { return x.Norm(3, []int{0}, true) })},
	{name: "Norm -2", shapes: statShapes, f: one(func(x T) T { return x.Square().AddScalar(0.5).Norm(-2, []int{0}, true) })},
	{name: "Norm 1", shapes: statShapes, f: one(func(x T) T { return x.Norm(1, []int{-1}, false) })},
	{name: "Norm of maximum", shapes: statShapes, f: one(func(x T) T { return x.Norm(math.Inf(1), []int{-1}, false) })},
	{name: "Norm of minimum", shapes: statShapes, f: one(func(x T) T { return x.Norm(math.Inf(-1), []int{-1}, false) })},
	{name: "Norm 0", shapes: statShapes, nograd: true, f: one(func(x T) T { return x.Relu().Norm(0, []int{0}, true) })},
	{name: "Any", shapes: statShapes, nograd: true, f: one(func(x T) T { return x.CompareScalar(kernel.OpGt, 1).Any([]int{0}, false) })},
	{name: "All", shapes: statShapes, nograd: true, f: one(func(x T) T { return x.CompareScalar(kernel.OpGt, -1).All(nil, false) })},
	{name: "OneHot", shapes: [][][]int{{{4, 8}}, {{5}}}, ints: []int{3}, nograd: true,
		f: one(func(x T) T { return x.OneHot(4, tensor.Float32) })},
	{name: "ScatterAdd", shapes: [][][]int{{{4, 8}, {4, 3}, {4, 3}}, {{6, 3, 2}, {5, 5, 1}, {5, 5, 1}}}, ints: []int{0, 3, 0},
		f: func(in []T) T { return in[0].ScatterAdd(1, in[1], in[2]) }},
	{name: "Scatter", shapes: [][][]int{{{4, 8}, {4, 3}, {4, 3}}, {{6, 3, 2}, {5, 5, 1}, {5, 5, 1}}, {{4, 3}, {4, 7}, {4, 7}}},
		ints: []int{0, 3, 0}, f: func(in []T) T { return in[0].Scatter(1, in[1], in[2]) }},
	{name: "Scatter first", shapes: [][][]int{{{5, 3}, {6, 3}, {6, 3}}, {{4}, {6}, {6}}, {{4}, {0}, {0}}}, ints: []int{0, 4, 0},
		f: func(in []T) T { return in[0].Scatter(0, in[1], in[2]) }},
	{name: "ScatterReduce", shapes: [][][]int{{{4, 8}, {4, 3}, {4, 3}}, {{4, 3}, {4, 0}, {4, 0}}}, ints: []int{0, 3, 0},
		f: func(in []T) T { return in[0].ScatterReduce(1, in[1], in[2], layout.Sum, false) }},
	{name: "ScatterReduce to maxima", shapes: [][][]int{{{6, 3, 2}, {5, 5, 1}, {5, 5, 1}}}, ints: []int{0, 3, 0},
		f: func(in []T) T { return in[0].ScatterReduce(1, in[1], in[2], layout.Max, true) }},
	{name: "ScatterReduce to products", shapes: [][][]int{{{5}, {7}, {7}}}, ints: []int{0, 4, 0},
		f: func(in []T) T { return in[0].ScatterReduce(0, in[1], in[2], layout.Prod, true) }},
	{name: "ScatterReduce to means", shapes: [][][]int{{{5, 3}, {5, 1}, {5, 1}}}, ints: []int{0, 3, 0},
		f: func(in []T) T { return in[0].ScatterReduce(-1, in[1], in[2], layout.Avg, false) }},
	{name: "IndexAdd", shapes: [][][]int{{{4, 8}, {3}, {3, 8}}, {{6, 3, 2}, {7}, {7, 3, 2}}}, ints: []int{0, 4, 0},
		f: func(in []T) T { return in[0].IndexAdd(0, in[1], in[2]) }},
	{name: "IndexPut", shapes: [][][]int{{{4, 8}, {3}, {3, 8}}, {{6, 3, 2}, {7}, {7, 3, 2}}}, ints: []int{0, 4, 0},
		f: func(in []T) T { return in[0].IndexPut(in[1:2], in[2], false) }},
	{name: "IndexPut of two", shapes: [][][]int{{{4, 8}, {3}, {3}, {3}}, {{6, 3, 2}, {2, 3}, {2, 3}, {2, 3, 2}}}, ints: []int{0, 4, 3, 0},
		f: func(in []T) T { return in[0].IndexPut(in[1:3], in[3], false) }},
	{name: "IndexPut added", shapes: [][][]int{{{4, 8}, {5}, {5}, {5}}}, ints: []int{0, 4, 3, 0},
		f: func(in []T) T { return in[0].IndexPut(in[1:3], in[3], true) }},
	{name: "Einsum", shapes: [][][]int{{{2, 3, 4}, {2, 4, 5}}, {{3, 1, 2}, {3, 2, 2}}},
		f: two(func(x, y T) T { return dtensor.Einsum("bij,bjk->kb", x.Unsqueeze(0).Squeeze(0), y) })},
	{name: "Einsum of three", shapes: [][][]int{{{2, 3}, {3, 4}, {4, 5}}, {{5, 1}, {1, 3}, {3, 2}}},
		f: func(in []T) T { return dtensor.Einsum("ij,jk,kl->li", in...) }},
	{name: "Einsum of diagonals", shapes: [][][]int{{{4, 4, 3}, {4, 2}}, {{3, 3, 1}, {3, 5}}},
		f: two(func(x, y T) T { return dtensor.Einsum("iij,ik->jk", x, y) })},
	{name: "Einsum of more dimensions", shapes: [][][]int{{{2, 3, 4}, {3, 4, 5}}, {{3, 1, 2}, {2, 2, 2}}},
		f: two(func(x, y T) T { return dtensor.Einsum("...i,...ij->j...", x, y) })},
	{name: "Einsum outer", shapes: [][][]int{{{4}, {3}}, {{5}, {2}}}, f: two(func(x, y T) T { return dtensor.Einsum("i,j", x, y) })},
	{name: "Argmax", shapes: [][][]int{{{4, 8}}, {{5, 3}}}, nograd: true, f: one(func(x T) T { return x.Argmax(1, false) })},
	{name: "TopK", shapes: [][][]int{{{4, 8}}, {{5, 3}}}, f: one(func(x T) T { v, _ := x.TopK(2, 1); return v })},
	{name: "Argmin", shapes: [][][]int{{{4, 8}}, {{5, 3}}}, nograd: true, f: one(func(x T) T { return x.Argmin(1, true) })},
	{name: "Sort", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{0, 3}}}, f: one(func(x T) T { v, _ := x.Sort(0, false); return v })},
	{name: "Sort descending", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{}}}, f: one(func(x T) T { v, _ := x.Sort(-1, true); return v })},
	{name: "Sort positions", shapes: [][][]int{{{4, 8}}, {{2, 5, 3}}}, nograd: true,
		f: one(func(x T) T { _, i := x.Sort(1, false); return i })},
	{name: "LogCumsumExp", shapes: [][][]int{{{5, 3}}, {{0, 3}}, {{}}}, f: one(func(x T) T { return x.LogCumsumExp(0) })},
	{name: "Cummax", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{0, 3}}}, f: one(func(x T) T { v, _ := x.Cummax(0); return v })},
	{name: "Cummin", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{}}}, f: one(func(x T) T { v, _ := x.Cummin(-1); return v })},
	{name: "Cummax positions", shapes: [][][]int{{{2, 5, 3}}}, nograd: true, f: one(func(x T) T { _, i := x.Cummax(1); return i })},
	{name: "Roll", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{0, 3}}}, f: one(func(x T) T { return x.Roll(2, 0).Roll(-4, 1) })},
	{name: "Tril", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{2, 3, 3}}, {{0, 3}}}, f: one(func(x T) T { return x.Tril(1) })},
	{name: "Triu", shapes: [][][]int{{{4, 8}}, {{5, 3}}, {{2, 3, 3}}, {{0, 3}}}, f: one(func(x T) T { return x.Triu(-1) })},
	{name: "LogicalNot", shapes: unaryShapes, nograd: true, f: one(func(x T) T { return x.LogicalNot() })},
	{name: "LogicalAnd", shapes: pairShapes, nograd: true, f: two(func(x, y T) T { return x.Relu().LogicalAnd(y.Relu()) })},
	{name: "LogicalOr", shapes: pairShapes, nograd: true, f: two(func(x, y T) T { return x.Relu().LogicalOr(y.Relu()) })},
	{name: "LogicalXor", shapes: pairShapes, nograd: true, f: two(func(x, y T) T { return x.Relu().LogicalXor(y.Relu()) })},
	{name: "Cholesky", shapes: matrixShapes, f: one(func(x T) T {
		x = x.Scale(0.2)
		return onDiagonal(x.Add(x.Transpose(-2, -1)), 3).Cholesky()
	})},
	{name: "Solve", shapes: equationShapes, f: two(func(x, b T) T { return onDiagonal(x.Scale(0.2), -2).Solve(b) })},
	{name: "SolveTriangular", shapes: equationShapes, f: two(func(x, b T) T { return onDiagonal(x.Scale(0.2), 2).SolveTriangular(b, false) })},
	{name: "SolveTriangular upper", shapes: equationShapes, f: two(func(x, b T) T {
		return onDiagonal(x.Scale(0.2), -2).SolveTriangular(b, true)
	})},
	{name: "Slogdet", shapes: matrixShapes, f: one(func(x T) T { _, l := onDiagonal(x.Scale(0.2), -2).Slogdet(); return l })},
	{name: "Slogdet sign", shapes: matrixShapes, nograd: true, f: one(func(x T) T { s, _ := x.Slogdet(); return s })},
	{name: "QR", shapes: decomposed, f: one(func(x T) T { q, r := apart(x).QR(); return dtensor.Cat(-1, q.Transpose(-2, -1), r).Square() })},
	{name: "Eigh", shapes: matrixShapes, f: one(func(x T) T {
		values, vectors := apart(x.Add(x.Transpose(-2, -1))).Eigh()
		return vectors.Square().Mul(values.Unsqueeze(-2))
	})},
	{name: "SVD", shapes: decomposed, f: one(func(x T) T {
		u, s, vh := apart(x).SVD()
		return dtensor.Cat(-1, u.Square().Mul(s.Unsqueeze(-2)).Transpose(-2, -1), vh.Square())
	})},
	{name: "TopK positions", shapes: [][][]int{{{4, 8}}, {{5, 3}}}, nograd: true, f: one(func(x T) T { _, i := x.TopK(2, 0); return i })},
}

// Every operator gives about what it gives for the float32 values in float16 too.
func TestOperatorsOfFloat16(t *testing.T) {
	for _, c := range casesOf(t, tensor.Float16) {
		t.Run(c.name, func(t *testing.T) { onMesh(t, []int{1}, c.nearWide) })
	}
}

// Every operator gives the same for every layout of its inputs in bfloat16 too, and about
// what it gives for the float32 values.
func TestOperatorsOfBFloat16(t *testing.T) {
	for _, c := range casesOf(t, tensor.BFloat16) {
		t.Run(c.name, func(t *testing.T) {
			onMesh(t, []int{1}, c.nearWide)
			for _, shape := range narrowMeshes {
				onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error { return c.check(ctx, m) })
			}
		})
	}
}

// nearWide compares what the operator gives for bfloat16 with what it gives for the same
// numbers of float32.
func (c *opCase) nearWide(ctx context.Context, m *dtensor.Mesh) error {
	for _, shapes := range c.shapes {
		half, wide := make([]T, len(shapes)), make([]T, len(shapes))
		for i, s := range shapes {
			half[i] = c.input(m, i, s, []layout.Placement{layout.Replicate()})
			if wide[i] = half[i]; wide[i].DType().Float() {
				wide[i] = half[i].Cast(tensor.Float32)
			}
		}
		got, err := c.run(ctx, half)
		if err != nil {
			return err
		}
		want, err := c.run(ctx, wide)
		if err != nil {
			return err
		}
		near := func(got, want T) error { return c.equal(tensor.Cast(got.Full(), want.DType()), want.Full()) }
		if err := near(got.out, want.out); err != nil {
			return err
		}
		for i := range got.grads {
			if got.grads[i].Dense() == nil {
				continue
			}
			if dt := got.grads[i].Dense().DType(); !dt.Narrow() {
				return fmt.Errorf("gradient %d is %v", i, dt)
			}
			if err := near(got.grads[i].Dense(), want.grads[i].Dense()); err != nil {
				return fmt.Errorf("gradient %d: %w", i, err)
			}
		}
	}
	return nil
}

// Every operator gives the same for every layout of its inputs.
func TestOperators(t *testing.T) {
	for _, c := range opCases {
		t.Run(c.name, func(t *testing.T) {
			for _, shape := range meshes {
				onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error { return c.check(ctx, m) })
			}
		})
	}
}
