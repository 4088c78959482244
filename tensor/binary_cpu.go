package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// Binary computes dst[i] = op(a[i], b[i]); dst may be a or b.
func (c *CPU) Binary(op BinaryOp, dt DType, dst, a, b unsafe.Pointer, n int) {
	switch dt {
	case Float32:
		d, x, y := sliceOf[float32](dst, n), sliceOf[float32](a, n), sliceOf[float32](b, n)
		if n < parallelFrom {
			binaryNumber(op, d, x, y)
			return
		}
		l := simd.Writing(d, x, y)
		parallel(n, 1, 64, func(lo, hi int) {
			binary32(l, op, d[lo:hi], x[lo:hi], y[lo:hi])
			l.Done()
		})
	case Float64:
		binaryNumber(op, sliceOf[float64](dst, n), sliceOf[float64](a, n), sliceOf[float64](b, n))
	case Int8:
		binaryNumber(op, sliceOf[int8](dst, n), sliceOf[int8](a, n), sliceOf[int8](b, n))
	case Int16:
		binaryNumber(op, sliceOf[int16](dst, n), sliceOf[int16](a, n), sliceOf[int16](b, n))
	case Int32:
		binaryNumber(op, sliceOf[int32](dst, n), sliceOf[int32](a, n), sliceOf[int32](b, n))
	case Int64:
		binaryNumber(op, sliceOf[int64](dst, n), sliceOf[int64](a, n), sliceOf[int64](b, n))
	case Uint8:
		binaryNumber(op, sliceOf[uint8](dst, n), sliceOf[uint8](a, n), sliceOf[uint8](b, n))
	case BFloat16:
		d, x, y := sliceOf[BF16](dst, n), sliceOf[BF16](a, n), sliceOf[BF16](b, n)
		if n < parallelFrom {
			binaryHalf(op, d, x, y)
			return
		}
		parallel(n, 1, 64, func(lo, hi int) { binaryHalf(op, d[lo:hi], x[lo:hi], y[lo:hi]) })
	}
}

// halfChunk is how many elements of bfloat16 are widened at a time.
const halfChunk = 512

// binaryHalf computes dst[i] = op(a[i], b[i]) in float32.
func binaryHalf(op BinaryOp, dst, a, b []BF16) {
	var x, y [halfChunk]float32
	for i := 0; i < len(dst); i += halfChunk {
		end := min(i+halfChunk, len(dst))
		x, y := x[:end-i], y[:end-i]
		simd.FromBF16(x, a[i:end])
		simd.FromBF16(y, b[i:end])
		binaryNumber(op, x, x, y)
		simd.ToBF16(dst[i:end], x)
	}
}

// scalarHalf computes dst[i] = op(x[i], v), or op(v, x[i]) with swap, in float32.
func scalarHalf(op BinaryOp, dst, x []BF16, v float32, swap bool) {
	var wide [halfChunk]float32
	for i := 0; i < len(dst); i += halfChunk {
		end := min(i+halfChunk, len(dst))
		w := wide[:end-i]
		simd.FromBF16(w, x[i:end])
		binaryScalar(op, w, w, v, swap)
		simd.ToBF16(dst[i:end], w)
	}
}

// binaryNumber computes dst[i] = op(a[i], b[i]).
func binaryNumber[T number](op BinaryOp, dst, a, b []T) {
	switch op {
	case OpAdd:
		simd.Add(dst, a, b)
	case OpSub:
		simd.Sub(dst, a, b)
	case OpMul:
		simd.Mul(dst, a, b)
	case OpMaximum:
		simd.Max(dst, a, b)
	case OpMinimum:
		simd.Min(dst, a, b)
	case OpDiv:
		if !isInt[T]() {
			simd.Div(dst, a, b)
			return
		}
		fallthrough
	default:
		for i := range dst {
			dst[i] = binaryOne(op, a[i], b[i])
		}
	}
}

// binaryScalar computes dst[i] = op(x[i], v), or op(v, x[i]) with swap.
func binaryScalar[T number](op BinaryOp, dst, x []T, v T, swap bool) {
	switch {
	case op == OpAdd:
		simd.AddScalar(dst, x, v)
	case op == OpMul:
		simd.Scale(dst, x, v)
	case op == OpSub && !swap:
		simd.AddScalar(dst, x, -v)
	case swap:
		for i, w := range x {
			dst[i] = binaryOne(op, v, w)
		}
	default:
		for i, w := range x {
			dst[i] = binaryOne(op, w, v)
		}
	}
}

// binary32 is binaryNumber at a level of its own.
func binary32(l simd.Level, op BinaryOp, dst, a, b []float32) {
	switch op {
	case OpAdd:
		if unsafe.SliceData(dst) == unsafe.SliceData(a) {
			simd.AddTo(dst, b)
			return
		}
		l.Add(dst, a, b)
	case OpSub:
		l.Sub(dst, a, b)
	case OpMul:
		l.Mul(dst, a, b)
	case OpDiv:
		l.Div(dst, a, b)
	case OpMaximum:
		l.Max(dst, a, b)
	case OpMinimum:
		l.Min(dst, a, b)
	default:
		binaryNumber(op, dst, a, b)
	}
}

// scalar32 is binaryScalar at a level of its own.
func scalar32(l simd.Level, op BinaryOp, dst, x []float32, v float32, swap bool) {
	switch {
	case op == OpAdd:
		l.AddScalar(dst, x, v)
	case op == OpMul:
		l.Scale(dst, x, v)
	case op == OpSub && !swap:
		l.AddScalar(dst, x, -v)
	default:
		binaryScalar(op, dst, x, v, swap)
	}
}

func binaryOne[T number](op BinaryOp, a, b T) T {
	switch op {
	case OpAdd:
		return a + b
	case OpSub:
		return a - b
	case OpMul:
		return a * b
	case OpDiv:
		if b == 0 && isInt[T]() {
			return 0
		}
		return a / b
	case OpMaximum:
		return max(a, b)
	case OpMinimum:
		return min(a, b)
	default:
		if isInt[T]() {
			return powInt(a, b)
		}
		return T(math.Pow(float64(a), float64(b)))
	}
}

// isInt reports whether T truncates.
func isInt[T number]() bool { return T(3)/T(2)*T(2) != T(3) }

// powInt returns aᵇ by squaring, and 0 for a negative b unless a is 1 or -1.
func powInt[T number](a, b T) T {
	n := int64(b)
	if n < 0 {
		if a != 1 && a+1 != 0 {
			return 0
		}
		n = -n
	}
	r := T(1)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			r *= a
		}
		a *= a
	}
	return r
}

// BinaryLoop computes Binary over arguments that broadcast.
func (c *CPU) BinaryLoop(op BinaryOp, dt DType, dst, a, b unsafe.Pointer, l Loop) {
	switch dt {
	case Float32:
		n := l.Numel()
		to := simd.Writing(sliceOf[float32](dst, n), sliceOf[float32](a, 1), sliceOf[float32](b, 1))
		binaryLoop(dst, a, b, &l, op,
			func(op BinaryOp, dst, a, b []float32) { binary32(to, op, dst, a, b) },
			func(op BinaryOp, dst, x []float32, v float32, swap bool) { scalar32(to, op, dst, x, v, swap) })
		to.Done()
	case Float64:
		binaryLoop(dst, a, b, &l, op, binaryNumber[float64], binaryScalar[float64])
	case Int8:
		binaryLoop(dst, a, b, &l, op, binaryNumber[int8], binaryScalar[int8])
	case Int16:
		binaryLoop(dst, a, b, &l, op, binaryNumber[int16], binaryScalar[int16])
	case Int32:
		binaryLoop(dst, a, b, &l, op, binaryNumber[int32], binaryScalar[int32])
	case Int64:
		binaryLoop(dst, a, b, &l, op, binaryNumber[int64], binaryScalar[int64])
	case Uint8:
		binaryLoop(dst, a, b, &l, op, binaryNumber[uint8], binaryScalar[uint8])
	}
}

// at returns the address of element i.
func at[T any](p unsafe.Pointer, i int) *T {
	return (*T)(unsafe.Add(p, i*int(unsafe.Sizeof(*(*T)(p)))))
}

// binaryLoop walks l row by row; an argument is either a row or one element of it.
func binaryLoop[T number](dst, a, b unsafe.Pointer, l *Loop, op BinaryOp,
	vector func(op BinaryOp, dst, a, b []T), scalar func(op BinaryOp, dst, x []T, v T, swap bool)) {
	n := l.Size[l.N-1]
	sa, sb := l.A[l.N-1], l.B[l.N-1]
	l.rows(func(i, ia, ib, _ int) {
		d := unsafe.Slice(at[T](dst, i), n)
		x, y := at[T](a, ia), at[T](b, ib)
		switch {
		case sa != 0 && sb != 0:
			vector(op, d, unsafe.Slice(x, n), unsafe.Slice(y, n))
		case sa != 0:
			scalar(op, d, unsafe.Slice(x, n), *y, false)
		case sb != 0:
			scalar(op, d, unsafe.Slice(y, n), *x, true)
		default:
			v := binaryOne(op, *x, *y)
			for k := range d {
				d[k] = v
			}
		}
	})
}

// BinaryScalar computes dst[i] = op(x[i], v), or op(v, x[i]) with swap; dst may be x.
func (c *CPU) BinaryScalar(op BinaryOp, dt DType, dst, x unsafe.Pointer, v float64, swap bool, n int) {
	switch dt {
	case Float32:
		d, s := sliceOf[float32](dst, n), sliceOf[float32](x, n)
		if n < parallelFrom {
			binaryScalar(op, d, s, float32(v), swap)
			return
		}
		l := simd.Writing(d, s)
		parallel(n, 1, 64, func(lo, hi int) {
			scalar32(l, op, d[lo:hi], s[lo:hi], float32(v), swap)
			l.Done()
		})
	case Float64:
		binaryScalar(op, sliceOf[float64](dst, n), sliceOf[float64](x, n), v, swap)
	case Int8:
		binaryScalar(op, sliceOf[int8](dst, n), sliceOf[int8](x, n), int8(v), swap)
	case Int16:
		binaryScalar(op, sliceOf[int16](dst, n), sliceOf[int16](x, n), int16(v), swap)
	case Int32:
		binaryScalar(op, sliceOf[int32](dst, n), sliceOf[int32](x, n), int32(v), swap)
	case Int64:
		binaryScalar(op, sliceOf[int64](dst, n), sliceOf[int64](x, n), int64(v), swap)
	case Uint8:
		binaryScalar(op, sliceOf[uint8](dst, n), sliceOf[uint8](x, n), uint8(int64(v)), swap)
	case BFloat16:
		d, s := sliceOf[BF16](dst, n), sliceOf[BF16](x, n)
		if n < parallelFrom {
			scalarHalf(op, d, s, float32(v), swap)
			return
		}
		parallel(n, 1, 64, func(lo, hi int) { scalarHalf(op, d[lo:hi], s[lo:hi], float32(v), swap) })
	}
}

// Axpy computes y[i] += alpha·x[i].
func (c *CPU) Axpy(dt DType, y unsafe.Pointer, alpha float64, x unsafe.Pointer, n int) {
	if dt == Float32 {
		simd.Axpy(sliceOf[float32](y, n), float32(alpha), sliceOf[float32](x, n))
		return
	}
	simd.Axpy(sliceOf[float64](y, n), alpha, sliceOf[float64](x, n))
}
