package tensor

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// TakeRows copies row ids[i]-lo of table [rows, dim] to row i of dst [n, dim]; a
// row that is not in the table becomes zeros, or stays without zero.
func (c *CPU) TakeRows(elemBytes int, dst, table unsafe.Pointer, it DType, ids unsafe.Pointer, n, dim, lo, rows int, zero bool) {
	if it == Int32 {
		takeRows(dst, table, sliceOf[int32](ids, n), dim*elemBytes, lo, rows, zero)
	} else {
		takeRows(dst, table, sliceOf[int64](ids, n), dim*elemBytes, lo, rows, zero)
	}
}

func takeRows[I int32 | int64](dst, table unsafe.Pointer, ids []I, rowBytes, lo, rows int, zero bool) {
	ahead := aheadOf(rowBytes)
	l := simd.Moving(2 * len(ids) * rowBytes)
	parallel(len(ids), rowBytes/4, 1, func(from, to int) {
		for i := from; i < to; i++ {
			if next := i + ahead; next < to {
				if r := int(ids[next]) - lo; uint(r) < uint(rows) {
					simd.Prefetch(unsafe.Add(table, r*rowBytes), min(rowBytes, prefetchBytes))
				}
			}
			d := unsafe.Slice((*byte)(unsafe.Add(dst, i*rowBytes)), rowBytes)
			if r := int(ids[i]) - lo; uint(r) < uint(rows) {
				l.CopyNear(d, unsafe.Slice((*byte)(unsafe.Add(table, r*rowBytes)), rowBytes))
			} else if zero {
				clear(d)
			}
		}
		l.Done()
	})
}

// PutRows copies row i of rows [n, dim] to row index[i] of table.
func (c *CPU) PutRows(elemBytes int, table, rows unsafe.Pointer, it DType, index unsafe.Pointer, n, dim int) {
	list, rowBytes := indices(it, index, n), dim*elemBytes
	for i := range n {
		copy(sliceOf[byte](unsafe.Add(table, list.at(i)*rowBytes), rowBytes), sliceOf[byte](unsafe.Add(rows, i*rowBytes), rowBytes))
	}
}

// prefetchBytes is how much of rows in no order is asked for before it is read.
const prefetchBytes = 4 << 10

// aheadOf returns how many rows ahead that is.
func aheadOf(rowBytes int) int { return max(1, prefetchBytes/max(rowBytes, 1)) }

// Unique fills index [u], start [u+1] (int64), slot [n] and order [m] (int32) as Uniq
// describes, for ids in [lo, lo+size), and returns u, m and how often one occurs at most,
// or more. index has room for n, start for n+1; slot may be nil.
func (c *CPU) Unique(it DType, ids unsafe.Pointer, n, lo, size int, index, start, slot, order unsafe.Pointer) (u, m, most int) {
	buf := c.Scratch(16 * n)
	defer buf.Free()
	keys := sliceOf[uint64](buf.Block.Ptr(), 2*n)[:0]
	var slots []int32
	if slot != nil {
		slots = sliceOf[int32](slot, n)
	}
	list := indices(it, ids, n)
	for i := range n {
		if slot != nil {
			slots[i] = -1
		}
		if r := list.at(i) - lo; uint(r) < uint(size) {
			keys = append(keys, uint64(r)<<32|uint64(i))
		}
	}
	keys = sortRows(keys, keys[len(keys):cap(keys)], size)
	idx, first, ord := sliceOf[int64](index, n), sliceOf[int64](start, n+1), sliceOf[int32](order, n)
	for i, key := range keys {
		row, pos := int64(key>>32), int32(key)
		if u == 0 || idx[u-1] != row {
			idx[u], first[u] = row, int64(i)
			u++
		}
		ord[i] = pos
		if slot != nil {
			slots[pos] = int32(u - 1)
		}
	}
	first[u] = int64(len(keys))
	return u, len(keys), len(keys)
}

// sortRows sorts keys row<<32 | position by row, keeping the order of positions: a
// radix sort of the bytes that rows below size have. spare has room for as many
// keys; the result is in one of the two.
func sortRows(keys, spare []uint64, size int) []uint64 {
	if len(keys) < 512 { // the counts would cost more; keys differ, so any sort will do
		slices.Sort(keys)
		return keys
	}
	spare = spare[:len(keys)]
	for shift := 32; shift < 32+bits.Len(uint(max(size-1, 0))); shift += 11 {
		var start [2049]int
		for _, k := range keys {
			start[k>>shift&2047+1]++
		}
		for i := range 2048 {
			start[i+1] += start[i]
		}
		for _, k := range keys {
			d := k >> shift & 2047
			spare[start[d]] = k
			start[d]++
		}
		keys, spare = spare, keys
	}
	return keys
}

// SumSegments computes dst[s] = the sum of rows order[j] of values for j in
// [start[s], start[s+1]), of which there are most or less; order has rows elements.
func (c *CPU) SumSegments(dt DType, dst, values, order, start unsafe.Pointer, segments, rows, most, dim int) {
	if dt == Float32 {
		sumSegments((*float32)(dst), (*float32)(values), order, sliceOf[int64](start, segments+1), rows, dim)
	} else {
		sumSegments((*float64)(dst), (*float64)(values), order, sliceOf[int64](start, segments+1), rows, dim)
	}
}

func sumSegments[T float](dst, values *T, order unsafe.Pointer, start []int64, rows, dim int) {
	rowBytes := dim * int(unsafe.Sizeof(*values))
	ahead := aheadOf(rowBytes)
	for s := range len(start) - 1 {
		first, end := int(start[s]), int(start[s+1])
		d := unsafe.Slice(at[T](unsafe.Pointer(dst), s*dim), dim)
		for k := first; k < end; k++ {
			if later := k + ahead; later < rows {
				simd.Prefetch(unsafe.Pointer(at[T](unsafe.Pointer(values), int(*at[int32](order, later))*dim)), min(rowBytes, prefetchBytes))
			}
			row := unsafe.Slice(at[T](unsafe.Pointer(values), int(*at[int32](order, k))*dim), dim)
			if k == first {
				copy(d, row)
			} else {
				simd.AddTo(d, row)
			}
		}
	}
}

// AddRows computes table[index[i]] += scale·values[i].
func (c *CPU) AddRows(dt DType, table, values, index unsafe.Pointer, n, dim int, scale float64) {
	rows := sliceOf[int64](index, n)
	if dt == Float32 {
		addRows((*float32)(table), (*float32)(values), rows, dim, float32(scale))
	} else {
		addRows((*float64)(table), (*float64)(values), rows, dim, scale)
	}
}

func addRows[T float](table, values *T, index []int64, dim int, scale T) {
	for i, r := range index {
		simd.Axpy(unsafe.Slice(at[T](unsafe.Pointer(table), int(r)*dim), dim), scale, unsafe.Slice(at[T](unsafe.Pointer(values), i*dim), dim))
	}
}

// RowPowSums computes dst[i] = Σ|x|ᵖ over row index[i] of table, max|x| for p = +Inf.
func (c *CPU) RowPowSums(dt DType, dst, table unsafe.Pointer, it DType, index unsafe.Pointer, n, dim int, p float64) {
	list := indices(it, index, n)
	for i := range n {
		r := list.at(i) * dim
		if dt == Float32 {
			*at[float32](dst, i) = rowOp32(OpPowSum, unsafe.Slice(at[float32](table, r), dim), p)
		} else {
			*at[float64](dst, i) = rowOp(OpPowSum, unsafe.Slice(at[float64](table, r), dim), p)
		}
	}
}

// ScaleRows computes table[index[i]] *= factor[i].
func (c *CPU) ScaleRows(dt DType, table unsafe.Pointer, it DType, index, factor unsafe.Pointer, n, dim int) {
	list := indices(it, index, n)
	for i := range n {
		r := list.at(i) * dim
		if dt == Float32 {
			row := unsafe.Slice(at[float32](table, r), dim)
			simd.Scale(row, row, *at[float32](factor, i))
		} else {
			row := unsafe.Slice(at[float64](table, r), dim)
			simd.Scale(row, row, *at[float64](factor, i))
		}
	}
}
