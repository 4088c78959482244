package optim

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// An Optimizer changes its parameters in place, given their gradients: see dtensor.Optimizer.
type Optimizer = dtensor.Optimizer

// base has the fields that all optimizers share: the parameters and their numbers of steps.
type base struct {
	name   string // for errors: "AdamW"
	params []*dtensor.Tensor
	places [][]layout.Placement // of the parameters, when the optimizer was made
	master []*dtensor.Tensor    // the float32 weights of each parameter of a narrow type, nil for the others
	counts *tensor.Tensor       // how many steps each parameter has made, [len(params)] int64, in host memory
	steps  []*dtensor.Tensor    // counts, one by one
	factor float64              // multiplies gradients before a step, see Scaler; 0 stands for 1
}

func newBase(name string, params []*dtensor.Tensor, noMaster bool) base {
	b := base{name: name, params: params, places: placesOf("New"+name, params)}
	b.counts, b.steps = newCounts(params)
	seen := make(map[*dtensor.Tensor]int, len(params))
	for i, p := range params {
		if first, ok := seen[p]; ok {
			fault.Throw(fmt.Errorf("optim: New%s: parameter %d is parameter %d again, %v; give each once", name, i, first, p))
		}
		seen[p] = i
		if !p.DType().Float() {
			fault.Throw(fmt.Errorf("optim: New%s: parameter %d is %v; Cast it to a floating-point type", name, i, p))
		}
		if why, absent := p.Local().Absent(); absent {
			fault.Throw(fmt.Errorf("optim: New%s: parameter %d is %v: %s", name, i, p, why))
		}
		if p.Layout().IsPartial() {
			fault.Throw(fmt.Errorf("optim: New%s: parameter %d is %v, a sum of what the ranks hold; redistribute it to Replicate or Shard", name, i,
				p))
		}
		var master *dtensor.Tensor
		if p.DType().Narrow() && !noMaster {
			master = state(p)
			tensor.CastTo(master.Local(), p.Local())
		}
		b.master = append(b.master, master)
	}
	return b
}

// newCounts returns a number for each parameter, [len(params)] int64 in host memory, and the same one by one, for a checkpoint.
func newCounts(params []*dtensor.Tensor) (counts *tensor.Tensor, each []*dtensor.Tensor) {
	counts = tensor.Zeros(tensor.NewCPU(nil), tensor.Int64, len(params)).Persist()
	for i, p := range params {
		everywhere := make([]layout.Placement, len(p.Placements()))
		each = append(each, p.Mesh().Wrap("optimizer state", tensor.Narrow(counts, 0, i, 1).Reshape(), nil, false, nil, everywhere...))
	}
	return counts, each
}

// A change is the step of one parameter on this rank: its part of the weights, to be
// written, and of the gradient, in the type of the weights.
type change struct {
	i, step int             // the parameter's number, and that of its step, from 1 on
	param   *dtensor.Tensor // for its layout
	local   *tensor.Tensor  // the weights: the float32 ones if there are any
	dense   *tensor.Tensor  // the gradient, nil if it is sparse
	rows    tensor.Rows     // the gradient if it is sparse: distinct, ascending rows of local
	done    func()          // called after the step
}

// step calls update for each parameter that has a gradient, in a scope of its own. everyRow
// says that update also changes the rows that a sparse gradient does not have.
func (b *base) step(grads []dtensor.Grad, lr float64, everyRow bool, update func(c change)) error {
	return b.run(grads, lr, everyRow, func(begin func(i int) (c change, ok bool)) {
		for i := range b.params {
			if c, ok := begin(i); ok {
				update(c)
				c.done()
			}
		}
	})
}

// together is step for an optimizer that has to see all parameters at once.
func (b *base) together(grads []dtensor.Grad, lr float64, everyRow bool, update func(all []change)) error {
	return b.run(grads, lr, everyRow, func(begin func(i int) (c change, ok bool)) {
		var all []change
		for i := range b.params {
			if c, ok := begin(i); ok {
				all = append(all, c)
			}
		}
		update(all)
		for _, c := range all {
			c.done()
		}
	})
}

// validRate reports whether a learning rate is one; badRate is the error of one that is not.
func validRate(lr float64) bool { return lr >= 0 && !math.IsInf(lr, 0) }

const badRate = "the rate is %v; give a finite number that is not negative"

// run checks the gradients and calls f in a scope. f calls begin for each parameter; ok is
// false if that has no gradient. f makes the change c and then calls c.done.
func (b *base) run(grads []dtensor.Grad, lr float64, everyRow bool, f func(begin func(i int) (c change, ok bool))) error {
	if len(b.params) > 0 {
		defer b.params[0].Mesh().Span(b.name).End()
	}
	switch {
	case len(grads) != len(b.params):
		return fault.Located(fmt.Errorf("optim: %s.Step: %d gradients for %d parameters; "+
			"pass what ValueAndGrad returned for the same list", b.name, len(grads), len(b.params)))
	case !validRate(lr):
		return fault.Located(fmt.Errorf("optim: %s.Step: "+badRate, b.name, lr))
	case len(b.params) == 0:
		return nil
	}
	mesh := b.params[0].Mesh()
	return dtensor.Try(mesh.Context(), mesh, func() {
		unmoved(b.name+".Step", "optimizer", b.params, b.places)
		for i, p := range b.params {
			if of := p.ExcerptOf(); everyRow && of != "" {
				fault.Throw(fmt.Errorf("optim: %s.Step: parameter %d has those rows of %s that are in memory, and this %s changes every row; "+
					"use RowAdagrad, SparseAdam, or SGD or Adagrad without momentum and weight decay", b.name, i, of, b.name))
			}
			if rows, sparse := grads[i].Rows(); sparse {
				b.checkRows(i, p, rows)
			} else if d := grads[i].Dense(); d != nil {
				b.checkDense(i, p, d)
			}
		}
		dtensor.CheckSame("optim: "+b.name+".Step", b.params, func(i int) string {
			return fmt.Sprintf("parameter %d, %s %v", i, b.params[i].DType(), b.params[i].Layout())
		})
		f(func(i int) (c change, ok bool) { return b.begin(i, grads[i], everyRow) })
	})
}

// unmoved throws if a parameter lies otherwise than when the maker, which has its state, was made: places are placesOf it then.
func unmoved(call, maker string, params []*dtensor.Tensor, places [][]layout.Placement) {
	for i, p := range params {
		for axis, was := range places[i] {
			if p.Placement(axis) != was {
				fault.Throw(fmt.Errorf("optim: %s: parameter %d is %v, and was %v when the %s was made; make it after nn.Shard", call, i, p,
					places[i], maker))
			}
		}
	}
}

// placesOf returns the placements of each parameter. It throws an error of call if one is nil.
func placesOf(call string, params []*dtensor.Tensor) (places [][]layout.Placement) {
	for i, p := range params {
		if p == nil {
			fault.Throw(fmt.Errorf("optim: %s: parameter %d is nil; give a tensor, made before", call, i))
		}
		places = append(places, p.Placements())
	}
	return places
}

// begin starts the step of a parameter.
func (b *base) begin(i int, grad dtensor.Grad, everyRow bool) (c change, ok bool) {
	p := b.params[i]
	c = change{i: i, param: p, local: p.Local(), done: func() {}}
	if rows, sparse := grad.Rows(); sparse {
		c.rows = rowsOf(p, rows)
	} else if d := grad.Dense(); d != nil {
		c.dense = d.Local()
	} else {
		return change{}, false
	}
	counts := tensor.Data[int64](b.counts)
	counts[i]++
	c.step = int(counts[i])
	if b.master[i] != nil {
		c.widen(b.master[i].Local(), everyRow)
	}
	if b.factor != 0 && b.factor != 1 {
		c.multiply(b.factor)
	}
	return c, true
}

// checkDense throws unless this rank's part of the gradient has the type and shape of the
// parameter's.
func (b *base) checkDense(i int, p, g *dtensor.Tensor) {
	if p.DType() != g.DType() || !slices.Equal(p.Local().Shape(), g.Local().Shape()) {
		fault.Throw(fmt.Errorf("optim: %s.Step: gradient %d is %v and its parameter %v; pass it in the parameter's layout and type", b.name, i, g,
			p))
	}
}

// state returns zeros of the parameter's layout, float32 for a narrow type, in no scope.
func state(p *dtensor.Tensor) *dtensor.Tensor {
	local := tensor.Zeros(p.Mesh().Device(), p.DType().Wide(), p.Local().Shape()...).Persist()
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
	return list(append(kinds, kind{"master", b.master}, kind{"step", b.steps})...)
}

// list lists the tensors of the kinds, "m.0" and so on.
func list(kinds ...kind) iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for _, k := range kinds {
			for i, t := range k.tensors {
				if t != nil && !yield(k.name+"."+strconv.Itoa(i), t) {
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
