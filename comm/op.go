package comm

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"unsafe"
)

// An Op is a reduction. It folds the ranks' values in rank order, from the
// left, so the same call gives the same bits on every rank and in every run.
type Op uint8

// Float16 and BFloat16 fold in float32 and round once. Avg is Sum divided by
// the number of ranks, for floating-point types. Min and Max return NaN if any
// value is NaN, and either of zeros with different signs; on Bool they are And
// and Or. And and Or are bitwise on integers, logical on Bool, and do not exist
// for floating-point types.
const (
	NoOp Op = iota
	Sum
	Avg
	Prod
	Min
	Max
	And
	Or
	Custom // the Call's Func
	ops
)

var opNames = [ops]string{"none", "sum", "avg", "prod", "min", "max", "and", "or", "custom"}

// String returns the name in lower case, "sum" for instance.
func (o Op) String() string {
	if o < ops {
		return opNames[o]
	}
	return "invalid"
}

// Accepts returns nil if o is defined on elements of type d, else why not and what to do.
func (o Op) Accepts(d DType) error {
	switch {
	case !d.Valid():
		return fmt.Errorf("invalid element type %d; make the buffer with comm.Of", d)
	case o == NoOp || o > Or:
		return fmt.Errorf("no operation %d; use comm.Sum, Avg, Prod, Min, Max, And, Or or a Func", o)
	case (o == And || o == Or) && d.Float():
		return fmt.Errorf("%v is not defined on %v; use an integer type or bool", o, d)
	case d == Bool && (o == Sum || o == Avg || o == Prod):
		return fmt.Errorf("%v is not defined on bool; use comm.Or, comm.And, or cast to an integer type", o)
	case o == Avg && !d.Float():
		return fmt.Errorf("avg is not defined on %v, where it would be rounded; use comm.Sum and divide, or cast to float32", d)
	}
	return nil
}

// A Func is a user-defined reduction on elements of one Go type, a small
// struct without pointers for instance. The zero Func is not valid: use NewFunc.
type Func struct {
	name    string
	size    int
	hash    uint32
	combine func(dst, src unsafe.Pointer, n int) // dst[i] = combine(dst[i], src[i])
}

// NewFunc returns the reduction that folds values a of lower ranks with the
// value b of the next by combine(a, b). combine must be associative; it need
// not be commutative; it must make no calls on a communicator. Ranks compare
// Funcs by name and element size. NewFunc returns an error if T is empty or
// holds a pointer, which means nothing on another rank.
func NewFunc[T any](name string, combine func(a, b T) T) (*Func, error) {
	t := reflect.TypeFor[T]()
	if t.Size() == 0 {
		return nil, fmt.Errorf("comm: NewFunc %q: %v has no bytes to reduce", name, t)
	}
	if path := pointerIn(t); path != "" {
		return nil, fmt.Errorf("comm: NewFunc %q: %v holds a pointer (%s), which means nothing on another rank; use numbers and arrays of numbers", name, t, path)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", name, t.Size())
	return &Func{name: name, size: int(t.Size()), hash: h.Sum32(), combine: func(dst, src unsafe.Pointer, n int) {
		d, s := unsafe.Slice((*T)(dst), n), unsafe.Slice((*T)(src), n)
		for i := range d {
			d[i] = combine(d[i], s[i])
		}
	}}, nil
}

// pointerIn returns the path to a pointer within t, "" if there is none.
func pointerIn(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Array:
		return pointerIn(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if p := pointerIn(field.Type); p != "" {
				return field.Name + "." + p
			}
		}
		return ""
	case reflect.Pointer, reflect.UnsafePointer, reflect.Slice, reflect.String, reflect.Map, reflect.Chan, reflect.Func, reflect.Interface, reflect.Uintptr:
		return t.Kind().String()
	}
	return ""
}
