package tensor

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// Reduce computes dst[o, i] = op over r of x[o, r, i] for contiguous dst
// [outer, inner] and x [outer, red, inner]; of bfloat16 dst is float32.
func (c *CPU) Reduce(op ReduceOp, dt DType, dst, x unsafe.Pointer, outer, red, inner int) {
	n, m := outer*inner, outer*red*inner
	switch dt {
	case Float32:
		d, s := sliceOf[float32](dst, n), sliceOf[float32](x, m)
		reduce(op, d, s, red, inner, reduceStart[float32](op), reduceRow32)
	case Float64:
		reduce(op, sliceOf[float64](dst, n), sliceOf[float64](x, m), red, inner, reduceStart[float64](op), reduceRow[float64])
	case Int8:
		reduce(op, sliceOf[int8](dst, n), sliceOf[int8](x, m), red, inner, limit[int8](op, math.MinInt8, math.MaxInt8), reduceRow[int8])
	case Int16:
		reduce(op, sliceOf[int16](dst, n), sliceOf[int16](x, m), red, inner, limit[int16](op, math.MinInt16, math.MaxInt16), reduceRow[int16])
	case Int32:
		reduce(op, sliceOf[int32](dst, n), sliceOf[int32](x, m), red, inner, limit[int32](op, math.MinInt32, math.MaxInt32), reduceRow[int32])
	case Int64:
		reduce(op, sliceOf[int64](dst, n), sliceOf[int64](x, m), red, inner, limit[int64](op, math.MinInt64, math.MaxInt64), reduceRow[int64])
	case Uint8:
		reduce(op, sliceOf[uint8](dst, n), sliceOf[uint8](x, m), red, inner, limit[uint8](op, 0, math.MaxUint8), reduceRow[uint8])
	case Bool:
		reduce(op, sliceOf[uint8](dst, n), sliceOf[uint8](x, m), red, inner, limit[uint8](op, 0, 1), reduceRow[uint8])
	case BFloat16:
		if op == OpSum {
			c.sumHalves(dst, x, outer, red, inner)
			return
		}
		wide := c.Scratch(m * Float32.Size())
		defer wide.Free()
		c.Cast(Float32, wide.Block.Ptr(), dt, x, m)
		c.Reduce(op, Float32, dst, wide.Block.Ptr(), outer, red, inner)
	}
}

// sumPiece is how many elements of bfloat16 one product adds up: of more, each would be
// too small beside their sum.
const sumPiece = 1 << 18

// sumHalves computes dst[o, i] = Σ x[o, r, i] as the product with ones: dst is float32,
// x [outer, red, inner] bfloat16.
func (c *CPU) sumHalves(dst, x unsafe.Pointer, outer, red, inner int) {
	if outer*inner == 0 {
		return
	}
	ones := c.Scratch(min(red, sumPiece) * BFloat16.Size())
	defer ones.Free()
	c.Fill(BFloat16, ones.Block.Ptr(), min(red, sumPiece), 1)
	row := Loop{N: 1, Size: [MaxDims]int{1}}
	switch pieces := (red + sumPiece - 1) / sumPiece; {
	case pieces > 1:
		sums := c.Scratch(outer * pieces * inner * Float32.Size())
		defer sums.Free()
		for i := range outer * pieces {
			from := i % pieces * sumPiece
			sum, piece := at[float32](sums.Block.Ptr(), i*inner), at[BF16](x, (i/pieces*red+from)*inner)
			c.MatMul(BFloat16, Gemm{Wide: true, M: 1, K: min(sumPiece, red-from), N: inner}, unsafe.Pointer(sum), ones.Block.Ptr(), unsafe.Pointer(piece), row)
		}
		c.Reduce(OpSum, Float32, dst, sums.Block.Ptr(), outer, pieces, inner)
	case inner == 1:
		c.MatMul(BFloat16, Gemm{Wide: true, M: outer, K: red, N: 1}, dst, x, ones.Block.Ptr(), row)
	default:
		batch := Loop{N: 1, Size: [MaxDims]int{outer}, B: [MaxDims]int{1}}
		c.MatMul(BFloat16, Gemm{Wide: true, M: 1, K: red, N: inner}, dst, ones.Block.Ptr(), x, batch)
	}
}

// limit returns the value of op for no elements of an integer type.
func limit[T number](op ReduceOp, least, most T) T {
	switch op {
	case OpAmax:
		return least
	case OpAmin:
		return most
	}
	return reduceStart[T](op)
}

func reduceStart[T number](op ReduceOp) T {
	switch op {
	case OpProd:
		return 1
	case OpAmax:
		return T(math.Inf(-1))
	case OpAmin:
		return T(math.Inf(1))
	}
	return 0
}

// sumBlock is how many of n numbers are added before their sum is added to the
// total: about √n, so that the rounding error grows with √n too.
func sumBlock(n int) int { return max(64, 1<<((bits.Len(uint(n))+1)/2)) }

// reduce walks x; row combines a contiguous run.
func reduce[T number](op ReduceOp, dst, x []T, red, inner int, start T, row func(op ReduceOp, start T, x []T) T) {
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
		part := make([]T, min(inner, columnTile))
		for o := lo; o < hi; o++ {
			for i := 0; i < inner; i += columnTile {
				end := min(i+columnTile, inner)
				reduceColumns(op, dst[o*inner+i:o*inner+end], x[o*red*inner+i:], red, inner, part)
			}
		}
	})
}

// columnTile is how many columns are reduced together: their sums stay in the
// first cache.
const columnTile = 2048

// reduceColumns combines red rows, inner elements apart, of len(dst) elements.
func reduceColumns[T number](op ReduceOp, dst, x []T, red, inner int, part []T) {
	n := len(dst)
	part = part[:n]
	block := sumBlock(red)
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
func combine[T number](op ReduceOp, dst, x []T) {
	switch op {
	case OpSum:
		simd.AddTo(dst, x)
	case OpProd:
		simd.Mul(dst, dst, x)
	case OpAmax:
		simd.Max(dst, dst, x)
	default:
		simd.Min(dst, dst, x)
	}
}

func combineOne[T number](op ReduceOp, a, b T) T {
	switch op {
	case OpSum:
		return a + b
	case OpProd:
		return a * b
	case OpAmax:
		return max(a, b)
	default:
		return min(a, b)
	}
}

// reduceRow combines a run, in blocks.
func reduceRow[T number](op ReduceOp, start T, x []T) T {
	total, block := start, sumBlock(len(x))
	for len(x) > 0 {
		n := min(len(x), block)
		part := x[0]
		for _, v := range x[1:n] {
			part = combineOne(op, part, v)
		}
		total = combineOne(op, total, part)
		x = x[n:]
	}
	return total
}

// reduceRow32 is the float32 case of reduceRow.
func reduceRow32(op ReduceOp, start float32, x []float32) float32 {
	switch op {
	case OpSum:
		return simd.Sum(x)
	case OpAmax:
		return simd.MaxValue(x)
	case OpAmin:
		return simd.MinValue(x)
	}
	return reduceRow(op, start, x)
}
