package comm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
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
// such values by BroadcastObject, ScatterObjects, GatherObjects, AllGatherObjects or AllToAllObjects.
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

// A Buffer is contiguous memory on one rank: Count elements of type DType at Ptr. Data has it as bytes, and Slice
// returns a part. The zero Buffer is empty and has no type: a rank passes it where its part of a call uses no buffer.
type Buffer = backend.Buffer

// Of returns the memory of s. It does not copy. Structs and arrays are bytes to the backend;
// counts of a Call on them are in elements all the same.
func Of[T any](s []T) Buffer { return backend.Of(s) }

// Raw returns the memory of s, values without pointers, as bytes: for a Func
// on elements of type T, or to move structs.
func Raw[T any](s []T) Buffer {
	var zero T
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s) * int(unsafe.Sizeof(zero)), DType: Uint8}
}
