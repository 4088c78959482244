package simd

import (
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// FromF32 does dst[i] = src[i], exactly.
func FromF32(dst []float64, src []float32) {
	same("FromF32", len(dst), len(src))
	ordinary.fromF32(dst, src)
}

func (m Mode) fromF32(dst []float64, src []float32) {
	n := m.whole(fromF32Kernel, len(dst))
	for i := 0; i < n; i += chunk {
		fromF32Vec(&dst[i], &src[i], min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = float64(v)
	}
}

// ToF32 does dst[i] = src[i], rounded to the nearest, ties to even.
func ToF32(dst []float32, src []float64) {
	same("ToF32", len(dst), len(src))
	ordinary.toF32(dst, src)
}

func (m Mode) toF32(dst []float32, src []float64) {
	n := m.whole(toF32Kernel, len(dst))
	for i := 0; i < n; i += chunk {
		toF32Vec(&dst[i], &src[i], min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = float32(v)
	}
}

// ToInt32 does dst[i] = int32(src[i]): without its fraction. Of NaN and of what int32 does not hold it is what Go's conversion is
// on this machine.
func ToInt32(dst []int32, src []float32) {
	same("ToInt32", len(dst), len(src))
	m := Moving(8 * len(dst))
	m.toInt32(dst, src)
	m.Done()
}

func (m Mode) toInt32(dst []int32, src []float32) {
	n := m.whole(toInt32Kernel, len(dst))
	for i := 0; i < n; i += chunk {
		toInt32Vec(m.code(), &dst[i], &src[i], min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = int32(v)
	}
}

// FromF16 does dst[i] = src[i], exactly.
func FromF16(dst []float32, src []dtype.F16) {
	same("FromF16", len(dst), len(src))
	ordinary.fromF16(dst, src)
}

func (m Mode) fromF16(dst []float32, src []dtype.F16) {
	n := m.whole(fromF16Kernel, len(dst))
	for i := 0; i < n; i += chunk {
		fromF16Vec(m.wide(), &dst[i], (*uint16)(&src[i]), min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = v.Float32()
	}
}

// whole returns how many of n elements kernel k converts: full vectors. Plain Go converts
// the rest, because it gives the same bits: a conversion has one right result.
func (m Mode) whole(k kernel, n int) int {
	if !m.has(k) {
		return 0
	}
	return n &^ 15
}

// ToF16 does dst[i] = src[i], rounded to the nearest, ties to even. A NaN stays
// one, with unspecified bits.
func ToF16(dst []dtype.F16, src []float32) {
	same("ToF16", len(dst), len(src))
	ordinary.toF16(dst, src)
}

func (m Mode) toF16(dst []dtype.F16, src []float32) {
	n := m.whole(toF16Kernel, len(dst))
	for i := 0; i < n; i += chunk {
		toF16Vec(m.wide(), (*uint16)(&dst[i]), &src[i], min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = dtype.ToF16(v)
	}
}

// FromBF16 does dst[i] = src[i], exactly.
func FromBF16(dst []float32, src []dtype.BF16) {
	same("FromBF16", len(dst), len(src))
	ordinary.fromBF16(dst, src)
}

func (m Mode) fromBF16(dst []float32, src []dtype.BF16) {
	n := m.whole(fromBF16Kernel, len(dst))
	for i := 0; i < n; i += chunk {
		fromBF16Vec(m.wide(), &dst[i], (*uint16)(&src[i]), min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = v.Float32()
	}
}

// ToBF16 does dst[i] = src[i], rounded to the nearest, ties to even. A NaN stays
// one, with unspecified bits.
func ToBF16(dst []dtype.BF16, src []float32) {
	same("ToBF16", len(dst), len(src))
	ordinary.toBF16(dst, src)
}

func (m Mode) toBF16(dst []dtype.BF16, src []float32) {
	const row = 32
	done := 0
	if m.has(toRowsBF16Kernel) {
		done = len(dst) &^ (row - 1)
		m.toRowsBF16(dst, row, src, row, done/row, row)
	}
	n := done + m.whole(toBF16Kernel, len(dst)-done)
	for i := done; i < n; i += chunk {
		toBF16Vec(m.wide(), (*uint16)(&dst[i]), &src[i], min(chunk, n-i))
	}
	for i, v := range src[n:] {
		dst[n+i] = dtype.ToBF16(v)
	}
}
