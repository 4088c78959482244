package simd

import "github.com/gorun-spmd/gorun/internal/dtype"

// FromF16 does dst[i] = src[i], exactly.
func FromF16(dst []float32, src []dtype.F16) {
	same("FromF16", len(dst), len(src))
	for i, v := range src {
		dst[i] = v.Float32()
	}
}

// ToF16 does dst[i] = src[i], rounded to the nearest, ties to even.
func ToF16(dst []dtype.F16, src []float32) {
	same("ToF16", len(dst), len(src))
	for i, v := range src {
		dst[i] = dtype.ToF16(v)
	}
}

// FromBF16 does dst[i] = src[i], exactly.
func FromBF16(dst []float32, src []dtype.BF16) {
	same("FromBF16", len(dst), len(src))
	for i, v := range src {
		dst[i] = v.Float32()
	}
}

// ToBF16 does dst[i] = src[i], rounded to the nearest, ties to even.
func ToBF16(dst []dtype.BF16, src []float32) {
	same("ToBF16", len(dst), len(src))
	for i, v := range src {
		dst[i] = dtype.ToBF16(v)
	}
}

// Copy does dst[i] = src[i]. From some megabytes on it writes past the caches.
func Copy[T any](dst, src []T) {
	same("Copy", len(dst), len(src))
	copy(dst, src)
}
