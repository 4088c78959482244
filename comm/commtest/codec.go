package commtest

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// codec relates the elements of one type to numbers, in which the oracles
// compute: every element and every intermediate result is exact in a float64.
type codec[T comm.Elem] struct {
	to   func(float64) T
	from func(T) float64
	step func(float64) float64 // rounds an intermediate result as the type does
}

func codecOf[T comm.Elem]() codec[T] {
	var zero T
	var c any
	switch any(zero).(type) {
	case float32:
		c = codec[float32]{func(x float64) float32 { return float32(x) }, func(v float32) float64 { return float64(v) }, single}
	case float64:
		c = codec[float64]{func(x float64) float64 { return x }, func(v float64) float64 { return v }, same}
	case dtype.F16: // folds in float32, rounds once
		c = codec[dtype.F16]{func(x float64) dtype.F16 { return dtype.ToF16(float32(x)) },
			func(v dtype.F16) float64 { return float64(v.Float32()) }, single}
	case dtype.BF16:
		c = codec[dtype.BF16]{func(x float64) dtype.BF16 { return dtype.ToBF16(float32(x)) },
			func(v dtype.BF16) float64 { return float64(v.Float32()) }, single}
	case complex64:
		c = codec[complex64]{func(x float64) complex64 { return complex64(complex(x, 0)) },
			func(v complex64) float64 { return float64(real(v)) }, single}
	case complex128:
		c = codec[complex128]{func(x float64) complex128 { return complex(x, 0) }, func(v complex128) float64 { return real(v) }, same}
	case int8:
		c = whole[int8]()
	case int16:
		c = whole[int16]()
	case int32:
		c = whole[int32]()
	case int64:
		c = whole[int64]()
	case uint8:
		c = whole[uint8]()
	case uint16:
		c = whole[uint16]()
	case uint32:
		c = magnitude[uint32]()
	case uint64:
		c = magnitude[uint64]()
	case int:
		c = whole[int]()
	case uint:
		c = magnitude[uint]()
	case named:
		c = whole[named]()
	case bool:
		c = codec[bool]{func(x float64) bool { return x > 0 }, func(v bool) float64 {
			if v {
				return 1
			}
			return 0
		}, same}
	}
	return c.(codec[T])
}

func single(x float64) float64 { return float64(float32(x)) }

func same(x float64) float64 { return x }

// named is a type of a program's own.
type named int16

func whole[T ~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint]() codec[T] {
	to := func(x float64) T { return T(int64(x)) }
	from := func(v T) float64 { return float64(v) }
	return codec[T]{to, from, func(x float64) float64 { return from(to(x)) }}
}

// magnitude is whole for types in which a negative number, made an element, is so large that
// products are not exact.
func magnitude[T uint32 | uint64 | uint]() codec[T] {
	return codec[T]{func(x float64) T { return T(math.Abs(x)) }, func(v T) float64 { return float64(v) }, math.Trunc}
}

// value is what rank r holds at index i in the test number salt: between -4
// and 4, with a fraction that makes sums depend on their order, as T has it.
func (c codec[T]) value(r, i, salt int) float64 {
	h := uint32(r+1)*2654435761 ^ uint32(i)*2246822519 ^ uint32(salt)*3266489917
	h ^= h >> 15
	h *= 2246822519
	h ^= h >> 13
	return c.from(c.to(float64(int32(h)) / (1 << 29)))
}

// fold is the oracle of reductions: rank 0's value op rank 1's op …
func (c codec[T]) fold(op comm.Op, n int, at func(r int) float64) float64 {
	x := at(0)
	for r := 1; r < n; r++ {
		x = c.step(apply(op, x, at(r)))
	}
	if op == comm.Avg {
		x = c.step(x / float64(n))
	}
	return c.from(c.to(x))
}

func apply(op comm.Op, a, b float64) float64 {
	switch op {
	case comm.Sum, comm.Avg:
		return a + b
	case comm.Prod:
		return a * b
	case comm.Min:
		return math.Min(a, b)
	case comm.Max:
		return math.Max(a, b)
	case comm.And:
		return float64(int64(a) & int64(b))
	case comm.Or:
		return float64(int64(a) | int64(b))
	case comm.Xor:
		return float64(int64(a) ^ int64(b))
	default:
		panic(fmt.Sprintf("commtest: no operation %v", op))
	}
}

// check compares got with what it should be, NaN being equal to itself.
func (c codec[T]) check(what string, got []T, want func(i int) float64) error {
	for i, v := range got {
		if g, w := c.from(v), want(i); g != w && (g == g || w == w) {
			return fmt.Errorf("%s: [%d] of %d is %v, want %v", what, i, len(got), g, w)
		}
	}
	return nil
}
