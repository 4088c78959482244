package comm

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/internal/structs"
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// Elem are the Go types of elements that Sum, Max and the other operations reduce: integers,
// floating-point and complex numbers, bool, types defined from them, and tensor.F16 and
// tensor.BF16 (16-bit floats). The name of a type in errors and traces is that of its size:
// int is int64 on a 64-bit machine.
//
// Calls that only move elements, and those by a Func, take more: any type without pointers,
// such as a struct or an array of these. A type that holds a pointer, a string, a slice, a map
// or the like is an error at the call, since an address means nothing on another rank; move
// such values by BroadcastObject, ScatterObjects, GatherObjects or AllGatherObjects.
type Elem interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint |
		~float32 | ~float64 | ~complex64 | ~complex128 | ~bool
}

// A DType is the type of one element.
type DType = dtype.DType

// The element types that operations reduce.
const (
	Float32    = dtype.Float32
	Float64    = dtype.Float64
	Float16    = dtype.Float16
	BFloat16   = dtype.BFloat16
	Int8       = dtype.Int8
	Int16      = dtype.Int16
	Int32      = dtype.Int32
	Int64      = dtype.Int64
	Uint8      = dtype.Uint8
	Bool       = dtype.Bool
	Uint16     = dtype.Uint16
	Uint32     = dtype.Uint32
	Uint64     = dtype.Uint64
	Complex64  = dtype.Complex64
	Complex128 = dtype.Complex128
)

// Of returns the memory of s. It does not copy. Structs and arrays are bytes to the backend;
// counts of a Call on them are in elements all the same.
func Of[T any](s []T) Buffer {
	b := Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s), DType: dtype.Exactly[T]()}
	if b.DType == dtype.Invalid {
		return b.As(reflect.TypeFor[T]())
	}
	return b
}

// As returns b with elements of type t, which Exactly does not know.
func (b Buffer) As(t reflect.Type) Buffer {
	if b.DType = dtype.Like(t); b.DType == dtype.Invalid {
		b.DType, b.of = Uint8, structs.Of(t)
		b.Count *= b.of.Type().Size
	}
	return b
}

// Raw returns the memory of s, values without pointers, as bytes: for a Func
// on elements of type T, or to move structs.
func Raw[T any](s []T) Buffer {
	var zero T
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s) * int(unsafe.Sizeof(zero)), DType: Uint8}
}

// structType returns the type of c's elements if it has no DType, else nil.
func (c *Call) structType() *structs.Type {
	switch {
	case c.Src.of != 0:
		return c.Src.of.Type()
	case c.Dst.of != 0:
		return c.Dst.of.Type()
	}
	return nil
}

// Width returns how many elements of DType make one element of the user's.
func (c *Call) Width() int {
	if t := c.structType(); t != nil {
		return t.Size
	}
	return 1
}

// CheckTypes returns what is wrong with the type of the elements, nil if nothing is. Problem does so too.
func (c *Call) CheckTypes() error {
	if !c.ofStructs() {
		return nil
	}
	return c.checkTypes()
}

// ofStructs reports whether a buffer's elements have no DType.
func (c *Call) ofStructs() bool { return c.Dst.of|c.Src.of != 0 }

// checkTypes is CheckTypes for elements without a DType.
func (c *Call) checkTypes() error {
	dst, src := c.Dst.of, c.Src.of
	t := c.structType()
	switch {
	case t.Problem != nil:
		return t.Problem
	case c.Dst.DType.Size() > 0 && c.Src.DType.Size() > 0 && dst != src:
		return fmt.Errorf("dst holds %s and src %s; give both one type", c.Dst.elements(), c.Src.elements())
	case c.Kind.Reduces() && c.Op != Custom:
		return fmt.Errorf("%v is not defined on %s; make a Func", c.Op, t.Name)
	}
	return nil
}

// elements returns the name of the type of b's elements.
func (b Buffer) elements() string {
	if b.of != 0 {
		return b.of.Type().Name
	}
	return b.DType.String()
}

// CountBytes replaces the counts of a checked call on a struct type, which are in elements, by
// those in bytes that a backend reads. room holds the new counts.
func (c *Call) CountBytes(room *[2][]int) {
	width := c.Width()
	if width == 1 {
		return
	}
	for i, counts := range []*[]int{&c.DstCounts, &c.SrcCounts} {
		if *counts == nil {
			continue
		}
		room[i] = room[i][:0]
		for _, n := range *counts {
			room[i] = append(room[i], n*width)
		}
		*counts = room[i]
	}
}
