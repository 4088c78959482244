package tensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/internal/philox"
)

// A Key chooses a sequence of random numbers: a seed, and a stream for each
// parameter or use that must differ from the others.
type Key = philox.Key

// A RandomOp is a distribution.
type RandomOp uint8

// The distributions, with two parameters a and b.
const (
	OpUniform   RandomOp = iota // [a, b), in 2²⁴ steps
	OpNormal                    // mean a, standard deviation b
	OpBernoulli                 // 1 with probability a, else 0
	randomOps
)

var randomNames = [randomOps]string{"FillUniform", "FillNormal", "FillBernoulli"}

// String returns the name of the function, "FillNormal".
func (op RandomOp) String() string { return randomNames[op] }

// FillUniform sets t to random numbers from [lo, hi).
//
// It and its kin make the box at offset of a tensor of globalShape, of which t is
// a part: element i of the global tensor, counted in row-major order, depends on
// key and i alone. A nil globalShape stands for t's shape, a nil offset for zeros.
// They throw a *ShapeError if t is not within globalShape.
func FillUniform(t *Tensor, key Key, lo, hi float64, globalShape, offset []int) {
	fillRandom(OpUniform, t, key, lo, hi, globalShape, offset)
}

// FillNormal sets t to random numbers of the normal distribution; see FillUniform
// for key, globalShape and offset. They are the same bits on every machine.
func FillNormal(t *Tensor, key Key, mean, std float64, globalShape, offset []int) {
	fillRandom(OpNormal, t, key, mean, std, globalShape, offset)
}

// FillBernoulli sets t, of any type, to 1 (true) with probability p and to 0
// elsewhere; see FillUniform for key, globalShape and offset.
func FillBernoulli(t *Tensor, key Key, p float64, globalShape, offset []int) {
	fillRandom(OpBernoulli, t, key, p, 0, globalShape, offset)
}

func fillRandom(op RandomOp, t *Tensor, key Key, a, b float64, globalShape, offset []int) {
	name := op.String()
	if op != OpBernoulli && !t.dtype.Float() {
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
	t.dev.Random(op, t.dtype, t.ptr(name), key, uint64(first), boxLoop(t.Shape(), t.Shape(), globalShape), a, b)
}
