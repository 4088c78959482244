package cpu

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// elements are the kernels that are the same code for every element type; types has those of
// each type.
type elements interface {
	iota(dst unsafe.Pointer, n, start int)
	binary(op kernel.BinaryOp, dst, a, b unsafe.Pointer, n int)
	binaryLoop(op kernel.BinaryOp, dst, a, b unsafe.Pointer, l kernel.Loop)
	binaryScalar(op kernel.BinaryOp, dst, x unsafe.Pointer, v kernel.Number, n int)
	compareLoop(op kernel.CompareOp, dst, a, b unsafe.Pointer, l kernel.Loop)
	indexAdd(dst, src unsafe.Pointer, index kernel.Index, a kernel.Axis)
	scatterAdd(dst, src unsafe.Pointer, p kernel.Pick)
	reduce(op kernel.ReduceOp, dst, x unsafe.Pointer, a kernel.Axis)
	topK(values unsafe.Pointer, index []int64, x unsafe.Pointer, m kernel.Matrix, k int)
	unaryInt(op kernel.UnaryOp, dst, x unsafe.Pointer, n int)
	clampInt(dst, x unsafe.Pointer, lo, hi int64, n int)
}

var float32s = &kernelsOf[float32]{float32(math.Inf(-1)), float32(math.Inf(1)), ordinary(modeForms32), ordinary(modeScalars32),
	ordinary(modeSwapped32)}

var types = [...]elements{
	dtype.Float32: float32s,
	dtype.Float64: kernelsFor(math.Inf(-1), math.Inf(1)),
	dtype.Int8:    kernelsFor[int8](math.MinInt8, math.MaxInt8),
	dtype.Int16:   kernelsFor[int16](math.MinInt16, math.MaxInt16),
	dtype.Int32:   kernelsFor[int32](math.MinInt32, math.MaxInt32),
	dtype.Int64:   kernelsFor[int64](math.MinInt64, math.MaxInt64),
	dtype.Uint8:   kernelsFor[uint8](0, math.MaxUint8),
	dtype.Bool:    kernelsFor[uint8](0, 1),
}

// kernelsOf implements elements for Go type T.
type kernelsOf[T number] struct {
	least, most T // the Amax and the Amin of no elements
	forms       []func(dst, a, b []T)
	scalars     []func(dst, x []T, v T) // op(x, v)
	swapped     []func(dst, x []T, v T) // op(v, x)
}

func kernelsFor[T number](least, most T) *kernelsOf[T] {
	return &kernelsOf[T]{least, most, binaryForms[T](), scalarForms[T](false), scalarForms[T](true)}
}

func (e *kernelsOf[T]) iota(dst unsafe.Pointer, n, start int) {
	for i, d := 0, sliceOf[T](dst, n); i < n; i++ {
		d[i] = T(start + i)
	}
}

func (e *kernelsOf[T]) binary(op kernel.BinaryOp, dst, a, b unsafe.Pointer, n int) {
	e.vector(op, sliceOf[T](dst, n), sliceOf[T](a, n), sliceOf[T](b, n))
}

func (e *kernelsOf[T]) binaryLoop(op kernel.BinaryOp, dst, a, b unsafe.Pointer, l kernel.Loop) {
	binaryLoop(dst, a, b, &l, op, e.vector, e.number)
}

func (e *kernelsOf[T]) binaryScalar(op kernel.BinaryOp, dst, x unsafe.Pointer, v kernel.Number, n int) {
	number := T(v.Value)
	if isInt[T]() {
		number = T(int64(v.Value))
	}
	e.number(op, sliceOf[T](dst, n), sliceOf[T](x, n), number, v.First)
}

func (e *kernelsOf[T]) compareLoop(op kernel.CompareOp, dst, a, b unsafe.Pointer, l kernel.Loop) {
	compareLoop[T](op, dst, a, b, &l)
}

func (e *kernelsOf[T]) indexAdd(dst, src unsafe.Pointer, index kernel.Index, a kernel.Axis) {
	indexAdd(sliceOf[T](dst, a.Numel()), sliceOf[T](src, a.Outer*index.N*a.Inner), index, a)
}

func (e *kernelsOf[T]) scatterAdd(dst, src unsafe.Pointer, p kernel.Pick) {
	scatter[T](dst, src, &p, true)
}

func (e *kernelsOf[T]) reduce(op kernel.ReduceOp, dst, x unsafe.Pointer, a kernel.Axis) {
	reduce(op, sliceOf[T](dst, a.Outer*a.Inner), sliceOf[T](x, a.Numel()), a.N, a.Inner, e.start(op), reduceRow[T])
}

func (e *kernelsOf[T]) topK(values unsafe.Pointer, index []int64, x unsafe.Pointer, m kernel.Matrix, k int) {
	topK(sliceOf[T](values, m.Rows*k), index, sliceOf[T](x, m.Numel()), m.Cols, k)
}

func (e *kernelsOf[T]) unaryInt(op kernel.UnaryOp, dst, x unsafe.Pointer, n int) {
	unaryInt(op, sliceOf[T](dst, n), sliceOf[T](x, n))
}

func (e *kernelsOf[T]) clampInt(dst, x unsafe.Pointer, lo, hi int64, n int) {
	least, most, d := T(lo), T(hi), sliceOf[T](dst, n)
	for i, v := range sliceOf[T](x, n) {
		d[i] = min(max(v, least), most)
	}
}
