package comm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// A DType is the type of one element.
type DType = dtype.DType

// The element types.
const (
	Float32  = dtype.Float32
	Float64  = dtype.Float64
	Float16  = dtype.Float16
	BFloat16 = dtype.BFloat16
	Int8     = dtype.Int8
	Int16    = dtype.Int16
	Int32    = dtype.Int32
	Int64    = dtype.Int64
	Uint8    = dtype.Uint8
	Bool     = dtype.Bool
)

// Elem are the Go types an element can have.
type Elem = dtype.Elem

// A Buffer is contiguous memory on one rank. The zero Buffer is empty and has
// no type: what a rank passes for a buffer that its part of a call does not use.
type Buffer struct {
	Ptr   unsafe.Pointer
	Count int // elements
	DType DType
}

// Of returns the memory of s. It does not copy.
func Of[T Elem](s []T) Buffer {
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s), DType: dtype.Of[T]()}
}

// Raw returns the memory of s, values without pointers, as bytes: for a Func
// on elements of type T, or to move structs.
func Raw[T any](s []T) Buffer {
	var zero T
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s) * int(unsafe.Sizeof(zero)), DType: Uint8}
}

// Bytes returns the size of the buffer.
func (b Buffer) Bytes() int { return b.Count * b.DType.Size() }

// Slice returns elements lo to hi of the buffer. It does not check the range.
func (b Buffer) Slice(lo, hi int) Buffer {
	if lo == hi { // no pointer past the end
		return Buffer{Count: hi - lo, DType: b.DType}
	}
	return Buffer{Ptr: unsafe.Add(b.Ptr, lo*b.DType.Size()), Count: hi - lo, DType: b.DType}
}

// Data returns the buffer's memory as bytes.
func (b Buffer) Data() []byte {
	if b.Count == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(b.Ptr), b.Bytes())
}

// overlaps reports whether two buffers share a byte.
func (b Buffer) overlaps(o Buffer) bool {
	if b.Count == 0 || o.Count == 0 {
		return false
	}
	p, q := uintptr(b.Ptr), uintptr(o.Ptr)
	return p < q+uintptr(o.Bytes()) && q < p+uintptr(b.Bytes())
}
