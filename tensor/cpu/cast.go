package cpu

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// Cast converts n elements.
func (c *own) Cast(to dtype.DType, dst unsafe.Pointer, from dtype.DType, src unsafe.Pointer, n int) {
	switch from {
	case dtype.Float32:
		castFrom(to, dst, sliceOf[float32](src, n))
	case dtype.Float64:
		castFrom(to, dst, sliceOf[float64](src, n))
	case dtype.Float16:
		castHalf(to, dst, sliceOf[dtype.F16](src, n), simd.FromF16)
	case dtype.BFloat16:
		castHalf(to, dst, sliceOf[dtype.BF16](src, n), simd.FromBF16)
	case dtype.Int8:
		castFrom(to, dst, sliceOf[int8](src, n))
	case dtype.Int16:
		castFrom(to, dst, sliceOf[int16](src, n))
	case dtype.Int32:
		castFrom(to, dst, sliceOf[int32](src, n))
	case dtype.Int64:
		castFrom(to, dst, sliceOf[int64](src, n))
	case dtype.Uint8, dtype.Bool:
		castFrom(to, dst, sliceOf[uint8](src, n))
	}
}

// CastPiece is how many elements go through float32 at a time, on the stack.
const CastPiece = 1024

// castHalf converts by way of float32, which holds every float16 and bfloat16.
func castHalf[H dtype.F16 | dtype.BF16](to dtype.DType, dst unsafe.Pointer, src []H, load func(dst []float32, src []H)) {
	switch to {
	case dtype.Float32:
		load(sliceOf[float32](dst, len(src)), src)
		return
	case dtype.Bool:
		simd.TruthHalf(sliceOf[bool](dst, len(src)), src)
		return
	}
	buf := make([]float32, CastPiece)
	for len(src) > 0 {
		n := min(len(src), CastPiece)
		load(buf[:n], src[:n])
		castFrom(to, dst, buf[:n])
		dst, src = unsafe.Add(dst, n*to.Size()), src[n:]
	}
}

// castFrom converts src to any type.
func castFrom[S number](to dtype.DType, dst unsafe.Pointer, src []S) {
	n := len(src)
	switch to {
	case dtype.Float32:
		convert(sliceOf[float32](dst, n), src)
	case dtype.Float64:
		convert(sliceOf[float64](dst, n), src)
	case dtype.Float16:
		toHalf(sliceOf[dtype.F16](dst, n), src, simd.ToF16)
	case dtype.BFloat16:
		toHalf(sliceOf[dtype.BF16](dst, n), src, simd.ToBF16)
	case dtype.Int8:
		convert(sliceOf[int8](dst, n), src)
	case dtype.Int16:
		convert(sliceOf[int16](dst, n), src)
	case dtype.Int32:
		convert(sliceOf[int32](dst, n), src)
	case dtype.Int64:
		convert(sliceOf[int64](dst, n), src)
	case dtype.Uint8:
		convert(sliceOf[uint8](dst, n), src)
	case dtype.Bool:
		simd.Truth(sliceOf[bool](dst, n), src)
	}
}

// toHalf converts by way of float32.
func toHalf[H dtype.F16 | dtype.BF16, S number](dst []H, src []S, store func(dst []H, src []float32)) {
	if s, ok := any(src).([]float32); ok {
		store(dst, s)
		return
	}
	buf := make([]float32, CastPiece)
	for len(src) > 0 {
		n := min(len(src), CastPiece)
		convert(buf[:n], src[:n])
		store(dst[:n], buf[:n])
		dst, src = dst[n:], src[n:]
	}
}

func convert[D, S number](dst []D, src []S) {
	switch s := any(src).(type) {
	case []float32:
		if d, ok := any(dst).([]float64); ok {
			simd.FromF32(d, s)
			return
		}
		if d, ok := any(dst).([]int32); ok {
			simd.ToInt32(d, s)
			return
		}
	case []float64:
		if d, ok := any(dst).([]float32); ok {
			simd.ToF32(d, s)
			return
		}
	}
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = D(v)
	}
}

// Refresh sets the elements of wide whose rounded values differ from half, of a narrow type,
// to those of half.
func Refresh(wide []float32, dt dtype.DType, half unsafe.Pointer) {
	if dt == dtype.Float16 {
		refresh(wide, sliceOf[dtype.F16](half, len(wide)), simd.FromF16, simd.ToF16)
	} else {
		refresh(wide, sliceOf[dtype.BF16](half, len(wide)), simd.FromBF16, simd.ToBF16)
	}
}

func refresh[H dtype.F16 | dtype.BF16](wide []float32, half []H, load func(dst []float32, src []H), store func(dst []H, src []float32)) {
	parallel(len(wide), 1, 64, func(lo, hi int) {
		var rounded [1024]H
		for lo < hi {
			n := min(hi-lo, len(rounded))
			store(rounded[:n], wide[lo:lo+n])
			for i, r := range rounded[:n] {
				if r != half[lo+i] {
					load(wide[lo+i:lo+i+1], half[lo+i:lo+i+1])
				}
			}
			lo += n
		}
	})
}
