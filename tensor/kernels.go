package tensor

import "unsafe"

// Elementwise are the kernels that compute one element at a time. Those with a
// Loop broadcast their arguments.
type Elementwise interface {
	Fill(dt DType, dst unsafe.Pointer, n int, v float64)
	Iota(dt DType, dst unsafe.Pointer, n, start int)
	Cast(to DType, dst unsafe.Pointer, from DType, src unsafe.Pointer, n int)
	CopyLoop(elemBytes int, dst, src unsafe.Pointer, l Loop)
	Unary(op UnaryOp, dt DType, dst, x unsafe.Pointer, n int)
	UnaryGrad(op UnaryOp, dt DType, dx, dy, x, y unsafe.Pointer, n int)
	Clamp(dt DType, dst, x unsafe.Pointer, lo, hi float64, n int)
	ClampGrad(dt DType, dx, dy, x unsafe.Pointer, lo, hi float64, n int)
	Binary(op BinaryOp, dt DType, dst, a, b unsafe.Pointer, n int)
	BinaryLoop(op BinaryOp, dt DType, dst, a, b unsafe.Pointer, l Loop)
	BinaryScalar(op BinaryOp, dt DType, dst, x unsafe.Pointer, v float64, swap bool, n int)
	CompareLoop(op CompareOp, dt DType, dst, a, b unsafe.Pointer, l Loop)
	Where(elemBytes int, dst, a, b, cond unsafe.Pointer, l Loop)
	Axpy(dt DType, y unsafe.Pointer, alpha float64, x unsafe.Pointer, n int)
}

// MatrixKernels are reductions and products.
type MatrixKernels interface {
	Reduce(op ReduceOp, dt DType, dst, x unsafe.Pointer, outer, red, inner int)
	MatMul(dt DType, g Gemm, dst, a, b unsafe.Pointer, l Loop)
}

// RowKernels work on rows of n elements: softmax and norms. Weights, biases and
// their gradients may be nil; gradients of weights are added to what is there.
type RowKernels interface {
	Softmax(dt DType, log bool, dst, x unsafe.Pointer, rows, n int)
	SoftmaxGrad(dt DType, log bool, dx, dy, y unsafe.Pointer, rows, n int)
	LayerNorm(dt DType, dst, stats, x, weight, bias unsafe.Pointer, rows, n int, eps float64)
	LayerNormGrad(dt DType, dx, dweight, dbias, dy, x, weight, stats unsafe.Pointer, rows, n int)
	RMSNorm(dt DType, dst, stats, x, weight unsafe.Pointer, rows, n int, eps float64)
	RMSNormGrad(dt DType, dx, dweight, dy, x, weight, stats unsafe.Pointer, rows, n int)
}
