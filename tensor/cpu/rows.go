package cpu

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// TakeRows copies row ids[i]-Lo of a table to row i of dst. If the table has no such row,
// it clears the row of dst, or without zero leaves it.
func (c *own) TakeRows(elemBytes int, dst, table unsafe.Pointer, ids kernel.Index, t kernel.Table, zero bool) {
	if ids.DType == dtype.Int32 {
		takeRows(dst, table, sliceOf[int32](ids.At, ids.N), t.Dim*elemBytes, t.Lo, t.Rows, zero)
	} else {
		takeRows(dst, table, sliceOf[int64](ids.At, ids.N), t.Dim*elemBytes, t.Lo, t.Rows, zero)
	}
}

func takeRows[I int32 | int64](dst, table unsafe.Pointer, ids []I, rowBytes, lo, rows int, zero bool) {
	ahead := aheadOf(rowBytes)
	mode := simd.Moving(2 * len(ids) * rowBytes)
	parallel(len(ids), rowBytes/4, 1, func(from, to int) {
		for i, next := from, from; i < to; i++ {
			for ; next < min(i+ahead+1, to); next++ { // once some rows, then one
				if r := int(ids[next]) - lo; uint(r) < uint(rows) {
					simd.Prefetch(unsafe.Add(table, r*rowBytes), min(rowBytes, prefetchBytes))
				}
			}
			d := unsafe.Slice((*byte)(unsafe.Add(dst, i*rowBytes)), rowBytes)
			if r := int(ids[i]) - lo; uint(r) < uint(rows) {
				mode.CopyNear(d, unsafe.Slice((*byte)(unsafe.Add(table, r*rowBytes)), rowBytes))
			} else if zero {
				clear(d)
			}
		}
		mode.Done()
	})
}

// PutRows copies row i of rows to row index[i] of table.
func (c *own) PutRows(dt dtype.DType, table, rows unsafe.Pointer, index kernel.Index, dim int) {
	list, rowBytes := indices(index), dim*dt.Size()
	for i := range index.N {
		copy(sliceOf[byte](unsafe.Add(table, list.at(i)*rowBytes), rowBytes), sliceOf[byte](unsafe.Add(rows, i*rowBytes), rowBytes))
	}
}

// prefetchBytes is how many bytes of rows in random order are prefetched ahead of reading.
const prefetchBytes = 4 << 10

// lineBytes is the least that is prefetched.
const lineBytes = 64

// aheadOf returns how many rows prefetchBytes are.
func aheadOf(rowBytes int) int { return max(1, prefetchBytes/max(rowBytes, lineBytes)) }

// longRow is from how many bytes on a row is not prefetched: the processor itself reads ahead in it, which costs less.
const longRow = 2 << 10

// prefetchRows prefetches the row of each table that comes a little after row index[i], and before the first one those up to there.
// The processor prefetches long rows itself.
func prefetchRows(index []int64, i, rowBytes int, tables ...unsafe.Pointer) {
	if rowBytes >= longRow {
		return
	}
	from := i + aheadOf(len(tables)*rowBytes)
	to := from + 1
	if i == 0 {
		from = 0
	}
	for j := from; j < min(to, len(index)); j++ {
		for _, t := range tables {
			simd.Prefetch(unsafe.Add(t, int(index[j])*rowBytes), rowBytes)
		}
	}
}

// Unique fills d for the ids in [lo, lo+size). It returns u, the number of distinct ids, m,
// the number of ids, and most, an upper bound for how often one id occurs.
func (c *own) Unique(ids kernel.Index, lo, size int, d kernel.Distinct) (u, m, most int) {
	n, slot := ids.N, d.Slot
	buf := c.scratch(16 * n)
	defer buf.Free()
	keys := sliceOf[uint64](buf.Block.Ptr(), 2*n)[:0]
	var slots []int32
	if slot != nil {
		slots = sliceOf[int32](slot, n)
	}
	list := indices(ids)
	for i := range n {
		if slot != nil {
			slots[i] = -1
		}
		if r := list.at(i) - lo; uint(r) < uint(size) {
			keys = append(keys, uint64(r)<<32|uint64(i))
		}
	}
	keys = SortRows(keys, keys[len(keys):cap(keys)], size)
	idx, first, ord := sliceOf[int64](d.Index, n), sliceOf[int64](d.Start, n+1), sliceOf[int32](d.Order, n)
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

// SortRows sorts keys row<<32 | position by row, keeping the order of positions. It is a
// radix sort of the bits that rows below size have, fewer at a time where there are few keys, as each
// pass also goes through its counts. spare has room for as many keys; the result is in one of the two.
func SortRows(keys, spare []uint64, size int) []uint64 {
	switch n := len(keys); {
	case n < 64: // the counts would cost more; keys differ, so any sort will do
		slices.Sort(keys)
		return keys
	case n < 4096:
		var counts [1 << 8]int32
		return radixSort(keys, spare[:n], counts[:], size)
	}
	var counts [1 << 11]int32
	return radixSort(keys, spare[:len(keys)], counts[:], size)
}

// radixSort is SortRows by passes of as many bits as there are counts for.
func radixSort(keys, spare []uint64, at []int32, size int) []uint64 {
	digit, mask := bits.Len(uint(len(at)-1)), uint64(len(at)-1)
	for shift := 32; shift < 32+bits.Len(uint(max(size-1, 0))); shift += digit {
		clear(at)
		for _, k := range keys {
			at[k>>shift&mask]++
		}
		next := int32(0)
		for i, n := range at {
			at[i], next = next, next+n
		}
		for _, k := range keys {
			d := k >> shift & uint64(len(at)-1)
			spare[at[d]] = k
			at[d]++
		}
		keys, spare = spare, keys
	}
	return keys
}

// SumSegments computes dst[k] = the sum of the rows of values that segment k names.
func (c *own) SumSegments(dt dtype.DType, dst, values unsafe.Pointer, s kernel.Segments, dim int) {
	switch {
	case c.pairwise && dt == dtype.Float32:
		sumSegmentsPairwise(sliceOf[float32](dst, s.N*dim), sliceOf[float32](values, s.Of*dim), s, dim)
		return
	case c.pairwise:
		sumSegmentsPairwise(sliceOf[float64](dst, s.N*dim), sliceOf[float64](values, s.Of*dim), s, dim)
		return
	}
	if dt == dtype.Float32 {
		sumSegments((*float32)(dst), (*float32)(values), s.Order, sliceOf[int64](s.Start, s.N+1), s.Rows, dim)
	} else {
		sumSegments((*float64)(dst), (*float64)(values), s.Order, sliceOf[int64](s.Start, s.N+1), s.Rows, dim)
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
func (c *own) AddRows(dt dtype.DType, table, values unsafe.Pointer, index kernel.Index, dim int, scale float64) {
	rows := sliceOf[int64](index.At, index.N)
	if dt == dtype.Float32 {
		addRows((*float32)(table), (*float32)(values), rows, dim, float32(scale))
	} else {
		addRows((*float64)(table), (*float64)(values), rows, dim, scale)
	}
}

func addRows[T float](table, values *T, index []int64, dim int, scale T) {
	mode, rowBytes := simd.Apart(), dim*int(unsafe.Sizeof(scale))
	for i, r := range index {
		prefetchRows(index, i, rowBytes, unsafe.Pointer(table))
		row, value := at[T](unsafe.Pointer(table), int(r)*dim), at[T](unsafe.Pointer(values), i*dim)
		simd.AxpyRow(mode, unsafe.Slice(row, dim), scale, unsafe.Slice(value, dim))
	}
}

// RowPowSums computes dst[i] = Σ|x|ᵖ over row index[i] of table, max|x| for p = +Inf.
func (c *own) RowPowSums(dt dtype.DType, dst, table unsafe.Pointer, index kernel.Index, dim int, p float64) {
	list := indices(index)
	for i := range index.N {
		r := list.at(i) * dim
		if dt == dtype.Float32 {
			*at[float32](dst, i) = rowOp32(kernel.OpPowSum, unsafe.Slice(at[float32](table, r), dim), p)
		} else {
			*at[float64](dst, i) = rowOp(kernel.OpPowSum, unsafe.Slice(at[float64](table, r), dim), p)
		}
	}
}

// ScaleRows computes table[index[i]] *= factor[i].
func (c *own) ScaleRows(dt dtype.DType, table unsafe.Pointer, index kernel.Index, factor unsafe.Pointer, dim int) {
	list := indices(index)
	for i := range index.N {
		r := list.at(i) * dim
		if dt == dtype.Float32 {
			row := unsafe.Slice(at[float32](table, r), dim)
			simd.Scale(row, row, *at[float32](factor, i))
		} else {
			row := unsafe.Slice(at[float64](table, r), dim)
			simd.Scale(row, row, *at[float64](factor, i))
		}
	}
}
