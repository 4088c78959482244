package cpu

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CheckIndex finds the first index that is outside [0, size).
func (c *own) CheckIndex(index kernel.Index, size int) (position, value int, ok bool) {
	if index.DType == dtype.Int32 {
		return checkIndex(sliceOf[int32](index.At, index.N), size)
	}
	return checkIndex(sliceOf[int64](index.At, index.N), size)
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

func indices(x kernel.Index) indexList {
	if x.DType == dtype.Int32 {
		return indexList{narrow: sliceOf[int32](x.At, x.N)}
	}
	return indexList{wide: sliceOf[int64](x.At, x.N)}
}

func (l *indexList) at(i int) int {
	if l.narrow != nil {
		return int(l.narrow[i])
	}
	return int(l.wide[i])
}

// IndexSelect computes dst[o, j, i] = x[o, index[j], i] for x [outer, n, inner]
// and dst [outer, count, inner].
func (c *own) IndexSelect(elemBytes int, dst, x unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	if a.Inner == 1 && index.N > 0 { // a copy takes ten times as long
		switch elemBytes {
		case 1:
			selectElements[uint8](dst, x, index, a)
		case 2:
			selectElements[uint16](dst, x, index, a)
		case 4:
			selectElements[uint32](dst, x, index, a)
		case 8:
			selectElements[uint64](dst, x, index, a)
		}
		return
	}
	list, row := indices(index), a.Inner*elemBytes
	d, s := sliceOf[byte](dst, a.Outer*index.N*row), sliceOf[byte](x, a.Outer*a.N*row)
	for o := range a.Outer {
		for j := range index.N {
			from := (o*a.N + list.at(j)) * row
			copy(d[(o*index.N+j)*row:][:row], s[from:from+row])
		}
	}
}

// selectElements is IndexSelect for single elements.
func selectElements[T any](dst, x unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	d, s := sliceOf[T](dst, a.Outer*index.N), sliceOf[T](x, a.Outer*a.N)
	if list := indices(index); list.narrow != nil {
		selectColumns(d, s, list.narrow, a.N)
	} else {
		selectColumns(d, s, list.wide, a.N)
	}
}

func selectColumns[T any, I int32 | int64](dst, x []T, index []I, n int) {
	for ; len(dst) > 0; dst, x = dst[len(index):], x[n:] {
		to, from := dst[:len(index)], x[:n]
		for j, k := range index {
			to[j] = from[k]
		}
	}
}

// IndexAdd computes dst[o, index[j], i] += src[o, j, i] in the order of j.
func (c *own) IndexAdd(dt dtype.DType, dst, src unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	types[dt].indexAdd(dst, src, index, a)
}

func addColumns[T number, I int32 | int64](dst, src []T, index []I, n int) {
	for ; len(src) > 0; dst, src = dst[n:], src[len(index):] {
		to, from := dst[:n], src[:len(index)]
		for j, k := range index {
			to[k] += from[j]
		}
	}
}

func indexAdd[T number](dst, src []T, index kernel.Index, a kernel.Axis) {
	list := indices(index)
	switch { // a call takes ten times as long as an element
	case a.Inner != 1:
	case list.narrow != nil:
		addColumns(dst, src, list.narrow, a.N)
		return
	case list.wide != nil:
		addColumns(dst, src, list.wide, a.N)
		return
	}
	for o := range a.Outer {
		for j := range index.N {
			to := (o*a.N + list.at(j)) * a.Inner
			simd.AddTo(dst[to:to+a.Inner], src[(o*index.N+j)*a.Inner:][:a.Inner])
		}
	}
}

// Gather computes dst[i] = element i of p of x, for contiguous dst.
func (c *own) Gather(elemBytes int, dst, x unsafe.Pointer, p kernel.Pick) {
	switch elemBytes {
	case 1:
		gather[uint8](dst, x, &p)
	case 2:
		gather[uint16](dst, x, &p)
	case 4:
		gather[uint32](dst, x, &p)
	case 8:
		gather[uint64](dst, x, &p)
	}
}

func gather[T any](dst, x unsafe.Pointer, p *kernel.Pick) {
	d, s := sliceOf[T](dst, p.Index.N), sliceOf[T](x, p.Numel)
	if list := indices(p.Index); list.narrow != nil {
		gatherRuns(d, s, list.narrow, p)
	} else {
		gatherRuns(d, s, list.wide, p)
	}
}

func gatherRuns[T any, I int32 | int64](dst, x []T, index []I, p *kernel.Pick) {
	last := p.Loop.N - 1
	n, sa := p.Loop.Size[last], p.Loop.A[last]
	eachRun(&p.Loop, func(i, a, _, _ int) {
		to, from, list := dst[i:i+n], x[a:], index[i:i+n]
		if sa == 0 && p.Step == 1 { // along the last dimension
			for k, j := range list {
				to[k] = from[j]
			}
			return
		}
		for k, j := range list {
			to[k] = from[k*sa+int(j)*p.Step]
		}
	})
}

// Scatter sets element i of p of dst to src[Σ i·B], or adds it.
func (c *own) Scatter(dt dtype.DType, add bool, dst, src unsafe.Pointer, p kernel.Pick) {
	switch {
	case add:
		types[dt].scatterAdd(dst, src, p)
	case dt.Size() == 1:
		scatter[int8](dst, src, &p, false)
	case dt.Size() == 2:
		scatter[int16](dst, src, &p, false)
	case dt.Size() == 4:
		scatter[int32](dst, src, &p, false)
	default:
		scatter[int64](dst, src, &p, false)
	}
}

func scatter[T number](dst, src unsafe.Pointer, p *kernel.Pick, add bool) {
	if p.Index.N == 0 {
		return
	}
	end := 1
	for d := range p.Loop.N {
		end += (p.Loop.Size[d] - 1) * p.Loop.B[d]
	}
	d, s := sliceOf[T](dst, p.Numel), sliceOf[T](src, end)
	if list := indices(p.Index); list.narrow != nil {
		scatterRuns(d, s, list.narrow, p, add)
	} else {
		scatterRuns(d, s, list.wide, p, add)
	}
}

func scatterRuns[T number, I int32 | int64](dst, src []T, index []I, p *kernel.Pick, add bool) {
	last := p.Loop.N - 1
	n, sa, sb := p.Loop.Size[last], p.Loop.A[last], p.Loop.B[last]
	eachRun(&p.Loop, func(i, a, b, _ int) {
		to, from, list := dst[a:], src[b:], index[i:i+n]
		switch {
		case add && sa == 0 && sb == 1 && p.Step == 1: // along the last dimension
			from = from[:len(list)]
			for k, j := range list {
				to[j] += from[k]
			}
		case add:
			for k, j := range list {
				to[k*sa+int(j)*p.Step] += from[k*sb]
			}
		default:
			for k, j := range list {
				to[k*sa+int(j)*p.Step] = from[k*sb]
			}
		}
	})
}

// FoldRun computes to[k·step + index[k]·stride] = op of it and from[k], in the order of k.
func FoldRun[T float32 | float64 | int64](op kernel.ReduceOp, to, from []T, index []int64, step, stride int) {
	from = from[:len(index)]
	switch op {
	case kernel.OpSum:
		for k, j := range index {
			to[k*step+int(j)*stride] += from[k]
		}
	case kernel.OpProd:
		for k, j := range index {
			to[k*step+int(j)*stride] *= from[k]
		}
	case kernel.OpAmax:
		for k, j := range index {
			p := &to[k*step+int(j)*stride]
			*p = max(*p, from[k])
		}
	case kernel.OpAmin:
		for k, j := range index {
			p := &to[k*step+int(j)*stride]
			*p = min(*p, from[k])
		}
	default:
		kernel.Missing("the CPU", op)
	}
}

// OneHot sets dst[i, index[i]-lo] = 1 for zeroed dst [n, classes].
func (c *own) OneHot(dt dtype.DType, dst unsafe.Pointer, index kernel.Index, lo, classes int) {
	list := indices(index)
	for i := range index.N {
		k := list.at(i) - lo
		if k < 0 || k >= classes {
			continue
		}
		p := unsafe.Add(dst, (i*classes+k)*dt.Size())
		switch dt {
		case dtype.Float32:
			*(*float32)(p) = 1
		case dtype.Float64:
			*(*float64)(p) = 1
		case dtype.Float16:
			*(*dtype.F16)(p) = dtype.ToF16(1)
		case dtype.BFloat16:
			*(*dtype.BF16)(p) = dtype.ToBF16(1)
		case dtype.Int16:
			*(*int16)(p) = 1
		case dtype.Int32:
			*(*int32)(p) = 1
		case dtype.Int64:
			*(*int64)(p) = 1
		default: // one byte: int8, uint8, bool
			*(*uint8)(p) = 1
		}
	}
}
