package cuda

import (
	"math/bits"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// TakeRows copies row ids[i]-Lo of a table to row i of dst. If the table has no such row,
// it clears the row of dst, or without zero leaves it.
func (g kernels) TakeRows(elemBytes int, dst, table unsafe.Pointer, ids kernel.Index, t kernel.Table, zero bool) {
	row := t.Dim * elemBytes
	unit := unitOf(row, dst, table)
	g.kernel("take_rows").i32(unit).ptr(dst, table).index(ids).i64(ids.N, row/unit, t.Lo, t.Rows).flag(zero).each(ids.N * row / unit)
}

// PutRows copies row i of rows to row index[i] of table: a scatter along dimension 0, with
// the index of a row for each of its elements.
func (g kernels) PutRows(dt tensor.DType, table, rows unsafe.Pointer, index kernel.Index, dim int) {
	n := index.N * dim
	if n == 0 {
		return
	}
	room := g.Scratch(n * index.DType.Size())
	defer room.Free()
	each := kernel.Index{DType: index.DType, At: room.Block.Ptr(), N: n}
	sizes := [kernel.MaxDims]int{index.N, dim}
	repeat := kernel.Loop{N: 2, Size: sizes, A: [kernel.MaxDims]int{dim, 1}, B: [kernel.MaxDims]int{1, 0}}
	g.CopyLoop(index.DType.Size(), each.At, index.At, repeat)
	g.Scatter(dt, false, table, rows, kernel.Pick{Index: each, Step: dim,
		Loop: kernel.Loop{N: 2, Size: sizes, A: [kernel.MaxDims]int{0, 1}, B: [kernel.MaxDims]int{dim, 1}}})
}

// kernels/table.cu sorts by digits of 8 bits, in tiles of 2048 keys.
const (
	digitBits = 8
	tile      = threads * 8
)

// Unique fills d for the ids in [lo, lo+size). It returns u, the number of distinct ids, m,
// the number of ids, and most, an upper bound for how often one id occurs. It waits for the
// device.
func (g kernels) Unique(ids kernel.Index, lo, size int, d kernel.Distinct) (u, m, most int) {
	if ids.N == 0 {
		g.clear(d.Start, 8)
		return 0, 0, 0
	}
	found := g.unique(ids, lo, size, d)
	defer found.Free()
	var all [3]int64 // FOUND in kernels/table.cu
	g.read(found.Block.Ptr(), unsafe.Pointer(&all), 24)
	u, m, most = int(all[1]), int(all[0]), int(all[0])
	if all[2] == 0 {
		most = min(m, piece)
	}
	return u, m, most
}

// unique is Unique without waiting: it leaves the three numbers on the device, in found.
func (g kernels) unique(ids kernel.Index, lo, size int, d kernel.Distinct) (found mem.Ref) {
	n := ids.N
	passes := max(1, ints.DivUp(bits.Len(uint(max(size-1, 0))), digitBits))
	tiles := ints.DivUp(n, tile)
	group := min(8, (bits.Len(uint(tiles))+1)/2) // a tile reads about as many groups as tiles
	words := (tiles + (tiles-1)>>group + 2) / 2 * 2
	zeros := 8*4 + 4*8 + 4*4<<digitBits + 4*words*(1+passes<<digitBits) // Sort in kernels/table.cu
	found = g.Scratch(zeros + 16*n)
	at := found.Block.Ptr()
	g.clear(at, zeros)
	of := func(l *launch) *launch { return l.ptr(at).i64(n).i32(group).i32(passes) }
	if tiles == 1 {
		of(g.kernel("unique_few")).ptr(d.Index, d.Start, d.Slot, d.Order).index(ids).i64(lo, size).blocks(1)
		return found
	}
	of(g.kernel("unique_keys")).ptr(d.Slot).index(ids).i64(lo, size).blocks(tiles)
	for pass := range passes {
		of(g.kernel("unique_sort")).i32(pass).blocks(tiles)
	}
	of(g.kernel("unique_write")).ptr(d.Index, d.Start, d.Slot, d.Order).blocks(tiles)
	return found
}

// piece is how many rows of a segment are summed at once, PIECE in kernels/table.cu.
const piece = 128

// SumSegments computes dst[k] = the sum of the rows of values that segment k names.
func (g kernels) SumSegments(dt tensor.DType, dst, values unsafe.Pointer, s kernel.Segments, dim int) {
	g.sumSegments(dt, dst, values, nil, nil, s, dim)
}

// sumSegments is SumSegments; with index it adds the sums to rows index[k] of dst. Then
// found, on the device, says how many segments and rows there are, no more than s says.
func (g kernels) sumSegments(dt tensor.DType, dst, values, index, found unsafe.Pointer, s kernel.Segments, dim int) {
	segments, rows := s.N, s.Rows
	if segments == 0 || dim == 0 {
		return
	}
	unit, columns := unitOf(dim*dt.Size(), dst, values), dim
	if unit == 16 {
		columns = dim * dt.Size() / 16
	}
	part, pieces, chunks := unsafe.Pointer(nil), 0, ints.DivUp(columns, 32)
	if s.Most > piece {
		pieces = rows / piece
		sums := g.Scratch(2 * (pieces + 1) * dim * dt.Size())
		defer sums.Free()
		part = sums.Block.Ptr()
	}
	several := max(1, 32>>bits.Len(uint(columns-1))) // sums of a warp
	g.typed("sum_segments", dt).i32(unit).ptr(dst, values, part, s.Order, s.Start, index, found).i64(segments, rows,
		dim).warps(ints.DivUp(pieces+segments, several) * chunks)
	g.typed("join_pieces", dt).i32(unit).ptr(dst, part, s.Start, index, found).i64(segments, rows, dim).warps(pieces * chunks)
}

// AddRows computes table[index[i]] += scale·values[i].
func (g kernels) AddRows(dt tensor.DType, table, values unsafe.Pointer, index kernel.Index, dim int, scale float64) {
	unit := unitOf(dim*dt.Size(), table, values)
	g.typed("add_rows", dt).i32(unit).ptr(table, values, index.At).i64(index.N, dim).float(dt, scale).warps(index.N)
}

// RowPowSums computes dst[i] = Σ|x|ᵖ over row index[i] of table, max|x| for p = +Inf.
func (g kernels) RowPowSums(dt tensor.DType, dst, table unsafe.Pointer, index kernel.Index, dim int, p float64) {
	g.typed("row_pow_sums", dt).ptr(dst, table).index(index).i64(index.N, dim).f64(p).teams(index.N, dim, held)
}

// ScaleRows computes table[index[i]] *= factor[i]; no row is named twice.
func (g kernels) ScaleRows(dt tensor.DType, table unsafe.Pointer, index kernel.Index, factor unsafe.Pointer, dim int) {
	g.typed("scale_rows", dt).ptr(table).index(index).ptr(factor).i64(index.N, dim).warps(index.N)
}
