package tensor

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// Cast converts n elements.
func (c *CPU) Cast(to DType, dst unsafe.Pointer, from DType, src unsafe.Pointer, n int) {
	switch from {
	case Float32:
		castFrom(to, dst, sliceOf[float32](src, n))
	case Float64:
		castFrom(to, dst, sliceOf[float64](src, n))
	case Float16:
		castHalf(to, dst, sliceOf[F16](src, n), simd.FromF16)
	case BFloat16:
		castHalf(to, dst, sliceOf[BF16](src, n), simd.FromBF16)
	case Int8:
		castFrom(to, dst, sliceOf[int8](src, n))
	case Int16:
		castFrom(to, dst, sliceOf[int16](src, n))
	case Int32:
		castFrom(to, dst, sliceOf[int32](src, n))
	case Int64:
		castFrom(to, dst, sliceOf[int64](src, n))
	case Uint8, Bool:
		castFrom(to, dst, sliceOf[uint8](src, n))
	}
}

// castPiece is how many elements go through float32 at a time, on the stack.
const castPiece = 1024

// castHalf converts by way of float32, which holds every half.
func castHalf[H F16 | BF16](to DType, dst unsafe.Pointer, src []H, load func(dst []float32, src []H)) {
	if to == Float32 {
		load(sliceOf[float32](dst, len(src)), src)
		return
	}
	buf := make([]float32, castPiece)
	for len(src) > 0 {
		n := min(len(src), castPiece)
		load(buf[:n], src[:n])
		castFrom(to, dst, buf[:n])
		dst, src = unsafe.Add(dst, n*to.Size()), src[n:]
	}
}

// castFrom converts src to any type.
func castFrom[S number](to DType, dst unsafe.Pointer, src []S) {
	n := len(src)
	switch to {
	case Float32:
		convert(sliceOf[float32](dst, n), src)
	case Float64:
		convert(sliceOf[float64](dst, n), src)
	case Float16:
		toHalf(sliceOf[F16](dst, n), src, simd.ToF16)
	case BFloat16:
		toHalf(sliceOf[BF16](dst, n), src, simd.ToBF16)
	case Int8:
		convert(sliceOf[int8](dst, n), src)
	case Int16:
		convert(sliceOf[int16](dst, n), src)
	case Int32:
		convert(sliceOf[int32](dst, n), src)
	case Int64:
		convert(sliceOf[int64](dst, n), src)
	case Uint8:
		convert(sliceOf[uint8](dst, n), src)
	case Bool:
		for i, d := 0, sliceOf[bool](dst, n); i < n; i++ {
			d[i] = src[i] != 0
		}
	}
}

// toHalf converts by way of float32.
func toHalf[H F16 | BF16, S number](dst []H, src []S, store func(dst []H, src []float32)) {
	if s, ok := any(src).([]float32); ok {
		store(dst, s)
		return
	}
	buf := make([]float32, castPiece)
	for len(src) > 0 {
		n := min(len(src), castPiece)
		convert(buf[:n], src[:n])
		store(dst[:n], buf[:n])
		dst, src = dst[n:], src[n:]
	}
}

func convert[D, S number](dst []D, src []S) {
	for i, v := range src {
		dst[i] = D(v)
	}
}
