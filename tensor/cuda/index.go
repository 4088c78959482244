package cuda

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// CheckIndex finds the first of n indices that is outside [0, size). It waits for
// the device.
func (g *Device) CheckIndex(it tensor.DType, index unsafe.Pointer, n, size int) (position, value int, ok bool) {
	if n == 0 {
		return 0, 0, true
	}
	cell := g.Scratch(8)
	defer cell.Free()
	first := uint64(n)
	g.FromHost(cell.Block.Ptr(), unsafe.Pointer(&first), 8)
	g.kernel("check_index").dt(it).ptr(index).i64(n, size).ptr(cell.Block.Ptr()).each(n)
	g.read(cell.Block.Ptr(), unsafe.Pointer(&first), 8)
	if first == uint64(n) {
		return 0, 0, true
	}
	position = int(first)
	at := unsafe.Add(index, position*it.Size())
	if it == tensor.Int32 {
		var v int32
		g.read(at, unsafe.Pointer(&v), 4)
		return position, int(v), false
	}
	var v int64
	g.read(at, unsafe.Pointer(&v), 8)
	return position, int(v), false
}

// unitOf returns how many bytes of rows of the given bytes can be moved at once:
// all addresses and the rows are multiples of them.
func unitOf(rowBytes int, p ...unsafe.Pointer) int {
	all := uintptr(rowBytes)
	for _, a := range p {
		all |= uintptr(a)
	}
	for unit := uintptr(16); unit > 1; unit /= 2 {
		if all%unit == 0 {
			return int(unit)
		}
	}
	return 1
}

// IndexSelect computes dst[o, j, i] = x[o, index[j], i] for x [outer, n, inner]
// and dst [outer, count, inner].
func (g *Device) IndexSelect(elemBytes int, dst, x unsafe.Pointer, it tensor.DType, index unsafe.Pointer, outer, n, count, inner int) {
	row := inner * elemBytes
	unit := unitOf(row, dst, x)
	g.kernel("index_select").i32(unit).ptr(dst, x).dt(it).ptr(index).i64(outer, n, count, row/unit).each(outer * count * row / unit)
}

// IndexAdd computes dst[o, index[j], i] += src[o, j, i]. Where there are few columns
// [o, i] for a thread each, those of one index are added up first, in the order of j.
func (g *Device) IndexAdd(dt tensor.DType, dst, src unsafe.Pointer, it tensor.DType, index unsafe.Pointer, outer, n, count, inner int) {
	fits := outer*count <= math.MaxInt32 && outer*n <= 1<<31 // see Unique
	switch {
	case float(dt) && count > 64 && outer*inner < 1<<14 && fits:
		g.indexAddSums(dt, dst, src, it, index, outer, n, count, inner)
	case float(dt):
		g.typed("index_add", dt).ptr(dst, src).dt(it).ptr(index).i64(outer, n, count, inner).each(outer * inner)
	case dt.Size() >= 4:
		g.kernel("index_add_words").i32(dt.Size()).ptr(dst, src).dt(it).ptr(index).i64(outer, n, count, inner).each(outer * count * inner)
	default:
		g.kernel("index_add_int").dt(dt).ptr(dst, src).dt(it).ptr(index).i64(outer, n, count, inner).each(outer * inner)
	}
}

// indexAddSums is IndexAdd by way of the distinct indices and the sums of each.
func (g *Device) indexAddSums(dt tensor.DType, dst, src unsafe.Pointer, it tensor.DType, index unsafe.Pointer, outer, n, count, inner int) {
	all := outer * count
	buf := g.Scratch(8*(3*all+1) + 4*all)
	defer buf.Free()
	rows := buf.Block.Ptr()
	flat, start, order := unsafe.Add(rows, 8*all), unsafe.Add(rows, 16*all), unsafe.Add(rows, 8*(3*all+1))
	if outer > 1 {
		g.kernel("flat_index").ptr(flat).dt(it).ptr(index).i64(outer, n, count).each(all)
		it, index = tensor.Int64, flat
	}
	found := g.unique(it, index, all, 0, outer*n, rows, start, nil, order)
	defer found.Free()
	g.sumSegments(dt, dst, src, order, start, rows, found.Block.Ptr(), min(all, outer*n), all, all, inner)
}

// Gather computes dst[i] = x[Σ i·A + index[i]·step] for contiguous dst and index.
func (g *Device) Gather(elemBytes int, dst, x unsafe.Pointer, it tensor.DType, index unsafe.Pointer, step int, l tensor.Loop) {
	n := l.Numel()
	g.kernel("gather").i32(elemBytes).ptr(dst, x).dt(it).ptr(index).i64(step).loop(&l).i64(n).each(n)
}

// A line is the dimension along which a scatter picks.
type line struct{ count, index, src int }

// Scatter computes dst[Σ i·A + index[i]·step] = src[Σ i·B], or += with add, for
// contiguous index. What lies in one line is done in order, by one thread.
func (g *Device) Scatter(dt tensor.DType, add bool, dst, src unsafe.Pointer, it tensor.DType, index unsafe.Pointer, step int, l tensor.Loop) {
	lines, along := split(l)
	var k *launch
	switch {
	case !add:
		k = g.kernel("scatter").i32(dt.Size())
	case float(dt):
		k = g.typed("scatter_add", dt)
	default:
		k = g.kernel("scatter_add_int").dt(dt)
	}
	n := lines.Numel()
	put(k.ptr(dst, src).dt(it).ptr(index).i64(step).loop(&lines), along).i64(n).each(n)
}

// split takes the dimension along which a scatter picks, which dst does not have
// (A is 0), out of its loop. C of what is left are the distances in index.
func split(l tensor.Loop) (lines tensor.Loop, along line) {
	along.count = 1
	step := 1
	for d := l.N - 1; d >= 0; d-- {
		l.C[d] = step
		step *= l.Size[d]
	}
	for d := range l.N {
		if l.A[d] == 0 && along.count == 1 {
			along = line{l.Size[d], l.C[d], l.B[d]}
			continue
		}
		lines.Size[lines.N], lines.A[lines.N], lines.B[lines.N], lines.C[lines.N] = l.Size[d], l.A[d], l.B[d], l.C[d]
		lines.N++
	}
	return lines, along
}

// OneHot sets dst[i, index[i]-lo] = 1 for zeroed dst [n, classes].
func (g *Device) OneHot(dt tensor.DType, dst unsafe.Pointer, it tensor.DType, index unsafe.Pointer, n, lo, classes int) {
	g.kernel("one_hot").dt(dt).ptr(dst).dt(it).ptr(index).i64(n, lo, classes).each(n)
}
