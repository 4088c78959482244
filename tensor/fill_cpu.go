package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// Fill sets n elements to v, rounded to dt.
func (c *CPU) Fill(dt DType, dst unsafe.Pointer, n int, v float64) {
	if v == 0 && dt.Valid() && !(dt.Float() && math.Signbit(v)) {
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
		simd.Fill(sliceOf[uint8](dst, n), uint8(int64(v)))
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
