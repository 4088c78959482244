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
	Clamp(dt DType, dst, x unsafe.Pointer, lo, hi float64, n int)  // of floats
	ClampInt(dt DType, dst, x unsafe.Pointer, lo, hi int64, n int) // of integers; the type holds lo and hi
	ClampGrad(dt DType, dx, dy, x unsafe.Pointer, lo, hi float64, n int)
	Binary(op BinaryOp, dt DType, dst, a, b unsafe.Pointer, n int)
	BinaryLoop(op BinaryOp, dt DType, dst, a, b unsafe.Pointer, l Loop)
	BinaryScalar(op BinaryOp, dt DType, dst, x unsafe.Pointer, v float64, swap bool, n int)
	CompareLoop(op CompareOp, dt DType, dst, a, b unsafe.Pointer, l Loop)
	Where(elemBytes int, dst, a, b, cond unsafe.Pointer, l Loop)
	Random(op RandomOp, dt DType, dst unsafe.Pointer, key Key, first uint64, l Loop, a, b, least, most float64)
	Axpy(dt DType, y unsafe.Pointer, alpha float64, x unsafe.Pointer, n int)
}

// MatrixKernels are reductions, products and attention, of which a device need not have
// bfloat16: it then returns false and does nothing.
type MatrixKernels interface {
	Cumsum(dt DType, reverse bool, dst, x unsafe.Pointer, outer, n, inner int)
	Reduce(op ReduceOp, dt DType, dst, x unsafe.Pointer, outer, red, inner int) // of bfloat16 dst is float32
	Attention(dt DType, a AttentionSize, y, lse, q, k, v unsafe.Pointer) bool
	AttentionGrad(dt DType, a AttentionSize, dq, dk, dv, dy, q, k, v, y, lse unsafe.Pointer) bool
	MatMul(dt DType, g Gemm, dst, a, b unsafe.Pointer, l Loop)
}

// RowKernels work on rows of n elements: softmax, norms, a number of each row, its
// largest elements. Weights, biases and their gradients may be nil; gradients of
// weights are added to what is there. A device need not have the softmax and the norms of
// bfloat16: it then returns false and does nothing.
type RowKernels interface {
	Softmax(dt DType, log bool, dst, x unsafe.Pointer, rows, n int) bool
	SoftmaxGrad(dt DType, log bool, dx, dy, y unsafe.Pointer, rows, n int) bool
	LayerNorm(dt DType, dst, stats, x, weight, bias unsafe.Pointer, rows, n int, eps float64) bool
	LayerNormGrad(dt DType, dx, dweight, dbias, dy, x, weight, stats unsafe.Pointer, rows, n int) bool
	RMSNorm(dt DType, dst, stats, x, weight unsafe.Pointer, rows, n int, eps float64) bool
	RMSNormGrad(dt DType, dx, dweight, dy, x, weight, stats unsafe.Pointer, rows, n int) bool
	RowStat(op RowOp, dt DType, dst, x unsafe.Pointer, rows, n int, p float64)
	TopK(dt DType, values, index, x unsafe.Pointer, rows, n, k int)
}

// IndexKernels move elements by position. it is the type of the indices, Int32 or
// Int64, which have been checked unless the kernel says otherwise.
type IndexKernels interface {
	CheckIndex(it DType, index unsafe.Pointer, n, size int) (position, value int, ok bool)
	IndexSelect(elemBytes int, dst, x unsafe.Pointer, it DType, index unsafe.Pointer, outer, n, count, inner int)
	IndexAdd(dt DType, dst, src unsafe.Pointer, it DType, index unsafe.Pointer, outer, n, count, inner int)
	Gather(elemBytes int, dst, x unsafe.Pointer, it DType, index unsafe.Pointer, step int, l Loop)
	Scatter(dt DType, add bool, dst, src unsafe.Pointer, it DType, index unsafe.Pointer, step int, l Loop)
	OneHot(dt DType, dst unsafe.Pointer, it DType, index unsafe.Pointer, n, lo, classes int)
}

// TableKernels work on rows of embedding tables.
type TableKernels interface {
	TakeRows(elemBytes int, dst, table unsafe.Pointer, it DType, ids unsafe.Pointer, n, dim, lo, rows int, zero bool)
	Unique(it DType, ids unsafe.Pointer, n, lo, size int, index, start, slot, order unsafe.Pointer) (u, m, most int)
	SumSegments(dt DType, dst, values, order, start unsafe.Pointer, segments, rows, most, dim int)
	AddRows(dt DType, table, values, index unsafe.Pointer, n, dim int, scale float64)
	RowPowSums(dt DType, dst, table unsafe.Pointer, it DType, index unsafe.Pointer, n, dim int, p float64)
	ScaleRows(dt DType, table unsafe.Pointer, it DType, index, factor unsafe.Pointer, n, dim int)
}

// LossKernels are those of cross-entropy over a part of the classes.
type LossKernels interface {
	CrossEntropyStats(dt DType, stats, logits unsafe.Pointer, it DType, target, weight unsafe.Pointer, n, classes, lo int, withSum bool)
	CrossEntropyJoin(dt DType, stats, more unsafe.Pointer, n int, weights, others float64)
	CrossEntropyGrad(to DType, dst unsafe.Pointer, dt DType, logits unsafe.Pointer, it DType, target, lse, coef, weight unsafe.Pointer, n, classes, lo int)
}

// OptimizerKernels update parameters in place.
type OptimizerKernels interface {
	SGD(dt DType, param, grad, buf unsafe.Pointer, n int, o SGD)
	Adam(dt DType, param, grad, m, v unsafe.Pointer, n int, s AdamStep)
	AdamRows(dt DType, param, grad, index, m, v unsafe.Pointer, n, dim int, s AdamStep)
	AdagradRows(dt DType, table, grad, index, state unsafe.Pointer, n, dim int, lr, eps float64)
	SumSquares(dst unsafe.Pointer, dt DType, x unsafe.Pointer, n int) // dst is float64
}
