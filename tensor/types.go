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

// nearestInt returns the value of an integer type that is nearest to a whole number or
// an infinity.
func nearestInt(dt DType, v float64) int64 {
	switch lo, end := dt.Span(); {
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
