package tensor

import (
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A Key chooses a sequence of random numbers: a Seed, and a Stream for each parameter or use that
// must differ from the others, both uint64. Any two keys that differ have independent sequences:
//
//	tensor.Key{Seed: 1, Stream: 7}
type Key = philox.Key

// FillUniform sets t to random numbers from [lo, hi).
//
// t is the box at offset of a global tensor of globalShape. Element i of the global
// tensor, counted in row-major order, depends on key and i alone, so that ranks fill
// their parts as one would fill the whole. A nil globalShape stands for t's shape, a nil
// offset for zeros. FillUniform throws a *ShapeError if t is not within globalShape.
func FillUniform(t *Tensor, key Key, lo, hi float64, globalShape, offset []int) {
	fillRandom(kernel.OpUniform, t, key, lo, hi, globalShape, offset)
}

// FillNormal sets t to numbers of the normal distribution, the same bits on every
// machine; see FillUniform for key, globalShape and offset.
func FillNormal(t *Tensor, key Key, mean, std float64, globalShape, offset []int) {
	fillRandom(kernel.OpNormal, t, key, mean, std, globalShape, offset)
}

// FillBernoulli sets t, of any type, to 1 (true) with probability p and to 0
// elsewhere; see FillUniform for key, globalShape and offset.
func FillBernoulli(t *Tensor, key Key, p float64, globalShape, offset []int) {
	fillRandom(kernel.OpBernoulli, t, key, p, 0, globalShape, offset)
}

func fillRandom(op kernel.RandomOp, t *Tensor, key Key, a, b float64, globalShape, offset []int) {
	name := op.String()
	if op != kernel.OpBernoulli && !t.dtype.Float() {
		throwType(name, "%v: wants a floating-point type", t.brief())
	}
	if globalShape == nil {
		globalShape = t.Shape()
	}
	if offset == nil {
		offset = make([]int, t.NDim())
	}
	if len(globalShape) != t.NDim() || len(offset) != t.NDim() {
		throwShape(name, "%v: %d global sizes and %d offsets for %d dimensions", t.brief(), len(globalShape), len(offset), t.ndim)
	}
	first := 0
	for d, n := range globalShape {
		if offset[d] < 0 || offset[d]+t.dims[d] > n {
			throwShape(name, "%v at %v is not within %v", t.brief(), slices.Clone(offset), slices.Clone(globalShape))
		}
		first = first*n + offset[d]
	}
	var least, most float64
	if op == kernel.OpUniform {
		least, most = rangeOf(t.dtype, a, b)
	}
	t.dev.Random(kernel.RandomNumbers{Op: op, DType: t.dtype, Key: key, First: uint64(first), A: a, B: b, Least: least, Most: most},
		t.ptr(name), boxLoop(t.Shape(), t.Shape(), globalShape))
}

// rangeOf returns the least and the largest number of a floating-point type in [lo, hi), to
// which the kernel clamps: a number just below hi may round to hi. If the type has no
// number in [lo, hi), it returns ±Inf.
func rangeOf(dt DType, lo, hi float64) (least, most float64) {
	if least = rounded(dt, lo); least < lo {
		least = -before(dt, -least)
	}
	if most = rounded(dt, hi); most >= hi {
		most = before(dt, most)
	}
	if least > most {
		return math.Inf(-1), math.Inf(1)
	}
	return least, most
}

// rounded returns the number of a floating-point type nearest to v.
func rounded(dt DType, v float64) float64 {
	switch dt {
	case Float32:
		return float64(float32(v))
	case Float16:
		return float64(dtype.ToF16(float32(v)).Float32())
	case BFloat16:
		return float64(dtype.ToBF16(float32(v)).Float32())
	}
	return v
}

// before returns the largest number of a floating-point type below v, a number of the type.
func before(dt DType, v float64) float64 {
	switch dt {
	case Float32:
		return float64(math.Nextafter32(float32(v), float32(math.Inf(-1))))
	case Float16:
		return float64(F16(beforeHalf(uint16(dtype.ToF16(float32(v))))).Float32())
	case BFloat16:
		return float64(BF16(beforeHalf(uint16(dtype.ToBF16(float32(v))))).Float32())
	}
	return math.Nextafter(v, math.Inf(-1))
}

// beforeHalf is before for the bits of a 16-bit number: sign, exponent and fraction.
func beforeHalf(bits uint16) uint16 {
	switch {
	case bits&0x7fff == 0: // the negative number nearest to 0
		return 0x8001
	case bits>>15 != 0:
		return bits + 1
	}
	return bits - 1
}
