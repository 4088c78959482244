package cuda

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// float reports whether dt is float32 or float64, which have kernels of their own.
func float(dt tensor.DType) bool { return dt == tensor.Float32 || dt == tensor.Float64 }

// pattern returns the bits of v rounded to dt.
func pattern(dt tensor.DType, v float64) uint64 {
	switch dt {
	case tensor.Float32:
		return uint64(math.Float32bits(float32(v)))
	case tensor.Float64:
		return math.Float64bits(v)
	case tensor.Float16:
		return uint64(dtype.ToF16(float32(v)))
	case tensor.BFloat16:
		return uint64(dtype.ToBF16(float32(v)))
	case tensor.Bool:
		return 1 // 0 is not asked for
	default:
		return uint64(int64(v))
	}
}

// Fill sets n elements to v, rounded to dt.
func (g kernels) Fill(dt tensor.DType, dst unsafe.Pointer, n int, v float64) {
	if v == 0 && !(dt.Float() && math.Signbit(v)) {
		g.clear(dst, n*dt.Size())
		return
	}
	g.kernel("fill").i32(dt.Size()).ptr(dst).i64(n).u64(pattern(dt, v)).each(n)
}

// Iota sets dst[i] = start + i.
func (g kernels) Iota(dt tensor.DType, dst unsafe.Pointer, n, start int) {
	g.kernel("iota").dt(dt).ptr(dst).i64(n, start).each(n)
}

// Cast converts n elements.
func (g kernels) Cast(to tensor.DType, dst unsafe.Pointer, from tensor.DType, src unsafe.Pointer, n int) {
	switch {
	case to == tensor.BFloat16 && from == tensor.Float32:
		g.kernel("cast_f32_bf16").ptr(dst, src).i64(n).each(n)
		return
	case to == tensor.Float32 && from == tensor.BFloat16:
		g.kernel("cast_bf16_f32").ptr(dst, src).i64(n).each(n)
		return
	}
	g.kernel("cast").dt(to).ptr(dst).dt(from).ptr(src).i64(n).each(n)
}

// CopyLoop copies elements of the given bytes: dst[Σ i·A] = src[Σ i·B].
func (g kernels) CopyLoop(elemBytes int, dst, src unsafe.Pointer, l kernel.Loop) {
	last := l.N - 1
	switch {
	case l.N == 1 && l.A[0] == 1 && l.B[0] == 1:
		g.CopyBytes(dst, src, l.Size[0]*elemBytes)
		return
	case l.N == 2 || l.N == 3:
		// Rows of src become columns of dst: one dimension is contiguous in src, another
		// in dst.
		if l.A[last] == 1 && l.B[last-1] == 1 {
			g.transpose(elemBytes, dst, src, &l, last, last-1)
			return
		}
		if l.N == 3 && l.A[last] == 1 && l.B[0] == 1 {
			g.transpose(elemBytes, dst, src, &l, last, 0)
			return
		}
	}
	for elemBytes < 8 && widen(&l, dst, src, elemBytes) {
		elemBytes *= 2
	}
	n := l.Numel()
	g.kernel("copy_loop").i32(elemBytes).ptr(dst, src).loop(&l).i64(n).each(n)
}

// transpose copies matrices whose rows are dimension row of l, in src, and whose
// columns are dimension col; a third dimension is the batch.
func (g kernels) transpose(elemBytes int, dst, src unsafe.Pointer, l *kernel.Loop, row, col int) {
	batch, dstBatch, srcBatch := 1, 0, 0
	if l.N == 3 {
		b := 3 - row - col
		batch, dstBatch, srcBatch = l.Size[b], l.A[b], l.B[b]
	}
	rows, cols := l.Size[row], l.Size[col]
	g.kernel("transpose").i32(elemBytes).ptr(dst, src).i64(batch, rows, cols, l.A[col], l.B[row], dstBatch, srcBatch).
		blocks(batch * ints.DivUp(rows, 32) * ints.DivUp(cols, 32))
}

// widen makes elements of l twice as large if sizes, strides and addresses allow it.
func widen(l *kernel.Loop, dst, src unsafe.Pointer, elemBytes int) bool {
	last := l.N - 1
	if l.A[last] != 1 || l.B[last] != 1 || l.Size[last]%2 != 0 || (uintptr(dst)|uintptr(src))%uintptr(2*elemBytes) != 0 {
		return false
	}
	for d := range last {
		if l.A[d]%2 != 0 || l.B[d]%2 != 0 {
			return false
		}
	}
	for d := range last {
		l.A[d], l.B[d] = l.A[d]/2, l.B[d]/2
	}
	l.Size[last] /= 2
	return true
}

// Unary computes dst[i] = op(x[i]); dst may be x.
func (g kernels) Unary(op kernel.UnaryOp, dt tensor.DType, dst, x unsafe.Pointer, n int) {
	if dt.Float() {
		g.typed("unary", dt).i32(int(op)).ptr(dst, x).i64(n).each(n)
		return
	}
	g.kernel("unary_int").i32(int(op)).dt(dt).ptr(dst, x).i64(n).each(n)
}

// UnaryGrad computes dx[i] = dy[i]·op'(x[i]), y[i] = op(x[i]); dx may be dy.
func (g kernels) UnaryGrad(op kernel.UnaryOp, dt tensor.DType, dx unsafe.Pointer, s kernel.Slope, n int) {
	g.typed("unary_grad", dt).i32(int(op)).ptr(dx, s.DY, s.X, s.Y).i64(n).each(n)
}

// Clamp computes dst[i] = min(max(x[i], lo), hi) of floats.
func (g kernels) Clamp(dt tensor.DType, dst, x unsafe.Pointer, lo, hi float64, n int) {
	g.typed("clamp", dt).ptr(dst, x).f64(lo).f64(hi).i64(n).each(n)
}

// ClampInt computes dst[i] = min(max(x[i], lo), hi) of integers.
func (g kernels) ClampInt(dt tensor.DType, dst, x unsafe.Pointer, lo, hi int64, n int) {
	g.kernel("clamp_int").dt(dt).ptr(dst, x).i64(int(lo), int(hi), n).each(n)
}

// ClampGrad computes dx[i] = dy[i] where lo <= x[i] <= hi, else 0.
func (g kernels) ClampGrad(dt tensor.DType, dx unsafe.Pointer, s kernel.Slope, lo, hi float64, n int) {
	g.typed("clamp_grad", dt).ptr(dx, s.DY, s.X).f64(lo).f64(hi).i64(n).each(n)
}

// Leaky computes dst[i] = dy[i] where x[i] > 0, else dy[i]·slope.
func (g kernels) Leaky(dt tensor.DType, dst unsafe.Pointer, s kernel.Slope, slope float64, n int) {
	g.typed("leaky", dt).ptr(dst, s.DY, s.X).f64(slope).i64(n).each(n)
}

// Binary computes dst[i] = op(a[i], b[i]); dst may be a or b.
func (g kernels) Binary(op kernel.BinaryOp, dt tensor.DType, dst, a, b unsafe.Pointer, n int) {
	if float(dt) || dt == tensor.BFloat16 {
		g.typed("binary", dt).i32(int(op)).ptr(dst, a, b).i64(n).each(n)
		return
	}
	g.kernel("binary_int").i32(int(op)).dt(dt).ptr(dst, a, b).i64(n).each(n)
}

// BinaryLoop computes Binary over arguments that broadcast.
func (g kernels) BinaryLoop(op kernel.BinaryOp, dt tensor.DType, dst, a, b unsafe.Pointer, l kernel.Loop) {
	n := l.Numel()
	if dt.Float() {
		g.typed("binary_loop", dt).i32(int(op)).ptr(dst, a, b).loop(&l).i64(n).each(n)
		return
	}
	g.kernel("binary_loop_int").i32(int(op)).dt(dt).ptr(dst, a, b).loop(&l).i64(n).each(n)
}

// BinaryScalar computes Binary of x and a number; dst may be x.
func (g kernels) BinaryScalar(op kernel.BinaryOp, dt tensor.DType, dst, x unsafe.Pointer, v kernel.Number, n int) {
	if float(dt) || dt == tensor.BFloat16 {
		g.typed("binary_scalar", dt).i32(int(op)).ptr(dst, x).float(dt, v.Value).flag(v.First).i64(n).each(n)
		return
	}
	g.kernel("binary_scalar_int").i32(int(op)).dt(dt).ptr(dst, x).i64(wrap(dt, v.Value)).flag(v.First).i64(n).each(n)
}

// wrap returns v as an integer of type dt.
func wrap(dt tensor.DType, v float64) int {
	switch dt {
	case tensor.Int8:
		return int(int8(v))
	case tensor.Int16:
		return int(int16(v))
	case tensor.Int32:
		return int(int32(v))
	case tensor.Uint8:
		return int(uint8(int64(v)))
	}
	return int(v)
}

// CompareLoop computes dst = op(a, b), one byte of 0 or 1 an element, over
// arguments that broadcast.
func (g kernels) CompareLoop(op kernel.CompareOp, dt tensor.DType, dst, a, b unsafe.Pointer, l kernel.Loop) {
	n := l.Numel()
	g.kernel("compare_loop").i32(int(op)).dt(dt).ptr(dst, a, b).loop(&l).i64(n).each(n)
}

// Where computes dst = cond ? a : b for elements of the given bytes; the loop's C
// is cond's.
func (g kernels) Where(elemBytes int, dst, a, b, cond unsafe.Pointer, l kernel.Loop) {
	n := l.Numel()
	g.kernel("where").i32(elemBytes).ptr(dst, a, b, cond).loop(&l).i64(n).each(n)
}

// Random fills dst with those of r: the numbers of global elements First + Σ i·B, at Σ i·A.
func (g kernels) Random(r kernel.RandomNumbers, dst unsafe.Pointer, l kernel.Loop) {
	if l.Numel() == 0 {
		return
	}
	if g.tail == nil {
		g.tail = g.constants(philox.Tail())
	}
	run := 1
	if last := l.N - 1; l.A[last] == 1 && l.B[last] == 1 {
		run, l.N = l.Size[last], last
	}
	runs := l.Numel()
	g.kernel("random_numbers").i32(int(r.Op)).dt(r.DType).ptr(dst).u64(r.Key.Seed).u64(r.Key.Stream).u64(r.First).loop(&l).i64(runs, run).
		f64(r.A).f64(r.B).f64(r.Least).f64(r.Most).ptr(g.tail).each(runs * ((run + 6) / 4))
}

// constants returns a copy of numbers in device memory that stays.
func (g *Device) constants(v []float64) unsafe.Pointer {
	p, err := allocator{g}.Alloc(8 * len(v))
	if err != nil {
		throw("constants", err)
	}
	g.FromHost(p, unsafe.Pointer(&v[0]), 8*len(v))
	return p
}

// Axpy computes y[i] += alpha·x[i].
func (g kernels) Axpy(dt tensor.DType, y unsafe.Pointer, alpha float64, x unsafe.Pointer, n int) {
	g.typed("axpy", dt).ptr(y).float(dt, alpha).ptr(x).i64(n).each(n)
}
