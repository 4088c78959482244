package cpu

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Binary computes dst[i] = op(a[i], b[i]); dst may be a or b.
func (c *own) Binary(op kernel.BinaryOp, dt dtype.DType, dst, a, b unsafe.Pointer, n int) {
	switch {
	case dt == dtype.BFloat16:
		d, x, y := sliceOf[dtype.BF16](dst, n), sliceOf[dtype.BF16](a, n), sliceOf[dtype.BF16](b, n)
		if n < ParallelFrom {
			binaryHalf(op, d, x, y)
			return
		}
		parallel(n, 1, 64, func(lo, hi int) { binaryHalf(op, d[lo:hi], x[lo:hi], y[lo:hi]) })
	case dt == dtype.Float32:
		d, x, y := sliceOf[float32](dst, n), sliceOf[float32](a, n), sliceOf[float32](b, n)
		mode := simd.Writing(d, x, y)
		if n < ParallelFrom {
			binary32(mode, op, d, x, y)
			mode.Done()
			return
		}
		parallel(n, 1, 64, func(lo, hi int) {
			binary32(mode, op, d[lo:hi], x[lo:hi], y[lo:hi])
			mode.Done()
		})
	default:
		types[dt].binary(op, dst, a, b, n)
	}
}

// HalfChunk is how many elements of bfloat16 are widened at a time.
const HalfChunk = 512

// binaryHalf computes dst[i] = op(a[i], b[i]) in float32.
func binaryHalf(op kernel.BinaryOp, dst, a, b []dtype.BF16) {
	var x, y [HalfChunk]float32
	for i := 0; i < len(dst); i += HalfChunk {
		end := min(i+HalfChunk, len(dst))
		x, y := x[:end-i], y[:end-i]
		simd.FromBF16(x, a[i:end])
		simd.FromBF16(y, b[i:end])
		float32s.vector(op, x, x, y)
		simd.ToBF16(dst[i:end], x)
	}
}

// scalarHalf computes dst[i] = op(x[i], v), or op(v, x[i]), in float32.
func scalarHalf(op kernel.BinaryOp, dst, x []dtype.BF16, v kernel.Number) {
	var wide [HalfChunk]float32
	for i := 0; i < len(dst); i += HalfChunk {
		end := min(i+HalfChunk, len(dst))
		w := wide[:end-i]
		simd.FromBF16(w, x[i:end])
		number32(simd.Ordinary(), op, w, w, v)
		simd.ToBF16(dst[i:end], w)
	}
}

// binaryForms returns the fast forms of the binary operators. An operator without one is nil,
// or beyond the end, and is computed by its definition.
func binaryForms[T number]() []func(dst, a, b []T) {
	forms := []func(dst, a, b []T){
		kernel.OpAdd: simd.Add[T], kernel.OpSub: simd.Sub[T], kernel.OpMul: simd.Mul[T], kernel.OpDiv: divide[T],
		kernel.OpMaximum: simd.Max[T], kernel.OpMinimum: simd.Min[T],
	}
	if isInt[T]() {
		forms = integerForms(forms)
	}
	return forms
}

// scalarForms returns the fast forms of op(x, v) for a number v, or with first of op(v, x).
func scalarForms[T number](first bool) []func(dst, x []T, v T) {
	list := []func(dst, x []T, v T){
		kernel.OpAdd: simd.AddScalar[T], kernel.OpMul: simd.Scale[T],
		kernel.OpSub: func(dst, x []T, v T) { simd.AddScalar(dst, x, -v) },
		kernel.OpDiv: divideBy[T],
		kernel.OpMaximum: func(dst, x []T, v T) {
			for i, w := range x {
				dst[i] = max(w, v)
			}
		},
		kernel.OpMinimum: func(dst, x []T, v T) {
			for i, w := range x {
				dst[i] = min(w, v)
			}
		},
	}
	if first {
		list[kernel.OpDiv] = divideInto[T]
		list[kernel.OpSub] = func(dst, x []T, v T) {
			for i, w := range x {
				dst[i] = v - w
			}
		}
	}
	return list
}

// modeForms32, modeScalars32 and modeSwapped32 are the binaryForms and scalarForms of float32, which take a Mode: whether to store past
// the caches.
var (
	modeForms32 = []func(mode simd.Mode, dst, a, b []float32){
		kernel.OpAdd: func(mode simd.Mode, dst, a, b []float32) {
			if unsafe.SliceData(dst) == unsafe.SliceData(a) {
				simd.AddTo(dst, b)
				return
			}
			mode.Add(dst, a, b)
		},
		kernel.OpSub: simd.Mode.Sub, kernel.OpMul: simd.Mode.Mul, kernel.OpDiv: simd.Mode.Div,
		kernel.OpMaximum: simd.Mode.Max, kernel.OpMinimum: simd.Mode.Min, kernel.OpPow: simd.Mode.Pow, kernel.OpFmod: simd.Mode.Fmod,
		kernel.OpRemainder: simd.Mode.Remainder, kernel.OpFloorDivide: simd.Mode.FloorDivide, kernel.OpAtan2: simd.Mode.Atan2,
	}
	modeScalars32 = []func(mode simd.Mode, dst, x []float32, v float32){
		kernel.OpAdd: simd.Mode.AddScalar, kernel.OpMul: simd.Mode.Scale, kernel.OpDiv: simd.Mode.DivBy,
		kernel.OpSub:     func(mode simd.Mode, dst, x []float32, v float32) { mode.AddScalar(dst, x, -v) },
		kernel.OpMaximum: simd.Mode.MaxScalar, kernel.OpMinimum: simd.Mode.MinScalar,
		kernel.OpPow: func(mode simd.Mode, dst, x []float32, v float32) { mode.PowScalar(dst, x, v, false) },
	}
	modeSwapped32 = []func(mode simd.Mode, dst, x []float32, v float32){
		kernel.OpAdd: simd.Mode.AddScalar, kernel.OpMul: simd.Mode.Scale, kernel.OpDiv: simd.Mode.DivInto, kernel.OpSub: simd.Mode.SubFrom,
		kernel.OpMaximum: simd.Mode.MaxScalar, kernel.OpMinimum: simd.Mode.MinScalar,
		kernel.OpPow: func(mode simd.Mode, dst, x []float32, v float32) { mode.PowScalar(dst, x, v, true) },
	}
)

// ordinary returns forms in the ordinary mode.
func ordinary[B any](forms []func(mode simd.Mode, dst, a []float32, b B)) []func(dst, a []float32, b B) {
	list := make([]func(dst, a []float32, b B), len(forms))
	for op, f := range forms {
		if f != nil {
			list[op] = func(dst, a []float32, b B) { f(simd.Ordinary(), dst, a, b) }
		}
	}
	return list
}

// form returns row op of a table of fast forms, nil if it has none.
func form[F any](forms []F, op kernel.BinaryOp) (f F) {
	if int(op) < len(forms) {
		f = forms[op]
	}
	return f
}

// divide is simd.Div for floats; for integers, which simd does not divide, x/0 is 0.
func divide[T number](dst, a, b []T) {
	if !isInt[T]() {
		simd.Div(dst, a, b)
		return
	}
	for i, v := range b {
		if v == 0 {
			dst[i] = 0
		} else {
			dst[i] = a[i] / v
		}
	}
}

// divideBy computes dst[i] = x[i]/v.
func divideBy[T number](dst, x []T, v T) {
	if v == 0 && isInt[T]() {
		clear(dst)
		return
	}
	repeated(dst, x, v, func(dst, x, same []T) { divide(dst, x, same) })
}

// divideInto computes dst[i] = v/x[i].
func divideInto[T number](dst, x []T, v T) {
	repeated(dst, x, v, func(dst, x, same []T) { divide(dst, same, x) })
}

// repeated calls f for parts of dst and x with as many copies of v.
func repeated[T number](dst, x []T, v T, f func(dst, x, same []T)) {
	var copies [4 * Repeats]T
	same := copies[:min(len(dst), len(copies))]
	for i := range same {
		same[i] = v
	}
	for k := 0; k < len(dst); k += len(same) {
		n := min(len(same), len(dst)-k)
		f(dst[k:k+n], x[k:k+n], same[:n])
	}
}

// define computes dst[i] = op(a[i], b[i]) as the operator's row defines it, float32 in
// float64. If b has one element, it is every b[i]; so is that of a.
func define[T number](op kernel.BinaryOp, dst, a, b []T) {
	ka, kb := min(len(a)-1, 1), min(len(b)-1, 1)
	if isInt[T]() {
		f := op.Row().Integer
		for i := range dst {
			dst[i] = T(f(int64(a[i*ka]), int64(b[i*kb])))
		}
		return
	}
	f := op.Row().Value
	for i := range dst {
		dst[i] = T(f(float64(a[i*ka]), float64(b[i*kb])))
	}
}

// vector computes dst[i] = op(a[i], b[i]).
func (e *kernelsOf[T]) vector(op kernel.BinaryOp, dst, a, b []T) {
	if f := form(e.forms, op); f != nil {
		f(dst, a, b)
		return
	}
	define(op, dst, a, b)
}

// number computes dst[i] = op(x[i], v), or op(v, x[i]) with swap.
func (e *kernelsOf[T]) number(op kernel.BinaryOp, dst, x []T, v T, swap bool) {
	forms := e.scalars
	if swap {
		forms = e.swapped
	}
	if f := form(forms, op); f != nil {
		f(dst, x, v)
		return
	}
	if f := form(e.forms, op); f != nil {
		repeated(dst, x, v, func(dst, x, same []T) {
			if swap {
				x, same = same, x
			}
			f(dst, x, same)
		})
		return
	}
	a, b := x, []T{v}
	if swap {
		a, b = b, a
	}
	define(op, dst, a, b)
}

// binary32 is vector of float32 with a Mode.
func binary32(mode simd.Mode, op kernel.BinaryOp, dst, a, b []float32) {
	if f := form(modeForms32, op); f != nil {
		f(mode, dst, a, b)
		return
	}
	define(op, dst, a, b)
}

// scalar32 is number of float32 with a Mode.
func scalar32(mode simd.Mode, op kernel.BinaryOp, dst, x []float32, v float32, swap bool) {
	forms := modeScalars32
	if swap {
		forms = modeSwapped32
	}
	if f := form(forms, op); f != nil {
		f(mode, dst, x, v)
		return
	}
	f := form(modeForms32, op)
	if f == nil {
		float32s.number(op, dst, x, v, swap)
		return
	}
	repeated(dst, x, v, func(dst, x, same []float32) { // with the bits of two tensors
		if swap {
			x, same = same, x
		}
		f(mode, dst, x, same)
	})
}

// number32 is scalar32 of a number that is the same for a whole tensor, on every rank: powers may be computed otherwise than those of two
// tensors.
func number32(mode simd.Mode, op kernel.BinaryOp, dst, x []float32, v kernel.Number) {
	s := float32(v.Value)
	if op != kernel.OpPow || v.First {
		scalar32(mode, op, dst, x, s, v.First)
		return
	}
	switch s {
	case -1:
		mode.DivInto(dst, x, 1)
	case 3, 0.5, -0.5:
		var part [PowerPiece]float32
		for i := 0; i < len(dst); i += PowerPiece {
			end := min(i+PowerPiece, len(dst))
			d, x, part := dst[i:end], x[i:end], part[:end-i]
			switch s {
			case 3:
				simd.Ordinary().Mul(part, x, x)
				mode.Mul(d, part, x)
			case 0.5:
				simd.Ordinary().AddScalar(part, x, 0) // the power of -0 is 0, its root -0
				simd.Sqrt(d, part)
			case -0.5:
				simd.Ordinary().AddScalar(part, x, 0)
				simd.Rsqrt(d, part)
			}
			if s != 3 && !(simd.MinValue(part) >= 0) {
				for i, v := range part {
					if math.IsInf(float64(v), -1) {
						d[i] = float32(math.Pow(float64(v), float64(s)))
					}
				}
			}
		}
	default:
		scalar32(mode, op, dst, x, s, false)
	}
}

// PowerPiece is how many elements of a power are computed at a time.
const PowerPiece = 1024

// isInt reports whether T is an integer type: whether division truncates.
func isInt[T number]() bool { return T(3)/T(2)*T(2) != T(3) }

// BinaryLoop computes Binary over arguments that broadcast.
func (c *own) BinaryLoop(op kernel.BinaryOp, dt dtype.DType, dst, a, b unsafe.Pointer, l kernel.Loop) {
	if dt != dtype.Float32 {
		types[dt].binaryLoop(op, dst, a, b, l)
		return
	}
	mode := simd.Writing(sliceOf[float32](dst, l.Numel()), sliceOf[float32](a, 1), sliceOf[float32](b, 1))
	binaryLoop(dst, a, b, &l, op,
		func(op kernel.BinaryOp, dst, a, b []float32) { binary32(mode, op, dst, a, b) },
		func(op kernel.BinaryOp, dst, x []float32, v float32, swap bool) { scalar32(mode, op, dst, x, v, swap) })
	mode.Done()
}

// at returns the address of element i.
func at[T any](p unsafe.Pointer, i int) *T {
	return (*T)(unsafe.Add(p, i*int(unsafe.Sizeof(*(*T)(p)))))
}

// binaryLoop walks l row by row; an argument is either a row or one element of it.
func binaryLoop[T number](dst, a, b unsafe.Pointer, l *kernel.Loop, op kernel.BinaryOp,
	vector func(op kernel.BinaryOp, dst, a, b []T), scalar func(op kernel.BinaryOp, dst, x []T, v T, swap bool)) {
	n := l.Size[l.N-1]
	sa, sb := l.A[l.N-1], l.B[l.N-1]
	eachRun(l, func(i, ia, ib, _ int) {
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
			vector(op, d[:1], unsafe.Slice(x, 1), unsafe.Slice(y, 1))
			for k := range d {
				d[k] = d[0]
			}
		}
	})
}

// BinaryScalar computes Binary of x and a number; dst may be x.
func (c *own) BinaryScalar(op kernel.BinaryOp, dt dtype.DType, dst, x unsafe.Pointer, v kernel.Number, n int) {
	switch dt {
	case dtype.BFloat16:
		d, s := sliceOf[dtype.BF16](dst, n), sliceOf[dtype.BF16](x, n)
		if n < ParallelFrom {
			scalarHalf(op, d, s, v)
			return
		}
		parallel(n, 1, 64, func(lo, hi int) { scalarHalf(op, d[lo:hi], s[lo:hi], v) })
	case dtype.Float32:
		d, s := sliceOf[float32](dst, n), sliceOf[float32](x, n)
		if n < ParallelFrom {
			number32(simd.Ordinary(), op, d, s, v)
			return
		}
		mode := simd.Writing(d, s)
		parallel(n, 1, 64, func(lo, hi int) {
			number32(mode, op, d[lo:hi], s[lo:hi], v)
			mode.Done()
		})
	default:
		types[dt].binaryScalar(op, dst, x, v, n)
	}
}

// Axpy computes y[i] += alpha·x[i].
func (c *own) Axpy(dt dtype.DType, y unsafe.Pointer, alpha float64, x unsafe.Pointer, n int) {
	if dt == dtype.Float32 {
		simd.Axpy(sliceOf[float32](y, n), float32(alpha), sliceOf[float32](x, n))
		return
	}
	simd.Axpy(sliceOf[float64](y, n), alpha, sliceOf[float64](x, n))
}
