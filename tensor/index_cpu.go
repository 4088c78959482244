package tensor

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// CheckIndex finds the first of n indices that is outside [0, size).
func (c *CPU) CheckIndex(dt DType, index unsafe.Pointer, n, size int) (position, value int, ok bool) {
	if dt == Int32 {
		return checkIndex(sliceOf[int32](index, n), size)
	}
	return checkIndex(sliceOf[int64](index, n), size)
}

func checkIndex[I int32 | int64](index []I, size int) (position, value int, ok bool) {
	for i, v := range index {
		if uint64(v) >= uint64(size) {
			return i, int(v), false
		}
	}
	return 0, 0, true
}

// An indexList reads int32 or int64 indices.
type indexList struct {
	narrow []int32
	wide   []int64
}

func indices(dt DType, p unsafe.Pointer, n int) indexList {
	if dt == Int32 {
		return indexList{narrow: sliceOf[int32](p, n)}
	}
	return indexList{wide: sliceOf[int64](p, n)}
}

func (l *indexList) at(i int) int {
	if l.narrow != nil {
		return int(l.narrow[i])
	}
	return int(l.wide[i])
}

// IndexSelect computes dst[o, j, i] = x[o, index[j], i] for x [outer, n, inner]
// and dst [outer, count, inner].
func (c *CPU) IndexSelect(elemBytes int, dst, x unsafe.Pointer, it DType, index unsafe.Pointer, outer, n, count, inner int) {
	list, row := indices(it, index, count), inner*elemBytes
	d, s := sliceOf[byte](dst, outer*count*row), sliceOf[byte](x, outer*n*row)
	for o := range outer {
		for j := range count {
			from := (o*n + list.at(j)) * row
			copy(d[(o*count+j)*row:][:row], s[from:from+row])
		}
	}
}

// IndexAdd computes dst[o, index[j], i] += src[o, j, i] in the order of j.
func (c *CPU) IndexAdd(dt DType, dst, src unsafe.Pointer, it DType, index unsafe.Pointer, outer, n, count, inner int) {
	list := indices(it, index, count)
	switch dt {
	case Float32:
		indexAdd(sliceOf[float32](dst, outer*n*inner), sliceOf[float32](src, outer*count*inner), &list, outer, n, count, inner)
	case Float64:
		indexAdd(sliceOf[float64](dst, outer*n*inner), sliceOf[float64](src, outer*count*inner), &list, outer, n, count, inner)
	case Int8:
		indexAdd(sliceOf[int8](dst, outer*n*inner), sliceOf[int8](src, outer*count*inner), &list, outer, n, count, inner)
	case Int16:
		indexAdd(sliceOf[int16](dst, outer*n*inner), sliceOf[int16](src, outer*count*inner), &list, outer, n, count, inner)
	case Int32:
		indexAdd(sliceOf[int32](dst, outer*n*inner), sliceOf[int32](src, outer*count*inner), &list, outer, n, count, inner)
	case Int64:
		indexAdd(sliceOf[int64](dst, outer*n*inner), sliceOf[int64](src, outer*count*inner), &list, outer, n, count, inner)
	case Uint8:
		indexAdd(sliceOf[uint8](dst, outer*n*inner), sliceOf[uint8](src, outer*count*inner), &list, outer, n, count, inner)
	}
}

func indexAdd[T number](dst, src []T, list *indexList, outer, n, count, inner int) {
	for o := range outer {
		for j := range count {
			to := (o*n + list.at(j)) * inner
			simd.AddTo(dst[to:to+inner], src[(o*count+j)*inner:][:inner])
		}
	}
}

// Gather computes dst[i] = x[Σ i·A + index[i]·step] for contiguous dst and index.
func (c *CPU) Gather(elemBytes int, dst, x unsafe.Pointer, it DType, index unsafe.Pointer, step int, l Loop) {
	list := indices(it, index, l.Numel())
	switch elemBytes {
	case 1:
		gather[uint8](dst, x, &list, step, &l)
	case 2:
		gather[uint16](dst, x, &list, step, &l)
	case 4:
		gather[uint32](dst, x, &list, step, &l)
	case 8:
		gather[uint64](dst, x, &list, step, &l)
	}
}

func gather[T any](dst, x unsafe.Pointer, list *indexList, step int, l *Loop) {
	n, sa := l.Size[l.N-1], l.A[l.N-1]
	l.rows(func(i, a, _, _ int) {
		for k := range n {
			*at[T](dst, i+k) = *at[T](x, a+k*sa+list.at(i+k)*step)
		}
	})
}

// Scatter computes dst[Σ i·A + index[i]·step] = src[Σ i·B], or += with add, for
// contiguous index.
func (c *CPU) Scatter(dt DType, add bool, dst, src unsafe.Pointer, it DType, index unsafe.Pointer, step int, l Loop) {
	list := indices(it, index, l.Numel())
	switch {
	case !add && dt.Size() == 1:
		scatterElems(dst, src, &list, step, &l, set[uint8])
	case !add && dt.Size() == 2:
		scatterElems(dst, src, &list, step, &l, set[uint16])
	case !add && dt.Size() == 4:
		scatterElems(dst, src, &list, step, &l, set[uint32])
	case !add:
		scatterElems(dst, src, &list, step, &l, set[uint64])
	case dt == Float32:
		scatterElems(dst, src, &list, step, &l, add1[float32])
	case dt == Float64:
		scatterElems(dst, src, &list, step, &l, add1[float64])
	case dt == Int8:
		scatterElems(dst, src, &list, step, &l, add1[int8])
	case dt == Int16:
		scatterElems(dst, src, &list, step, &l, add1[int16])
	case dt == Int32:
		scatterElems(dst, src, &list, step, &l, add1[int32])
	case dt == Int64:
		scatterElems(dst, src, &list, step, &l, add1[int64])
	case dt == Uint8:
		scatterElems(dst, src, &list, step, &l, add1[uint8])
	}
}

func set[T any](dst *T, v T)     { *dst = v }
func add1[T number](dst *T, v T) { *dst += v }

func scatterElems[T any](dst, src unsafe.Pointer, list *indexList, step int, l *Loop, put func(dst *T, v T)) {
	n, sa, sb := l.Size[l.N-1], l.A[l.N-1], l.B[l.N-1]
	l.rows(func(i, a, b, _ int) {
		for k := range n {
			put(at[T](dst, a+k*sa+list.at(i+k)*step), *at[T](src, b+k*sb))
		}
	})
}

// OneHot sets dst[i, index[i]-lo] = 1 for zeroed dst [n, classes].
func (c *CPU) OneHot(dt DType, dst unsafe.Pointer, it DType, index unsafe.Pointer, n, lo, classes int) {
	list := indices(it, index, n)
	for i := range n {
		k := list.at(i) - lo
		if k < 0 || k >= classes {
			continue
		}
		p := unsafe.Add(dst, (i*classes+k)*dt.Size())
		switch dt {
		case Float32:
			*(*float32)(p) = 1
		case Float64:
			*(*float64)(p) = 1
		case Float16:
			*(*dtype.F16)(p) = dtype.ToF16(1)
		case BFloat16:
			*(*dtype.BF16)(p) = dtype.ToBF16(1)
		case Int16:
			*(*int16)(p) = 1
		case Int32:
			*(*int32)(p) = 1
		case Int64:
			*(*int64)(p) = 1
		default: // one byte: int8, uint8, bool
			*(*uint8)(p) = 1
		}
	}
}
