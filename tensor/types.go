package tensor

import (
	"math"

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

// F16 and BF16 are elements of Float16 and BFloat16 tensors, by their bits.
type (
	F16  = dtype.F16
	BF16 = dtype.BF16
)

// Elem are the Go types an element can have.
type Elem = dtype.Elem

// holds reports whether an element of type dt can be v: any v is rounded to a
// floating-point type, but 0.5 is no integer.
func holds(dt DType, v float64) bool {
	if dt.Float() {
		return true
	}
	lo, end := 0.0, 2.0 // of Bool
	switch bits := 8 * dt.Size(); {
	case dt == Uint8:
		end = 256
	case dt.Int():
		lo, end = -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)
	}
	return v == math.Trunc(v) && lo <= v && v < end
}

// float are the types that compute with fractions.
type float interface{ float32 | float64 }

// number are the types that compute.
type number interface {
	float | int8 | int16 | int32 | int64 | uint8
}
