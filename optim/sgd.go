package optim

import (
	"fmt"
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// An SGDConfig sets up SGD. The zero value is plain gradient descent.
type SGDConfig struct {
	Momentum    float64 // 0: none, and no memory for it
	Dampening   float64 // how much of a new gradient the momentum leaves out
	Nesterov    bool    // look ahead by the momentum; needs Momentum > 0 and no Dampening
	WeightDecay float64 // added to the gradient, times the parameter
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// SGD is stochastic gradient descent as in torch.optim.SGD. For each parameter
// p with gradient g,
//
//	g += WeightDecay·p
//	b = Momentum·b + (1-Dampening)·g    (b = g in the first step)
//	g = b, or g + Momentum·b with Nesterov
//	p -= lr·g
//
// A row-sparse gradient is that of a parameter whose other rows have the
// gradient 0. Without momentum and weight decay only its rows are touched;
// otherwise every row is, as it would be with a dense gradient.
type SGD struct {
	base
	config  SGDConfig
	moments []*dtensor.Tensor // nil without momentum
}

// NewSGD returns an SGD for params. It throws an error that names the field if
// the configuration makes no sense.
func NewSGD(params []*dtensor.Tensor, c SGDConfig) *SGD {
	atLeastZero("NewSGD", "Momentum", c.Momentum)
	atLeastZero("NewSGD", "WeightDecay", c.WeightDecay)
	if c.Nesterov && (c.Momentum == 0 || c.Dampening != 0) {
		fault.Throw(fmt.Errorf("optim: NewSGD: Nesterov with Momentum %v and Dampening %v; it needs a positive Momentum and no Dampening",
			c.Momentum, c.Dampening))
	}
	s := &SGD{base: newBase("SGD", params, c.NoMaster), config: c}
	if c.Momentum != 0 {
		s.moments = states(params)
	}
	return s
}

// State lists the momentum buffers, "momentum", and the steps.
func (s *SGD) State() iter.Seq2[string, *dtensor.Tensor] {
	return s.list(kind{"momentum", s.moments})
}

// Step makes one step; see Optimizer.
func (s *SGD) Step(grads []dtensor.Grad, lr float64) error {
	c := s.config
	o := tensor.SGD{LR: lr, Momentum: c.Momentum, Dampening: c.Dampening, WeightDecay: c.WeightDecay, Nesterov: c.Nesterov}
	return s.step(grads, lr, c.Momentum != 0 || c.WeightDecay != 0, func(c change) {
		first := c.step == 1
		switch {
		case c.dense != nil:
			o.Step(c.local, c.dense, s.moment(c.i), first)
		case o.Momentum == 0 && o.WeightDecay == 0:
			o.StepRows(c.local, c.rows)
		default:
			if dense := denseOf(c.local, c.rows); dense != nil {
				o.Step(c.local, dense, s.moment(c.i), first)
				dense.Free()
				return
			}
			o := o
			if first {
				o.Dampening = 0
			}
			dtype.Pick(c.local.DType(), sgdEveryRow[float32], sgdEveryRow[float64])(c.local, s.moment(c.i), o, c.rows)
		}
	})
}

// moment returns this rank's part of a parameter's momentum, nil without momentum.
func (s *SGD) moment(i int) *tensor.Tensor {
	if s.moments == nil {
		return nil
	}
	return s.moments[i].Local()
}
