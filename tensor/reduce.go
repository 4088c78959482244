package tensor

import (
	"runtime"
	"slices"
)

// A ReduceOp combines the elements of some dimensions.
type ReduceOp uint8

// The reductions, each with its value for no elements.
const (
	OpSum  ReduceOp = iota // 0
	OpProd                 // 1
	OpAmax                 // -Inf, or the least integer; NaN if an element is
	OpAmin                 // +Inf, or the largest integer; NaN if an element is
	reduceOps
)

var reduceNames = [reduceOps]string{"Sum", "Prod", "Amax", "Amin"}

// String returns the name, "Sum".
func (op ReduceOp) String() string { return reduceNames[op] }

// Reduce combines the elements of dimensions dims of x, all of them if none is
// named. With keepdim they stay with size 1, else they are removed. Sum and Prod
// of integers and Bool are Int64; Amax and Amin keep the type. Bfloat16 is combined in
// float32 and rounded once. The elements of one result are combined in an
// order that depends on the sizes alone.
func Reduce(op ReduceOp, x *Tensor, dims []int, keepdim bool) *Tensor {
	y := reduceWide(op, x, dims, keepdim)
	if x.dtype == BFloat16 {
		return narrowed(y)
	}
	return y
}

// reduceWide is Reduce that does not round: of bfloat16 the result is float32.
func reduceWide(op ReduceOp, x *Tensor, dims []int, keepdim bool) *Tensor {
	name := op.String()
	if x.dtype != Float32 && x.dtype != Float64 {
		wantComparable(name, x)
		if x.dtype != BFloat16 && (op == OpSum || op == OpProd) {
			x = Cast(x, Int64)
		}
	}
	mask := x.dimMask(name, dims)
	y := x
	for d := 0; d < x.NDim(); {
		if mask>>d&1 == 0 {
			d++
			continue
		}
		end := d + 1
		for end < x.NDim() && mask>>end&1 != 0 {
			end++
		}
		y = reduceRun(op, y, d, end)
		d = end
	}
	if y == x {
		y = Clone(Widen(x))
	}
	return y.dropDims(mask, keepdim)
}

// reduceRun reduces dimensions [from, to) and keeps them with size 1. Of bfloat16 the
// result is float32.
func reduceRun(op ReduceOp, x *Tensor, from, to int) *Tensor {
	outer, red, inner := 1, 1, 1
	shape := x.dims
	for i, n := range x.Shape() {
		switch {
		case i < from:
			outer *= n
		case i < to:
			red *= n
			shape[i] = 1
		default:
			inner *= n
		}
	}
	y := alloc(op.String(), x.dev, WideType(x.dtype), shape[:x.ndim])
	x.dev.Reduce(op, x.dtype, y.addr, x.ptr(op.String()), outer, red, inner)
	runtime.KeepAlive(x)
	return y
}

// dimMask returns the set of dimensions that dims names, bit d for dimension d;
// all for none.
func (t *Tensor) dimMask(op string, dims []int) (mask int) {
	if len(dims) == 0 {
		return 1<<t.NDim() - 1
	}
	for _, d := range dims {
		d = t.axis(op, d)
		if mask>>d&1 != 0 {
			throwShape(op, "%v: %v names dimension %d twice", t.brief(), slices.Clone(dims), d)
		}
		mask |= 1 << d
	}
	return mask
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

// dropDims removes the dimensions in mask, which have size 1, unless keep.
func (t *Tensor) dropDims(mask int, keep bool) *Tensor {
	if keep || mask == 0 {
		return t
	}
	var shape [MaxDims]int
	n := 0
	for d, s := range t.Shape() {
		if mask>>d&1 == 0 {
			shape[n] = s
			n++
		}
	}
	return t.Reshape(shape[:n]...)
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

// Sum adds up the elements of dims; see Reduce.
func Sum(x *Tensor, dims []int, keepdim bool) *Tensor { return Reduce(OpSum, x, dims, keepdim) }

// Prod multiplies the elements of dims; see Reduce.
func Prod(x *Tensor, dims []int, keepdim bool) *Tensor { return Reduce(OpProd, x, dims, keepdim) }

// Amax returns the largest elements of dims; see Reduce.
func Amax(x *Tensor, dims []int, keepdim bool) *Tensor { return Reduce(OpAmax, x, dims, keepdim) }

// Amin returns the smallest elements of dims; see Reduce.
func Amin(x *Tensor, dims []int, keepdim bool) *Tensor { return Reduce(OpAmin, x, dims, keepdim) }

// Any reports for a Bool tensor whether an element of dims is true.
func Any(x *Tensor, dims []int, keepdim bool) *Tensor {
	wantBool("Any", "x", x)
	return Reduce(OpAmax, x, dims, keepdim)
}

// All reports for a Bool tensor whether all elements of dims are true.
func All(x *Tensor, dims []int, keepdim bool) *Tensor {
	wantBool("All", "x", x)
	return Reduce(OpAmin, x, dims, keepdim)
}

// Mean returns the mean of the elements of dims, NaN for none; x is float32, float64 or
// bfloat16.
func Mean(x *Tensor, dims []int, keepdim bool) *Tensor {
	wantFloatOrHalf("Mean", x)
	return MeanOf(x, dims, keepdim, x.count(x.dimMask("Mean", dims)))
}

// MeanOf returns what elements dims of x add to the mean of n elements, of which they
// are some: their sum over n.
func MeanOf(x *Tensor, dims []int, keepdim bool, n int) *Tensor {
	wantFloatOrHalf("Mean", x)
	y := reduceWide(OpSum, x, dims, keepdim)
	y.dev.BinaryScalar(OpDiv, y.dtype, y.addr, y.addr, float64(n), false, y.numel)
	return Cast(y, x.dtype)
}

// SumGrad returns the gradient of Sum(x, dims, keepdim) for x of the given shape:
// dy repeated.
func SumGrad(dy *Tensor, shape, dims []int, keepdim bool) *Tensor {
	return Expand(dy.restoreDims("SumGrad", shape, dims, keepdim), shape...)
}

// MeanGrad returns the gradient of Mean(x, dims, keepdim) for x of the given
// shape: dy repeated, over the number of elements.
func MeanGrad(dy *Tensor, shape, dims []int, keepdim bool) *Tensor {
	kept := dy.restoreDims("MeanGrad", shape, dims, keepdim)
	n := 1.0
	for d := range shape {
		if kept.dims[d] == 1 {
			n *= float64(shape[d])
		}
	}
	return Expand(BinaryScalar(OpDiv, kept, n), shape...)
}

// AmaxGrad returns the gradient of Amax or Amin(x, dims, keepdim) = y: dy shared
// equally among the elements of x that equal the result.
func AmaxGrad(dy, x, y *Tensor, dims []int, keepdim bool) *Tensor {
	if x.dtype == BFloat16 {
		return narrowed(AmaxGrad(Widen(dy), Widen(x), Widen(y), dims, keepdim))
	}
	kept := dy.restoreDims("AmaxGrad", x.Shape(), dims, keepdim)
	hit := Cast(Compare(OpEq, x, y.Reshape(kept.Shape()...)), x.dtype)
	return Mul(hit, Div(kept, Sum(hit, dims, true)))
}

// ProdGrad returns the gradient of Prod(x, dims, keepdim): dy times the product
// of the other elements, right where elements are zero too.
func ProdGrad(dy, x *Tensor, dims []int, keepdim bool) *Tensor {
	if x.dtype == BFloat16 {
		return narrowed(ProdGrad(Widen(dy), Widen(x), dims, keepdim))
	}
	kept := dy.restoreDims("ProdGrad", x.Shape(), dims, keepdim)
	zero := CompareScalar(OpEq, x, 0)
	zeros := Sum(Cast(zero, x.dtype), dims, true)
	rest := Prod(MaskedFill(x, zero, 1), dims, true) // the product of what is not zero
	none := Div(rest, MaskedFill(x, zero, 1))
	some := Where(CompareScalar(OpEq, zeros, 0), none, Zeros(x.dev, x.dtype))
	one := Where(CompareScalar(OpEq, zeros, 1), rest, Zeros(x.dev, x.dtype))
	return Mul(kept, Where(zero, one, some))
}

// restoreDims returns dy with the dimensions that a reduction of a tensor of the
// given shape over dims removed, as size 1.
func (t *Tensor) restoreDims(op string, shape, dims []int, keepdim bool) *Tensor {
	if len(shape) > MaxDims {
		throwShape(op, "%d dimensions: at most %d are supported", len(shape), MaxDims)
	}
	like := &Tensor{dtype: t.dtype, ndim: uint8(len(shape))}
	copy(like.dims[:], shape)
	kept := like.keepShape(like.dimMask(op, dims))
	if keepdim && !equalInts(kept, t.Shape()) {
		throwShape(op, "gradient %v does not have the shape %v", t.brief(), kept)
	}
	return t.Reshape(kept...)
}
