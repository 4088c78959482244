package cpu

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// Fill sets n elements to v, rounded to dt.
func (c *own) Fill(dt dtype.DType, dst unsafe.Pointer, n int, v float64) {
	if v == 0 && dt.Valid() && !(dt.Float() && math.Signbit(v)) {
		clearBytes(sliceOf[byte](dst, n*dt.Size()))
		return
	}
	switch dt {
	case dtype.Float32:
		simd.Fill(sliceOf[float32](dst, n), float32(v))
	case dtype.Float64:
		simd.Fill(sliceOf[float64](dst, n), v)
	case dtype.Float16:
		simd.Fill(sliceOf[int16](dst, n), int16(dtype.ToF16(float32(v))))
	case dtype.BFloat16:
		simd.Fill(sliceOf[int16](dst, n), int16(dtype.ToBF16(float32(v))))
	case dtype.Int8:
		simd.Fill(sliceOf[int8](dst, n), int8(v))
	case dtype.Int16:
		simd.Fill(sliceOf[int16](dst, n), int16(v))
	case dtype.Int32:
		simd.Fill(sliceOf[int32](dst, n), int32(v))
	case dtype.Int64:
		simd.Fill(sliceOf[int64](dst, n), int64(v))
	case dtype.Uint8:
		simd.Fill(sliceOf[uint8](dst, n), uint8(int64(v)))
	case dtype.Bool:
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
func (c *own) Iota(dt dtype.DType, dst unsafe.Pointer, n, start int) {
	types[dt].iota(dst, n, start)
}
