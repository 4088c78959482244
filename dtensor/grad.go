package dtensor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/observe"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Grad is the gradient of one parameter: dense, or row-sparse, or, if it is
// the zero Grad, none.
type Grad struct {
	dense *Tensor
	rows  *Rows
}

// Dense returns the gradient t.
func Dense(t *Tensor) Grad { return Grad{dense: t} }

// Sparse returns the row-sparse gradient r.
func Sparse(r *Rows) Grad { return Grad{rows: r} }

// Dense returns the gradient as a tensor in the parameter's layout; nil for the
// zero Grad. A row-sparse one is scattered into zeros: prefer Rows.
func (g Grad) Dense() *Tensor {
	if g.rows != nil {
		return g.rows.Dense()
	}
	return g.dense
}

// Rows returns the row-sparse gradient, and whether g is one.
func (g Grad) Rows() (rows *Rows, ok bool) { return g.rows, g.rows != nil }

// spec returns the layout of the gradient.
func (g Grad) spec() *spec {
	if g.dense != nil {
		return g.dense.spec
	}
	return g.rows.spec
}

// ValueAndGrad runs f, which must return a tensor of one element, and returns
// its value (without a tape, replicated) and its gradients by the params. Each
// gradient comes back in its parameter's own layout, Replicate where that is
// Partial; that of a parameter f does not use is zero. A value that depends on
// none of them is an error, unless f takes Gradients. Sums over axes
// that replicate parameters are made at the end, one collective for each
// element type and set of axes.
//
// Params are marked for the duration of the call: what operators compute from
// them is recorded. They must be made outside f, be of a floating-point type
// and on one device; using one in two ValueAndGrad at once is refused, and so is one that
// f changes, as an optimizer does, after it has used it: changes that are written through
// tensor.Data or Ptr are not seen. Second derivatives are those of Gradients.
//
// Everything allocated inside f goes back to the pool when ValueAndGrad
// returns, except the results and what was passed to Keep.
//
// An error that math throws inside f (a *LayoutError, a *tensor.ShapeError, a
// *comm.Error) is returned. Layout and shape errors are the same on every rank
// and leave the group usable. When ctx is done, pending and later collectives
// fail on every rank: cancelling aborts the communicator and cannot be undone.
func ValueAndGrad(ctx context.Context, f func() *Tensor, params ...*Tensor) (value *Tensor, grads []Grad, err error) {
	if len(params) == 0 {
		return nil, nil, fault.Located(errors.New("dtensor: ValueAndGrad: no parameters; use Try to run without gradients"))
	}
	if f == nil {
		return nil, nil, fault.Located(errors.New("dtensor: ValueAndGrad: the function is nil; give the one that computes the loss"))
	}
	return passes(ctx, 1, func(int) *Tensor { return f() }, params)
}

// mark puts the parameters on the tape as its leaves.
func mark(t *tape, params []*Tensor) {
	for i, p := range params {
		name := fmt.Sprintf("parameter %d", i)
		switch {
		case p.node != nil && p.node.tape == t:
			refuse("ValueAndGrad", name+" is given twice", "give each once", operand(name, p))
		case p.node != nil && !p.node.tape.closed:
			refuse("ValueAndGrad", name+" is in use by an enclosing ValueAndGrad",
				"for second derivatives use Gradients inside it; else finish that one first", operand(name, p))
		case !p.DType().Float():
			refuse("ValueAndGrad", fmt.Sprintf("%s has the type %v, which has no gradient", name, p.DType()), "use a floating-point type",
				operand(name, p))
		}
		p.node = t.add("parameter", p.spec, nil)
	}
}

// unchanged throws if the memory of a parameter was changed after an operator had used it: the operator's gradient would be
// computed from numbers that it has not seen. Those of a MaskPartial one change by themselves: a reduction zeroes rows that are
// of other ranks.
func unchanged(params []*Tensor) {
	for i, p := range params {
		if n := p.node; n.used != 0 && !p.spec.masked && n.was != n.local.Changes() {
			refuse("ValueAndGrad", fmt.Sprintf("parameter %d was changed in place after an operator had used it, so its gradient would be wrong", i),
				"make optimizer steps, and changes by Local, before the function uses the parameter or after ValueAndGrad has returned",
				operand("parameter", p))
		}
	}
}

// Try runs f and returns the error that math throws inside it, nil if none.
// What f allocates goes back to the pool when Try returns, except what was
// passed to Keep. ctx is that of the operators inside, as in ValueAndGrad.
func Try(ctx context.Context, mesh *Mesh, f func()) (err error) {
	defer fault.Catch(&err)
	if f == nil {
		return fault.Located(errors.New("dtensor: Try: the function is nil; give the one that is to run"))
	}
	eng := mesh.there("Try").eng
	scope := eng.dev.Open()
	defer scope.Close()
	defer eng.enter()()
	eng.ctx, eng.scope = ctx, scope
	f()
	return nil
}

// AtEnd has the ValueAndGrad or Accumulate in progress call f with its error, nil if it has
// none, before it returns: to take back what an operator has changed for a step that has
// failed. What is registered last is called first. f must not communicate. ok is false
// outside of both, and f is not called.
func AtEnd(mesh *Mesh, f func(err error)) (ok bool) {
	eng := mesh.there("AtEnd").eng
	if eng.passing == 0 {
		return false
	}
	eng.ends = append(eng.ends, f)
	return true
}

// Keep lets tensors outlive the innermost ValueAndGrad or Try, as constants.
// Outside of both it does nothing.
func Keep(tensors ...*Tensor) {
	for _, t := range tensors {
		if s := t.there("Keep").spec.mesh.eng.scope; s != nil {
			keepTensors(s, t)
		}
	}
}

// keep lets the gradient outlive s.
func (g Grad) keep(s *tensor.Scope) {
	if g.rows != nil {
		s.Keep(g.rows.Index, g.rows.Values)
		return
	}
	keepTensors(s, g.dense)
}

func keepTensors(s *tensor.Scope, tensors ...*Tensor) {
	for _, t := range tensors {
		s.Keep(t.local)
		t.mask.keep(s)
	}
}

// collect brings what the leaves have gathered to the parameters' layouts, as grads.
func (t *tape) collect(params []*Tensor, grads []Grad) {
	if eng := params[0].spec.mesh.eng; eng.observer != nil {
		start := time.Now()
		defer func() { eng.observer.Span(observe.Gradient, bucketCause, nil, start) }()
	}
	bucket := bucket{order: orderOf(params)}
	bucket.order.compare(params[0].spec.mesh)
	for i, p := range params {
		n := p.node
		want := p.spec.gradient()
		switch {
		case n.sent: // finish sets it
		case len(n.rows) > 0 && n.grad == nil:
			grads[i].rows = SumRows(n.rows...)
		case n.grad == nil:
			grads[i].dense = filled(want, p.DType(), 0)
		default:
			bucket.add(&grads[i].dense, n.arrived(), want)
		}
	}
	bucket.reduce()
	if t.early != nil {
		t.early.finish()
	}
	for i, p := range params {
		if d := grads[i].dense; d != nil {
			grads[i].dense = d.Cast(p.DType())
		}
		if rows := p.node.rows; grads[i].dense != nil && len(rows) > 0 {
			grads[i].dense = SumRows(rows...).addTo(grads[i].dense)
		}
	}
	checkGrads(grads)
}
