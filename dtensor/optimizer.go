package dtensor

import "iter"

// An Optimizer changes its parameters in place, given their gradients.
type Optimizer interface {
	// Step makes one step with the learning rate lr. grads are those of the
	// parameters that the optimizer was made for, in their order, as
	// ValueAndGrad returns them; a parameter whose Grad is the zero Grad
	// is left alone, and its next step is numbered as if this one had not been.
	// Step does not change grads. It returns an error, and changes nothing, for a
	// rate that is negative or not a finite number and for gradients that do not fit. After an
	// error of a collective the parameters may have been changed in part.
	Step(grads []Grad, lr float64) error
	// State lists the optimizer's state, under names such as "m.0" for the mean of
	// parameter 0, which has the parameter's layout, and "step.0" for how many steps that
	// parameter has made, [] int64 in host memory. A parameter of a narrow type also has
	// "master.0", its float32 weights. If the State is copied to another optimizer of the
	// same kind, that one goes on as this one would.
	State() iter.Seq2[string, *Tensor]
}
