package nn

import "github.com/gorun-spmd/gorun/dtensor"

// A Dropout sets elements to 0 with probability P while a model trains, and scales the
// others by 1/(1-P). The zero value drops nothing.
//
// It drops where gradients are computed: inside ValueAndGrad and Accumulate. So a model
// needs no switch between training and evaluation. Every use has a key of its own; see
// dtensor.Mesh.NextKey, and StartKeys for programs that resume.
type Dropout struct {
	P    float64 // from 0 on, below 1
	Seed uint64
}

// Forward returns x with elements dropped.
func (d Dropout) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	if !d.drops(x) {
		return x
	}
	return x.Dropout(d.P, x.Mesh().NextKey(d.Seed))
}

func (d Dropout) drops(x *dtensor.Tensor) bool { return d.P > 0 && x.Mesh().Training() }
