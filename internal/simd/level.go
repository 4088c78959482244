package simd

import (
	"fmt"
	"unsafe"
)

// A Level is an instruction set that kernels exist for. Higher ones include the
// lower ones.
type Level uint8

// The levels.
const (
	Scalar     Level = iota // plain Go
	AVX2                    // AVX2, FMA and F16C: 8 float32 at a time
	AVX512                  // AVX-512 F, BW, DQ and VL: 16 float32 at a time
	AVX512Past              // the same, with stores past the caches and no prefetches, see Writing
)

// String names the level.
func (l Level) String() string {
	return [...]string{"scalar", "AVX2", "AVX-512", "AVX-512 past the caches"}[l]
}

// best is set once and only read. The exported functions run at this level, or at that
// of Writing; each is a method of Level too, for the tests to run at every level.
var best = detect()

// Best returns the highest level this processor can run.
func Best() Level { return best }

// wide tells an assembly function which of its two halves to run.
func (l Level) wide() bool { return l >= AVX512 }

// chunk is the most elements one assembly call handles, so that none lasts
// longer than some 50 µs even from slow memory.
const chunk = 1 << 14

// Number are the element types the arithmetic functions accept.
type Number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8
}

// same panics unless every length is n.
func same(op string, n int, lengths ...int) {
	for _, l := range lengths {
		if l != n {
			panic(fmt.Sprintf("simd: %s: lengths %d and %d", op, n, l))
		}
	}
}

// is32 reports whether T is float32, the type that has kernels.
func is32[T Number]() bool {
	var zero T
	_, ok := any(zero).(float32)
	return ok
}

// as32 is s, whose elements are float32.
func as32[T Number](s []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// at is the address of s[i], or nil if s is nil.
func at(s []float32, i int) *float32 {
	if s == nil {
		return nil
	}
	return &s[i]
}

// unasked is the level for what is changed in place, and for two arrays that are read: at
// AVX512Past such kernels store as ever, but ask for nothing.
var unasked = func() Level {
	if hinders() {
		return AVX512Past
	}
	return best
}()

// pastFrom is from how many bytes on, read and written, a result is written past the
// caches, which would not keep all of it.
const pastFrom = 24 << 20

// Writing returns the level at which to compute dst, or the rows of it, from as much of
// everything that is read. That is AVX512Past for a large result in memory of its own: it
// spares reading what is overwritten. Whoever uses a level of Writing says Done to it in
// the end.
func Writing[T Elem](dst []T, read ...[]T) Level {
	for _, r := range read {
		if unsafe.SliceData(r) == unsafe.SliceData(dst) {
			return best
		}
	}
	return Moving((1 + len(read)) * len(dst) * int(unsafe.Sizeof(*new(T))))
}

// computing is Writing for kernels that compute for longer than memory takes: they gain by
// asking for what they need next, where that does not hinder.
func computing[T Elem](dst []T, read ...[]T) Level {
	if unasked == AVX512Past {
		return Writing(dst, read...)
	}
	return best
}

// Moving is Writing where so many bytes are read and written, in memory apart.
func Moving(bytes int) Level {
	if best == AVX512 && bytes >= pastFrom {
		return AVX512Past
	}
	return best
}

// Done orders what has been written at this level before what is written from now on.
func (l Level) Done() {
	if l == AVX512Past {
		storeFence()
	}
}
