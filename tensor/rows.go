package tensor

import (
	"runtime"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Rows is a sparse gradient of a table: Values[i] belongs to row Index[i].
// Index [U] is Int64, ascending and without repetition; Values is [U, D].
type Rows struct {
	Index  *Tensor
	Values *Tensor
}

// TakeRows looks up the rows that this part of a table owns:
//
//	y[i] = table[ids[i]-lo] if lo <= ids[i] < lo+R, else zeros
//
//	table [R, D]   ids [...]   →   [..., D]
//
// ids are int64 or int32; none is out of range here.
func TakeRows(table, ids *Tensor, lo int) *Tensor {
	const op = "TakeRows"
	var shape [kernel.MaxDims]int
	n := copy(shape[:], ids.Shape())
	if n == kernel.MaxDims || table.ndim != 2 {
		throwShape(op, "table %v, ids %v: want a 2-D table and at most %d dimensions of ids", table.brief(), ids.brief(), kernel.MaxDims-1)
	}
	shape[n] = table.dims[1]
	y := alloc(op, table.dev, table.dtype, shape[:n+1])
	TakeRowsTo(y, table, ids, lo, true)
	return y
}

// TakeRowsTo is TakeRows into dst [..., D]. For an id outside [lo, lo+R) it clears the
// row of dst if zero is set, else it leaves the row as it is.
func TakeRowsTo(dst, table, ids *Tensor, lo int, zero bool) {
	const op = "TakeRowsTo"
	rows, dim := wantTable(op, table, ids)
	wantSameType(op, dst, table)
	if dst.numel != ids.numel*dim {
		throwShape(op, "dst %v for ids %v and rows of %d: sizes do not fit", dst.brief(), ids.brief(), dim)
	}
	dst.dev.TakeRows(dst.dtype.Size(), dst.change(op), table.ptr(op), ids.indices(op),
		kernel.Table{Lo: lo, Rows: rows, Dim: dim}, zero)
	keepAlive(table, ids)
}

// wantTable throws unless table is 2-D and ids are indices on its device.
func wantTable(op string, table, ids *Tensor) (rows, dim int) {
	wantIndex(op, "ids", ids)
	wantSameDevice(op, table, ids)
	if table.ndim != 2 {
		throwShape(op, "table %v: want two dimensions", table.brief())
	}
	return table.dims[0], table.dims[1]
}

// A Uniq holds the distinct ids of a list, and where in the list each of them stands.
type Uniq struct {
	Index *Tensor // [U] Int64: the distinct ids in range, less lo, ascending
	Start *Tensor // [U+1] Int64: Index[k] stands at positions Order[Start[k]:Start[k+1]]
	Slot  *Tensor // [N] Int32: Index[Slot[i]] is ids[i]-lo; Slot[i] is -1 if ids[i] is out of range
	Order *Tensor // [M] Int32: the positions of the M ids in range, sorted by id, then by position

	most int // an upper bound for how often one id occurs; 0: unknown
}

// Count returns how often each distinct id occurs, [U] Int64.
func (u Uniq) Count() *Tensor {
	n := u.Index.numel
	return Binary(kernel.OpSub, Narrow(u.Start, 0, 1, n), Narrow(u.Start, 0, 0, n))
}

// Unique returns the distinct ids in [lo, lo+n) and their positions. It costs a few passes
// over the ids, whatever n is.
func Unique(ids *Tensor, lo, n int) Uniq { return unique(ids, lo, n, true) }

// unique is Unique, which computes Slot only withSlot.
func unique(ids *Tensor, lo, n int, withSlot bool) Uniq {
	const op = "Unique"
	wantIndex(op, "ids", ids)
	dev, size := ids.dev, ids.numel
	if n > 1<<31 || size > 1<<31-1 {
		throwShape(op, "%d ids of %d rows: at most 2³¹-1 and 2³¹", size, n)
	}
	index, start := alloc(op, dev, Int64, []int{size}), alloc(op, dev, Int64, []int{size + 1})
	order := alloc(op, dev, Int32, []int{size})
	d := kernel.Distinct{Index: index.addr, Start: start.addr, Order: order.addr}
	var slot *Tensor
	if withSlot {
		slot = alloc(op, dev, Int32, []int{size})
		d.Slot = slot.addr
	}
	u, m, most := dev.Unique(ids.indices(op), lo, n, d)
	runtime.KeepAlive(ids)
	return Uniq{Index: Narrow(index, 0, 0, u), Start: Narrow(start, 0, 0, u+1), Slot: slot, Order: Narrow(order, 0, 0, m), most: most}
}

// SumRows adds up the rows of values [N, D], or [..., D] for N ids, that have the same id, in the
// order of their positions. If values is the gradient of the rows looked up, the result is that of the
// table.
func (u Uniq) SumRows(values *Tensor) Rows { return u.sumRows(values, u.Slot.numel) }

// sumRows is SumRows for n ids.
func (u Uniq) sumRows(values *Tensor, n int) Rows {
	const op = "SumRows"
	wantFloat(op, values)
	if values.ndim == 0 || values.numel != n*values.dims[values.ndim-1] {
		throwShape(op, "values %v for %d ids: want a row for each", values.brief(), n)
	}
	dim := values.dims[values.ndim-1]
	most := u.most
	if most == 0 {
		most = u.Order.numel
	}
	sums := alloc(op, values.dev, values.dtype, []int{u.Index.numel, dim})
	values.dev.SumSegments(values.dtype, sums.addr, values.ptr(op), kernel.Segments{
		Order: u.Order.ptr(op), Start: u.Start.ptr(op), N: u.Index.numel, Rows: u.Order.numel, Most: most, Of: n}, dim)
	keepAlive(values, u.Order, u.Start)
	return Rows{Index: u.Index, Values: sums}
}

// Coalesce is Unique(ids, lo, n).SumRows(values): the gradient of TakeRows(table, ids, lo)
// for a table of n rows, from the gradient values of its result.
func Coalesce(ids, values *Tensor, lo, n int) Rows {
	return unique(ids, lo, n, false).sumRows(values, ids.numel)
}

// addRowsTo adds scale·rows to table for op. A row of a narrow type is computed in float32
// and rounded once. It throws an *IndexError for a row that table does not have.
func addRowsTo(op string, table *Tensor, rows Rows, scale float64) {
	wantFloat(op, table)
	wantRows(op, table, rows)
	table.dev.AddRows(table.dtype, table.change(op), rows.Values.ptr(op), rows.Index.indices(op), table.dims[1], scale)
	keepAlive(rows.Index, rows.Values)
}

// wantRows throws unless rows fit table.
func wantRows(op string, table *Tensor, rows Rows) {
	wantSameType(op, table, rows.Values)
	if n, d := wantTable(op, table, rows.Index); rows.Index.dtype != Int64 || rows.Index.ndim != 1 ||
		rows.Values.ndim != 2 || rows.Values.dims[0] != rows.Index.numel || rows.Values.dims[1] != d {
		throwShape(op, "table %v: index %v and values %v are not rows of it", table.brief(), rows.Index.brief(), rows.Values.brief())
	} else {
		wantInRange(op, rows.Index, n)
	}
}

// PutRows sets row rows.Index[i] of table to rows.Values[i].
func PutRows(table *Tensor, rows Rows) {
	const op = "PutRows"
	wantRows(op, table, rows)
	table.dev.PutRows(table.dtype, table.ptr(op), rows.Values.ptr(op), rows.Index.indices(op), table.dims[1])
	keepAlive(rows.Index, rows.Values)
}

// DenseRows returns rows as a table of n rows, zeros elsewhere.
func DenseRows(rows Rows, n int) *Tensor {
	table := Zeros(rows.Values.dev, rows.Values.dtype, n, rows.Values.dims[1])
	addRowsTo("DenseRows", table, rows, 1)
	return table
}

// RowPowSums returns Σ|x|ᵖ, or max|x| for p = +Inf, of each row of table that index
// names, float32 for a narrow type. Ranks that hold parts of a row combine these to its
// norm.
func RowPowSums(table, index *Tensor, p float64) *Tensor {
	const op = "RowPowSums"
	wantFloat(op, table)
	wantPower(op, p)
	n, dim := wantTable(op, table, index)
	wantInRange(op, index, n)
	y := alloc(op, table.dev, table.dtype.Wide(), []int{index.numel})
	table.dev.RowPowSums(table.dtype, y.addr, table.ptr(op), index.indices(op), dim, p)
	keepAlive(table, index)
	return y
}

// ScaleRowsTo multiplies row index[i] of table by factor[i], which for a narrow type is
// float32. No row may be named twice.
func ScaleRowsTo(table, index, factor *Tensor) {
	const op = "ScaleRowsTo"
	wantFloat(op, table)
	wantWideType(op, table, factor)
	n, dim := wantTable(op, table, index)
	if factor.numel != index.numel {
		throwShape(op, "factor %v for %d rows", factor.brief(), index.numel)
	}
	wantInRange(op, index, n)
	table.dev.ScaleRows(table.dtype, table.ptr(op), index.indices(op), factor.ptr(op), dim)
	keepAlive(index, factor)
}

func wantPower(op string, p float64) {
	if !(p > 0) {
		throwShape(op, "p = %g: want more than 0", p)
	}
}
