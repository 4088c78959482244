package nn

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// The distributions below are those of torch.nn.init. A weight is [out, in] or, of a
// convolution, [out, in, window...]. With w elements in a window its fan in is in·w and its
// fan out out·w. As with Normal, an element depends on the seed and its global index alone.

// XavierNormal makes a parameter of normal numbers with mean 0 and standard deviation
// gain·√(2/(fan in + fan out)), which keeps the variance of values and of gradients alike
// (Glorot and Bengio, AISTATS 2010). gain is 1 for a linear layer, 5/3 before Tanh. See
// Normal for axis and p.
func (in *Init) XavierNormal(gain float64, shape []int, axis string, p layout.Placement) *dtensor.Tensor {
	fanIn, fanOut := fans("XavierNormal", shape)
	return in.Normal(gain*math.Sqrt(2/(fanIn+fanOut)), shape, axis, p)
}

// XavierUniform is XavierNormal with uniform numbers of the same variance.
func (in *Init) XavierUniform(gain float64, shape []int, axis string, p layout.Placement) *dtensor.Tensor {
	fanIn, fanOut := fans("XavierUniform", shape)
	bound := gain * math.Sqrt(6/(fanIn+fanOut))
	return in.Uniform(-bound, bound, shape, axis, p)
}

// KaimingNormal makes a parameter of normal numbers with mean 0 and standard deviation
// √(2/((1+slope²)·fan in)), which keeps the variance of values through a Relu, or a leaky
// one of that slope below 0 (He et al., ICCV 2015). See Normal for axis and p.
func (in *Init) KaimingNormal(slope float64, shape []int, axis string, p layout.Placement) *dtensor.Tensor {
	fanIn, _ := fans("KaimingNormal", shape)
	return in.Normal(math.Sqrt(2/((1+slope*slope)*fanIn)), shape, axis, p)
}

// KaimingUniform is KaimingNormal with uniform numbers of the same variance. With slope
// √5 it is the initial weight of torch.nn.Linear.
func (in *Init) KaimingUniform(slope float64, shape []int, axis string, p layout.Placement) *dtensor.Tensor {
	fanIn, _ := fans("KaimingUniform", shape)
	bound := math.Sqrt(6 / ((1 + slope*slope) * fanIn))
	return in.Uniform(-bound, bound, shape, axis, p)
}

// fans returns the fan in and the fan out of a weight.
func fans(op string, shape []int) (fanIn, fanOut float64) {
	if len(shape) < 2 {
		fault.Throw(fmt.Errorf("nn: %s: shape %v; give a weight, [out, in, ...]", op, shape))
	}
	window := 1.0
	for _, n := range shape[2:] {
		window *= float64(n)
	}
	return float64(shape[1]) * window, float64(shape[0]) * window
}

// Uniform makes a parameter of uniform numbers from [lo, hi); see Normal.
func (in *Init) Uniform(lo, hi float64, shape []int, axis string, p layout.Placement) *dtensor.Tensor {
	return in.drawn(dtensor.Uniform(in.mesh, in.key(), lo, hi, shape, in.place(axis, p)...))
}

// TruncNormal makes a parameter of normal numbers with mean 0, those outside [lo, hi]
// drawn again: with probability density proportional to the normal one in [lo, hi], and 0
// elsewhere; see Normal. It throws unless lo < hi.
func (in *Init) TruncNormal(std, lo, hi float64, shape []int, axis string, p layout.Placement) *dtensor.Tensor {
	if !(lo < hi) || !(std > 0) {
		fault.Throw(fmt.Errorf("nn: TruncNormal: std is %v and the bounds are %v and %v; give a positive std and lo < hi", std, lo, hi))
	}
	// The inverse of the distribution function, of numbers uniform between its values.
	phi := func(x float64) float64 { return math.Erf(x / std / math.Sqrt2) }
	x := dtensor.Uniform(in.mesh, in.key(), phi(lo), phi(hi), shape, in.place(axis, p)...)
	tensor.Edit(x.Local(), func(elems []float32) {
		for i, u := range elems {
			elems[i] = float32(min(max(std*math.Sqrt2*math.Erfinv(float64(u)), lo), hi))
		}
	})
	return in.drawn(x)
}

// key returns the key of the next parameter.
func (in *Init) key() dtensor.Key {
	in.stream++
	return dtensor.Key{Seed: in.seed, Stream: in.stream}
}

// drawn returns x in the type of parameters.
func (in *Init) drawn(x *dtensor.Tensor) *dtensor.Tensor {
	param := x.Cast(in.dtype())
	if param != x {
		x.Local().Free()
	}
	return param
}
