package cuda

import (
	"math/bits"
	"unsafe"

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

// Unique fills index [u] and count [u] (int64), slot [n] and order [m] (int32) as
// tensor.Uniq describes, for ids in [lo, lo+size), and returns u and m. index and
// count have room for n. It waits for the device.
func (g *Device) Unique(it tensor.DType, ids unsafe.Pointer, n, lo, size int, index, count, slot, order unsafe.Pointer) (u, m int) {
	if n == 0 {
		return 0, 0
	}
	tiles := (n + tile - 1) / tile
	words := max(tiles<<digitBits, n)
	buf := g.Scratch(8 * (2*n + n + 1 + words + max(1<<digitBits, sums(n)) + 2))
	defer buf.Free()
	at := buf.Block.Ptr()
	take := func(words int) unsafe.Pointer {
		p := at
		at = unsafe.Add(at, 8*words)
		return p
	}
	keys, spare, start, digits, part, both := take(n), take(n), take(n+1), take(words), take(max(1<<digitBits, sums(n))), take(2)

	g.kernel("unique_keys").ptr(keys).dt(it).ptr(ids).i64(n, lo, size).each(n)
	for shift := 32; shift < 32+bits.Len(uint(size)); shift += digitBits {
		g.kernel("sort_count").ptr(digits, keys).i64(n, tiles).i32(shift).blocks(tiles)
		g.scanRows(digits, part, 1<<digitBits, tiles)
		g.kernel("sort_move").ptr(spare, keys, digits, part).i64(n, tiles).i32(shift).blocks(tiles)
		keys, spare = spare, keys
	}
	g.kernel("unique_heads").ptr(digits, keys).i64(n, size).each(n)
	total := g.scan(digits, digits, part, n)
	g.clear(both, 16)
	g.kernel("unique_write").ptr(index, slot, order, start, unsafe.Add(both, 8), keys, digits).i64(n, size).each(n)
	var found [2]int64
	g.CopyBytes(both, total, 8)
	g.read(both, unsafe.Pointer(&found), 16)
	u, m = int(found[0]), int(found[1])
	g.kernel("unique_count").ptr(count, start).i64(u).each(u)
	return u, m
}

// sums returns how many words a scan of n elements needs for the sums of its tiles.
func sums(n int) int { return (n+tile-1)/tile + 1 }

// scan computes dst[i] = the sum of x[0..i), int64, and returns where the sum of all
// is. part has room for sums(n); dst may be x.
func (g *Device) scan(dst, x, part unsafe.Pointer, n int) (total unsafe.Pointer) {
	tiles := (n + tile - 1) / tile
	g.kernel("scan_tiles").ptr(part, x).i64(n, tiles).blocks(tiles)
	total = unsafe.Add(part, 8*tiles)
	g.scanRows(part, total, 1, tiles)
	g.kernel("scan_add").ptr(dst, x, part).i64(n, tiles).blocks(tiles)
	return total
}

// scanRows turns each row of x [rows, n], int64, into the sums before its elements;
// total [rows] gets the sums of all.
func (g *Device) scanRows(x, total unsafe.Pointer, rows, n int) {
	areShort := n <= 4
	l := g.kernel("scan_rows").flag(areShort).ptr(x, total).i64(rows, n)
	if areShort {
		l.each(rows)
	} else {
		l.blocks(rows)
	}
}

// piece is how many rows of a segment are summed at once, PIECE in kernels/table.cu.
const piece = 128

// SumSegments computes dst[s] = the sum of rows order[j] of values, j running over
// count[s] of the rows elements of order from where those of the segment before end.
func (g *Device) SumSegments(dt tensor.DType, dst, values, order, count unsafe.Pointer, segments, rows, dim int) {
	if segments == 0 || dim == 0 {
		return
	}
	buf := g.Scratch(8 * (segments + sums(segments)))
	defer buf.Free()
	start := buf.Block.Ptr()
	g.scan(start, count, unsafe.Add(start, 8*segments), segments)
	unit, warps := unitOf(dim*dt.Size(), dst, values), (dim+31)/32
	if unit == 16 {
		warps = (dim*dt.Size()/16 + 31) / 32
	}
	part := unsafe.Pointer(nil)
	if pieces := rows / piece; pieces > 0 {
		sums := g.Scratch((pieces + 1) * dim * dt.Size())
		defer sums.Free()
		part = sums.Block.Ptr()
		g.typed("sum_pieces", dt).i32(unit).ptr(part, values, order, start, count).i64(segments, rows, dim).warps(pieces * warps)
	}
	g.typed("sum_segments", dt).i32(unit).ptr(dst, values, part, order, start, count).i64(segments, dim).warps(segments * warps)
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
