package comm

import (
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

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
// such values by BroadcastObject, GatherObjects or AllGatherObjects.
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

// A structType is an element type that has no DType: a struct or an array. Its elements are
// moved as bytes.
type structType struct {
	name    string // "main.Particle"
	size    int    // bytes
	hash    uint32 // of name and size
	problem error  // why its values cannot be moved; nil: they can
}

// A structID is the number of a structType, from 1. A Buffer has it in place of a pointer, so
// that it stays small.
type structID uint16

// structs has the struct types that were used, in this process: facts that never change, kept
// because it takes a microsecond to find them.
var structs struct {
	ids sync.Map // structID by reflect.Type
	mu  sync.Mutex
	all atomic.Pointer[[]*structType] // by structID-1
}

// get returns the type with a number.
func (id structID) get() *structType { return (*structs.all.Load())[id-1] }

// structOf returns the number of t.
func structOf(t reflect.Type) structID {
	if id, ok := structs.ids.Load(t); ok {
		return id.(structID)
	}
	s := &structType{name: t.String(), size: max(1, int(t.Size())), hash: hashName(t.String(), int(t.Size()))}
	if path := pointerIn(t); path != "" {
		s.problem = fmt.Errorf("%s holds a pointer (%s), which means nothing on another rank; "+
			"use numbers and arrays of numbers, or move the value by BroadcastObject, GatherObjects or AllGatherObjects", s.name, path)
	} else if t.Size() == 0 {
		s.problem = fmt.Errorf("%s has no bytes; use a type that has some", s.name)
	}
	structs.mu.Lock()
	defer structs.mu.Unlock()
	if id, ok := structs.ids.Load(t); ok { // another goroutine was first
		return id.(structID)
	}
	var all []*structType
	if p := structs.all.Load(); p != nil {
		all = *p
	}
	if len(all) == math.MaxUint16 {
		panic(fmt.Sprintf("comm: a program with more than %d types of elements", math.MaxUint16))
	}
	all = append(slices.Clip(all), s)
	structs.all.Store(&all)
	id := structID(len(all))
	structs.ids.Store(t, id)
	return id
}

// hashName hashes a name and the size of an element.
func hashName(name string, size int) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", name, size)
	return h.Sum32()
}

// Of returns the memory of s. It does not copy. Structs and arrays are bytes to the backend;
// counts of a Call on them are in elements all the same.
func Of[T any](s []T) Buffer {
	b := Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s), DType: dtype.Exactly[T]()}
	if b.DType == dtype.Invalid {
		return b.as(reflect.TypeFor[T]())
	}
	return b
}

// as returns b with elements of type t, which is none of those that exactly knows.
func (b Buffer) as(t reflect.Type) Buffer {
	switch t.Kind() {
	case reflect.Float32:
		b.DType = Float32
	case reflect.Float64:
		b.DType = Float64
	case reflect.Complex64:
		b.DType = Complex64
	case reflect.Complex128:
		b.DType = Complex128
	case reflect.Bool:
		b.DType = Bool
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		b.DType = [...]DType{1: Int8, 2: Int16, 4: Int32, 8: Int64}[t.Size()]
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		b.DType = [...]DType{1: Uint8, 2: Uint16, 4: Uint32, 8: Uint64}[t.Size()]
	default:
		b.DType, b.of = Uint8, structOf(t)
		b.Count *= b.of.get().size
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
func (c *Call) structType() *structType {
	switch {
	case c.Src.of != 0:
		return c.Src.of.get()
	case c.Dst.of != 0:
		return c.Dst.of.get()
	}
	return nil
}

// width returns how many elements of DType make one element of the user's.
func (c *Call) width() int {
	if t := c.structType(); t != nil {
		return t.size
	}
	return 1
}

// checkElements checks the type of the elements.
func (c *Call) checkElements() error {
	dst, src := c.Dst.of, c.Src.of
	t := c.structType()
	switch {
	case t == nil:
		return nil
	case t.problem != nil:
		return t.problem
	case c.Dst.DType.Size() > 0 && c.Src.DType.Size() > 0 && dst != src:
		return fmt.Errorf("dst holds %s and src %s; give both one type", c.Dst.elements(), c.Src.elements())
	case c.Kind.Reduces() && c.Op != Custom:
		return fmt.Errorf("%v is not defined on %s; make a Func", c.Op, t.name)
	}
	return nil
}

// elements returns the name of the type of b's elements.
func (b Buffer) elements() string {
	if b.of != 0 {
		return b.of.get().name
	}
	return b.DType.String()
}

// countBytes replaces the counts of a checked call on a struct type, which are in elements, by
// those in bytes that a backend reads. room holds the new counts.
func (c *Call) countBytes(room *[2][]int) {
	width := c.width()
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
