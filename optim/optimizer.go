package optim

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// An Optimizer changes its parameters in place, given their gradients.
type Optimizer interface {
	// Step makes one step with the learning rate lr. grads are those of the
	// parameters that the optimizer was made for, in their order, as
	// dtensor.ValueAndGrad returns them; a parameter whose Grad is the zero Grad
	// is left alone, and its next step is numbered as if this one had not been.
	// Step does not change grads. After an error the parameters may have been
	// changed in part.
	Step(grads []dtensor.Grad, lr float64) error
	// State lists all that the optimizer remembers between steps, under names such
	// as "m.0" for the mean of parameter 0, which has the parameter's layout, and
	// "step.0" for how many steps that parameter has made, [] int64 in host memory.
	// An optimizer into whose State these are copied goes on as this one would.
	State() iter.Seq2[string, *dtensor.Tensor]
}

// base is what all optimizers share: the parameters and their numbers of steps.
type base struct {
	name   string // for errors: "AdamW"
	params []*dtensor.Tensor
	counts *tensor.Tensor    // how many steps each parameter has made, [len(params)] int64, in host memory
	steps  []*dtensor.Tensor // counts, one by one
}

func newBase(name string, params []*dtensor.Tensor) base {
	b := base{name: name, params: params, counts: tensor.Zeros(tensor.NewCPU(nil), tensor.Int64, len(params)).Persist()}
	for i, p := range params {
		if dt := p.DType(); dt != tensor.Float32 && dt != tensor.Float64 && dt != tensor.BFloat16 {
			fault.Throw(fmt.Errorf("optim: New%s: parameter %d is %v; Cast it to float32, float64 or bfloat16", name, i, p))
		}
		if p.Layout().IsPartial() {
			fault.Throw(fmt.Errorf("optim: New%s: parameter %d is %v, a sum of what the ranks hold; redistribute it to Replicate or Shard", name, i, p))
		}
		everywhere := make([]layout.Placement, len(p.Placements()))
		b.steps = append(b.steps, p.Mesh().Wrap("optimizer state", tensor.Narrow(b.counts, 0, i, 1).Reshape(), nil, false, nil, everywhere...))
	}
	return b
}

// step calls update for each parameter that has a gradient, dense or rows, with
// the number of its step, counted from 1, in a scope of its own.
func (b *base) step(grads []dtensor.Grad, update func(i, step int, p *dtensor.Tensor, g dtensor.Grad)) error {
	if len(grads) != len(b.params) {
		return fmt.Errorf("optim: %s.Step: %d gradients for %d parameters; pass what ValueAndGrad returned for the same list", b.name, len(grads), len(b.params))
	}
	if len(b.params) == 0 {
		return nil
	}
	mesh := b.params[0].Mesh()
	return dtensor.Try(mesh.Context(), mesh, func() {
		for i, p := range b.params {
			rows, sparse := grads[i].Rows()
			if sparse {
				b.checkRows(i, p, rows)
			} else if d := grads[i].Dense(); d == nil {
				continue
			} else {
				b.checkDense(i, p, d)
			}
			counts := tensor.Data[int64](b.counts)
			counts[i]++
			update(i, int(counts[i]), p, grads[i])
		}
	})
}

// checkDense throws unless this rank's part of the gradient lies as the parameter's does.
func (b *base) checkDense(i int, p, g *dtensor.Tensor) {
	if p.DType() != g.DType() || !slices.Equal(p.Local().Shape(), g.Local().Shape()) {
		fault.Throw(fmt.Errorf("optim: %s.Step: gradient %d is %v and its parameter %v; pass it in the parameter's layout and type", b.name, i, g, p))
	}
}

// state returns zeros that lie as the parameter does, float32 for bfloat16, in no scope.
func state(p *dtensor.Tensor) *dtensor.Tensor {
	local := tensor.Zeros(p.Mesh().Device(), tensor.WideType(p.DType()), p.Local().Shape()...).Persist()
	return p.Mesh().Wrap("optimizer state", local, nil, false, p.Shape(), p.Placements()...)
}

// states is state for each parameter.
func states(params []*dtensor.Tensor) []*dtensor.Tensor {
	s := make([]*dtensor.Tensor, len(params))
	for i, p := range params {
		s[i] = state(p)
	}
	return s
}

// A kind of state, such as "m": one tensor a parameter.
type kind struct {
	name    string
	tensors []*dtensor.Tensor
}

// list lists the kinds, and the numbers of steps.
func (b *base) list(kinds ...kind) iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for _, k := range append(kinds, kind{"step", b.steps}) {
			for i, t := range k.tensors {
				if !yield(k.name+"."+strconv.Itoa(i), t) {
					return
				}
			}
		}
	}
}

// inUnit throws unless 0 <= v < 1.
func inUnit(op, field string, v float64) {
	if !(v >= 0 && v < 1) {
		fault.Throw(fmt.Errorf("optim: %s: %s is %v; it must be at least 0 and below 1", op, field, v))
	}
}

// atLeastZero throws unless v is a number from 0 on.
func atLeastZero(op, field string, v float64) {
	if !(v >= 0) {
		fault.Throw(fmt.Errorf("optim: %s: %s is %v; it must not be negative", op, field, v))
	}
}
