package simd

import (
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// FromF16 does dst[i] = src[i], exactly.
func FromF16(dst []float32, src []dtype.F16) {
	same("FromF16", len(dst), len(src))
	best.fromF16(dst, src)
}

func (l Level) fromF16(dst []float32, src []dtype.F16) {
	n := l.whole(len(dst))
	for i := 0; i < n; i += chunk {
		fromF16Vec(l.wide(), &dst[i], (*uint16)(&src[i]), min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = v.Float32()
	}
}

// whole returns how many of n elements the assembly converts: full vectors, for
// a conversion has but one right result and the rest may come from plain Go.
func (l Level) whole(n int) int {
	if l == Scalar {
		return 0
	}
	return n &^ 15
}

// ToF16 does dst[i] = src[i], rounded to the nearest, ties to even. A NaN stays
// one, with unspecified bits.
func ToF16(dst []dtype.F16, src []float32) {
	same("ToF16", len(dst), len(src))
	best.toF16(dst, src)
}

func (l Level) toF16(dst []dtype.F16, src []float32) {
	n := l.whole(len(dst))
	for i := 0; i < n; i += chunk {
		toF16Vec(l.wide(), (*uint16)(&dst[i]), &src[i], min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = dtype.ToF16(v)
	}
}

// FromBF16 does dst[i] = src[i], exactly.
func FromBF16(dst []float32, src []dtype.BF16) {
	same("FromBF16", len(dst), len(src))
	best.fromBF16(dst, src)
}

func (l Level) fromBF16(dst []float32, src []dtype.BF16) {
	n := l.whole(len(dst))
	for i := 0; i < n; i += chunk {
		fromBF16Vec(l.wide(), &dst[i], (*uint16)(&src[i]), min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = v.Float32()
	}
}

// ToBF16 does dst[i] = src[i], rounded to the nearest, ties to even. A NaN stays
// one, with unspecified bits.
func ToBF16(dst []dtype.BF16, src []float32) {
	same("ToBF16", len(dst), len(src))
	best.toBF16(dst, src)
}

func (l Level) toBF16(dst []dtype.BF16, src []float32) {
	n := l.whole(len(dst))
	for i := 0; i < n; i += chunk {
		toBF16Vec(l.wide(), (*uint16)(&dst[i]), &src[i], min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = dtype.ToBF16(v)
	}
}
