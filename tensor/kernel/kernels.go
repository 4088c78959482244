package kernel

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// Kernels are what a device computes. Package tensor has checked shapes and types before
// it calls one.
//
// A kernel takes addresses in the device's memory and sizes in elements. Its destination
// never overlaps its sources unless it says so. Kernels called from one goroutine take
// effect in order; a device may run them later than the call.
//
// Kernels compute with a narrow type (see dtype.DType.Narrow) in float32 and round once.
// Where a kernel says so, its other arguments and its sums stay float32.
type Kernels interface {
	Elementwise
	MatrixKernels
	RowKernels
	IndexKernels
	TableKernels
	LossKernels
	OptimizerKernels
}

// Elementwise are the kernels that compute one element at a time. Those with a
// Loop broadcast their arguments.
type Elementwise interface {
	Fill(dt dtype.DType, dst unsafe.Pointer, n int, v float64)
	Iota(dt dtype.DType, dst unsafe.Pointer, n, start int)
	Cast(to dtype.DType, dst unsafe.Pointer, from dtype.DType, src unsafe.Pointer, n int)
	CopyLoop(elemBytes int, dst, src unsafe.Pointer, l Loop)
	Unary(op UnaryOp, dt dtype.DType, dst, x unsafe.Pointer, n int)
	UnaryGrad(op UnaryOp, dt dtype.DType, dx unsafe.Pointer, s Slope, n int)
	Clamp(dt dtype.DType, dst, x unsafe.Pointer, lo, hi float64, n int)  // of floats
	ClampInt(dt dtype.DType, dst, x unsafe.Pointer, lo, hi int64, n int) // of integers; the type holds lo and hi
	ClampGrad(dt dtype.DType, dx unsafe.Pointer, s Slope, lo, hi float64, n int)
	Leaky(dt dtype.DType, dst unsafe.Pointer, s Slope, slope float64, n int)
	Binary(op BinaryOp, dt dtype.DType, dst, a, b unsafe.Pointer, n int)
	BinaryLoop(op BinaryOp, dt dtype.DType, dst, a, b unsafe.Pointer, l Loop)
	BinaryScalar(op BinaryOp, dt dtype.DType, dst, x unsafe.Pointer, v Number, n int)
	CompareLoop(op CompareOp, dt dtype.DType, dst, a, b unsafe.Pointer, l Loop)
	Where(elemBytes int, dst, a, b, cond unsafe.Pointer, l Loop)
	Random(r RandomNumbers, dst unsafe.Pointer, l Loop)
	Axpy(dt dtype.DType, y unsafe.Pointer, alpha float64, x unsafe.Pointer, n int)
}

// MatrixKernels are reductions, products and attention. The result of Reduce is float32 for
// a narrow type, and so is the LSE of Attention.
type MatrixKernels interface {
	Cumsum(dt dtype.DType, reverse bool, dst, x unsafe.Pointer, a Axis)
	Reduce(op ReduceOp, dt dtype.DType, dst, x unsafe.Pointer, a Axis)
	Attention(a Attention)
	AttentionGrad(a AttentionGrad)
	MatMul(dt dtype.DType, g Gemm, dst, a, b unsafe.Pointer, l Loop)
}

// RowKernels compute softmax, norms, a number for each row and the largest elements of each
// row. The numbers of RowStat are float32 for a narrow type.
type RowKernels interface {
	Softmax(dt dtype.DType, log bool, dst, x unsafe.Pointer, m Matrix)
	SoftmaxGrad(dt dtype.DType, log bool, dx, dy, y unsafe.Pointer, m Matrix)
	Norm(n Norm)
	NormGrad(n NormGrad)
	RowStat(op RowOp, dt dtype.DType, dst, x unsafe.Pointer, m Matrix, p float64)
	TopK(dt dtype.DType, values, index, x unsafe.Pointer, m Matrix, k int)
}

// IndexKernels move elements by position. Indices have been checked unless the kernel says
// otherwise.
type IndexKernels interface {
	CheckIndex(index Index, size int) (position, value int, ok bool)
	IndexSelect(elemBytes int, dst, x unsafe.Pointer, index Index, a Axis)
	IndexAdd(dt dtype.DType, dst, src unsafe.Pointer, index Index, a Axis)
	Gather(elemBytes int, dst, x unsafe.Pointer, p Pick)
	Scatter(dt dtype.DType, add bool, dst, src unsafe.Pointer, p Pick)
	OneHot(dt dtype.DType, dst unsafe.Pointer, index Index, lo, classes int)
}

// TableKernels work on rows of embedding tables. The sums of RowPowSums and the factors of
// ScaleRows are float32 for a narrow type.
type TableKernels interface {
	TakeRows(elemBytes int, dst, table unsafe.Pointer, ids Index, t Table, zero bool)
	PutRows(dt dtype.DType, table, rows unsafe.Pointer, index Index, dim int)
	Unique(ids Index, lo, size int, d Distinct) (u, m, most int)
	SumSegments(dt dtype.DType, dst, values unsafe.Pointer, s Segments, dim int)
	AddRows(dt dtype.DType, table, values unsafe.Pointer, index Index, dim int, scale float64) // Int64
	RowPowSums(dt dtype.DType, dst, table unsafe.Pointer, index Index, dim int, p float64)
	ScaleRows(dt dtype.DType, table unsafe.Pointer, index Index, factor unsafe.Pointer, dim int)
}

// LossKernels compute cross-entropy over a part of the classes. For logits of a narrow type
// the other arguments are float32; the gradient of float32 logits may be of a narrow type.
type LossKernels interface {
	CrossEntropyStats(stats unsafe.Pointer, l ClassLogits, withSum bool)
	CrossEntropyJoin(dt dtype.DType, stats, more unsafe.Pointer, n int, weights, others float64)
	CrossEntropyGrad(to dtype.DType, dst unsafe.Pointer, l ClassLogits, lse, coef unsafe.Pointer)
}

// OptimizerKernels update parameters in place. The state for a parameter of a narrow type is
// float32.
type OptimizerKernels interface {
	SGD(dt dtype.DType, param, grad, buf unsafe.Pointer, n int, o SGD)
	Adam(a Adam)
	AdagradRows(a Adagrad)
	SumSquares(dst unsafe.Pointer, dt dtype.DType, x unsafe.Pointer, n int)       // dst is float64
	ColumnSquares(dst unsafe.Pointer, dt dtype.DType, x unsafe.Pointer, m Matrix) // dst is float64
}
