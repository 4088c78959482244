package dtensor

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// Accumulate is ValueAndGrad of f(0) + f(1) + … + f(n-1) in the memory of one of
// them: each is run and differentiated before the next, and what it allocated goes
// back. It is for batches that are too large to run at once.
//
//	value, grads, err := dtensor.Accumulate(ctx, n, func(i int) *dtensor.Tensor {
//		return model.loss(parts[i]).Scale(1 / float64(n)) // the mean of parts of one size
//	}, params...)
//
// What is Partial waits for the last f: values and gradients are summed over the
// ranks once. A sum has the type of its parameter; that of bfloat16 is added up in
// float32, which takes the memory of it, and rounded once on each rank and once more
// when the ranks' sums are added. A fused table of package embedding is changed by
// each f in turn: that is n steps.
//
// Accumulate returns an error for an n below 1, and else what ValueAndGrad does.
func Accumulate(ctx context.Context, n int, f func(i int) *Tensor, params ...*Tensor) (value *Tensor, grads []Grad, err error) {
	switch {
	case n < 1:
		return nil, nil, fmt.Errorf("dtensor: Accumulate: n is %d; give at least 1", n)
	case len(params) == 0:
		return nil, nil, errors.New("dtensor: Accumulate: no parameters; use Try to run without gradients")
	}
	var s running
	for i := range n {
		if grads, err = s.pass(ctx, func() *Tensor { return f(i) }, params, i == n-1); err != nil {
			return nil, nil, err
		}
	}
	return s.value, grads, nil
}

// running is what some functions have come to: the sum of their values, and for each
// parameter a leaf with the gradients that have arrived.
type running struct {
	value  *Tensor
	leaves []*node
}

// pass runs one more function and differentiates it; after the last one it returns
// the gradients of all.
func (s *running) pass(ctx context.Context, f func() *Tensor, params []*Tensor, last bool) (grads []Grad, err error) {
	defer fault.Catch(&err)
	eng := params[0].spec.mesh.eng
	scope := eng.dev.Open()
	defer scope.Close()
	outerCtx, outerTape, outerScope := eng.ctx, eng.tape, eng.scope
	t := &tape{}
	eng.ctx, eng.tape, eng.scope = ctx, t, scope
	defer func() {
		eng.ctx, eng.tape, eng.scope = outerCtx, outerTape, outerScope
		t.closed = true
		for _, p := range params {
			if p.node != nil && p.node.tape == t {
				p.node = nil
			}
		}
	}()
	mark(t, params)
	for i, leaf := range s.leaves {
		n := params[i].node
		n.grad, n.own, n.dt, n.rows = leaf.grad, leaf.own, leaf.dt, leaf.rows
	}
	v := f()
	wantLoss("ValueAndGrad", v)
	eng.tape = nil // the backward pass is not recorded
	value := v.Detach()
	if s.value != nil {
		value = addWide(s.value, value)
	}
	if last {
		value = value.Cast(v.DType())
		value = value.to(value.spec.replicated(), "ValueAndGrad").Detach()
	}
	t.backward(v, filled(v.spec.replicated(), v.DType(), 1))
	if last {
		grads = t.collect(params)
		for i, g := range grads {
			g.keep(scope)
			if g.dense != nil {
				g.dense.detect("sum of the gradients of parameter " + strconv.Itoa(i))
			}
		}
	} else {
		s.leaves = make([]*node, len(params))
		for i, p := range params {
			p.node.keep(scope)
			s.leaves[i] = p.node
		}
	}
	s.value = value
	keepTensors(scope, value)
	return grads, nil
}

// wantLoss throws unless v is one number.
func wantLoss(op string, v *Tensor) {
	if v != nil && v.Numel() == 1 {
		return
	}
	got := "nil"
	if v != nil {
		got = v.layoutString()
	}
	refuse(op, "the function returned "+got, "return a tensor of one element, a loss")
}

// keep lets what has arrived at a parameter outlive scope.
func (n *node) keep(scope *tensor.Scope) {
	if n.grad != nil {
		keepTensors(scope, n.grad)
	}
	for _, r := range n.rows {
		scope.Keep(r.Index, r.Values)
	}
}
