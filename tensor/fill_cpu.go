package tensor

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// Fill sets n elements to v, rounded to dt.
func (c *CPU) Fill(dt DType, dst unsafe.Pointer, n int, v float64) {
	if v == 0 && dt.Valid() {
		clearBytes(sliceOf[byte](dst, n*dt.Size()))
		return
	}
	switch dt {
	case Float32:
		simd.Fill(sliceOf[float32](dst, n), float32(v))
	case Float64:
		simd.Fill(sliceOf[float64](dst, n), v)
	case Float16:
		simd.Fill(sliceOf[int16](dst, n), int16(dtype.ToF16(float32(v))))
	case BFloat16:
		simd.Fill(sliceOf[int16](dst, n), int16(dtype.ToBF16(float32(v))))
	case Int8:
		simd.Fill(sliceOf[int8](dst, n), int8(v))
	case Int16:
		simd.Fill(sliceOf[int16](dst, n), int16(v))
	case Int32:
		simd.Fill(sliceOf[int32](dst, n), int32(v))
	case Int64:
		simd.Fill(sliceOf[int64](dst, n), int64(v))
	case Uint8:
		simd.Fill(sliceOf[uint8](dst, n), uint8(v))
	case Bool:
		simd.Fill(sliceOf[uint8](dst, n), 1) // 0 was above
	}
}

// clearBytes zeroes in pieces, so that the garbage collector never waits long.
func clearBytes(b []byte) {
	const piece = 1 << 20
	for len(b) > piece {
		clear(b[:piece])
		b = b[piece:]
	}
	clear(b)
}

// Iota sets dst[i] = start + i.
func (c *CPU) Iota(dt DType, dst unsafe.Pointer, n, start int) {
	switch dt {
	case Float32:
		count(sliceOf[float32](dst, n), start)
	case Float64:
		count(sliceOf[float64](dst, n), start)
	case Int8:
		count(sliceOf[int8](dst, n), start)
	case Int16:
		count(sliceOf[int16](dst, n), start)
	case Int32:
		count(sliceOf[int32](dst, n), start)
	case Int64:
		count(sliceOf[int64](dst, n), start)
	case Uint8:
		count(sliceOf[uint8](dst, n), start)
	}
}

func count[T number](dst []T, start int) {
	for i := range dst {
		dst[i] = T(start + i)
	}
}

// Cast converts n elements.
func (c *CPU) Cast(to DType, dst unsafe.Pointer, from DType, src unsafe.Pointer, n int) {
	switch from {
	case Float32:
		castFrom(to, dst, sliceOf[float32](src, n), func(v float32) float32 { return v })
	case Float64:
		castFrom(to, dst, sliceOf[float64](src, n), func(v float64) float64 { return v })
	case Float16:
		castFrom(to, dst, sliceOf[F16](src, n), F16.Float32)
	case BFloat16:
		castFrom(to, dst, sliceOf[BF16](src, n), BF16.Float32)
	case Int8:
		castFrom(to, dst, sliceOf[int8](src, n), func(v int8) int8 { return v })
	case Int16:
		castFrom(to, dst, sliceOf[int16](src, n), func(v int16) int16 { return v })
	case Int32:
		castFrom(to, dst, sliceOf[int32](src, n), func(v int32) int32 { return v })
	case Int64:
		castFrom(to, dst, sliceOf[int64](src, n), func(v int64) int64 { return v })
	case Uint8, Bool:
		castFrom(to, dst, sliceOf[uint8](src, n), func(v uint8) uint8 { return v })
	}
}

// castFrom converts src, whose elements have the value that load returns.
func castFrom[S any, V number](to DType, dst unsafe.Pointer, src []S, load func(S) V) {
	n := len(src)
	switch to {
	case Float32:
		castTo(sliceOf[float32](dst, n), src, load)
	case Float64:
		castTo(sliceOf[float64](dst, n), src, load)
	case Float16:
		for i, d := 0, sliceOf[F16](dst, n); i < n; i++ {
			d[i] = dtype.ToF16(float32(load(src[i])))
		}
	case BFloat16:
		for i, d := 0, sliceOf[BF16](dst, n); i < n; i++ {
			d[i] = dtype.ToBF16(float32(load(src[i])))
		}
	case Int8:
		castTo(sliceOf[int8](dst, n), src, load)
	case Int16:
		castTo(sliceOf[int16](dst, n), src, load)
	case Int32:
		castTo(sliceOf[int32](dst, n), src, load)
	case Int64:
		castTo(sliceOf[int64](dst, n), src, load)
	case Uint8:
		castTo(sliceOf[uint8](dst, n), src, load)
	case Bool:
		for i, d := 0, sliceOf[bool](dst, n); i < n; i++ {
			d[i] = load(src[i]) != 0
		}
	}
}

func castTo[D number, S any, V number](dst []D, src []S, load func(S) V) {
	for i, v := range src {
		dst[i] = D(load(v))
	}
}
