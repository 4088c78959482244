package cpu

import (
	"bytes"
	"math/bits"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Reduce computes dst[o, i] = op over r of x[o, r, i].
func (c *own) Reduce(op kernel.ReduceOp, dt dtype.DType, dst, x unsafe.Pointer, a kernel.Axis) {
	if c.pairwise && op == kernel.OpSum && dt.Float() {
		if dt == dtype.Float32 {
			sumPairwise(sliceOf[float32](dst, a.Outer*a.Inner), sliceOf[float32](x, a.Numel()), a, simd.Sum)
		} else {
			sumPairwise(sliceOf[float64](dst, a.Outer*a.Inner), sliceOf[float64](x, a.Numel()), a, func(x []float64) float64 {
				return reduceRow(kernel.OpSum, 0, x)
			})
		}
		return
	}
	if dt == dtype.Float32 {
		d, s := sliceOf[float32](dst, a.Outer*a.Inner), sliceOf[float32](x, a.Numel())
		reduce(op, d, s, a.N, a.Inner, float32s.start(op), reduceRow32)
		return
	}
	if dt == dtype.Bool && a.Inner == 1 {
		reduceBool(op, sliceOf[byte](dst, a.Outer), sliceOf[byte](x, a.Numel()), a.N)
		return
	}
	types[dt].reduce(op, dst, x, a)
}

// reduceBool sets dst[o] to whether there is a 1 in row o of n, or no 0.
func reduceBool(op kernel.ReduceOp, dst, x []byte, n int) {
	sought, found := byte(1), byte(1)
	switch op {
	case kernel.OpAmax:
	case kernel.OpAmin:
		sought, found = 0, 0
	default:
		kernel.Missing("the CPU for Bool", op)
	}
	for o := range dst {
		dst[o] = 1 - found
		if bytes.IndexByte(x[o*n:(o+1)*n], sought) >= 0 {
			dst[o] = found
		}
	}
}

// Reduce is Widening's Reduce, except for a sum of bfloat16, which has a faster form.
func (c *Kernels) Reduce(op kernel.ReduceOp, dt dtype.DType, dst, x unsafe.Pointer, a kernel.Axis) {
	if op == kernel.OpSum && dt == dtype.BFloat16 && !c.Own.(*own).pairwise {
		c.sumHalves(dst, x, a)
		return
	}
	c.Widening.Reduce(op, dt, dst, x, a)
}

// SumPiece is how many elements of bfloat16 one product adds up. In a longer sum an element
// would be too small beside the float32 sum.
const SumPiece = 1 << 18

// sumHalves computes dst[o, i] = Σ x[o, r, i] as a product with ones. dst is float32 and x
// bfloat16.
func (c *Kernels) sumHalves(dst, x unsafe.Pointer, a kernel.Axis) {
	outer, red, inner := a.Outer, a.N, a.Inner
	if outer*inner == 0 {
		return
	}
	if inner == 1 && red > SumRow {
		sumRuns(sliceOf[float32](dst, outer), sliceOf[dtype.BF16](x, a.Numel()), red)
		return
	}
	ones := c.Scratch(min(red, SumPiece) * dtype.BFloat16.Size())
	defer ones.Free()
	c.Fill(dtype.BFloat16, ones.Block.Ptr(), min(red, SumPiece), 1)
	row := kernel.Loop{N: 1, Size: [kernel.MaxDims]int{1}}
	switch pieces := ints.DivUp(red, SumPiece); {
	case pieces > 1:
		sums := c.Scratch(outer * pieces * inner * dtype.Float32.Size())
		defer sums.Free()
		for i := range outer * pieces {
			from := i % pieces * SumPiece
			sum, piece := at[float32](sums.Block.Ptr(), i*inner), at[dtype.BF16](x, (i/pieces*red+from)*inner)
			c.MatMul(dtype.BFloat16, kernel.Gemm{Wide: true, M: 1, K: min(SumPiece, red-from), N: inner}, unsafe.Pointer(sum), ones.Block.Ptr(),
				unsafe.Pointer(piece), row)
		}
		c.Reduce(kernel.OpSum, dtype.Float32, dst, sums.Block.Ptr(), kernel.Axis{Outer: outer, N: pieces, Inner: inner})
	case inner == 1:
		c.MatMul(dtype.BFloat16, kernel.Gemm{Wide: true, M: outer, K: red, N: 1}, dst, x, ones.Block.Ptr(), row)
	default:
		batch := kernel.Loop{N: 1, Size: [kernel.MaxDims]int{outer}, B: [kernel.MaxDims]int{1}}
		c.MatMul(dtype.BFloat16, kernel.Gemm{Wide: true, M: 1, K: red, N: inner}, dst, ones.Block.Ptr(), x, batch)
	}
}

// SumRow is how many contiguous elements of bfloat16 are widened and added up at a time.
const SumRow = 1 << 12

// sumRuns is sumHalves of long runs of contiguous elements: a product would pack them.
func sumRuns(dst []float32, x []dtype.BF16, red int) {
	sums := make([]float32, ints.DivUp(red, SumRow))
	for o := range dst {
		run := x[o*red:][:red]
		parallel(len(sums), SumRow, 1, func(lo, hi int) {
			var wide [SumRow]float32
			for i := lo; i < hi; i++ {
				piece := run[i*SumRow : min((i+1)*SumRow, red)]
				simd.FromBF16(wide[:len(piece)], piece)
				sums[i] = simd.Sum(wide[:len(piece)])
			}
		})
		dst[o] = simd.Sum(sums)
	}
}

// start returns the value of op for no elements.
func (e *kernelsOf[T]) start(op kernel.ReduceOp) T {
	switch op {
	case kernel.OpSum:
		return 0
	case kernel.OpProd:
		return 1
	case kernel.OpAmax:
		return e.least
	case kernel.OpAmin:
		return e.most
	}
	kernel.Missing("the CPU", op)
	return 0
}

// SumBlock is how many of n numbers are added before their sum is added to the
// total: about √n, so that the rounding error grows with √n too.
func SumBlock(n int) int { return max(64, 1<<((bits.Len(uint(n))+1)/2)) }

// reduce computes dst[o, i] = op over r of x[o, r, i]; row combines contiguous elements.
func reduce[T number](op kernel.ReduceOp, dst, x []T, red, inner int, start T, row func(op kernel.ReduceOp, start T, x []T) T) {
	if len(dst) == 0 {
		return
	}
	outer := len(dst) / inner
	if inner == 1 {
		parallel(outer, red, 1, func(lo, hi int) {
			for o := lo; o < hi; o++ {
				dst[o] = row(op, start, x[o*red:(o+1)*red])
			}
		})
		return
	}
	if red == 0 {
		simd.Fill(dst, start)
		return
	}
	parallel(outer, red*inner, 1, func(lo, hi int) {
		part := make([]T, min(inner, ColumnTile))
		for o := lo; o < hi; o++ {
			for i := 0; i < inner; i += ColumnTile {
				end := min(i+ColumnTile, inner)
				reduceColumns(op, dst[o*inner+i:o*inner+end], x[o*red*inner+i:], red, inner, part)
			}
		}
	})
}

// ColumnTile is how many columns are reduced together: their sums stay in the
// first cache.
const ColumnTile = 2048

// reduceColumns combines red rows, inner elements apart, of len(dst) elements.
func reduceColumns[T number](op kernel.ReduceOp, dst, x []T, red, inner int, part []T) {
	n := len(dst)
	part = part[:n]
	block := SumBlock(red)
	for r := 0; r < red; r += block {
		sum := part
		if r == 0 {
			sum = dst
		}
		copy(sum, x[r*inner:][:n])
		for k := r + 1; k < min(r+block, red); k++ {
			combine(op, sum, x[k*inner:][:n])
		}
		if r > 0 {
			combine(op, dst, part)
		}
	}
}

// combine computes dst[i] = op(dst[i], x[i]).
func combine[T number](op kernel.ReduceOp, dst, x []T) {
	switch op {
	case kernel.OpSum:
		simd.AddTo(dst, x)
	case kernel.OpProd:
		simd.Mul(dst, dst, x)
	case kernel.OpAmax:
		simd.Max(dst, dst, x)
	case kernel.OpAmin:
		simd.Min(dst, dst, x)
	default:
		kernel.Missing("the CPU", op)
	}
}

// Combine returns op of two elements. 0 is larger than -0, and a NaN stays.
func Combine[T number](op kernel.ReduceOp, a, b T) T {
	switch op {
	case kernel.OpSum:
		return a + b
	case kernel.OpProd:
		return a * b
	case kernel.OpAmax:
		return max(a, b)
	case kernel.OpAmin:
		return min(a, b)
	}
	kernel.Missing("the CPU", op)
	return 0
}

// reduceRow combines a run, in blocks where the order counts.
func reduceRow[T number](op kernel.ReduceOp, start T, x []T) T {
	if op == kernel.OpAmax || op == kernel.OpAmin || op == kernel.OpSum && isInt[T]() {
		return fourWays(op, start, x)
	}
	total, block := start, SumBlock(len(x))
	if op == kernel.OpSum || op == kernel.OpProd {
		total, x = fourBlocks(op, total, x, block)
	}
	for len(x) > 0 {
		n := min(len(x), block)
		part := x[0]
		for _, v := range x[1:n] {
			part = Combine(op, part, v)
		}
		total = Combine(op, total, part)
		x = x[n:]
	}
	return total
}

// fourWays combines every fourth element, as each step waits for the one before it, and then the four.
func fourWays[T number](op kernel.ReduceOp, start T, x []T) T {
	a, b, c, d := start, start, start, start
	switch op {
	case kernel.OpSum:
		for ; len(x) >= 4; x = x[4:] {
			a, b, c, d = a+x[0], b+x[1], c+x[2], d+x[3]
		}
	case kernel.OpAmax:
		for ; len(x) >= 4; x = x[4:] {
			a, b, c, d = max(a, x[0]), max(b, x[1]), max(c, x[2]), max(d, x[3])
		}
	case kernel.OpAmin:
		for ; len(x) >= 4; x = x[4:] {
			a, b, c, d = min(a, x[0]), min(b, x[1]), min(c, x[2]), min(d, x[3])
		}
	}
	for _, v := range x {
		a = Combine(op, a, v)
	}
	return Combine(op, Combine(op, a, b), Combine(op, c, d))
}

// fourBlocks adds the sums of blocks to total, or multiplies it by their products, four blocks at a time as each step waits for the one
// before it. It returns the elements that are left.
func fourBlocks[T number](op kernel.ReduceOp, total T, x []T, block int) (T, []T) {
	for ; len(x) >= 4*block; x = x[4*block:] {
		a, b, c, d := x[:block], x[block:][:block], x[2*block:][:block], x[3*block:][:block]
		p, q, r, s := a[0], b[0], c[0], d[0]
		if op == kernel.OpSum {
			for i := 1; i < len(a); i++ {
				p, q, r, s = p+a[i], q+b[i], r+c[i], s+d[i]
			}
			total = total + p + q + r + s
			continue
		}
		for i := 1; i < len(a); i++ {
			p, q, r, s = p*a[i], q*b[i], r*c[i], s*d[i]
		}
		total = total * p * q * r * s
	}
	return total, x
}

// reduceRow32 is the float32 case of reduceRow.
func reduceRow32(op kernel.ReduceOp, start float32, x []float32) float32 {
	switch op {
	case kernel.OpSum:
		return simd.Sum(x)
	case kernel.OpProd:
		return simd.Product(x)
	case kernel.OpAmax:
		return simd.MaxValue(x)
	case kernel.OpAmin:
		return simd.MinValue(x)
	}
	kernel.Missing("the CPU", op)
	return start
}
