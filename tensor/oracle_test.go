package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// An array is the naive twin of a tensor: float64 whatever the type, indexed by
// multi-index.
type array struct {
	shape []int
	data  []float64
}

func newArray(shape ...int) array {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return array{slices.Clone(shape), make([]float64, n)}
}

// randomArray has elements in [-2, 2) that float32 holds exactly.
func randomArray(rng *rand.Rand, shape ...int) array {
	a := newArray(shape...)
	for i := range a.data {
		a.data[i] = float64(rng.IntN(1<<14))/(1<<12) - 2
	}
	return a
}

// intArray has integers in [lo, hi).
func intArray(rng *rand.Rand, lo, hi int, shape ...int) array {
	a := newArray(shape...)
	for i := range a.data {
		a.data[i] = float64(lo + rng.IntN(hi-lo))
	}
	return a
}

func (a array) tensor(dev Device, dt DType) *Tensor {
	return Cast(FromSlice(dev, a.data, a.shape...), dt)
}

// toArray reads a tensor of any type.
func toArray(t *Tensor) array {
	return array{slices.Clone(t.Shape()), ToSlice[float64](Cast(t, Float64))}
}

// offset returns the position of a multi-index, broadcast: aligned at the last
// dimension, a size of 1 ignores its index.
func (a array) offset(index []int) int {
	o := 0
	for d, n := range a.shape {
		i := index[len(index)-len(a.shape)+d]
		if n == 1 {
			i = 0
		}
		o = o*n + i
	}
	return o
}

func (a array) at(index ...int) float64 { return a.data[a.offset(index)] }

// each calls f for every multi-index of shape; f must not keep it.
func each(shape []int, f func(index []int)) {
	index := make([]int, len(shape))
	for _, n := range shape {
		if n == 0 {
			return
		}
	}
	for {
		f(index)
		d := len(shape) - 1
		for ; d >= 0; d-- {
			if index[d]++; index[d] < shape[d] {
				break
			}
			index[d] = 0
		}
		if d < 0 {
			return
		}
	}
}

// build makes an array from a function of the multi-index.
func build(shape []int, f func(index []int) float64) array {
	a := newArray(shape...)
	each(shape, func(index []int) { a.data[a.offset(index)] = f(index) })
	return a
}

// near reports whether |got - want| <= tol·max(1, |want|), or both are the same
// infinity or NaN.
func near(got, want, tol float64) bool {
	if got == want || got != got && want != want {
		return true
	}
	return math.Abs(got-want) <= tol*max(1, math.Abs(want))
}

// check compares a tensor with its naive twin.
func check(t *testing.T, name string, got *Tensor, want array, tol float64) {
	t.Helper()
	if !slices.Equal(got.Shape(), want.shape) {
		t.Errorf("%s: shape %v, want %v", name, got.Shape(), want.shape)
		return
	}
	for i, g := range toArray(got).data {
		if !near(g, want.data[i], tol) {
			t.Errorf("%s: element %d is %v, want %v (tolerance %g)", name, i, g, want.data[i], tol)
			return
		}
	}
}

// tolerance is what a short sum of products may be off by.
func tolerance(dt DType) float64 {
	switch dt {
	case Float32:
		return 4e-6
	case Float64:
		return 1e-12
	}
	return 0
}

var (
	floats  = []DType{Float32, Float64}
	numbers = []DType{Float32, Float64, Int8, Int16, Int32, Int64, Uint8}
	shapes  = [][]int{{}, {1}, {0}, {5}, {3, 4}, {1, 7}, {4, 1}, {0, 3}, {2, 0, 3}, {2, 3, 5}, {1, 1, 1}, {131, 3}, {2, 300}, {3, 17, 2, 5},
		{2, 1, 3, 1, 2}}
)

// newRNG returns the random numbers of one test: the same in every run.
func newRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// randomShape has up to four dimensions of 0 to 6, most of them not 0.
func randomShape(rng *rand.Rand) []int {
	shape := make([]int, rng.IntN(5))
	for d := range shape {
		if shape[d] = rng.IntN(7); shape[d] == 0 && rng.IntN(4) != 0 {
			shape[d] = 1
		}
	}
	return shape
}

// checkGrad compares the gradients that grad returns with central differences of
// Σ dy·f(xs) in float64. A nil gradient is not checked.
func checkGrad(t *testing.T, name string, f func(xs []*Tensor) *Tensor, grad func(dy *Tensor, xs []*Tensor) []*Tensor, xs ...array) {
	t.Helper()
	cpu := NewCPU(nil)
	rng := newRNG()
	tensors := func() []*Tensor {
		ts := make([]*Tensor, len(xs))
		for i, x := range xs {
			ts[i] = x.tensor(cpu, Float64)
		}
		return ts
	}
	scope := cpu.Open()
	defer scope.Close()
	y := f(tensors())
	dy := randomArray(rng, y.Shape()...)
	value := func() float64 {
		inner := cpu.Open()
		defer inner.Close()
		sum := 0.0
		for i, v := range toArray(f(tensors())).data {
			sum += v * dy.data[i]
		}
		return sum
	}
	for k, g := range grad(dy.tensor(cpu, Float64), tensors()) {
		if g == nil {
			continue
		}
		got := toArray(g)
		if !slices.Equal(got.shape, xs[k].shape) {
			t.Errorf("%s: gradient %d has shape %v, want %v", name, k, got.shape, xs[k].shape)
			continue
		}
		for i := range xs[k].data {
			const h = 1e-5
			x := xs[k].data[i]
			xs[k].data[i] = x + h
			up := value()
			xs[k].data[i] = x - h
			down := value()
			xs[k].data[i] = x
			if want := (up - down) / (2 * h); !near(got.data[i], want, 2e-6) {
				t.Errorf("%s: gradient %d of element %d is %v, by differences %v", name, k, i, got.data[i], want)
				return
			}
		}
	}
}

// label names a case.
func label(parts ...any) string { return fmt.Sprint(parts...) }
