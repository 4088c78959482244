package dtensor

import (
	"fmt"
	"slices"
)

// Gradients returns the gradients by xs of what f returns, a tensor of one element. Inside the function of a
// ValueAndGrad they are recorded: what is computed from them has gradients, which are second derivatives. It is
// torch.autograd.grad with create_graph=True. The penalty of a discriminator's slope:
//
//	slope := dtensor.Gradients(func() *dtensor.Tensor { return critic(mixed).Sum(nil, false) }, mixed)[0]
//	norm := slope.Flatten(1, -1).Norm(2, []int{1}, false)
//	return cost.Add(norm.AddScalar(-1).Square().Mean(nil, false).Scale(10))
//
// The product of the Hessian of a loss and v is the gradient of Σ g·v, where g are the Gradients of the loss.
// Gradients inside the f of Gradients are third derivatives, and so on. Outside of ValueAndGrad the gradients
// are constants.
//
// The xs are marked while f runs: it must use these tensors. They are parameters, or any other tensors of a floating-point
// type. Each gradient has the shape and the layout of its x, Replicate where that is Partial, and is zero if f does not use x. The
// gradients of what f uses besides are not computed. One collective for each x settles its gradient.
//
// These operators can be differentiated twice: all element-wise ones but Digamma and I0, products (MatMul, Linear, Einsum and
// what nn's convolutions are made of), reductions, Softmax, LogSoftmax, Cumsum, LayerNorm, RMSNorm, ScaledDotProductAttention,
// RingAttention, Dropout, Recompute, the cross-entropies and TopK of package loss, Lookup and LookupAs of a table in memory that
// is not fused; what moves elements: Reshape, Permute, Expand, Narrow, Cat, Roll, Flip, IndexSelect, Gather, Scatter, ScatterAdd,
// ScatterReduce, IndexAdd, TopK, Sort, Cast, Redistribute, To; and Cholesky, Solve, SolveTriangular, Slogdet, QR, Eigh, SVD.
// Gradients throws a *LayoutError that names another operator if it meets one. It does not meet those of Record, which every
// lookup is, that depend on no x. With SameBits what it returns has the same bits on any number of ranks.
func Gradients(f func() *Tensor, xs ...*Tensor) []*Tensor {
	const op = "Gradients"
	if f == nil {
		refuse(op, "the function is nil", "give the one that computes what is differentiated")
	}
	if len(xs) == 0 {
		refuse(op, "there is nothing to differentiate by", "give at least one tensor")
	}
	eng := xs[0].there(op).spec.mesh.eng
	for i, x := range xs {
		name := fmt.Sprintf("x %d", i)
		switch {
		case x.there(op).spec.mesh.eng != eng:
			refuse(op, name+" lies on another device than x 0", "move one of them", operand(name, x))
		case slices.Contains(xs[:i], x):
			refuse(op, name+" is given twice", "give each once", operand(name, x))
		case !x.DType().Float():
			refuse(op, fmt.Sprintf("%s has the type %v, which has no gradient", name, x.DType()), "use a floating-point type", operand(name, x))
		}
	}
	constant := eng.tape == nil
	if constant {
		eng.tape = &tape{untrained: true}
		defer func() { eng.tape.closed, eng.tape = true, nil }()
	}
	grads := eng.gradients(op, f, xs)
	for i, x := range xs {
		if grads[i] == nil {
			grads[i] = filled(x.spec.gradient(), x.DType(), 0)
		}
		if grads[i] = grads[i].to(x.spec.gradient(), op); constant {
			grads[i] = grads[i].Detach()
		}
	}
	return grads
}

// A recordedPass is a backward pass that is recorded, as Gradients make it.
type recordedPass struct {
	tape  *tape
	first int // the number of the first node that takes gradients
}

// A second is what Gradients need of few nodes.
type second struct {
	composed func() *Tensor // computes the value again, where back cannot be recorded; nil: nothing does
	origin   *Tensor        // the node stood for it in Gradients that have ended; nil: it did not
}

// takes reports whether a gradient of t is wanted: in a recorded backward pass, if t depends on what it differentiates by.
func (t *Tensor) takes() bool {
	if t == nil || t.node == nil {
		return false
	}
	pass := t.spec.mesh.eng.recorded
	return pass == nil || t.node.tape == pass.tape && int(t.node.reach) >= pass.first
}

// again reports whether the backward pass that runs is recorded, to be differentiated again.
func (t *Tensor) again() bool { return t.spec.mesh.eng.recorded != nil }

// gradients runs f and returns the gradients of its result by xs, recorded; nil for an x that f does not use.
func (e *engine) gradients(op string, f func() *Tensor, xs []*Tensor) []*Tensor {
	t := e.tape
	defer e.enter()()
	e.recorded = nil // f runs in no backward pass
	t.inside++
	t.slopes = true
	defer func() { t.inside-- }()
	first := len(t.nodes)
	for _, x := range xs {
		x.tracked() // the parameter learns that it is used
		was := x.node
		n := t.add(op, x.spec, func(*Tensor) {}) // what arrives is read here, and later goes to the origin
		x.node = n
		defer func() { x.node, n.second = was, &second{origin: &Tensor{spec: x.spec, local: x.local, node: was}} }()
	}
	y := f()
	wantLoss(op, y)
	if !Tracked(y) {
		return make([]*Tensor, len(xs))
	}
	e.recorded = &recordedPass{tape: t, first: first}
	e.recorded.run(op, first+len(xs), y, filled(y.spec.replicated(), y.DType(), 1))
	grads := make([]*Tensor, len(xs))
	for i := range xs {
		grads[i] = t.nodes[first+i].taken()
	}
	return grads
}

// run hands on the gradient of y to what y was computed from, back to node number first. What that computes is recorded.
func (p *recordedPass) run(op string, first int, y, gy *Tensor) {
	last := len(p.tape.nodes)
	y.accumulate(gy)
	for i := last - 1; i >= first; i-- {
		if n := p.tape.nodes[i]; n.grad != nil {
			n.handOnRecorded(op)
		}
	}
}

// accumulateRecorded is accumulate in a backward pass that is recorded.
func (t *Tensor) accumulateRecorded(g *Tensor) {
	n := t.node
	if !t.takes() {
		return
	}
	if t.spec.mesh.eng.same && g.spec.partial { // the sum of nodes is no node of the sum
		g = n.reduced(g).Cast(t.DType())
	}
	if dt := g.DType(); dt.Size() > n.dt.Size() {
		n.dt = dt
	}
	switch {
	case n.grad == nil:
		n.grad = g
	case n.grad.spec == g.spec:
		n.grad = n.grad.widen().Add(g.widen())
	default:
		n.grad = n.settled(n.grad).widen().Add(n.settled(g).widen())
	}
}

// taken returns the gradient that has arrived in a backward pass that is recorded, nil if none has.
func (n *node) taken() *Tensor {
	g := n.grad
	if g != nil {
		g = g.Cast(n.dt)
	}
	n.grad, n.dt = nil, 0
	return g
}

// handOnRecorded is handOn in a backward pass that is recorded.
func (n *node) handOnRecorded(op string) {
	g := n.settled(n.taken())
	switch {
	case n.second != nil && n.second.composed != nil:
		e := n.spec.mesh.eng
		pass := e.recorded
		e.recorded = nil
		first := len(pass.tape.nodes)
		y := n.second.composed()
		e.recorded = pass
		pass.run(op, first, y, g)
	case n.twice:
		n.back(g)
	default:
		refuseTwice(n.op, n.spec)
	}
}

// refuseTwice throws because an operator cannot be differentiated twice.
func refuseTwice(op string, s *spec) {
	refuse("Gradients", op+" cannot be differentiated twice", "compute it from operators that can; the documentation of Gradients lists them",
		Operand{Name: "tensor", Layout: s.String()})
}

// recordTwice is record of an operator whose back can be recorded: it computes with tensors alone, by operators that can be
// differentiated twice.
func (out *Tensor) recordTwice(op string, back func(gy *Tensor)) *Tensor {
	out.record(op, back).node.twice = true
	return out
}

// recordOperators is Record of an operator whose backward can be recorded, see recordTwice.
func recordOperators(op string, out *Tensor, inputs []*Tensor, backward func(gy *Tensor) []Grad) *Tensor {
	if out = Record(op, out, inputs, backward); out.node != nil {
		out.node.twice = true
	}
	return out
}

// recordComposed is record of an operator that composed computes too, by operators that can be differentiated twice.
func (out *Tensor) recordComposed(op string, back func(gy *Tensor), composed func() *Tensor) *Tensor {
	out.record(op, back).node.composedBy(composed)
	return out
}

// RecordComposed is Record of an operator that can be differentiated twice: in Gradients composed stands for it, which computes
// the same value from the same inputs, by operators that can.
func RecordComposed(op string, out *Tensor, inputs []*Tensor, backward func(gy *Tensor) []Grad, composed func() *Tensor) *Tensor {
	if out = Record(op, out, inputs, backward); out.node != nil {
		out.node.composedBy(composed)
	}
	return out
}

// composedBy lets composed stand for n in the Gradients that run.
func (n *node) composedBy(composed func() *Tensor) {
	if n.tape.inside > 0 {
		n.second = &second{composed: composed}
	}
}
