package tensor

import (
	"runtime"
	"unsafe"
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
	var shape [MaxDims]int
	n := copy(shape[:], ids.Shape())
	if n == MaxDims || table.ndim != 2 {
		throwShape("TakeRows", "table %v, ids %v: want a 2-D table and at most %d dimensions of ids", table.brief(), ids.brief(), MaxDims-1)
	}
	shape[n] = table.dims[1]
	y := alloc("TakeRows", table.dev, table.dtype, shape[:n+1])
	TakeRowsTo(y, table, ids, lo, true)
	return y
}

// TakeRowsTo is TakeRows into dst [..., D]. Without zero the rows that table does
// not own are left as they are in dst.
func TakeRowsTo(dst, table, ids *Tensor, lo int, zero bool) {
	rows, dim := wantTable("TakeRowsTo", table, ids)
	wantSameType("TakeRowsTo", dst, table)
	if dst.numel != ids.numel*dim {
		throwShape("TakeRowsTo", "dst %v for ids %v and rows of %d: sizes do not fit", dst.brief(), ids.brief(), dim)
	}
	dst.dev.TakeRows(dst.dtype.Size(), dst.ptr("TakeRowsTo"), table.ptr("TakeRowsTo"), ids.dtype, ids.ptr("TakeRowsTo"), ids.numel, dim, lo, rows, zero)
	runtime.KeepAlive(table)
	runtime.KeepAlive(ids)
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

// A Uniq is a list of ids without repetition.
type Uniq struct {
	Index *Tensor // [U] Int64: the distinct ids in range, less lo, ascending
	Start *Tensor // [U+1] Int64: Index[k] is that of positions Order[Start[k]:Start[k+1]]
	Slot  *Tensor // [N] Int32: Index[Slot[i]] is ids[i]-lo, or -1 where ids[i] is out of range
	Order *Tensor // [M] Int32: the positions of the M ids in range, sorted by id, those of one id ascending

	most int // no id occurs more often; 0: that is not known
}

// Count returns how often each distinct id occurs, [U] Int64.
func (u Uniq) Count() *Tensor {
	n := u.Index.numel
	return Sub(Narrow(u.Start, 0, 1, n), Narrow(u.Start, 0, 0, n))
}

// Unique returns the distinct ids in [lo, lo+n), with what is needed to go back
// and forth. It costs a few passes over the ids, whatever n is.
func Unique(ids *Tensor, lo, n int) Uniq { return unique(ids, lo, n, true) }

// unique is Unique, without Slot where nobody asks for it.
func unique(ids *Tensor, lo, n int, withSlot bool) Uniq {
	wantIndex("Unique", "ids", ids)
	dev, size := ids.dev, ids.numel
	if n > 1<<31 || size > 1<<31-1 {
		throwShape("Unique", "%d ids of %d rows: at most 2³¹-1 and 2³¹", size, n)
	}
	index, start := alloc("Unique", dev, Int64, []int{size}), alloc("Unique", dev, Int64, []int{size + 1})
	order := alloc("Unique", dev, Int32, []int{size})
	var slot *Tensor
	var slots unsafe.Pointer
	if withSlot {
		slot = alloc("Unique", dev, Int32, []int{size})
		slots = slot.addr
	}
	u, m, most := dev.Unique(ids.dtype, ids.ptr("Unique"), size, lo, n, index.addr, start.addr, slots, order.addr)
	runtime.KeepAlive(ids)
	return Uniq{Index: Narrow(index, 0, 0, u), Start: Narrow(start, 0, 0, u+1), Slot: slot, Order: Narrow(order, 0, 0, m), most: most}
}

// SumRows adds up the rows of values [N, D] (or [..., D] for as many ids) that
// have the same id, those of one id in the order of their positions; bfloat16 in
// float32, and rounded once. The result is the gradient of the part of a table whose
// ids u was made from.
func (u Uniq) SumRows(values *Tensor) Rows { return u.sumRows(values, u.Slot.numel) }

// sumRows is SumRows for n ids.
func (u Uniq) sumRows(values *Tensor, n int) Rows {
	if values.dtype == BFloat16 {
		wide := Widen(values)
		defer wide.Free()
		return Rows{Index: u.Index, Values: recast(u.sumRows(wide, n).Values, BFloat16)}
	}
	wantFloat("SumRows", values)
	if values.ndim == 0 || values.numel != n*values.dims[values.ndim-1] {
		throwShape("SumRows", "values %v for %d ids: want a row for each", values.brief(), n)
	}
	dim := values.dims[values.ndim-1]
	most := u.most
	if most == 0 {
		most = u.Order.numel
	}
	sums := alloc("SumRows", values.dev, values.dtype, []int{u.Index.numel, dim})
	values.dev.SumSegments(values.dtype, sums.addr, values.ptr("SumRows"), u.Order.ptr("SumRows"), u.Start.ptr("SumRows"), u.Index.numel, u.Order.numel, most, dim)
	runtime.KeepAlive(values)
	runtime.KeepAlive(u.Order)
	runtime.KeepAlive(u.Start)
	return Rows{Index: u.Index, Values: sums}
}

// TakeRowsGrad returns the gradient of TakeRows(table, ids, lo) for a table of n
// rows: the rows that ids name, with the sums of their gradients.
func TakeRowsGrad(dy, ids *Tensor, lo, n int) Rows { return coalesce(dy, ids, lo, n) }

// Coalesce adds up the values [N, D] of equal rows: index [N] may repeat and be in
// any order, the values of one row are added in the order in which they stand. It
// ignores rows outside [0, n).
func Coalesce(index, values *Tensor, n int) Rows { return coalesce(values, index, 0, n) }

func coalesce(values, ids *Tensor, lo, n int) Rows {
	return unique(ids, lo, n, false).sumRows(values, ids.numel)
}

// AddRowsTo adds scale·rows to table; each row of bfloat16 is computed in float32 and
// rounded once. It throws an *IndexError for a row that table does not have.
func AddRowsTo(table *Tensor, rows Rows, scale float64) {
	wantFloatOrHalf("AddRowsTo", table)
	wantRows("AddRowsTo", table, rows)
	if table.dtype == BFloat16 {
		editRows("AddRowsTo", rows.Index, rows.Values, []*Tensor{table}, func(values *Tensor, own []*Tensor) {
			AddScaledTo(own[0], scale, values)
		})
		return
	}
	table.dev.AddRows(table.dtype, table.ptr("AddRowsTo"), rows.Values.ptr("AddRowsTo"), rows.Index.ptr("AddRowsTo"), rows.Index.numel, table.dims[1], scale)
	runtime.KeepAlive(rows.Index)
	runtime.KeepAlive(rows.Values)
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

// PutRows writes rows over those rows of table that rows.Index names. It throws an
// *IndexError for a row that table does not have.
func PutRows(table *Tensor, rows Rows) {
	wantRows("PutRows", table, rows)
	putRows("PutRows", table, rows.Index, rows.Values)
}

// DenseRows returns rows as a table of n rows, zeros elsewhere.
func DenseRows(rows Rows, n int) *Tensor {
	table := Zeros(rows.Values.dev, rows.Values.dtype, n, rows.Values.dims[1])
	AddRowsTo(table, rows, 1)
	return table
}

// RowPowSums returns for each row of table that index names Σ|x|ᵖ, or max|x| for
// p = +Inf: what the norm of a row held in parts is made of. Those of bfloat16 are
// float32.
func RowPowSums(table, index *Tensor, p float64) *Tensor {
	wantFloatOrHalf("RowPowSums", table)
	wantPower("RowPowSums", p)
	n, dim := wantTable("RowPowSums", table, index)
	wantInRange("RowPowSums", index, n)
	if table.dtype == BFloat16 {
		rows := recast(TakeRows(table, index, 0), Float32)
		defer rows.Free()
		return RowPowSums(rows, Arange(table.dev, Int64, 0, index.numel), p)
	}
	y := alloc("RowPowSums", table.dev, table.dtype, []int{index.numel})
	table.dev.RowPowSums(table.dtype, y.addr, table.ptr("RowPowSums"), index.dtype, index.ptr("RowPowSums"), index.numel, dim, p)
	runtime.KeepAlive(table)
	runtime.KeepAlive(index)
	return y
}

// ScaleRowsTo multiplies row index[i] of table by factor[i], which for bfloat16 is
// float32. No row may be named twice.
func ScaleRowsTo(table, index, factor *Tensor) {
	wantFloatOrHalf("ScaleRowsTo", table)
	wantWideType("ScaleRowsTo", table, factor)
	n, dim := wantTable("ScaleRowsTo", table, index)
	if factor.numel != index.numel {
		throwShape("ScaleRowsTo", "factor %v for %d rows", factor.brief(), index.numel)
	}
	wantInRange("ScaleRowsTo", index, n)
	if table.dtype == BFloat16 {
		editRows("ScaleRowsTo", index, factor.Reshape(factor.numel, 1), []*Tensor{table}, func(factor *Tensor, own []*Tensor) {
			BinaryTo(own[0], OpMul, own[0], factor)
		})
		return
	}
	table.dev.ScaleRows(table.dtype, table.ptr("ScaleRowsTo"), index.dtype, index.ptr("ScaleRowsTo"), factor.ptr("ScaleRowsTo"), index.numel, dim)
	runtime.KeepAlive(index)
	runtime.KeepAlive(factor)
}
