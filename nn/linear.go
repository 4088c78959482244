package nn

import (
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// A Linear computes x·Weightᵀ + Bias.
type Linear struct {
	Weight *dtensor.Tensor // [Out, In]
	Bias   *dtensor.Tensor // [Out]; nil: none
}

// A Style says how the weight of a Linear is placed on one mesh axis.
type Style struct {
	Axis      string           // of the mesh; "": replicated on all
	Placement layout.Placement // of the [Out, In] weight on that axis
}

// Column divides the outputs over an axis: x R → result S(last).
func Column(axis string) Style { return Style{axis, layout.Shard(0)} }

// Row divides the inputs over an axis: x S(last) → result P(sum).
func Row(axis string) Style { return Style{axis, layout.Shard(1)} }

// NewLinear makes a Linear with weights of standard deviation 1/√in and, with
// bias, a bias of zeros.
func NewLinear(init *Init, in, out int, bias bool, style Style) *Linear {
	l := &Linear{Weight: init.Normal(1/math.Sqrt(float64(in)), []int{out, in}, style.Axis, style.Placement)}
	if bias {
		p := layout.Replicate()
		if style.Placement.Shards(0) {
			p = style.Placement
		}
		l.Bias = init.Fill(0, []int{out}, style.Axis, p)
	}
	return l
}

// Forward returns x·Weightᵀ + Bias, in x's type.
//
//	x [..., In]   →   [..., Out]
func (l *Linear) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	return x.Linear(like(l.Weight, x), like(l.Bias, x))
}

// Params lists weight and bias.
func (l *Linear) Params() Params { return weightAndBias(l.Weight, l.Bias) }

// weightAndBias lists those of the two that are there.
func weightAndBias(weight, bias *dtensor.Tensor) Params {
	return func(yield func(string, *dtensor.Tensor) bool) {
		if (weight == nil || yield("weight", weight)) && bias != nil {
			yield("bias", bias)
		}
	}
}
