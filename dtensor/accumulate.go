package dtensor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/pairwise"
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
// With SameBits gradients are summed over the ranks after each f, and those of 2, 4, 8, … parts of a
// batch are added in pairs, as values are, and have the bits of those of the whole batch;
// docs/same-bits.md says of which operators.
//
// Accumulate returns an error for an n below 1, and else what ValueAndGrad does.
func Accumulate(ctx context.Context, n int, f func(i int) *Tensor, params ...*Tensor) (value *Tensor, grads []Grad, err error) {
	switch {
	case n < 1:
		return nil, nil, fault.Located(fmt.Errorf("dtensor: Accumulate: n is %d; give at least 1", n))
	case f == nil:
		return nil, nil, fault.Located(errors.New("dtensor: Accumulate: the function is nil; give the one that computes the loss of a part"))
	case len(params) == 0:
		return nil, nil, fault.Located(errors.New("dtensor: Accumulate: no parameters; use Try to run without gradients"))
	}
	return passes(ctx, n, f, params)
}

// passes runs the n functions, and in the end what AtEnd was given.
func passes(ctx context.Context, n int, f func(i int) *Tensor, params []*Tensor) (value *Tensor, grads []Grad, err error) {
	defer fault.Catch(&err)
	wantParams(params)
	eng := params[0].spec.mesh.eng
	first := len(eng.ends)
	eng.passing++
	defer func() { eng.passing-- }()
	var s running
	for i := 0; i < n && err == nil; i++ {
		grads, err = s.pass(ctx, f, params, i, n)
	}
	ends := eng.ends[first:]
	eng.ends = eng.ends[:first]
	for _, end := range slices.Backward(ends) {
		end(err)
	}
	clear(ends)
	if err != nil {
		return nil, nil, err
	}
	return s.value, grads, nil
}

// A running is the sum of some functions so far: that of their values, and for each
// parameter a leaf with the gradients that have arrived.
type running struct {
	value   *Tensor
	leaves  []*node
	reached bool // one of them depends on a parameter

	pairs  bool // with same bits: what follows is added up in pairs, as one function of all parts does it
	values pairwise.Fold[*Tensor]
	parts  [][]pairwise.Fold[*Tensor] // for each parameter, of each gradient that a function hands it
	rows   [][]pairwise.Fold[*Rows]   // and of each row-sparse one
}

// pass runs function i of n and differentiates it; after the last one it returns
// the gradients of all.
func (s *running) pass(ctx context.Context, f func(i int) *Tensor, params []*Tensor, i, n int) (grads []Grad, err error) {
	defer fault.Catch(&err)
	eng, last := params[0].spec.mesh.eng, i == n-1
	s.pairs = eng.same && n > 1
	scope := eng.dev.Open()
	defer scope.Close()
	defer eng.enter()()
	t := &tape{}
	eng.ctx, eng.tape, eng.scope, eng.scaled = ctx, t, scope, 0
	defer t.leave(params)
	mark(t, params)
	for i, p := range params {
		p.node.apart = eng.same
		if s.leaves != nil {
			p.node.inherit(s.leaves[i])
		}
	}
	v := f(i)
	wantLoss("ValueAndGrad", v)
	if s.reached = s.reached || t.reaches(v); last && !s.reached {
		refuseConstant("ValueAndGrad", v, "the parameters")
	}
	unchanged(params)
	eng.tape = nil // the backward pass is not recorded
	defer eng.ops.pause()()
	value := s.withValue(v.Detach(), scope, last)
	if last {
		value = value.Cast(v.DType())
		value = value.to(value.spec.replicated(), "ValueAndGrad").Detach()
		grads = make([]Grad, len(params))
		if eng.overlap > 0 && !eng.same {
			t.early = newEarly(params, grads, eng.overlap)
			defer t.early.drain()
		}
	}
	t.backward(v, filled(v.spec.replicated(), v.DType(), 1))
	if eng.same {
		s.addApart(scope, params, last)
	}
	if last {
		t.collect(params, grads)
		for i, g := range grads {
			g.keep(scope)
			if g.dense != nil {
				g.dense.detect("sum of the gradients of parameter " + strconv.Itoa(i))
			}
		}
	} else {
		s.leaves = make([]*node, len(params))
		for i, p := range params {
			p.node.hold(scope)
			s.leaves[i] = p.node
		}
	}
	s.value = value
	keepTensors(scope, value)
	return grads, nil
}

// withValue returns the sum of the values so far and of one more.
func (s *running) withValue(value *Tensor, scope *tensor.Scope, last bool) *Tensor {
	switch {
	case s.pairs:
		keepTensors(scope, value)
		s.values.Push(value, addTo(scope))
		if last {
			return s.values.Sum(addTo(scope))
		}
	case s.value != nil:
		return addWide(s.value, value)
	}
	return value
}

// addApart adds up the gradients that have arrived apart: of several functions in pairs, of one in the order in which they came.
func (s *running) addApart(scope *tensor.Scope, params []*Tensor, last bool) {
	addParts(params)
	if s.pairs {
		s.pair(scope, params)
		if last {
			s.finish(scope, params)
		}
		return
	}
	for _, p := range params {
		arrived := p.node.parts
		p.node.parts, p.node.apart = nil, false
		for _, g := range arrived {
			p.accumulate(g)
		}
	}
}

// inherit gives the leaf n the gradients that have arrived at another leaf of its parameter.
func (n *node) inherit(from *node) {
	n.grad, n.own, n.dt, n.rows = from.grad, from.own, from.dt, from.rows
}

// leave makes the parameters on the tape constants, and the tensors that were computed from them.
func (t *tape) leave(params []*Tensor) {
	t.closed = true
	for _, p := range params {
		if p.node != nil && p.node.tape == t {
			p.node = nil
		}
	}
}

// addParts adds up the nodes of all gradients that have arrived apart, those along the same axes
// at once, and rounds them.
func addParts(params []*Tensor) {
	b := bucket{order: orderOf(params)}
	for _, p := range params {
		for k, g := range p.node.parts {
			if g.spec.nodes() != 0 {
				b.add(&p.node.parts[k], g, p.spec.gradient())
			}
		}
	}
	b.reduce()
	for _, p := range params {
		for k, g := range p.node.parts {
			p.node.parts[k] = g.Cast(p.DType())
		}
	}
}

// hold lets what has arrived at a parameter outlive scope, in memory of its own that what comes
// later is added to: a sum takes the memory of one gradient.
func (n *node) hold(scope *tensor.Scope) {
	if g := n.grad; g != nil && !n.own && g.mask == nil {
		wide := tensor.Cast(g.local, g.DType().Wide())
		if wide == g.local {
			wide = tensor.Clone(wide)
		}
		n.grad, n.own = wrap(g.spec, wide), true
	}
	n.keep(scope)
}

// pair adds to each parameter's gradients those that have arrived apart.
func (s *running) pair(scope *tensor.Scope, params []*Tensor) {
	if s.parts == nil {
		s.parts, s.rows = make([][]pairwise.Fold[*Tensor], len(params)), make([][]pairwise.Fold[*Rows], len(params))
	}
	add, addRows := addTo(scope), addRowsTo(scope)
	for i, p := range params {
		n := p.node
		arrived := n.parts
		n.parts, n.apart = nil, false
		for k, g := range arrived {
			if k == len(s.parts[i]) {
				s.parts[i] = append(s.parts[i], pairwise.Fold[*Tensor]{})
			}
			keepTensors(scope, g)
			s.parts[i][k].Push(g, add)
		}
		for k, r := range n.rows {
			if k == len(s.rows[i]) {
				s.rows[i] = append(s.rows[i], pairwise.Fold[*Rows]{})
			}
			scope.Keep(r.Index, r.Values)
			s.rows[i][k].Push(r, addRows)
		}
		n.rows = nil
	}
}

// finish hands the leaves the sums of what pair was given.
func (s *running) finish(scope *tensor.Scope, params []*Tensor) {
	for i, p := range params {
		for k := range s.rows[i] {
			p.node.rows = append(p.node.rows, s.rows[i][k].Sum(addRowsTo(scope)))
		}
		for k := range s.parts[i] {
			p.accumulate(s.parts[i][k].Sum(addTo(scope)))
		}
		if len(s.parts[i]) > 0 {
			p.node.dt = p.DType()
		}
	}
}

// addRowsTo returns SumRows of two whose sums outlive scope.
func addRowsTo(scope *tensor.Scope) func(a, b *Rows) *Rows {
	return func(a, b *Rows) *Rows {
		sum := SumRows(a, b)
		scope.Keep(sum.Index, sum.Values)
		return sum
	}
}

// addTo returns addWide whose sums outlive scope.
func addTo(scope *tensor.Scope) func(a, b *Tensor) *Tensor {
	return func(a, b *Tensor) *Tensor {
		sum := addWide(a, b)
		keepTensors(scope, sum)
		return sum
	}
}

// wantParams throws if a parameter is nil.
func wantParams(params []*Tensor) {
	for i, p := range params {
		if p == nil || p.spec == nil {
			refuse("ValueAndGrad", fmt.Sprintf("parameter %d is nil", i), "give a tensor")
		}
	}
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

// reaches reports whether v, a loss, was computed from a leaf of the tape. A loss of Gradients may be constant, as that of a
// linear function's slope is; on a rank outside the mesh operators of other packages record nothing.
func (t *tape) reaches(v *Tensor) bool {
	return t.slopes || v.spec.mesh.outside() || v.node != nil && v.node.tape == t
}

// refuseConstant throws because the loss v was computed from none of the leaves of its tape.
func refuseConstant(op string, v *Tensor, leaves string) {
	refuse(op, "the loss depends on none of "+leaves+", so all gradients would be zero",
		"compute it inside the function from these tensors, without Detach, Argmax or Compare on the way; for a value alone use Try",
		operand("loss", v))
}

// keep lets what has arrived at n outlive scope.
func (n *node) keep(scope *tensor.Scope) {
	n.joinPieces()
	if n.grad != nil {
		keepTensors(scope, n.grad)
	}
	for _, p := range n.products {
		keepTensors(scope, p.dy, p.w)
	}
	if n.leaf == nil {
		return
	}
	keepTensors(scope, n.parts...)
	for _, r := range n.rows {
		scope.Keep(r.Index, r.Values)
	}
}
