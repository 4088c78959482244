package dtensor

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Key chooses a sequence of random numbers: a Seed, and a Stream for each parameter or use that
// must differ from the others, such as a step, both uint64:
//
//	noise := dtensor.Normal(mesh, dtensor.Key{Seed: 1, Stream: uint64(step)}, 0, 1, shape, places...)
type Key = tensor.Key

// Normal returns float32 numbers of the normal distribution with the given
// mean and standard deviation, which is not negative. Each element depends on
// the key and on its index in the global tensor alone: mesh and placements do
// not change it. It communicates nothing.
func Normal(mesh *Mesh, key Key, mean, std float64, shape []int, placements ...layout.Placement) *Tensor {
	if !(std >= 0) {
		refuse("Normal", fmt.Sprintf("the standard deviation is %v", std), "give one that is not negative")
	}
	return random("Normal", mesh, tensor.Float32, shape, placements, func(t *tensor.Tensor, s *spec) {
		part, shape, offset := s.indexed(t)
		tensor.FillNormal(part, key, mean, std, shape, offset)
	})
}

// Uniform returns float32 numbers from [lo, hi); see Normal.
func Uniform(mesh *Mesh, key Key, lo, hi float64, shape []int, placements ...layout.Placement) *Tensor {
	if !(lo <= hi) {
		refuse("Uniform", fmt.Sprintf("the numbers are to be from %v to %v", lo, hi), "give the lower bound first")
	}
	return random("Uniform", mesh, tensor.Float32, shape, placements, func(t *tensor.Tensor, s *spec) {
		part, shape, offset := s.indexed(t)
		tensor.FillUniform(part, key, lo, hi, shape, offset)
	})
}

// random fills the shards of a layout by global index.
func random(op string, mesh *Mesh, dt tensor.DType, shape []int, placements []layout.Placement,
	fill func(t *tensor.Tensor, s *spec)) *Tensor {
	defer mesh.Span(op).End()
	s := mesh.mustSpec(op, shape, placements)
	base := s.gradient() // Replicate where s is Partial
	t := wrap(base, tensor.New(mesh.eng.dev, dt, base.local...))
	if !mesh.outside() {
		fill(t.local, base)
	}
	return t.to(s, op)
}

// Dropout returns x with each element set to 0 with probability p and the
// others divided by 1-p. Which ones depends on the key and the elements' global
// indices alone, so use another key for each call. Its gradient drops the same
// elements of dy. A p of 1 drops all. It throws a *LayoutError unless 0 <= p <= 1.
func (x *Tensor) Dropout(p float64, key Key) *Tensor {
	defer x.spec.mesh.Span("Dropout").End()
	if !(p >= 0 && p <= 1) {
		refuse("Dropout", fmt.Sprintf("the probability is %v", p), "give one from 0 to 1", operand("input", x))
	}
	if p == 0 {
		return x
	}
	by := 1.0 // of no element
	if p < 1 {
		by = 1 / (1 - p)
	}
	s := x.spec.gradient()
	keep := random("Dropout", s.mesh, tensor.Bool, s.shape, s.placements, func(t *tensor.Tensor, s *spec) {
		part, shape, offset := s.indexed(t)
		tensor.FillBernoulli(part, key, 1-p, shape, offset)
	})
	out := x.Detach().keepWhere(keep, true).Scale(by)
	if x.tracked() {
		out.recordTwice("Dropout", func(gy *Tensor) { x.accumulate(gy.keepWhere(keep, true).Scale(by)) })
	}
	return out
}
