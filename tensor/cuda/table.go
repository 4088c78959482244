package cuda

import (
	"math/bits"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/tensor"
)

// TakeRows copies row ids[i]-lo of table [rows, dim] to row i of dst [n, dim]; a
// row that is not in the table becomes zeros, or stays without zero.
func (g *Device) TakeRows(elemBytes int, dst, table unsafe.Pointer, it tensor.DType, ids unsafe.Pointer, n, dim, lo, rows int, zero bool) {
	row := dim * elemBytes
	unit := unitOf(row, dst, table)
	g.kernel("take_rows").i32(unit).ptr(dst, table).dt(it).ptr(ids).i64(n, row/unit, lo, rows).flag(zero).each(n * row / unit)
}

// What kernels/table.cu sorts by: digits of 8 bits, tiles of 2048 keys.
const (
	digitBits = 8
	tile      = threads * 8
)

// Unique fills index [u], start [u+1] (int64), slot [n] and order [m] (int32) as
// tensor.Uniq describes, for ids in [lo, lo+size), and returns u, m and how often one
// occurs at most, or more. index has room for n, start for n+1; slot may be nil. It
// waits for the device.
func (g *Device) Unique(it tensor.DType, ids unsafe.Pointer, n, lo, size int, index, start, slot, order unsafe.Pointer) (u, m, most int) {
	if n == 0 {
		g.clear(start, 8)
		return 0, 0, 0
	}
	found := g.unique(it, ids, n, lo, size, index, start, slot, order)
	defer found.Free()
	var all [3]int64 // found in kernels/table.cu
	g.read(found.Block.Ptr(), unsafe.Pointer(&all), 24)
	u, m, most = int(all[1]), int(all[0]), int(all[0])
	if all[2] == 0 {
		most = min(m, piece)
	}
	return u, m, most
}

// unique is Unique of some ids that does not wait: what it has found stays on the device.
func (g *Device) unique(it tensor.DType, ids unsafe.Pointer, n, lo, size int, index, start, slot, order unsafe.Pointer) (found mem.Ref) {
	passes := max(1, (bits.Len(uint(max(size-1, 0)))+digitBits-1)/digitBits)
	tiles := (n + tile - 1) / tile
	group := min(8, (bits.Len(uint(tiles))+1)/2) // a tile reads about as many groups as tiles
	words := (tiles + (tiles-1)>>group + 2) / 2 * 2
	zeros := 8*4 + 4*8 + 4*4<<digitBits + 4*words*(1+passes<<digitBits) // Sort in kernels/table.cu
	found = g.Scratch(zeros + 16*n)
	at := found.Block.Ptr()
	g.clear(at, zeros)
	of := func(l *launch) *launch { return l.ptr(at).i64(n).i32(group).i32(passes) }
	if tiles == 1 {
		of(g.kernel("unique_few")).ptr(index, start, slot, order).dt(it).ptr(ids).i64(lo, size).blocks(1)
		return found
	}
	of(g.kernel("unique_keys")).ptr(slot).dt(it).ptr(ids).i64(lo, size).blocks(tiles)
	for pass := range passes {
		of(g.kernel("unique_sort")).i32(pass).blocks(tiles)
	}
	of(g.kernel("unique_write")).ptr(index, start, slot, order).blocks(tiles)
	return found
}

// piece is how many rows of a segment are summed at once, PIECE in kernels/table.cu.
const piece = 128

// SumSegments computes dst[s] = the sum of rows order[j] of values for j in
// [start[s], start[s+1]), of which there are most or less; order has rows elements.
func (g *Device) SumSegments(dt tensor.DType, dst, values, order, start unsafe.Pointer, segments, rows, most, dim int) {
	g.sumSegments(dt, dst, values, order, start, nil, nil, segments, rows, most, dim)
}

// sumSegments is SumSegments, or with index adds the sums to rows index[s] of dst, where
// found says how many segments and rows there are, no more than the arguments.
func (g *Device) sumSegments(dt tensor.DType, dst, values, order, start, index, found unsafe.Pointer, segments, rows, most, dim int) {
	if segments == 0 || dim == 0 {
		return
	}
	unit, columns := unitOf(dim*dt.Size(), dst, values), dim
	if unit == 16 {
		columns = dim * dt.Size() / 16
	}
	part, pieces, chunks := unsafe.Pointer(nil), 0, (columns+31)/32
	if most > piece {
		pieces = rows / piece
		sums := g.Scratch(2 * (pieces + 1) * dim * dt.Size())
		defer sums.Free()
		part = sums.Block.Ptr()
	}
	several := max(1, 32>>bits.Len(uint(columns-1))) // sums of a warp
	g.typed("sum_segments", dt).i32(unit).ptr(dst, values, part, order, start, index, found).i64(segments, rows, dim).warps((pieces + segments + several - 1) / several * chunks)
	g.typed("join_pieces", dt).i32(unit).ptr(dst, part, start, index, found).i64(segments, rows, dim).warps(pieces * chunks)
}

// AddRows computes table[index[i]] += scale·values[i].
func (g *Device) AddRows(dt tensor.DType, table, values, index unsafe.Pointer, n, dim int, scale float64) {
	g.typed("add_rows", dt).i32(unitOf(dim*dt.Size(), table, values)).ptr(table, values, index).i64(n, dim).float(dt, scale).warps(n)
}

// RowPowSums computes dst[i] = Σ|x|ᵖ over row index[i] of table, max|x| for p = +Inf.
func (g *Device) RowPowSums(dt tensor.DType, dst, table unsafe.Pointer, it tensor.DType, index unsafe.Pointer, n, dim int, p float64) {
	g.typed("row_pow_sums", dt).ptr(dst, table).dt(it).ptr(index).i64(n, dim).f64(p).teams(n, dim, held)
}

// ScaleRows computes table[index[i]] *= factor[i]; no row is named twice.
func (g *Device) ScaleRows(dt tensor.DType, table unsafe.Pointer, it tensor.DType, index, factor unsafe.Pointer, n, dim int) {
	g.typed("scale_rows", dt).ptr(table).dt(it).ptr(index, factor).i64(n, dim).warps(n)
}
