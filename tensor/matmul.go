package tensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// MatMul returns a·b, with the last two dimensions of a transposed if transA and
// those of b if transB.
//
//	a [..., M, K]   b [..., K, N]   →   [..., M, N]
//
// The dimensions before the last two broadcast. A 1-D a is a row [1, K] and a 1-D b a column [K, 1],
// whatever transA and transB say; that dimension is removed from the result.
func MatMul(a, b *Tensor, transA, transB bool) *Tensor {
	const op = "MatMul"
	m := matmulOf(op, a, b, transA, transB)
	c := alloc(op, a.dev, a.dtype, m.shape())
	m.run(c)
	return m.squeeze(c)
}

// MatMulTo computes dst = a·b, or dst += a·b with accumulate. The arguments are those of MatMul, and
// dst, which is neither of them, has the shape and type of its result. If a and b are of a narrow
// type, dst may also be float32, and then nothing is rounded.
func MatMulTo(dst, a, b *Tensor, transA, transB, accumulate bool) {
	const op = "MatMulTo"
	m := matmulOf(op, a, b, transA, transB)
	if m.Wide = a.dtype.Narrow() && dst.dtype == Float32; m.Wide {
		wantSameDevice(op, dst, a)
	} else {
		wantSameType(op, dst, a)
	}
	if !slices.Equal(m.squeezedShape(), dst.Shape()) {
		throwShape(op, "the product of %v and %v is %v, the destination %v", a.brief(), b.brief(), m.squeezedShape(), dst.brief())
	}
	if dst.numel > 0 && (dst.addr == a.addr || dst.addr == b.addr) {
		throwUse(op, "the destination %v is an argument too", dst.brief())
	}
	m.Accumulate = accumulate
	m.run(dst)
}

// A matmul is a checked product.
type matmul struct {
	kernel.Gemm                     // of one of the batch
	a, b        *Tensor             // at least 2-D
	rowA, colB  bool                // a or b was 1-D
	batch       [kernel.MaxDims]int // broadcast sizes before the last two dimensions
	nbatch      int
}

// matmulOf checks the arguments of a product.
func matmulOf(op string, a, b *Tensor, transA, transB bool) (m matmul) {
	wantFloat(op, a)
	wantSameType(op, a, b)
	m = matmul{Gemm: kernel.Gemm{TransA: transA, TransB: transB}, a: a, b: b}
	if a.ndim == 0 || b.ndim == 0 {
		throwShape(op, "%v and %v: want at least one dimension each; use Mul for a scalar", a.brief(), b.brief())
	}
	if a.ndim == 1 {
		m.a, m.TransA, m.rowA = a.Reshape(1, a.numel), false, true
	}
	if b.ndim == 1 {
		m.b, m.TransB, m.colB = b.Reshape(b.numel, 1), false, true
	}
	da, db := m.a.NDim(), m.b.NDim()
	rows, ka := m.a.dims[da-2], m.a.dims[da-1]
	kb, cols := m.b.dims[db-2], m.b.dims[db-1]
	if m.TransA {
		rows, ka = ka, rows
	}
	if m.TransB {
		kb, cols = cols, kb
	}
	if ka != kb {
		throwShape(op, "a %v%s and b %v%s: inner sizes %d and %d differ", a.brief(), primed(m.TransA), b.brief(), primed(m.TransB), ka, kb)
	}
	m.M, m.N, m.K = rows, cols, ka
	var differ string
	if m.batch, m.nbatch, differ = broadcastSizes(m.a.dims[:da-2], m.b.dims[:db-2]); differ != "" {
		throwShape(op, "a %v and b %v: batch %s", a.brief(), b.brief(), differ)
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
	s := append(make([]int, 0, kernel.MaxDims), m.batch[:m.nbatch]...)
	return append(s, m.M, m.N)
}

// squeezedShape is shape without the dimensions that a 1-D argument did not have.
func (m *matmul) squeezedShape() []int {
	s := append(make([]int, 0, kernel.MaxDims), m.batch[:m.nbatch]...)
	if !m.rowA {
		s = append(s, m.M)
	}
	if !m.colB {
		s = append(s, m.N)
	}
	return s
}

func (m *matmul) squeeze(c *Tensor) *Tensor {
	if m.rowA || m.colB {
		return c.Reshape(m.squeezedShape()...)
	}
	return c
}

// run multiplies into c, which has as many elements as shape says.
func (m *matmul) run(c *Tensor) {
	const op = "MatMul"
	a, b, dst := m.a.ptr(op), m.b.ptr(op), c.ptr(op)
	g, l := m.Gemm, loopOver(nil)
	if !m.TransA && m.b.NDim() == 2 {
		// All matrices of a meet the same b: their rows are those of one tall matrix.
		g.M = c.numel / max(m.N, 1)
	} else {
		l = loopOver(m.batch[:m.nbatch], m.a.dims[:m.a.NDim()-2], m.b.dims[:m.b.NDim()-2])
	}
	if c.numel > 0 {
		c.dev.MatMul(m.a.dtype, g, dst, a, b, l)
	}
	keepAlive(m.a, m.b, c)
}

// Linear returns x·wᵀ + bias, rounded once.
//
//	x [..., In]   w [Out, In]   bias [Out] or nil   →   [..., Out]
func Linear(x, w, bias *Tensor) *Tensor {
	const op = "Linear"
	if w.ndim != 2 || x.ndim == 0 {
		throwShape(op, "x %v, w %v: want at least 1-D and 2-D", x.brief(), w.brief())
	}
	if bias == nil {
		return MatMul(x, w, false, true)
	}
	if bias.ndim != 1 || bias.numel != w.dims[0] {
		throwShape(op, "bias %v does not have the %d outputs of w %v", bias.brief(), w.dims[0], w.brief())
	}
	if x.dtype.Narrow() { // the bias is in the sums before they are rounded
		wantSameType(op, x, bias)
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
	BinaryTo(y, kernel.OpAdd, y, bias)
	return y
}
