package dtensor

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
)

// pipelining is one ValueAndGrad of a Pipeline.
type pipelining struct {
	*Pipeline
	eng     *engine
	params  []*Tensor
	parts   int
	scope   *tensor.Scope // of the whole call
	keys    uint64        // of NextKey when it began
	flights map[flightKey]*flight
	sum     running
	own     *Tensor   // the sum of the stages' own losses, float64; nil: there are none
	terms   []float64 // with same bits, where stages have losses: this mesh's for each part, stage by stage, then the last stage's result
	inboxes map[way]*inbox
	sent    []arrival
}

// A flightKey names a flight.
type flightKey struct{ stage, part int }

// A flight is one stage for one part between its forward and its backward pass.
type flight struct {
	tape   *tape
	leaves []*node // of the parameters
	scope  *tensor.Scope
	in     *Tensor // nil in the first stage
	out    *Tensor
	loss   *Tensor // of the stage's own; nil if it has none
}

func (r *pipelining) run(ctx context.Context) (loss float64, grads []Grad, err error) {
	e := r.eng
	r.scope, r.keys = e.dev.Open(), e.keys
	defer e.enter()()
	e.ctx, e.scope = ctx, r.scope
	defer func() {
		e.keys = r.keyAt(len(r.stages), r.parts)
		r.scope.Close()
	}()
	if loss, grads, err = r.passes(); err != nil {
		r.end(err)
	}
	return loss, grads, err
}

// passes makes all passes of this rank.
func (r *pipelining) passes() (loss float64, grads []Grad, err error) {
	defer fault.Catch(&err)
	if r.me >= 0 {
		for _, a := range schedule(r.me, len(r.meshes), len(r.stages), r.parts) {
			if a.back {
				r.backward(a)
			} else {
				r.forward(a)
			}
		}
	}
	for _, s := range r.sent {
		wait(s.Pending)
	}
	grads = r.collect()
	if r.eng.same && r.me >= 0 && r.meshes[r.me] == r.stages[len(r.stages)-1].Mesh {
		r.sum.value = r.sum.values.Sum(addTo(r.scope))
	}
	loss, err = r.total()
	return loss, grads, err
}

// total returns the sum of the losses of all stages, on every rank of the world.
func (r *pipelining) total() (float64, error) {
	if r.terms != nil {
		return r.totalOfTerms()
	}
	word := []float64{0}
	for _, sum := range []*Tensor{r.sum.value, r.own} {
		if sum != nil {
			word[0] += sum.Item()
		}
	}
	if r.hasLosses() {
		if r.me >= 0 && r.meshes[r.me].all.Rank() != 0 { // the first rank of each mesh speaks for it
			word[0] = 0
		}
		err := comm.AllReduce(r.eng.ctx, r.world, word, comm.Sum)
		return word[0], err
	}
	last := r.stages[len(r.stages)-1].Mesh.ranks[0]
	root := slices.IndexFunc(r.ranksOfWorld(), func(w int) bool { return w == last })
	err := comm.Broadcast(r.eng.ctx, r.world, word, root)
	return word[0], err
}

// totalOfTerms is total with same bits where stages have losses: one rank has each term, and the others 0.
func (r *pipelining) totalOfTerms() (float64, error) {
	if r.me >= 0 && r.meshes[r.me].all.Rank() != 0 {
		clear(r.terms)
	}
	if err := comm.AllReduce(r.eng.ctx, r.world, r.terms, comm.Sum); err != nil {
		return 0, err
	}
	var sum pairwise.Fold[float64]
	add := func(a, b float64) float64 { return a + b }
	for part := range r.parts {
		n, loss := len(r.stages)+1, 0.0
		for _, term := range r.terms[part*n:][:n] {
			loss += term
		}
		sum.Push(loss, add)
	}
	return sum.Sum(add), nil
}

// end aborts the world after an error, waits for what is on its way, and puts away what the
// passes in progress have.
func (r *pipelining) end(err error) {
	r.world.Abort(err)
	for _, a := range r.sent {
		<-a.Done()
	}
	for _, box := range r.inboxes {
		for _, a := range box.list {
			if a.Pending != nil {
				<-a.Done()
			}
		}
	}
	for _, f := range r.flights {
		f.tape.closed = true
		f.scope.Enter() // its owner closes it
	}
	for _, p := range r.params {
		if p.node != nil {
			p.node.tape.closed, p.node = true, nil
		}
	}
}

// ranksOfWorld returns the ranks of the communicator as the meshes count them.
func (p *Pipeline) ranksOfWorld() []int {
	list := make([]int, p.world.Size())
	for i := range list {
		list[i] = p.world.WorldRank(i)
	}
	return list
}

// keyAt is where the keys of a stage for a part begin.
func (r *pipelining) keyAt(stage, part int) uint64 {
	return r.keys + uint64(part*len(r.stages)+stage)<<16
}

// forward runs one stage for one part and sends its result on.
func (r *pipelining) forward(a action) {
	e, s := r.eng, &r.stages[a.stage]
	var x *tensor.Tensor
	if s.in != nil {
		x = r.receive(s.forward, s, 0, s.in.local)
	}
	f := &flight{tape: &tape{}, scope: e.dev.Open()}
	e.tape, e.scope, e.keys = f.tape, f.scope, r.keyAt(a.stage, a.part)
	mark(f.tape, r.params)
	if s.in != nil {
		f.in = wrap(s.in, moved(x))
		f.in.node = f.tape.add("what the stage before returned", s.in, nil)
	}
	if s.ForwardWithLoss != nil {
		if f.out, f.loss = s.ForwardWithLoss(a.part, f.in); f.loss != nil {
			wantLoss("Pipeline", f.loss)
		}
	} else {
		f.out = s.Forward(a.part, f.in)
	}
	if a.stage == len(r.stages)-1 {
		wantLoss("Pipeline", f.out)
	} else {
		next := &r.stages[a.stage+1]
		if f.out == nil || f.out.DType() != next.DType || !slices.Equal(f.out.Shape(), next.Shape) {
			got := "nil"
			if f.out != nil {
				got = f.out.String()
			}
			refuse("Pipeline", fmt.Sprintf("stage %d returned %s, but stage %d is to get %v %v", a.stage, got, a.stage+1, next.DType, next.Shape),
				"make Shape and DType of the stage what its Forward gets")
		}
		f.out = f.out.Redistribute(next.Placements...)
	}
	for _, p := range r.params {
		f.leaves = append(f.leaves, p.node)
		p.node = nil
	}
	e.tape, e.scope = nil, r.scope
	f.scope.Leave()
	r.flights[flightKey{a.stage, a.part}] = f
	if a.stage < len(r.stages)-1 {
		next := &r.stages[a.stage+1]
		r.send(next.forward, next, 1, f.out.local, false)
	}
}

// backward runs the tape of a stage for one part and sends the gradient of what it got.
func (r *pipelining) backward(a action) {
	e, s := r.eng, &r.stages[a.stage]
	f := r.flights[flightKey{a.stage, a.part}]
	var got *tensor.Tensor
	if a.stage < len(r.stages)-1 {
		next := &r.stages[a.stage+1]
		got = r.receive(next.backward, next, 1, f.out.spec.local)
	}
	delete(r.flights, flightKey{a.stage, a.part})
	f.scope.Enter()
	e.scope = f.scope
	var gy *Tensor
	if got != nil {
		gy = wrap(f.out.spec, moved(got))
	} else {
		gy = filled(f.out.spec.replicated(), f.out.DType(), 1)
		r.add(f)
		r.term(a.part, len(r.stages), f.out)
	}
	for i, p := range r.params {
		p.node = f.leaves[i]
		if p.node.apart = e.same; r.sum.leaves != nil && !e.same {
			n := r.sum.leaves[i]
			p.node.grad, p.node.own, p.node.dt, p.node.rows = n.grad, n.own, n.dt, n.rows
		}
	}
	f.out.accumulate(gy)
	if f.loss != nil {
		f.loss.accumulate(filled(f.loss.spec.replicated(), f.loss.DType(), 1))
		if r.terms != nil {
			r.term(a.part, a.stage, f.loss)
		} else {
			r.addOwn(f)
		}
	}
	f.tape.run(0)
	e.detecting = nil
	if e.same {
		addParts(r.params)
		r.sum.pair(f.scope, r.params)
	}
	var gx *tensor.Tensor
	if f.in != nil {
		if n := f.in.node; n.grad != nil {
			const cause = "gradient of a stage's input"
			g := n.arrived()
			if e.same { // nodes are added up before they are rounded
				g = g.to(s.in, cause)
			}
			gx = tensor.Clone(g.Cast(s.DType).to(s.in, cause).local)
		} else {
			gx = filled(s.in, s.DType, 0).local
		}
		f.scope.Keep(gx)
	}
	for i, p := range r.params {
		f.leaves[i].hold(f.scope)
		p.node = nil
	}
	r.sum.leaves = f.leaves
	f.tape.closed = true
	f.scope.Close()
	e.scope = r.scope
	if f.in != nil {
		r.send(s.backward, s, 0, gx, true)
	}
}

// add adds the loss of a part.
func (r *pipelining) add(f *flight) {
	value := f.out.Detach()
	switch {
	case r.eng.same:
		keepTensors(f.scope, value)
		r.sum.values.Push(value, addTo(f.scope))
		return
	case r.sum.value != nil:
		value = addWide(r.sum.value, value)
	}
	r.sum.value = value
	keepTensors(f.scope, value)
}

// term notes a loss of a part, if terms are noted.
func (r *pipelining) term(part, stage int, loss *Tensor) {
	if r.terms != nil {
		r.terms[part*(len(r.stages)+1)+stage] = loss.Item()
	}
}

// addOwn adds the stage's own loss of a part.
func (r *pipelining) addOwn(f *flight) {
	value := f.loss.Detach().Cast(tensor.Float64).Reshape()
	if r.own != nil {
		value = r.own.Add(value)
	}
	r.own = value
	keepTensors(f.scope, value)
}

// collect returns the gradients that have arrived at the parameters, in their layouts.
func (r *pipelining) collect() []Grad {
	t := &tape{}
	mark(t, r.params)
	defer func() {
		t.closed = true
		for _, p := range r.params {
			p.node = nil
		}
	}()
	switch {
	case r.eng.same && r.sum.parts != nil:
		r.sum.finish(r.scope, r.params)
	case !r.eng.same:
		for i, n := range r.sum.leaves {
			to := r.params[i].node
			to.grad, to.own, to.dt, to.rows = n.grad, n.own, n.dt, n.rows
		}
	}
	grads := make([]Grad, len(r.params))
	t.collect(r.params, grads)
	for _, g := range grads {
		g.keep(r.scope)
	}
	return grads
}
