package cuda

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CheckIndex finds the first index that is outside [0, size). It waits for the device.
func (g kernels) CheckIndex(index kernel.Index, size int) (position, value int, ok bool) {
	n := index.N
	if n == 0 {
		return 0, 0, true
	}
	cell := g.Scratch(8)
	defer cell.Free()
	first := uint64(n)
	g.FromHost(cell.Block.Ptr(), unsafe.Pointer(&first), 8)
	g.kernel("check_index").index(index).i64(n, size).ptr(cell.Block.Ptr()).each(n)
	g.read(cell.Block.Ptr(), unsafe.Pointer(&first), 8)
	if first == uint64(n) {
		return 0, 0, true
	}
	position = int(first)
	at := index.From(position, 1).At
	if index.DType == tensor.Int32 {
		var v int32
		g.read(at, unsafe.Pointer(&v), 4)
		return position, int(v), false
	}
	var v int64
	g.read(at, unsafe.Pointer(&v), 8)
	return position, int(v), false
}

// unitOf returns how many bytes can be copied at once, 1 to 16: the largest power of two
// that divides rowBytes and all addresses.
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
func (g kernels) IndexSelect(elemBytes int, dst, x unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	row := a.Inner * elemBytes
	unit := unitOf(row, dst, x)
	g.kernel("index_select").i32(unit).ptr(dst, x).index(index).i64(a.Outer, a.N, index.N, row/unit).each(a.Outer * index.N * row / unit)
}

// IndexAdd computes dst[o, index[j], i] += src[o, j, i]. If columns [o, i] are too few to
// give each a thread, the slices of one index are added up first, in the order of j.
func (g kernels) IndexAdd(dt tensor.DType, dst, src unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	outer, n, count, inner := a.Outer, a.N, index.N, a.Inner
	fits := outer*count <= math.MaxInt32 && outer*n <= 1<<31 // see Unique
	switch {
	case float(dt) && count > 64 && outer*inner < 1<<14 && fits:
		g.indexAddSums(dt, dst, src, index, a)
	case float(dt):
		g.typed("index_add", dt).ptr(dst, src).index(index).i64(outer, n, count, inner).each(outer * inner)
	case dt.Size() >= 4:
		g.kernel("index_add_words").i32(dt.Size()).ptr(dst, src).index(index).i64(outer, n, count, inner).each(outer * count * inner)
	default:
		g.kernel("index_add_int").dt(dt).ptr(dst, src).index(index).i64(outer, n, count, inner).each(outer * inner)
	}
}

// indexAddSums is IndexAdd by way of the distinct indices and the sums of each.
func (g kernels) indexAddSums(dt tensor.DType, dst, src unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	all := a.Outer * index.N
	buf := g.Scratch(8*(3*all+1) + 4*all)
	defer buf.Free()
	rows := buf.Block.Ptr()
	flat, start, order := unsafe.Add(rows, 8*all), unsafe.Add(rows, 16*all), unsafe.Add(rows, 8*(3*all+1))
	if a.Outer > 1 {
		g.kernel("flat_index").ptr(flat).index(index).i64(a.Outer, a.N, index.N).each(all)
		index = kernel.Index{DType: tensor.Int64, At: flat, N: all}
	}
	found := g.unique(index, 0, a.Outer*a.N, kernel.Distinct{Index: rows, Start: start, Order: order})
	defer found.Free()
	s := kernel.Segments{Order: order, Start: start, N: min(all, a.Outer*a.N), Rows: all, Most: all, Of: all}
	g.sumSegments(dt, dst, src, rows, found.Block.Ptr(), s, a.Inner)
}

// Gather computes dst[i] = element i of p of x, for contiguous dst.
func (g kernels) Gather(elemBytes int, dst, x unsafe.Pointer, p kernel.Pick) {
	n := p.Loop.Numel()
	g.kernel("gather").i32(elemBytes).ptr(dst, x).index(p.Index).i64(p.Step).loop(&p.Loop).i64(n).each(n)
}

// A line is the dimension along which a scatter writes, with the strides of index and src.
type line struct{ count, index, src int }

// Scatter sets element i of p of dst to src[Σ i·B], or adds it. One thread writes a line, in
// order.
func (g kernels) Scatter(dt tensor.DType, add bool, dst, src unsafe.Pointer, p kernel.Pick) {
	lines, along := split(p.Loop)
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
	put(k.ptr(dst, src).index(p.Index).i64(p.Step).loop(&lines), along).i64(n).each(n)
}

// split takes the dimension along which a scatter writes, whose stride A is 0, out of its
// loop. C of the other dimensions are the strides of index.
func split(l kernel.Loop) (lines kernel.Loop, along line) {
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
func (g kernels) OneHot(dt tensor.DType, dst unsafe.Pointer, index kernel.Index, lo, classes int) {
	g.kernel("one_hot").dt(dt).ptr(dst).index(index).i64(index.N, lo, classes).each(index.N)
}
