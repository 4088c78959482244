package tensor

import (
	"math"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// RowStat computes dst[r] = op of row r of x [rows, n].
func (c *CPU) RowStat(op RowOp, dt DType, dst, x unsafe.Pointer, rows, n int, p float64) {
	if dt == Float64 {
		d, s := sliceOf[float64](dst, rows), sliceOf[float64](x, rows*n)
		for r := range rows {
			d[r] = rowOp(op, s[r*n:(r+1)*n], p)
		}
		return
	}
	d, s := sliceOf[float32](dst, rows), sliceOf[float32](x, rows*n)
	parallel(rows, n*4, 1, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			d[r] = rowOp32(op, s[r*n:(r+1)*n], p)
		}
	})
}

// rowOp32 is the float32 case of rowOp.
func rowOp32(op RowOp, x []float32, p float64) float32 {
	switch {
	case op == OpLogSumExp:
		return simd.LogSumExp(x)
	case op == OpSquareDev:
		_, variance := simd.Moments(x)
		return float32(variance * float64(len(x)))
	case op == OpNorm && p == 2:
		return float32(math.Sqrt(simd.SumSquares(x)))
	case p == 2:
		return float32(simd.SumSquares(x))
	}
	return float32(rowOp(op, x, p))
}

// rowOp is the definition.
func rowOp[T float](op RowOp, x []T, p float64) float64 {
	var sum float64
	switch op {
	case OpLogSumExp:
		top, sum := rowStats(x)
		if math.IsInf(top, 0) {
			return top
		}
		return top + math.Log(sum)
	case OpSquareDev:
		var mean float64
		for _, v := range x {
			mean += float64(v)
		}
		mean /= float64(len(x))
		for _, v := range x {
			sum += (float64(v) - mean) * (float64(v) - mean)
		}
		return sum
	}
	for _, v := range x {
		a := math.Abs(float64(v))
		switch {
		case math.IsInf(p, 1):
			sum = max(sum, a)
		case p == 1:
			sum += a
		case p == 2:
			sum += a * a
		default:
			sum += math.Pow(a, p)
		}
	}
	if op == OpNorm && !math.IsInf(p, 1) {
		return math.Pow(sum, 1/p)
	}
	return sum
}

// TopK computes the k largest of each row of n, and their positions (int64).
func (c *CPU) TopK(dt DType, values, index, x unsafe.Pointer, rows, n, k int) {
	at := sliceOf[int64](index, rows*k)
	switch dt {
	case Float32:
		topK(sliceOf[float32](values, rows*k), at, sliceOf[float32](x, rows*n), n, k)
	case Float64:
		topK(sliceOf[float64](values, rows*k), at, sliceOf[float64](x, rows*n), n, k)
	case BFloat16:
		topHalves(sliceOf[BF16](values, rows*k), at, sliceOf[BF16](x, rows*n), n, k)
	case Int8:
		topK(sliceOf[int8](values, rows*k), at, sliceOf[int8](x, rows*n), n, k)
	case Int16:
		topK(sliceOf[int16](values, rows*k), at, sliceOf[int16](x, rows*n), n, k)
	case Int32:
		topK(sliceOf[int32](values, rows*k), at, sliceOf[int32](x, rows*n), n, k)
	case Int64:
		topK(sliceOf[int64](values, rows*k), at, sliceOf[int64](x, rows*n), n, k)
	case Uint8, Bool:
		topK(sliceOf[uint8](values, rows*k), at, sliceOf[uint8](x, rows*n), n, k)
	}
}

// topHalves is topK of bfloat16, a row at a time as float32.
func topHalves(values []BF16, index []int64, x []BF16, n, k int) {
	if k == 0 || n == 0 {
		return
	}
	row, best := make([]float32, n), make([]float32, k)
	for r := range len(x) / n {
		simd.FromBF16(row, x[r*n:(r+1)*n])
		at := index[r*k : (r+1)*k]
		topK(best, at, row, n, k)
		for j, i := range at {
			values[r*k+j] = x[r*n+int(i)]
		}
	}
}

func topK[T number](values []T, index []int64, x []T, n, k int) {
	if k == 0 || n == 0 {
		return
	}
	if k == 1 {
		for r := range values {
			i := argmax(x[r*n : (r+1)*n])
			values[r], index[r] = x[r*n+i], int64(i)
		}
		return
	}
	heap := make([]int64, 0, k)
	for r := range len(x) / n {
		row := x[r*n : (r+1)*n]
		heap = topRow(heap[:0], row, k)
		slices.SortFunc(heap, func(a, b int64) int {
			if ahead(row, a, b) {
				return -1
			}
			return 1
		})
		for j, i := range heap {
			values[r*k+j], index[r*k+j] = row[i], i
		}
	}
}

// argmax returns the position of the first NaN, or else of the largest element.
func argmax[T number](x []T) int {
	if f, ok := any(x).([]float32); ok {
		top := simd.MaxValue(f)
		for i, v := range f {
			if v == top || v != v {
				return i
			}
		}
	}
	best := 0
	for i, v := range x {
		if v != v {
			return i
		}
		if v > x[best] {
			best = i
		}
	}
	return best
}

// ahead reports whether element a of row comes before element b in the order of
// TopK.
func ahead[T number](row []T, a, b int64) bool {
	va, vb := row[a], row[b]
	if va != va || vb != vb { // NaN first
		if va != va && vb != vb {
			return a < b
		}
		return va != va
	}
	return va > vb || va == vb && a < b
}

// topRow returns the positions of the k elements of row that are ahead of the
// others, as a heap with the last of them at its root.
func topRow[T number](heap []int64, row []T, k int) []int64 {
	for i := range int64(len(row)) {
		if len(heap) < k {
			heap = append(heap, i)
			for c := len(heap) - 1; c > 0; { // up
				p := (c - 1) / 2
				if !ahead(row, heap[p], heap[c]) {
					break
				}
				heap[p], heap[c] = heap[c], heap[p]
				c = p
			}
			continue
		}
		if row[i] <= row[heap[0]] || !ahead(row, i, heap[0]) {
			continue
		}
		heap[0] = i
		for p := 0; ; { // down
			c := 2*p + 1
			if c >= k {
				break
			}
			if c+1 < k && ahead(row, heap[c], heap[c+1]) {
				c++
			}
			if !ahead(row, heap[p], heap[c]) {
				break
			}
			heap[p], heap[c] = heap[c], heap[p]
			p = c
		}
	}
	return heap
}

// Cumsum computes dst[o, r, i] = the sum of x[o, 0..r, i], or of x[o, r.., i] with
// reverse, for [outer, n, inner].
func (c *CPU) Cumsum(dt DType, reverse bool, dst, x unsafe.Pointer, outer, n, inner int) {
	size := outer * n * inner
	switch dt {
	case Float32:
		cumsumRows[float64](sliceOf[float32](dst, size), sliceOf[float32](x, size), n, inner, reverse)
	case Float64:
		cumsumRows[float64](sliceOf[float64](dst, size), sliceOf[float64](x, size), n, inner, reverse)
	case Int64:
		cumsumRows[int64](sliceOf[int64](dst, size), sliceOf[int64](x, size), n, inner, reverse)
	}
}

// cumsumRows adds up in S, of columnTile columns at a time.
func cumsumRows[S, T float32 | float64 | int64](dst, x []T, n, inner int, reverse bool) {
	sums := make([]S, min(inner, columnTile))
	for block := 0; block < len(x); block += n * inner {
		d, s := dst[block:block+n*inner], x[block:block+n*inner]
		if inner == 1 {
			cumsumRow[S](d, s, reverse)
			continue
		}
		for i := 0; i < inner; i += columnTile {
			sums := sums[:min(columnTile, inner-i)]
			clear(sums)
			for k := range n {
				if reverse {
					k = n - 1 - k
				}
				d, s := d[k*inner+i:][:len(sums)], s[k*inner+i:][:len(sums)]
				for j := range sums {
					sums[j] += S(s[j])
					d[j] = T(sums[j])
				}
			}
		}
	}
}

func cumsumRow[S, T float32 | float64 | int64](dst, x []T, reverse bool) {
	var sum S
	for k := range x {
		if reverse {
			k = len(x) - 1 - k
		}
		sum += S(x[k])
		dst[k] = T(sum)
	}
}
