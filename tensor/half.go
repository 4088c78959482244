package tensor

import (
	"runtime"
	"unsafe"
)

// WideType returns the type in which numbers of type dt are computed with and added
// up: float32 for bfloat16, else dt itself.
func WideType(dt DType) DType {
	if dt == BFloat16 {
		return Float32
	}
	return dt
}

// Widen returns x as float32 if it is of bfloat16, else x itself.
func Widen(x *Tensor) *Tensor { return Cast(x, WideType(x.dtype)) }

// inPieces reports whether an operator is to widen x, of bfloat16, piece by piece: on a
// CPU. Other devices compute with its elements as float32 as they read them.
func inPieces(x *Tensor) bool { return x.dtype == BFloat16 && x.OnCPU() }

// elementsPiece is how many elements an element-wise operator widens at a time.
const elementsPiece = 1 << 17

// wideElements computes dst, of bfloat16, from args, of its type and shape: f computes
// some elements of it at a time, all as float32. dst may be one of args.
func wideElements(dst *Tensor, f func(dst *Tensor, args []*Tensor), args ...*Tensor) {
	n := dst.numel
	to, wide := dst.Reshape(n), make([]*Tensor, len(args))
	for lo := 0; lo < n; lo += elementsPiece {
		size := min(elementsPiece, n-lo)
		for i, a := range args {
			wide[i] = Widen(Narrow(a.Reshape(n), 0, lo, size))
		}
		y := New(dst.dev, Float32, size)
		f(y, wide)
		CastTo(Narrow(to, 0, lo, size), y)
		y.Free()
		for _, w := range wide {
			w.Free()
		}
	}
}

// editElements calls f with some elements of dst, of bfloat16, and of args, of its shape,
// at a time, bfloat16 as float32, and rounds what f makes of those of dst.
func editElements(dst *Tensor, f func(dst *Tensor, args []*Tensor), args ...*Tensor) {
	n := dst.numel
	wide := make([]*Tensor, len(args))
	for lo := 0; lo < n; lo += elementsPiece {
		size := min(elementsPiece, n-lo)
		piece := func(x *Tensor) *Tensor { return Narrow(x.Reshape(n), 0, lo, size) }
		for i, a := range args {
			wide[i] = Widen(piece(a))
		}
		editWide(piece(dst), func(y *Tensor) { f(y, wide) })
		for i, a := range args {
			if a.dtype == BFloat16 { // else it is a view
				wide[i].Free()
			}
		}
	}
}

// editWide calls f with dst as float32 and rounds what f makes of it.
func editWide(dst *Tensor, f func(wide *Tensor)) {
	wide := Widen(dst)
	f(wide)
	CastTo(dst, wide)
	wide.Free()
}

// How many elements of rows are computed with at a time: on a CPU so few that they stay
// in its caches, elsewhere so many that the time of a kernel is not that of its launch.
const (
	rowsPiece       = 1 << 16
	rowsDevicePiece = 1 << 24
)

// editRows calls f with the rows of tables that index [n] names, none twice, and with
// values [n, …], bfloat16 as float32, and puts back what f makes of the rows, rounded.
// f gets some rows at a time.
func editRows(op string, index, values *Tensor, tables []*Tensor, f func(values *Tensor, rows []*Tensor)) {
	most := 1
	for _, t := range tables {
		most = max(most, t.dims[1])
	}
	piece := rowsDevicePiece
	if index.OnCPU() {
		piece = rowsPiece
	}
	step := max(1, piece/most)
	rows := make([]*Tensor, len(tables))
	for lo := 0; lo < index.numel; lo += step {
		hi := min(lo+step, index.numel)
		its := Narrow(index, 0, lo, hi-lo)
		for i, t := range tables {
			rows[i] = recast(TakeRows(t, its, 0), WideType(t.dtype))
		}
		wide := Widen(Narrow(values, 0, lo, hi-lo))
		f(wide, rows)
		if values.dtype == BFloat16 { // else it is a view
			wide.Free()
		}
		for i, t := range tables {
			rows[i] = recast(rows[i], t.dtype)
			putRows(op, t, its, rows[i])
			rows[i].Free()
		}
	}
}

// throughWide returns f of args, of bfloat16, as float32, rounded to bfloat16.
func throughWide(f func(args []*Tensor) *Tensor, args ...*Tensor) *Tensor {
	wide := make([]*Tensor, len(args))
	for i, a := range args {
		wide[i] = Widen(a)
	}
	y := recast(f(wide), BFloat16)
	for _, w := range wide {
		w.Free()
	}
	return y
}

// widened is Widen; nil for nil.
func widened(x *Tensor) *Tensor {
	if x == nil {
		return nil
	}
	return Widen(x)
}

// narrowed returns x rounded to bfloat16; nil for nil.
func narrowed(x *Tensor) *Tensor {
	if x == nil {
		return nil
	}
	return Cast(x, BFloat16)
}

// freeAll frees those that are not nil.
func freeAll(tensors ...*Tensor) {
	for _, t := range tensors {
		if t != nil {
			t.Free()
		}
	}
}

// recast is Cast that frees x if it returns another tensor.
func recast(x *Tensor, dt DType) *Tensor {
	y := Cast(x, dt)
	if y != x {
		x.Free()
	}
	return y
}

// A rowPutter is a device that can write rows of elements of any type.
type rowPutter interface {
	PutRows(elemBytes int, table, rows unsafe.Pointer, it DType, index unsafe.Pointer, n, dim int)
}

// putRows writes rows [n, D] over the rows of table that index [n] names.
func putRows(op string, table, index, rows *Tensor) {
	dim := table.dims[1]
	if d, ok := table.dev.(rowPutter); ok {
		d.PutRows(table.dtype.Size(), table.ptr(op), rows.ptr(op), index.dtype, index.ptr(op), index.numel, dim)
	} else {
		each := Expand(index.Reshape(index.numel, 1), index.numel, dim)
		ScatterTo(table, 0, each, rows)
		each.Free()
	}
	runtime.KeepAlive(index)
	runtime.KeepAlive(rows)
}
