package cpu

import (
	"math"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// RowStat computes dst[r] = op of row r.
func (c *own) RowStat(op kernel.RowOp, dt dtype.DType, dst, x unsafe.Pointer, m kernel.Matrix, p float64) {
	rows, n := m.Rows, m.Cols
	if dt == dtype.Float64 {
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
func rowOp32(op kernel.RowOp, x []float32, p float64) float32 {
	switch {
	case op == kernel.OpLogSumExp:
		return simd.LogSumExp(x)
	case op == kernel.OpSquareDev:
		_, variance := simd.Moments(x)
		return float32(variance * float64(len(x)))
	case op == kernel.OpNorm && p == 2:
		return float32(math.Sqrt(simd.SumSquares(x)))
	case op == kernel.OpPowSum && p == 2:
		return float32(simd.SumSquares(x))
	}
	return float32(rowOp(op, x, p))
}

// rowOp is the definition.
func rowOp[T float](op kernel.RowOp, x []T, p float64) float64 {
	var sum float64
	switch op {
	case kernel.OpLogSumExp:
		top, sum := rowStats(x)
		if math.IsInf(top, 0) {
			return top
		}
		return top + math.Log(sum)
	case kernel.OpSquareDev:
		var mean float64
		for _, v := range x {
			mean += float64(v)
		}
		mean /= float64(len(x))
		for _, v := range x {
			sum += (float64(v) - mean) * (float64(v) - mean)
		}
		return sum
	case kernel.OpNorm, kernel.OpPowSum:
	default:
		kernel.Missing("the CPU", op)
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
	if op == kernel.OpNorm && !math.IsInf(p, 1) {
		return math.Pow(sum, 1/p)
	}
	return sum
}

// TopK computes the k largest of each row, and their positions (int64).
func (c *own) TopK(dt dtype.DType, values, index, x unsafe.Pointer, m kernel.Matrix, k int) {
	types[dt].topK(values, sliceOf[int64](index, m.Rows*k), x, m, k)
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
	if f, ok := any(x).([]float32); ok && n <= math.MaxUint32 {
		topK32(any(values).([]float32), index, f, n, k)
		return
	}
	top := make([]int64, 0, k)
	for r := range len(x) / n {
		row := x[r*n : (r+1)*n]
		top = topRow(top[:0], row, k)
		for j := range k { // the first one is last
			i := top[k-1-j]
			values[r*k+j], index[r*k+j] = row[i], i
		}
	}
}

// topK32 is topK of float32, whose orders and positions are compared as one number.
func topK32(values []float32, index []int64, x []float32, n, k int) {
	keys := make([]uint64, 0, k)
	for r := range len(x) / n {
		row := x[r*n : (r+1)*n]
		keys = topKeys(keys[:0], row, k)
		for j := range k { // slices.Sort has the first one last
			i := int64(^uint32(keys[k-1-j]))
			values[r*k+j], index[r*k+j] = row[i], i
		}
	}
}

// topKeys returns the keys of the k elements of row that come first in the order of ahead, in ascending order: of a larger element the
// key is larger, and of equal ones that of the first. keys has room for k, of which it makes a heap with the least at its root.
func topKeys(keys []uint64, row []float32, k int) []uint64 {
	for i, v := range row[:k] {
		keys = append(keys, keyOf(v, i))
	}
	slices.Sort(keys) // which is a heap too
	least := row[^uint32(keys[0])]
	for i, v := range row[k:] {
		if v <= least { // as most are; an equal one comes later
			continue
		}
		if key := keyOf(v, k+i); key > keys[0] { // NaN may not
			sinkKey(keys, key)
			least = row[^uint32(keys[0])]
		}
	}
	slices.Sort(keys)
	return keys
}

// keyOf is the key of element i of a row, v.
func keyOf(v float32, i int) uint64 {
	order := uint32(math.MaxUint32) // NaN first
	if v == v {
		order = OrderOf(v)
	}
	return uint64(order)<<32 | uint64(^uint32(i))
}

// sinkKey replaces the root of a heap of keys.
func sinkKey(heap []uint64, key uint64) {
	parent := 0
	for child := 1; child < len(heap); child = 2*parent + 1 {
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if key <= heap[child] {
			break
		}
		heap[parent], parent = heap[child], child
	}
	heap[parent] = key
}

// argmax returns the position of the first NaN, or else of the largest element.
func argmax[T number](x []T) int {
	if f, ok := any(x).([]float32); ok {
		if i, ok := argmaxShort(f); ok {
			return i
		}
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

// OrderOf maps numbers but NaN to integers of the same order, both zeros to one.
func OrderOf(v float32) uint32 {
	bits := math.Float32bits(v + 0) // -0 + 0 is 0
	return bits ^ (uint32(int32(bits)>>31) | 1<<31)
}

// argmaxShort is argmax of a row that is so short that a call and branches would cost more than its elements. It takes the largest of keys
// in the order of the elements, with the position below. ok is false for a longer row, and for infinities and NaN.
func argmaxShort(x []float32) (best int, ok bool) {
	if len(x) > 32 {
		return 0, false
	}
	var top uint64
	var odd float32 // 0, or NaN for infinities and NaN
	for i, v := range x {
		top = max(top, uint64(OrderOf(v))<<32|uint64(^uint32(i)))
		odd += v - v
	}
	return int(^uint32(top)), odd == 0
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

// topRow returns the positions of the k elements of row that come first in the order of ahead, the first of them last. top has room for
// k, of which it makes a heap with the last at its root.
func topRow[T number](top []int64, row []T, k int) []int64 {
	backwards := func(a, b int64) int {
		if ahead(row, a, b) {
			return 1
		}
		return -1
	}
	for i := range int64(k) {
		top = append(top, i)
	}
	slices.SortFunc(top, backwards) // which is a heap too
	for i := int64(k); i < int64(len(row)); i++ {
		if !(row[i] <= row[top[0]]) && ahead(row, i, top[0]) { // most are no larger; NaN is never
			sink(top, row, i)
		}
	}
	slices.SortFunc(top, backwards)
	return top
}

// sink replaces the root of a heap of positions.
func sink[T number](heap []int64, row []T, i int64) {
	parent := 0
	for child := 1; child < len(heap); child = 2*parent + 1 {
		if child+1 < len(heap) && ahead(row, heap[child], heap[child+1]) {
			child++
		}
		if !ahead(row, i, heap[child]) {
			break
		}
		heap[parent], parent = heap[child], child
	}
	heap[parent] = i
}

// Cumsum computes dst[o, r, i] = the sum of x[o, 0..r, i], or of x[o, r.., i] with reverse.
func (c *own) Cumsum(dt dtype.DType, reverse bool, dst, x unsafe.Pointer, a kernel.Axis) {
	size, n, inner := a.Numel(), a.N, a.Inner
	switch dt {
	case dtype.Float32:
		cumsumRows[float64](sliceOf[float32](dst, size), sliceOf[float32](x, size), n, inner, reverse)
	case dtype.Float64:
		cumsumRows[float64](sliceOf[float64](dst, size), sliceOf[float64](x, size), n, inner, reverse)
	case dtype.Int64:
		cumsumRows[int64](sliceOf[int64](dst, size), sliceOf[int64](x, size), n, inner, reverse)
	}
}

// cumsumRows adds up in type S, ColumnTile columns at a time.
func cumsumRows[S, T float32 | float64 | int64](dst, x []T, n, inner int, reverse bool) {
	if inner == 1 {
		for ; len(x) >= 4*n && n > 0; dst, x = dst[4*n:], x[4*n:] {
			cumsumFour[S](dst[:4*n], x[:4*n], n, reverse)
		}
	}
	sums := make([]S, min(inner, ColumnTile))
	for block := 0; block < len(x); block += n * inner {
		d, s := dst[block:block+n*inner], x[block:block+n*inner]
		if inner == 1 {
			cumsumRow[S](d, s, reverse)
			continue
		}
		for i := 0; i < inner; i += ColumnTile {
			sums := sums[:min(ColumnTile, inner-i)]
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

// cumsumFour is cumsumRow of four rows at a time, as each sum waits for the one before it.
func cumsumFour[S, T float32 | float64 | int64](dst, x []T, n int, reverse bool) {
	var a, b, c, d S
	x0, x1, x2, x3 := x[:n], x[n:][:n], x[2*n:][:n], x[3*n:][:n]
	y0, y1, y2, y3 := dst[:n], dst[n:][:n], dst[2*n:][:n], dst[3*n:][:n]
	for k := range n {
		if reverse {
			k = n - 1 - k
		}
		a, b, c, d = a+S(x0[k]), b+S(x1[k]), c+S(x2[k]), d+S(x3[k])
		y0[k], y1[k], y2[k], y3[k] = T(a), T(b), T(c), T(d)
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
