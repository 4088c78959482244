package tensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Functions that tests alone use: operators by name, and their gradients, which package
// dtensor has for layouts.

// Sub returns a - b.
func Sub(a, b *Tensor) *Tensor { return Binary(kernel.OpSub, a, b) }

// Div returns a/b, element by element.
func Div(a, b *Tensor) *Tensor { return Binary(kernel.OpDiv, a, b) }

// broadcastTogether returns the shape to which shapes a and b broadcast; ok is false if they do not.
func broadcastTogether(a, b []int) (shape []int, ok bool) {
	sizes, n, differ := broadcastSizes(a, b)
	return sizes[:n], differ == ""
}

// Not returns !x of a Bool tensor.
func Not(x *Tensor) *Tensor {
	wantBool("Not", "x", x)
	return CompareScalar(kernel.OpEq, x, 0)
}

// Mean returns the mean of the elements of dims, NaN for none; x is float32, float64 or
// bfloat16.
func Mean(x *Tensor, dims []int, keepdim bool) *Tensor {
	wantFloat("Mean", x)
	return MeanPart(x, dims, keepdim, x.count(x.dimMask("Mean", dims)))
}

// Prod multiplies the elements of dims; see Reduce.
func Prod(x *Tensor, dims []int, keepdim bool) *Tensor {
	return Reduce(kernel.OpProd, x, dims, keepdim)
}

// Amax returns the largest elements of dims; see Reduce.
func Amax(x *Tensor, dims []int, keepdim bool) *Tensor {
	return Reduce(kernel.OpAmax, x, dims, keepdim)
}

// Amin returns the smallest elements of dims; see Reduce.
func Amin(x *Tensor, dims []int, keepdim bool) *Tensor {
	return Reduce(kernel.OpAmin, x, dims, keepdim)
}

// InversePermutation returns the order that undoes dims.
func InversePermutation(dims []int) []int {
	inverse := make([]int, len(dims))
	for i, d := range dims {
		if d < 0 {
			d += len(dims)
		}
		inverse[d] = i
	}
	return inverse
}

// SumTo adds up the elements of x that a broadcast from shape to x's shape repeats: the
// gradient of a broadcast.
func SumTo(x *Tensor, shape ...int) *Tensor {
	if slices.Equal(shape, x.Shape()) {
		return x
	}
	if !broadcastsTo(shape, x.Shape()) {
		throwShape("SumTo", "%v: %v does not broadcast to it", x.brief(), slices.Clone(shape))
	}
	lead := x.NDim() - len(shape)
	dims := make([]int, 0, kernel.MaxDims)
	for d := range x.NDim() {
		if d < lead || shape[d-lead] == 1 && x.dims[d] != 1 {
			dims = append(dims, d)
		}
	}
	return Sum(x, dims, true).Reshape(shape...)
}

// ScalarBinary returns op(v, x) for each element of x.
func ScalarBinary(op kernel.BinaryOp, v float64, x *Tensor) *Tensor {
	dst := NewLike(x)
	x.dev.BinaryScalar(op, x.dtype, dst.addr, x.addr, kernel.Number{Value: v, First: true}, x.numel)
	return dst
}

// DefaultAdamW returns torch.optim.AdamW's defaults.
func DefaultAdamW() Adam {
	return Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2}
}

// Step is StepRows for a dense gradient; a row of zeros changes nothing.
func (o Adagrad) Step(table, grad, state *Tensor) {
	if table.ndim != 2 {
		throwShape("Adagrad", "table %v: want two dimensions", table.brief())
	}
	o.StepRows(table, Rows{Index: Arange(table.dev, Int64, 0, table.dims[0]), Values: grad}, state, nil)
}

// OneHot returns rows of classes elements, 1 at the index less lo and 0 elsewhere:
// [...] → [..., classes]. An index outside [lo, lo+classes) gives a row of zeros.
func OneHot(index *Tensor, lo, classes int, dt DType) *Tensor {
	const op = "OneHot"
	wantIndex(op, "index", index)
	y := Zeros(index.dev, dt, append(slices.Clone(index.Shape()), classes)...)
	index.dev.OneHot(dt, y.addr, index.indices(op), lo, classes)
	runtime.KeepAlive(index)
	return y
}

// lastDims returns x with the dimensions in mask moved behind the others.
func (t *Tensor) lastDims(mask int) *Tensor {
	var order [kernel.MaxDims]int
	n, moved := 0, false
	for pass := range 2 {
		for d := range t.NDim() {
			if mask>>d&1 == pass {
				order[n] = d
				moved = moved || n != d && t.dims[d] != 1
				n++
			}
		}
	}
	if !moved {
		return t
	}
	return Permute(t, order[:n]...)
}

// rowStat computes op over dims on behalf of name; p is for the norms. Of a narrow type the
// result is float32.
func rowStat(name string, op kernel.RowOp, x *Tensor, p float64, dims []int, keepdim bool) *Tensor {
	wantFloat(name, x)
	mask := x.dimMask(name, dims)
	y := alloc(name, x.dev, x.dtype.Wide(), x.keepShape(mask))
	rows := x.lastDims(mask)
	x.dev.RowStat(op, x.dtype, y.addr, rows.ptr(name), kernel.Matrix{Rows: y.numel, Cols: x.count(mask)}, p)
	runtime.KeepAlive(rows)
	return y.dropDims(mask, keepdim)
}

// Var returns the variance of the elements of dims: the sum of the squared
// distances from their mean, over their number less correction (1 is the unbiased
// estimate). It is NaN for too few elements.
func Var(x *Tensor, dims []int, correction float64, keepdim bool) *Tensor {
	const op = "Var"
	y := rowStat(op, kernel.OpSquareDev, x, 0, dims, keepdim)
	n := max(float64(x.count(x.dimMask(op, dims)))-correction, 0)
	y.dev.BinaryScalar(kernel.OpDiv, y.dtype, y.addr, y.addr, kernel.Number{Value: n}, y.numel)
	return Cast(y, x.dtype)
}

// LogSumExp returns ln Σ exp(x) over dims.
func LogSumExp(x *Tensor, dims []int, keepdim bool) *Tensor {
	return Cast(rowStat("LogSumExp", kernel.OpLogSumExp, x, 0, dims, keepdim), x.dtype)
}

// Norm returns (Σ |x|ᵖ)^(1/p) over dims, p > 0; max |x| for p = +Inf.
func Norm(x *Tensor, p float64, dims []int, keepdim bool) *Tensor {
	const op = "Norm"
	wantPower(op, p)
	return Cast(rowStat(op, kernel.OpNorm, x, p, dims, keepdim), x.dtype)
}

// PowSum returns Σ |x|ᵖ over dims, p > 0; max |x| for p = +Inf. Parts of a row
// held apart combine by addition, or by maximum.
func PowSum(x *Tensor, p float64, dims []int, keepdim bool) *Tensor {
	wantPower("PowSum", p)
	return rowStat("PowSum", kernel.OpPowSum, x, p, dims, keepdim)
}

// Unstack takes dimension dim apart: the gradient of Stack.
func Unstack(x *Tensor, dim int) []*Tensor {
	dim = x.axis("Unstack", dim)
	out := make([]*Tensor, x.dims[dim])
	shape := slices.Delete(slices.Clone(x.Shape()), dim, dim+1)
	for i := range out {
		out[i] = Narrow(x, dim, i, 1).Reshape(shape...)
	}
	return out
}

// Unsqueeze inserts a dimension of size 1 before dimension dim; dim may be
// x.NDim() or count from the end, -1 being last. It shares x's memory.
func Unsqueeze(x *Tensor, dim int) *Tensor {
	if dim < -x.NDim()-1 || dim > x.NDim() {
		throwShape("Unsqueeze", "%v: dimension %d is out of range [%d, %d]", x.brief(), dim, -x.NDim()-1, x.NDim())
	}
	if dim < 0 {
		dim += x.NDim() + 1
	}
	return x.Reshape(slices.Insert(slices.Clone(x.Shape()), dim, 1)...)
}

// Split cuts x along dimension dim into pieces of the given sizes, which add up
// to the dimension. Its gradient is Cat. The pieces share x's memory where
// Narrow does.
func Split(x *Tensor, dim int, sizes ...int) []*Tensor {
	dim = x.axis("Split", dim)
	pieces, start := make([]*Tensor, len(sizes)), 0
	for i, n := range sizes {
		pieces[i] = Narrow(x, dim, start, n)
		start += n
	}
	if start != x.dims[dim] {
		throwShape("Split", "%v: sizes %v add up to %d, dimension %d has %d", x.brief(), slices.Clone(sizes), start, dim, x.dims[dim])
	}
	return pieces
}

// Chunk cuts x along dim as torch.chunk does: pieces of ⌈size/n⌉, the last one
// shorter, and so perhaps fewer than n.
func Chunk(x *Tensor, dim, n int) []*Tensor {
	dim = x.axis("Chunk", dim)
	if n < 1 {
		throwShape("Chunk", "%v into %d pieces: want at least one", x.brief(), n)
	}
	size := max((x.dims[dim]+n-1)/n, 1)
	var pieces []*Tensor
	for start := 0; start < x.dims[dim] || start == 0; start += size {
		pieces = append(pieces, Narrow(x, dim, start, min(size, x.dims[dim]-start)))
	}
	return pieces
}

// Relu returns max(x, 0).
func Relu(x *Tensor) *Tensor { return Unary(kernel.OpRelu, x) }

// Rsqrt returns 1/√x.
func Rsqrt(x *Tensor) *Tensor { return Unary(kernel.OpRsqrt, x) }

// Sigmoid returns 1/(1+e⁻ˣ).
func Sigmoid(x *Tensor) *Tensor { return Unary(kernel.OpSigmoid, x) }

// Sign returns -1, 0 or 1.
func Sign(x *Tensor) *Tensor { return Unary(kernel.OpSign, x) }

// Square returns x².
func Square(x *Tensor) *Tensor { return Unary(kernel.OpSquare, x) }

// Sqrt returns √x.
func Sqrt(x *Tensor) *Tensor { return Unary(kernel.OpSqrt, x) }

// GeluTanh returns x·½(1 + tanh(√(2/π)·(x + 0.044715·x³))), which is close to Gelu.
func GeluTanh(x *Tensor) *Tensor { return Unary(kernel.OpGeluTanh, x) }

// Maximum returns the larger of each pair.
func Maximum(a, b *Tensor) *Tensor { return Binary(kernel.OpMaximum, a, b) }

// Minimum returns the smaller of each pair.
func Minimum(a, b *Tensor) *Tensor { return Binary(kernel.OpMinimum, a, b) }

// Pow returns aᵇ.
func Pow(a, b *Tensor) *Tensor { return Binary(kernel.OpPow, a, b) }

// UnaryTo is Unary into dst, which may be x.
func UnaryTo(dst *Tensor, op kernel.UnaryOp, x *Tensor) {
	wantUnary(op, x)
	wantSameType(op.String(), dst, x)
	wantSameShape(op.String(), dst, x)
	x.dev.Unary(op, x.dtype, dst.ptr(op.String()), x.ptr(op.String()), x.numel)
}

// Stack joins tensors of one shape along a new dimension dim. Its gradient is
// Unstack.
func Stack(dim int, xs ...*Tensor) *Tensor {
	rows := make([]*Tensor, len(xs))
	for i, x := range xs {
		wantSameShape("Stack", xs[0], x)
		rows[i] = Unsqueeze(x, dim)
	}
	return Cat(dim, rows...)
}

// Neg returns -x.
func Neg(x *Tensor) *Tensor { return Unary(kernel.OpNeg, x) }

// Abs returns |x|.
func Abs(x *Tensor) *Tensor { return Unary(kernel.OpAbs, x) }

// Exp returns eˣ.
func Exp(x *Tensor) *Tensor { return Unary(kernel.OpExp, x) }

// Log returns ln x.
func Log(x *Tensor) *Tensor { return Unary(kernel.OpLog, x) }

// Tanh returns tanh x.
func Tanh(x *Tensor) *Tensor { return Unary(kernel.OpTanh, x) }

// Gelu returns x·Φ(x), with the exact error function.
func Gelu(x *Tensor) *Tensor { return Unary(kernel.OpGelu, x) }

// Silu returns x·sigmoid(x).
func Silu(x *Tensor) *Tensor { return Unary(kernel.OpSilu, x) }

// Any reports for a Bool tensor whether an element of dims is true.
func Any(x *Tensor, dims []int, keepdim bool) *Tensor {
	wantBool("Any", "x", x)
	return Reduce(kernel.OpAmax, x, dims, keepdim)
}

// All reports for a Bool tensor whether all elements of dims are true.
func All(x *Tensor, dims []int, keepdim bool) *Tensor {
	wantBool("All", "x", x)
	return Reduce(kernel.OpAmin, x, dims, keepdim)
}

// MatMulGrad returns the gradients of MatMul(a, b, transA, transB) in the shapes
// of a and b, where wanted; the other is nil.
//
//	da = dy·bᵀ   db = aᵀ·dy
func MatMulGrad(dy, a, b *Tensor, transA, transB, wantA, wantB bool) (da, db *Tensor) {
	m := matmulOf("MatMulGrad", a, b, transA, transB)
	if !slices.Equal(m.squeezedShape(), dy.Shape()) {
		throwShape("MatMulGrad", "the product of %v and %v is %v, its gradient %v", a.brief(), b.brief(), m.squeezedShape(), dy.brief())
	}
	dy = dy.Reshape(m.shape()...)
	if m.b.NDim() == 2 && !m.TransA && m.K > 0 && m.N > 0 {
		// The rows of the whole batch are those of one product; so are its gradients.
		m.a, dy = m.a.Reshape(m.a.numel/m.K, m.K), dy.Reshape(dy.numel/m.N, m.N)
	}
	if wantA {
		if m.TransA {
			da = MatMul(m.b, dy, m.TransB, true)
		} else {
			da = MatMul(dy, m.b, false, !m.TransB)
		}
		da = SumTo(da, m.a.Shape()...).Reshape(a.Shape()...)
	}
	if wantB {
		if m.TransB {
			db = MatMul(dy, m.a, true, m.TransA)
		} else {
			db = MatMul(m.a, dy, !m.TransA, false)
		}
		db = SumTo(db, m.b.Shape()...).Reshape(b.Shape()...)
	}
	return da, db
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

// To returns a copy of x on dev.
func To(x *Tensor, dev Device) *Tensor {
	t := New(dev, x.dtype, x.Shape()...)
	Copy(t, x)
	return t
}

// count returns the number of elements of the dimensions in mask.
func (t *Tensor) count(mask int) int {
	n := 1
	for d, s := range t.Shape() {
		if mask>>d&1 != 0 {
			n *= s
		}
	}
	return n
}

// keepShape returns the shape of t with size 1 for the dimensions in mask.
func (t *Tensor) keepShape(mask int) []int {
	shape := slices.Clone(t.Shape())
	for d := range shape {
		if mask>>d&1 != 0 {
			shape[d] = 1
		}
	}
	return shape
}
