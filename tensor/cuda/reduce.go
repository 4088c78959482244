package cuda

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// throw throws a *tensor.UseError about memory.
func throw(op string, err error) {
	fault.Throw(&tensor.UseError{Op: op, Detail: "no memory for a kernel", Err: err})
}

// A reduction is cut into parts to keep a GPU busy. The number of parts depends on sizes
// alone, so that the bits are the same on every GPU. rowParts is for rows of red elements,
// columnParts for columns of red elements, one for each of threads.
func rowParts(rows, red int) int       { return max(1, min(red/4096, 1024/max(rows, 1))) }
func columnParts(threads, red int) int { return max(1, min(red/64, (1<<16)/max(threads, 1))) }

// blocksOf returns how many blocks a reduction to n elements wants.
func blocksOf(n, inner int) int {
	if inner == 1 {
		return n
	}
	return ints.DivUp(n, threads)
}

// tallBlocks returns how many blocks tall_columns in kernels/common.h wants.
func tallBlocks(columns int) int { return ints.DivUp(columns, 8) }

// Reduce computes dst[o, i] = op over r of x[o, r, i]; of bfloat16 dst is float32.
func (g kernels) Reduce(op kernel.ReduceOp, dt tensor.DType, dst, x unsafe.Pointer, a kernel.Axis) {
	outer, red, inner := a.Outer, a.N, a.Inner
	if outer*inner == 0 {
		return
	}
	segs := rowParts(outer, red)
	if inner > 1 {
		columns := outer * inner
		if atOnce := 16 / dt.Size(); dt.Float() && op == kernel.OpSum && inner%atOnce == 0 {
			columns /= atOnce // a thread takes some
		}
		segs = columnParts(columns, red)
	}
	o, from, n := int(op), dt, red // what the last kernel reads
	if segs > 1 {
		buf := g.Scratch(8 * outer * segs * inner)
		defer buf.Free()
		g.reduceParts(op, dt, buf.Block.Ptr(), x, a, segs)
		x, n, from = buf.Block.Ptr(), segs, tensor.Int64
		if dt.Float() {
			from = tensor.Float64
		}
	}
	blocks := blocksOf(outer*inner, inner)
	if few, tall := 8192, 32; inner > 1 && outer*inner <= few && n >= tall { // as in kernels/reduce.cu
		blocks = tallBlocks(outer * inner)
	}
	switch {
	case from == tensor.Float32:
		g.kernel("reduce_f32").i32(o).ptr(dst, x).i64(outer, n, inner).blocks(blocks)
	case from == tensor.BFloat16:
		g.kernel("reduce_bf16_f32").i32(o).ptr(dst, x).i64(outer, n, inner).blocks(blocks)
	case dt == tensor.Float64:
		g.kernel("reduce_f64").i32(o).ptr(dst, x).i64(outer, n, inner, 1).blocks(blocks)
	case from == tensor.Float64:
		g.kernel("reduce_f64_f32").i32(o).ptr(dst, x).i64(outer, n, inner).blocks(blocks)
	default:
		g.kernel("reduce_int").i32(o).dt(dt).ptr(dst).dt(from).ptr(x).i64(nothing(op, dt), outer, n, inner, 1).blocks(blocks)
	}
}

// reduceParts cuts dimension r of x[o, r, i] into segs segments and computes part[o, s, i] =
// op over segment s. part is float64 for floats and int64 for integers.
func (g kernels) reduceParts(op kernel.ReduceOp, dt tensor.DType, part, x unsafe.Pointer, a kernel.Axis, segs int) {
	outer, red, inner := a.Outer, a.N, a.Inner
	o, blocks := int(op), blocksOf(outer*segs*inner, inner)
	switch dt {
	case tensor.Float32:
		g.kernel("reduce_f32_f64").i32(o).ptr(part, x).i64(outer, red, inner, segs).blocks(blocks)
	case tensor.BFloat16:
		g.kernel("reduce_bf16_f64").i32(o).ptr(part, x).i64(outer, red, inner, segs).blocks(blocks)
	case tensor.Float64:
		g.kernel("reduce_f64").i32(o).ptr(part, x).i64(outer, red, inner, segs).blocks(blocks)
	default:
		g.kernel("reduce_int").i32(o).dt(tensor.Int64).ptr(part).dt(dt).ptr(x).i64(nothing(op, dt), outer, red, inner, segs).blocks(blocks)
	}
}

// nothing returns the value of op for no elements of an integer type.
func nothing(op kernel.ReduceOp, dt tensor.DType) int {
	least, most := math.MinInt64, math.MaxInt64
	switch dt {
	case tensor.Int8:
		least, most = math.MinInt8, math.MaxInt8
	case tensor.Int16:
		least, most = math.MinInt16, math.MaxInt16
	case tensor.Int32:
		least, most = math.MinInt32, math.MaxInt32
	case tensor.Uint8:
		least, most = 0, math.MaxUint8
	case tensor.Bool:
		least, most = 0, 1
	}
	switch op {
	case kernel.OpProd:
		return 1
	case kernel.OpAmax:
		return least
	case kernel.OpAmin:
		return most
	}
	return 0
}

// SumSquares computes dst = Σx².
func (g kernels) SumSquares(dst unsafe.Pointer, dt tensor.DType, x unsafe.Pointer, n int) {
	segs := rowParts(1, n)
	if segs == 1 {
		g.typed("sum_squares", dt).ptr(dst, x).i64(n, segs).blocks(segs)
		return
	}
	buf := g.Scratch(8 * segs)
	defer buf.Free()
	part := buf.Block.Ptr()
	g.typed("sum_squares", dt).ptr(part, x).i64(n, segs).blocks(segs)
	g.kernel("reduce_f64").i32(int(kernel.OpSum)).ptr(dst, part).i64(1, segs, 1, 1).blocks(1)
}

// ColumnSquares computes dst[c] = Σx² over column c.
func (g kernels) ColumnSquares(dst unsafe.Pointer, dt tensor.DType, x unsafe.Pointer, m kernel.Matrix) {
	squares, sums := g.Scratch(m.Rows*m.Cols*dt.Size()), g.Scratch(m.Cols*dt.Size())
	defer squares.Free()
	defer sums.Free()
	g.Unary(kernel.OpSquare, dt, squares.Block.Ptr(), x, m.Rows*m.Cols)
	g.Reduce(kernel.OpSum, dt, sums.Block.Ptr(), squares.Block.Ptr(), kernel.Axis{Outer: 1, N: m.Rows, Inner: m.Cols})
	g.Cast(tensor.Float64, dst, dt, sums.Block.Ptr(), m.Cols)
}

// Cumsum computes dst[o, r, i] = the sum of x[o, 0..r, i], or of x[o, r.., i] with reverse.
func (g kernels) Cumsum(dt tensor.DType, reverse bool, dst, x unsafe.Pointer, a kernel.Axis) {
	outer, n, inner := a.Outer, a.N, a.Inner
	inOrder := ints.DivUp(outer, 32) // blocks of so many rows
	if dt == tensor.Float64 {
		l := g.kernel("cumsum_f64").flag(reverse).ptr(dst, x).i64(outer, n, inner)
		if inner > 1 {
			l.each(outer * inner)
		} else {
			l.blocks(inOrder)
		}
		return
	}
	segs, part := 1, unsafe.Pointer(nil)
	switch {
	case inner > 1: // each adds up the sums of those before it
		segs = min(columnParts(outer*inner, n), 512)
	case outer < manyRows: // else the rows are enough
		segs = rowParts(outer, n)
	}
	if segs > 1 {
		buf := g.Scratch(8 * outer * segs * inner)
		defer buf.Free()
		part = buf.Block.Ptr()
		g.reduceParts(kernel.OpSum, dt, part, x, a, segs)
	}
	l := g.kernel("cumsum_f32")
	if dt == tensor.Int64 {
		l = g.kernel("cumsum_i64")
	}
	l.flag(reverse).ptr(dst, x, part).i64(outer, n, inner, segs)
	switch {
	case inner > 1:
		l.each(outer * segs * inner)
	case n > shortSum:
		l.blocks(outer * segs)
	default:
		l.blocks(inOrder)
	}
}

// shortSum is the longest row that one thread adds up in order, SHORT_SUM in
// kernels/reduce.cu. manyRows is how many longer rows keep a GPU busy without being cut.
const (
	shortSum = 256
	manyRows = 256
)

// TopK computes the k largest of each row, and their positions (int64).
func (g kernels) TopK(dt tensor.DType, values, index, x unsafe.Pointer, m kernel.Matrix, k int) {
	l := g.typed("top_k", dt)
	if !float(dt) && dt != tensor.BFloat16 {
		l = g.kernel("top_k_int").dt(dt)
	}
	if k > 0 {
		l.ptr(values, index, x).i64(m.Rows, m.Cols, k).blocks(m.Rows)
	}
}
