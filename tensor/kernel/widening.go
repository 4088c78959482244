package kernel

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// Own has the kernels of a device itself: all for float32, float64, the integers and Bool,
// and for narrow types those that Native names.
type Own interface {
	Kernels
	// Native reports whether the kernel of this name takes dt, a narrow type.
	Native(kernel string, dt dtype.DType) bool
	// Scratch returns memory for a kernel's own use; the kernel frees it.
	Scratch(bytes int) mem.Ref
	// Piece returns how many elements of an argument are widened at a time: few enough for
	// a CPU's caches, or enough that launching kernels costs a GPU little.
	Piece() int
}

// A Widening has a device's kernels for every element type. If the device itself has no
// kernel for a narrow type, Widening converts the arguments to float32, a piece at a time,
// calls the device's float32 kernel, and rounds the results. The pieces are elements, rows,
// heads of attention or rows of a table, as the kernel allows; some kernels take one piece.
type Widening struct{ Own }

// widens reports whether the named kernel has to widen dt.
func (w Widening) widens(kernel string, dt dtype.DType) bool {
	return dt.Narrow() && !w.Native(kernel, dt)
}

// HeadsPiece is about how many elements attention widens at a time.
const HeadsPiece = 1 << 21

const f32 = dtype.Float32

// An operand is an argument of a narrow type, which has unit elements for each unit of the
// kernel's work (an element, a row, a head), or all elements for any piece of it.
type operand struct {
	from, to  unsafe.Pointer // the addresses to read and to write; nil: it is not read, or not written
	unit, all int
}

func read(p unsafe.Pointer, unit int) operand   { return operand{from: p, unit: unit} }
func write(p unsafe.Pointer, unit int) operand  { return operand{to: p, unit: unit} }
func edit(p unsafe.Pointer, unit int) operand   { return operand{from: p, to: p, unit: unit} }
func readAll(p unsafe.Pointer, all int) operand { return operand{from: p, all: all} }

// elems returns how many elements o has for n units.
func (o operand) elems(n int) int {
	if o.from == nil && o.to == nil {
		return 0
	}
	return n*o.unit + o.all
}

// pieces calls f for count units of work, step units at a time: units lo to lo+n, with the
// operands widened to float32 (nil for nil). After each call it rounds the operands to write.
func (w Widening) pieces(dt dtype.DType, count, step int, f func(lo, n int, wide []unsafe.Pointer), operands ...operand) {
	if count == 0 {
		return
	}
	step = max(1, min(step, count))
	const align = 256
	wide, bytes := make([]unsafe.Pointer, len(operands)), 0
	for _, o := range operands {
		bytes += ints.RoundUp(o.elems(step)*f32.Size(), align)
	}
	room := w.Scratch(max(bytes, align))
	defer room.Free()
	next := room.Block.Ptr()
	for i, o := range operands {
		if o.from != nil || o.to != nil {
			wide[i] = next
			next = unsafe.Add(next, (o.elems(step)*f32.Size()+align-1)/align*align)
		}
	}
	for lo := 0; lo < count; lo += step {
		n := min(step, count-lo)
		for i, o := range operands {
			if o.from != nil {
				w.Cast(f32, wide[i], dt, unsafe.Add(o.from, lo*o.unit*dt.Size()), o.elems(n))
			}
		}
		f(lo, n, wide)
		for i, o := range operands {
			if o.to != nil {
				w.Cast(dt, unsafe.Add(o.to, lo*o.unit*dt.Size()), f32, wide[i], o.elems(n))
			}
		}
	}
}

// elements calls f for a piece of n elements at a time.
func (w Widening) elements(dt dtype.DType, n int, f func(lo, n int, wide []unsafe.Pointer), operands ...operand) {
	w.pieces(dt, n, w.Piece(), f, operands...)
}

// rows calls f for some rows at a time.
func (w Widening) rows(dt dtype.DType, m Matrix, f func(lo int, m Matrix, wide []unsafe.Pointer), operands ...operand) {
	w.pieces(dt, m.Rows, w.Piece()/max(m.Cols, 1), func(lo, n int, wide []unsafe.Pointer) { f(lo, Matrix{n, m.Cols}, wide) }, operands...)
}

// whole calls f once, with all of each operand.
func (w Widening) whole(dt dtype.DType, f func(wide []unsafe.Pointer), operands ...operand) {
	w.pieces(dt, 1, 1, func(_, _ int, wide []unsafe.Pointer) { f(wide) }, operands...)
}

// extent returns how many elements an argument of a loop with these distances spans.
func (l *Loop) extent(stride *[MaxDims]int) int {
	n := 1
	for d, size := range l.Size[:l.N] {
		if size == 0 {
			return 0
		}
		n += (size - 1) * stride[d]
	}
	return n
}

// floats returns the address of the float32 number i at p, nil if p is nil.
func floats(p unsafe.Pointer, i int) unsafe.Pointer {
	if p == nil {
		return nil
	}
	return unsafe.Add(p, i*f32.Size())
}

// A table has rows of cols numbers of type dt, a narrow type or float32.
type table struct {
	dt   dtype.DType
	at   unsafe.Pointer
	cols int
}

// tableRows calls f for the rows of tables that index names, some at a time, which it
// copies one after another as float32. It writes them back if edited; then index must name
// no row twice.
func (w Widening) tableRows(index Index, edited bool, f func(lo, n int, rows []unsafe.Pointer), tables ...table) {
	most := 1
	for _, t := range tables {
		most = max(most, t.cols)
	}
	step := max(1, min(w.Piece()/most, index.N))
	kept, rows := make([]mem.Ref, len(tables)), make([]unsafe.Pointer, len(tables))
	for i, t := range tables {
		kept[i] = w.Scratch(max(1, step*t.cols*t.dt.Size()))
		defer kept[i].Free()
		rows[i] = kept[i].Block.Ptr()
		if t.dt != f32 {
			wide := w.Scratch(max(1, step*t.cols*f32.Size()))
			defer wide.Free()
			rows[i] = wide.Block.Ptr()
		}
	}
	for lo := 0; lo < index.N; lo += step {
		its := index.From(lo, min(step, index.N-lo))
		for i, t := range tables {
			room := kept[i].Block.Ptr()
			w.TakeRows(t.dt.Size(), room, t.at, its, Table{Rows: math.MaxInt, Dim: t.cols}, true)
			if t.dt != f32 {
				w.Cast(f32, rows[i], t.dt, room, its.N*t.cols)
			}
		}
		f(lo, its.N, rows)
		for i, t := range tables {
			if !edited {
				break
			}
			room := kept[i].Block.Ptr()
			if t.dt != f32 {
				w.Cast(t.dt, room, f32, rows[i], its.N*t.cols)
			}
			w.PutRows(t.dt, t.at, room, its, t.cols)
		}
	}
}

// numbered returns the indices 0 to n-1, in scratch memory.
func (w Widening) numbered(n int) (index Index, room mem.Ref) {
	room = w.Scratch(max(1, n*dtype.Int64.Size()))
	w.Iota(dtype.Int64, room.Block.Ptr(), n, 0)
	return Index{dtype.Int64, room.Block.Ptr(), n}, room
}
