package nn

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Dropout sets elements to 0 with probability P while a model trains, and scales the
// others by 1/(1-P). The zero value drops nothing, and a P of 1 all.
//
// It drops where gradients are computed: inside ValueAndGrad and Accumulate. So a model
// needs no switch between training and evaluation. Every use has a key of its own; see
// dtensor.Mesh.NextKey, and StartKeys for programs that resume.
type Dropout struct {
	P    float64 // from 0 to 1
	Seed uint64

	// Channels says that whole channels of x [B, C, …] are dropped, as by torch.nn.Dropout1d, Dropout2d
	// and Dropout3d: neighbours in a channel say nearly the same.
	Channels bool
}

// Forward returns x with elements dropped. It throws unless 0 ≤ P ≤ 1, and with Channels for
// an x of fewer than two dimensions.
func (d Dropout) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	if d.Channels && x.NDim() < 2 {
		fault.Throw(fmt.Errorf("nn: Dropout: %v has no channels; give [batch, channels, …]", x.Layout()))
	}
	if !d.drops(x) {
		return x
	}
	key := x.Mesh().NextKey(d.Seed)
	if !d.Channels {
		return x.Dropout(d.P, key)
	}
	shape := slices.Concat(x.Shape()[:1], perChannel("Dropout", x, x.Dim(1)))
	return x.Mul(dtensor.Full(x.Mesh(), x.DType(), 1, shape, x.Mesh().Every(layout.Replicate())...).Dropout(d.P, key))
}

// Params lists nothing.
func (d Dropout) Params() Params { return Func(nil).Params() }

// check throws unless P is a probability, and returns d.
func (d Dropout) check(op string) Dropout {
	if !(d.P >= 0 && d.P <= 1) {
		fault.Throw(fmt.Errorf("nn: %s: P is %v; give one from 0 to 1", op, d.P))
	}
	return d
}

// drops reports whether Forward does something. It throws for a P that is no probability,
// outside of training too.
func (d Dropout) drops(x *dtensor.Tensor) bool {
	d.check("Dropout")
	return d.P > 0 && x.Mesh().Training()
}
