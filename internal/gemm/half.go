package gemm

import (
	"sync"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// widen does dst[i] = src[i]; T is float32.
func widen[T Float](dst []T, src []dtype.BF16) { simd.FromBF16(floats(dst), src) }

// round does dst[i] = src[i], rounded; T is float32.
func round[T Float](dst []dtype.BF16, src []T) { simd.ToBF16(dst, floats(src)) }

// sumElems is how many elements of a C of bfloat16 are added up at a time, and sumCols how many of a row: enough
// that widening the operands for each block costs little beside multiplying them.
const (
	sumElems = 2 * blockM * sumCols
	sumCols  = 1024
)

// sums is a pool of blocks of sumElems, which hold nothing between calls.
var sums = sync.Pool{New: func() any { return new([sumElems]float32) }}

// rounded is gemm for a C of bfloat16. T is float32. A product whose sums are one block is rounded tile by tile.
func rounded[T Float](kn *kernel, m, n, k int, alpha T, a, b matrix[T], beta T, c matrix[T]) {
	oneBlock := 0 < k && k <= kn.stepK() && kn.leaves == nil
	switch {
	case !oneBlock || alpha == 0 || n == 1:
	case kn.tiles != nil && beta == 0:
		tiled(kn, m, n, k, float32(alpha), singles(a), singles(b), float32(beta), singles(c))
		return
	case kn.tiles == nil && m > fewRows:
		blocked(kn, m, n, k, alpha, a, b, beta, c, nil)
		return
	}
	room := sums.Get().(*[sumElems]float32)
	defer sums.Put(room)
	sum := any(room[:]).([]T)
	cols := min(n, sumCols)
	rows := sumElems / cols
	for j := 0; j < n; j += cols {
		nb := min(cols, n-j)
		for i := 0; i < m; i += rows {
			mb := min(rows, m-i)
			part, ai, bj := matrix[T]{sum[:mb*nb], nil, nb, 1}, a, b
			if k > 0 { // else they may be empty
				ai, bj = a.from(i, 0), b.from(0, j)
			}
			if beta != 0 {
				for r := range mb {
					widen(sum[r*nb:][:nb], c.half[(i+r)*c.row+j:][:nb])
				}
			}
			gemm(kn, mb, nb, k, alpha, ai, bj, beta, part)
			if nb == c.row {
				round(c.half[i*c.row:][:mb*nb], sum[:mb*nb])
				continue
			}
			for r := range mb {
				round(c.half[(i+r)*c.row+j:][:nb], sum[r*nb:][:nb])
			}
		}
	}
}
