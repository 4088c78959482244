// Package dtype names the element types that tensors hold and collectives move.
package dtype

import (
	"math"
	"reflect"
)

// A DType is the type of one element.
type DType uint8

// The zero DType is invalid, so that a forgotten one is noticed.
const (
	Invalid DType = iota
	Float32
	Float64
	Float16
	BFloat16
	Int8
	Int16
	Int32
	Int64
	Uint8
	Bool

	// Collectives move and fold these too; no tensor holds them.
	Uint16
	Uint32
	Uint64
	Complex64
	Complex128
	count
)

var names = [count]string{"invalid", "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
	"uint16", "uint32", "uint64", "complex64", "complex128"}
var sizes = [count]int{0, 4, 8, 2, 2, 1, 2, 4, 8, 1, 1, 2, 4, 8, 8, 16}

// String returns the name that PyTorch gives the type, "float32" for instance.
func (d DType) String() string {
	if d < count {
		return names[d]
	}
	return "invalid"
}

// Size returns the bytes of one element, 0 for an invalid type.
func (d DType) Size() int {
	if d < count {
		return sizes[d]
	}
	return 0
}

// Valid reports whether tensors can hold elements of type d.
func (d DType) Valid() bool { return d > Invalid && d <= Bool }

// Complex reports whether d is a complex type.
func (d DType) Complex() bool { return d == Complex64 || d == Complex128 }

// Float reports whether d is a floating-point type.
func (d DType) Float() bool { return d >= Float32 && d <= BFloat16 }

// Int reports whether d is an integer type (Bool is not).
func (d DType) Int() bool { return d >= Int8 && d <= Uint8 }

// Holds reports whether v is a value of type d. Floating-point types have every v, rounded.
func (d DType) Holds(v float64) bool {
	if d.Float() {
		return true
	}
	lo, end := d.Span()
	return v == math.Trunc(v) && lo <= v && v < end
}

// Span returns the least value of an integer type or Bool, and one more than the
// largest.
func (d DType) Span() (lo, end float64) {
	switch bits := 8 * d.Size(); {
	case d == Bool:
		return 0, 2
	case d == Uint8:
		return 0, 256
	default:
		return -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)
	}
}

// Narrow reports whether operators compute with type d in float32 and round the result.
func (d DType) Narrow() bool { return d == Float16 || d == BFloat16 }

// Wide returns the type in which operators compute with type d: Float32 for a narrow type,
// else d itself.
func (d DType) Wide() DType {
	if d.Narrow() {
		return Float32
	}
	return d
}

// Elem are the Go types an element can have.
type Elem interface {
	float32 | float64 | F16 | BF16 | int8 | int16 | int32 | int64 | uint8 | bool
}

// Of returns the DType of the Go type T.
func Of[T Elem]() DType { return Exactly[T]() }

// Like returns the DType of numbers and bools that lie in memory as values of type t do, Invalid if t is of no such kind.
// An int is an Int64 on a 64-bit machine.
func Like(t reflect.Type) DType {
	switch t.Kind() {
	case reflect.Float32:
		return Float32
	case reflect.Float64:
		return Float64
	case reflect.Complex64:
		return Complex64
	case reflect.Complex128:
		return Complex128
	case reflect.Bool:
		return Bool
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		return [...]DType{1: Int8, 2: Int16, 4: Int32, 8: Int64}[t.Size()]
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		return [...]DType{1: Uint8, 2: Uint16, 4: Uint32, 8: Uint64}[t.Size()]
	}
	return Invalid
}

// Exactly returns the DType of the Go type T, Invalid if T is not one of Elem.
func Exactly[T any]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case F16:
		return Float16
	case BF16:
		return BFloat16
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case bool:
		return Bool
	}
	return Invalid
}
