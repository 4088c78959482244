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

// A pipelining is one ValueAndGrad of a Pipeline.
type pipelining struct {
	*Pipeline
	eng     *engine
	params  []*Tensor
	parts   int
	scope   *tensor.Scope // of the whole call
	keys    uint64        // of NextKey when it began
	flights map[flightKey]*inFlight
	sum     running   // of the last stage's results, and of the gradients
	own     *Tensor   // the sum of the stages' own losses, float64; nil: there are none
	terms   []float64 // with same bits, where stages have losses: see term
	inboxes map[way]*inbox
	sent    []arrival
}

// A flightKey names an inFlight.
type flightKey struct{ stage, part int }

// An inFlight is what one stage has of one part between its forward and its backward pass.
type inFlight struct {
	tape   *tape
	leaves []*node // of the parameters
	scope  *tensor.Scope
	in     *Tensor // nil in the first stage
	out    *Tensor
	loss   *Tensor // the stage's own; nil if it has none
}

func (r *pipelining) run(ctx context.Context) (loss float64, grads []Grad, err error) {
	eng := r.eng
	r.scope, r.keys = eng.dev.Open(), eng.keys
	defer eng.enter()()
	eng.ctx, eng.scope = ctx, r.scope
	defer func() {
		eng.keys = r.keyAt(len(r.stages), r.parts)
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
				r.backward(a.stage, a.part)
			} else {
				r.forward(a.stage, a.part)
			}
		}
	}
	for _, a := range r.sent {
		wait(a.Pending)
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
	for terms := range slices.Chunk(r.terms, len(r.stages)+1) { // of one part
		loss := 0.0
		for _, term := range terms {
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

// keyAt returns where the keys of a stage for a part begin.
func (r *pipelining) keyAt(number, part int) uint64 {
	return r.keys + uint64(part*len(r.stages)+number)<<16
}

// next returns the stage after one of this number; nil after the last.
func (p *Pipeline) next(number int) *stage {
	if number == len(p.stages)-1 {
		return nil
	}
	return &p.stages[number+1]
}

// forward runs the stage of this number for one part and sends its result on.
func (r *pipelining) forward(number, part int) {
	eng, stage, next := r.eng, &r.stages[number], r.next(number)
	var arrived *tensor.Tensor
	if stage.in != nil {
		arrived = r.receive(stage.forward, stage, 0, stage.in.local)
	}
	flight := &inFlight{tape: &tape{}, scope: eng.dev.Open()}
	eng.tape, eng.scope, eng.keys = flight.tape, flight.scope, r.keyAt(number, part)
	mark(flight.tape, r.params)
	if stage.in != nil {
		flight.in = wrap(stage.in, moved(arrived))
		flight.in.node = flight.tape.add("what the stage before returned", stage.in, nil)
	}
	flight.compute(stage, number, part)
	if next == nil {
		wantLoss("Pipeline", flight.out)
		if !flight.tape.reaches(flight.out) {
			refuseConstant("Pipeline", flight.out, "the parameters and of what the last stage got")
		}
	} else {
		next.wantInput(number+1, flight.out)
		flight.out = flight.out.Redistribute(next.Placements...)
	}
	for _, p := range r.params {
		flight.leaves = append(flight.leaves, p.node)
		p.node = nil
	}
	eng.tape, eng.scope = nil, r.scope
	flight.scope.Leave()
	r.flights[flightKey{number, part}] = flight
	if next != nil {
		r.send(next.forward, next, 1, flight.out.local, false)
	}
}

// compute sets the results of the stage of this number for one part.
func (f *inFlight) compute(s *stage, number, part int) {
	if s.ForwardWithLoss == nil {
		f.out = s.Forward(part, f.in)
	} else if f.out, f.loss = s.ForwardWithLoss(part, f.in); f.loss != nil {
		wantLoss("Pipeline", f.loss)
	}
	for _, y := range []*Tensor{f.out, f.loss} {
		if y != nil && y.spec.mesh != s.Mesh {
			refuse("Pipeline", fmt.Sprintf("stage %d returned %v on another mesh than its own, %v", number, y, s.Mesh),
				"compute it on the stage's Mesh, from what Forward gets")
		}
	}
}

// wantInput throws unless x, which the stage before has returned, is what the stage of this number is to get.
func (s *stage) wantInput(number int, x *Tensor) {
	if x != nil && x.DType() == s.DType && slices.Equal(x.Shape(), s.Shape) {
		return
	}
	got := "nil"
	if x != nil {
		got = x.String()
	}
	refuse("Pipeline", fmt.Sprintf("stage %d returned %s, but stage %d is to get %v %v", number-1, got, number, s.DType, s.Shape),
		"make Shape and DType of the stage what its Forward gets")
}

// backward runs the tape of the stage of this number for one part and sends the gradient of what it got.
func (r *pipelining) backward(number, part int) {
	eng, stage, next, key := r.eng, &r.stages[number], r.next(number), flightKey{number, part}
	flight := r.flights[key]
	var arrived *tensor.Tensor
	if next != nil {
		arrived = r.receive(next.backward, next, 1, flight.out.spec.local)
	}
	delete(r.flights, key)
	flight.scope.Enter()
	eng.scope = flight.scope
	var gy *Tensor
	if next != nil {
		gy = wrap(flight.out.spec, moved(arrived))
	} else {
		gy = filled(flight.out.spec.replicated(), flight.out.DType(), 1)
		r.add(flight)
		r.term(part, len(r.stages), flight.out)
	}
	for i, p := range r.params {
		p.node = flight.leaves[i]
		if p.node.apart = eng.same; r.sum.leaves != nil && !eng.same {
			p.node.inherit(r.sum.leaves[i])
		}
	}
	unchanged(r.params)
	flight.out.accumulate(gy)
	if flight.loss != nil {
		flight.loss.accumulate(filled(flight.loss.spec.replicated(), flight.loss.DType(), 1))
		if r.terms != nil {
			r.term(part, number, flight.loss)
		} else {
			r.addOwn(flight)
		}
	}
	flight.tape.run(0)
	eng.detecting = nil
	if eng.same {
		addParts(r.params)
		r.sum.pair(flight.scope, r.params)
	}
	var gx *tensor.Tensor
	if flight.in != nil {
		gx = flight.inputGrad(stage)
	}
	for i, p := range r.params {
		flight.leaves[i].hold(flight.scope)
		p.node = nil
	}
	r.sum.leaves = flight.leaves
	flight.tape.closed = true
	flight.scope.Close()
	eng.scope = r.scope
	if flight.in != nil {
		r.send(stage.backward, stage, 0, gx, true)
	}
}

// inputGrad returns this rank's part of the gradient of what the stage got, zeros if it did not use it. It outlives the scope of f.
func (f *inFlight) inputGrad(s *stage) *tensor.Tensor {
	const cause = "gradient of a stage's input"
	var gx *tensor.Tensor
	if n := f.in.node; n.grad != nil {
		g := n.arrived()
		if s.Mesh.eng.same { // nodes are added up before they are rounded
			g = g.to(s.in, cause)
		}
		gx = tensor.Clone(g.Cast(s.DType).to(s.in, cause).local)
	} else {
		gx = filled(s.in, s.DType, 0).local
	}
	f.scope.Keep(gx)
	return gx
}

// add adds the loss of a part to the sum.
func (r *pipelining) add(flight *inFlight) {
	value := flight.out.Detach()
	if r.eng.same {
		keepTensors(flight.scope, value)
		r.sum.values.Push(value, addTo(flight.scope))
		return
	}
	if r.sum.value != nil {
		value = addWide(r.sum.value, value)
	}
	r.sum.value = value
	keepTensors(flight.scope, value)
}

// term notes a loss of a part, if terms are noted: that of the stage of this number, or after those of all stages the last result.
func (r *pipelining) term(part, number int, loss *Tensor) {
	if r.terms != nil {
		r.terms[part*(len(r.stages)+1)+number] = loss.Item()
	}
}

// addOwn adds the stage's own loss of a part to the sum of these.
func (r *pipelining) addOwn(flight *inFlight) {
	value := flight.loss.Detach().Cast(tensor.Float64).Reshape()
	if r.own != nil {
		value = r.own.Add(value)
	}
	r.own = value
	keepTensors(flight.scope, value)
}

// collect returns the gradients that have arrived at the parameters, in their layouts.
func (r *pipelining) collect() []Grad {
	t := &tape{}
	mark(t, r.params)
	defer t.leave(r.params)
	switch {
	case r.eng.same && r.sum.parts != nil:
		r.sum.finish(r.scope, r.params)
	case !r.eng.same:
		for i, n := range r.sum.leaves {
			r.params[i].node.inherit(n)
		}
	}
	grads := make([]Grad, len(r.params))
	t.collect(r.params, grads)
	for _, g := range grads {
		g.keep(r.scope)
	}
	return grads
}
