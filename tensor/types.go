package tensor

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// A DType is the type of one element.
type DType = dtype.DType

// The element types.
const (
	Float32, Float64          = dtype.Float32, dtype.Float64
	Float16, BFloat16         = dtype.Float16, dtype.BFloat16
	Int8, Int16, Int32, Int64 = dtype.Int8, dtype.Int16, dtype.Int32, dtype.Int64
	Uint8, Bool               = dtype.Uint8, dtype.Bool
)

// F16 and BF16 are elements of Float16 and BFloat16 tensors, by their bits.
type (
	F16  = dtype.F16
	BF16 = dtype.BF16
)

// Elem are the Go types an element can have: float32, float64, F16 and BF16, int8,
// int16, int32, int64, uint8 and bool.
type Elem = dtype.Elem

// holds reports whether type dt has v. Floating-point types have every v, rounded.
func holds(dt DType, v float64) bool {
	if dt.Float() {
		return true
	}
	lo, end := span(dt)
	return v == math.Trunc(v) && lo <= v && v < end
}

// span returns the least value of an integer type or Bool, and one more than the
// largest.
func span(dt DType) (lo, end float64) {
	switch bits := 8 * dt.Size(); {
	case dt == Bool:
		return 0, 2
	case dt == Uint8:
		return 0, 256
	default:
		return -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)
	}
}

// nearestInt returns the value of an integer type that is nearest to a whole number or
// an infinity.
func nearestInt(dt DType, v float64) int64 {
	switch lo, end := span(dt); {
	case v < lo:
		return int64(lo)
	case v < end:
		return int64(v)
	case dt == Int64:
		return math.MaxInt64
	default:
		return int64(end) - 1
	}
}
