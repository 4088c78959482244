package tensor

import (
	"runtime"
	"slices"
)

// MatMul returns a·b, with the last two dimensions of a transposed if transA and
// those of b if transB.
//
//	a [..., M, K]   b [..., K, N]   →   [..., M, N]
//
// The dimensions before the last two broadcast. A 1-D a is a row [1, K] and a 1-D b
// a column [K, 1] (it ignores transA, transB); that dimension is removed from the
// result. The product of bfloat16 is that of the float32 values, each element
// rounded once. MatMul throws a *ShapeError if the inner sizes differ.
func MatMul(a, b *Tensor, transA, transB bool) *Tensor {
	m := matmulOf("MatMul", a, b, transA, transB)
	c := alloc("MatMul", a.dev, a.dtype, m.shape())
	m.run(c, false)
	return m.squeeze(c)
}

// MatMulTo computes dst = a·b, or dst += a·b with accumulate; the arguments are
// those of MatMul and dst has the shape and type of its result; for a and b of
// bfloat16 it may be float32 too, and then nothing is rounded. dst is written while
// a and b are read: it throws a *UseError if dst is one of them.
func MatMulTo(dst, a, b *Tensor, transA, transB, accumulate bool) {
	m := matmulOf("MatMulTo", a, b, transA, transB)
	if m.wide = a.dtype == BFloat16 && dst.dtype == Float32; m.wide {
		wantSameDevice("MatMulTo", dst, a)
	} else {
		wantSameType("MatMulTo", dst, a)
	}
	if !equalInts(m.squeezedShape(), dst.Shape()) {
		throwShape("MatMulTo", "the product of %v and %v is %v, the destination %v", a.brief(), b.brief(), m.squeezedShape(), dst.brief())
	}
	if dst.numel > 0 && (dst.addr == a.addr || dst.addr == b.addr) {
		throwUse("MatMulTo", "the destination %v is an argument too", dst.brief())
	}
	m.run(dst, accumulate)
}

// MatMulGrad returns the gradients of MatMul(a, b, transA, transB) in the shapes
// of a and b, where wanted; the other is nil.
//
//	da = dy·bᵀ   db = aᵀ·dy
func MatMulGrad(dy, a, b *Tensor, transA, transB, wantA, wantB bool) (da, db *Tensor) {
	m := matmulOf("MatMulGrad", a, b, transA, transB)
	if !equalInts(m.squeezedShape(), dy.Shape()) {
		throwShape("MatMulGrad", "the product of %v and %v is %v, its gradient %v", a.brief(), b.brief(), m.squeezedShape(), dy.brief())
	}
	dy = dy.Reshape(m.shape()...)
	if m.b.NDim() == 2 && !m.transA && m.k > 0 && m.n > 0 {
		// The rows of the whole batch are those of one product; so are its gradients.
		m.a, dy = m.a.Reshape(m.a.numel/m.k, m.k), dy.Reshape(dy.numel/m.n, m.n)
	}
	if wantA {
		if m.transA {
			da = MatMul(m.b, dy, m.transB, true)
		} else {
			da = MatMul(dy, m.b, false, !m.transB)
		}
		da = SumTo(da, m.a.Shape()...).Reshape(a.Shape()...)
	}
	if wantB {
		if m.transB {
			db = MatMul(dy, m.a, true, m.transA)
		} else {
			db = MatMul(m.a, dy, !m.transA, false)
		}
		db = SumTo(db, m.b.Shape()...).Reshape(b.Shape()...)
	}
	return da, db
}

// A matmul is a checked product.
type matmul struct {
	a, b           *Tensor // at least 2-D
	transA, transB bool
	rowA, colB     bool // a or b was 1-D
	wide           bool // a and b are bfloat16, the result is float32
	m, n, k        int
	batch          [MaxDims]int // broadcast sizes before the last two dimensions
	nbatch         int
}

func matmulOf(op string, a, b *Tensor, transA, transB bool) (m matmul) {
	if a.dtype != BFloat16 {
		wantFloat(op, a)
	}
	wantSameType(op, a, b)
	m = matmul{a: a, b: b, transA: transA, transB: transB}
	if a.ndim == 0 || b.ndim == 0 {
		throwShape(op, "%v and %v: want at least one dimension each; use Mul for a scalar", a.brief(), b.brief())
	}
	if a.ndim == 1 {
		m.a, m.transA, m.rowA = a.Reshape(1, a.numel), false, true
	}
	if b.ndim == 1 {
		m.b, m.transB, m.colB = b.Reshape(b.numel, 1), false, true
	}
	da, db := m.a.NDim(), m.b.NDim()
	rows, ka := m.a.dims[da-2], m.a.dims[da-1]
	kb, cols := m.b.dims[db-2], m.b.dims[db-1]
	if m.transA {
		rows, ka = ka, rows
	}
	if m.transB {
		kb, cols = cols, kb
	}
	if ka != kb {
		throwShape(op, "a %v%s and b %v%s: inner sizes %d and %d differ", a.brief(), primed(m.transA), b.brief(), primed(m.transB), ka, kb)
	}
	m.m, m.n, m.k = rows, cols, ka
	m.nbatch = max(da, db) - 2
	for i := 1; i <= m.nbatch; i++ {
		x, y := 1, 1
		if i <= da-2 {
			x = m.a.dims[da-2-i]
		}
		if i <= db-2 {
			y = m.b.dims[db-2-i]
		}
		if x != y && x != 1 && y != 1 {
			throwShape(op, "a %v and b %v: batch sizes %d and %d differ and neither is 1", a.brief(), b.brief(), x, y)
		}
		if m.batch[m.nbatch-i] = x; x == 1 {
			m.batch[m.nbatch-i] = y
		}
	}
	return m
}

func primed(trans bool) string {
	if trans {
		return "ᵀ"
	}
	return ""
}

// shape returns [..., M, N].
func (m *matmul) shape() []int {
	s := append(make([]int, 0, MaxDims), m.batch[:m.nbatch]...)
	return append(s, m.m, m.n)
}

// squeezedShape is shape without the dimensions that a 1-D argument did not have.
func (m *matmul) squeezedShape() []int {
	s := append(make([]int, 0, MaxDims), m.batch[:m.nbatch]...)
	if !m.rowA {
		s = append(s, m.m)
	}
	if !m.colB {
		s = append(s, m.n)
	}
	return s
}

func (m *matmul) squeeze(c *Tensor) *Tensor {
	if m.rowA || m.colB {
		return c.Reshape(m.squeezedShape()...)
	}
	return c
}

// run multiplies into c, whose elements are those of shape.
func (m *matmul) run(c *Tensor, accumulate bool) {
	a, b, dst := m.a.ptr("MatMul"), m.b.ptr("MatMul"), c.ptr("MatMul")
	g := Gemm{TransA: m.transA, TransB: m.transB, M: m.m, N: m.n, K: m.k, Accumulate: accumulate, Wide: m.wide}
	l := loopOver(nil)
	if !m.transA && m.b.NDim() == 2 {
		// One matrix for the whole batch: its rows are as many rows of one product.
		g.M = c.numel / max(m.n, 1)
	} else {
		l = loopOver(m.batch[:m.nbatch], m.a.dims[:m.a.NDim()-2], m.b.dims[:m.b.NDim()-2])
	}
	if c.numel > 0 {
		c.dev.MatMul(m.a.dtype, g, dst, a, b, l)
	}
	runtime.KeepAlive(m.a)
	runtime.KeepAlive(m.b)
	runtime.KeepAlive(c)
}

// Linear returns x·wᵀ + bias, of bfloat16 rounded once.
//
//	x [..., In]   w [Out, In]   bias [Out] or nil   →   [..., Out]
func Linear(x, w, bias *Tensor) *Tensor {
	if w.ndim != 2 || x.ndim == 0 {
		throwShape("Linear", "x %v, w %v: want at least 1-D and 2-D", x.brief(), w.brief())
	}
	if bias == nil {
		return MatMul(x, w, false, true)
	}
	if bias.ndim != 1 || bias.numel != w.dims[0] {
		throwShape("Linear", "bias %v does not have the %d outputs of w %v", bias.brief(), w.dims[0], w.brief())
	}
	if x.dtype == BFloat16 { // the bias is in the sums before they are rounded
		wantSameType("Linear", x, bias)
		shape := slices.Clone(x.Shape())
		shape[len(shape)-1] = bias.numel
		y := Expand(bias, shape...)
		if y == bias {
			y = Clone(bias)
		}
		MatMulTo(y, x, w, false, true, true)
		return y
	}
	y := MatMul(x, w, false, true)
	BinaryTo(y, OpAdd, y, bias)
	return y
}

// LinearGrad returns the gradients of Linear where wanted; the others are nil.
//
//	dx = dy·w   dw = dyᵀ·x   dbias = sum of dy over all but the last dimension
func LinearGrad(dy, x, w *Tensor, wantX, wantW, wantBias bool) (dx, dw, dbias *Tensor) {
	if wantX {
		dx = MatMul(dy, w, false, false)
	}
	out := w.dims[0]
	if wantW {
		rows, _ := x.around(x.NDim() - 1)
		dw = MatMul(dy.Reshape(rows, out), x.Reshape(rows, w.dims[1]), true, false)
	}
	if wantBias {
		dbias = SumTo(dy, out)
	}
	return dx, dw, dbias
}
