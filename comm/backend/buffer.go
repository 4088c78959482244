package backend

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/internal/structs"
)

// A Buffer is contiguous memory on one rank. The zero Buffer is empty and has no type: a rank
// passes it where its part of a call uses no buffer.
type Buffer struct {
	Ptr   unsafe.Pointer
	Count int // elements
	DType DType
	of    structs.ID // the type of the elements if they have no DType, else 0; Count is then in bytes
}

// OfStructs reports whether the elements are structs or arrays, which have no DType: to a backend they are bytes.
func (b Buffer) OfStructs() bool { return b.of != 0 }

// Bytes returns the size of the buffer.
func (b Buffer) Bytes() int { return b.Count * b.DType.Size() }

// Slice returns elements lo to hi of the buffer. It does not check the range.
func (b Buffer) Slice(lo, hi int) Buffer {
	part := Buffer{Count: hi - lo, DType: b.DType, of: b.of}
	if lo != hi { // no pointer past the end
		part.Ptr = unsafe.Add(b.Ptr, lo*b.DType.Size())
	}
	return part
}

// Data returns the buffer's memory as bytes.
func (b Buffer) Data() []byte {
	if b.Count == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(b.Ptr), b.Bytes())
}

// Overlaps reports whether two buffers share a byte.
func (b Buffer) Overlaps(o Buffer) bool {
	if b.Count == 0 || o.Count == 0 {
		return false
	}
	p, q := uintptr(b.Ptr), uintptr(o.Ptr)
	return p < q+uintptr(o.Bytes()) && q < p+uintptr(b.Bytes())
}
