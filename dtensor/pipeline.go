package dtensor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Stage is a part of a model that lies on a mesh of its own: some of its layers.
type Stage struct {
	Mesh *Mesh

	// Shape, DType and Placements are of what the stage before hands on for one part of the
	// batch; the first stage leaves them out. It arrives as the stage before has it: its
	// Forward's result is brought to these placements there.
	Shape      []int
	DType      tensor.DType
	Placements []layout.Placement

	// Forward computes with one part of the batch. x is what the stage before returned for
	// it, nil in the first stage. The last stage returns a loss of one element.
	Forward func(part int, x *Tensor) *Tensor

	// ForwardWithLoss is, in place of Forward, that of a stage which has a loss of its own too, as the load-balancing loss of
	// an nn.MoE. It has one element, or is nil, and is added to what the last stage returns: its gradient starts here.
	//
	//	ForwardWithLoss: func(part int, x *dtensor.Tensor) (y, loss *dtensor.Tensor) {
	//		y, balance := experts.Forward(x)
	//		return y, balance.Scale(0.01 / float64(parts))
	//	}
	ForwardWithLoss func(part int, x *Tensor) (y, loss *Tensor)
}

// A Pipeline runs a model whose layers are divided among meshes: while one stage works on a
// part of the batch, the others work on other parts, and what they hand on travels
// meanwhile. It is PyTorch's torch.distributed.pipelining with its Schedule1F1B; where a mesh
// has several stages, its ScheduleInterleaved1F1B.
//
//	first, _ := dtensor.NewMeshOf(world, []int{0, 1}, dtensor.Axis{Name: "tp", Size: 2})
//	second, _ := dtensor.NewMeshOf(world, []int{2, 3}, dtensor.Axis{Name: "tp", Size: 2})
//	p, err := dtensor.NewPipeline(ctx, world,
//		dtensor.Stage{Mesh: first, Forward: func(part int, _ *dtensor.Tensor) *dtensor.Tensor { return lower(ids[part]) }},
//		dtensor.Stage{Mesh: second, Shape: []int{b, t, c}, DType: tensor.Float32, Placements: second.Every(layout.Replicate()),
//			Forward: func(part int, h *dtensor.Tensor) *dtensor.Tensor { return cost(upper(h), part).Scale(1 / float64(parts)) }})
//	...
//	loss, grads, err := p.ValueAndGrad(ctx, parts, params...)
type Pipeline struct {
	world  *comm.Comm
	meshes []*Mesh
	me     int // which of the meshes this rank is in, -1: none
	stages []stage
}

// A stage is a Stage with the ways to and from its neighbours, on a rank of its mesh or of
// the mesh before.
type stage struct {
	Stage
	in                *spec      // of what arrives; nil in the first stage
	forward, backward *comm.Comm // this rank and the one at its position of the mesh before; nil if both are on one mesh
}

// NewPipeline makes a pipeline of stages in the order in which a part of the batch passes
// them. Its meshes are made of world by NewMeshOf, have the same axes, and no rank in
// common. There may be several stages for each mesh; they then lie on the meshes in turn:
// with two meshes, stages 0 and 2 on the first and 1 and 3 on the second. NewPipeline is
// collective over world; ranks in no mesh make the calls and compute nothing.
func NewPipeline(ctx context.Context, world *comm.Comm, stages ...Stage) (*Pipeline, error) {
	p := &Pipeline{world: world, me: -1}
	if err := p.arrange(stages); err != nil {
		return nil, fmt.Errorf("dtensor: NewPipeline: %w", err)
	}
	for i := 1; i < len(p.stages) && len(p.meshes) > 1; i++ {
		for _, way := range []**comm.Comm{&p.stages[i].forward, &p.stages[i].backward} {
			color, key := -1, 0
			if from, to := p.stages[i-1].Mesh, p.stages[i].Mesh; !from.outside() {
				color = from.all.Rank()
			} else if !to.outside() {
				color, key = to.all.Rank(), 1
			}
			var err error
			if *way, err = world.Split(ctx, color, key); err != nil {
				return nil, fmt.Errorf("dtensor: NewPipeline: %w", err)
			}
		}
	}
	return p, nil
}

// arrange checks the stages and finds this rank's.
func (p *Pipeline) arrange(stages []Stage) error {
	taken := map[int]bool{} // world ranks
	for i, s := range stages {
		switch {
		case s.Mesh == nil || s.Forward == nil && s.ForwardWithLoss == nil:
			return fmt.Errorf("stage %d has no Mesh or no Forward; give both", i)
		case s.Forward != nil && s.ForwardWithLoss != nil:
			return fmt.Errorf("stage %d has Forward and ForwardWithLoss; give one of them", i)
		case s.Mesh.parent != p.world:
			return fmt.Errorf("the mesh of stage %d was made from another communicator; make it with NewMeshOf from this one", i)
		case !slices.Equal(s.Mesh.axes, stages[0].Mesh.axes):
			return fmt.Errorf("stage %d has the mesh %v, stage 0 %v; give all the same axes", i, s.Mesh, stages[0].Mesh)
		}
		if slices.Contains(p.meshes, s.Mesh) {
			if s.Mesh != p.meshes[i%len(p.meshes)] {
				return fmt.Errorf("stage %d is on the mesh of stage %d; stages lie on the meshes in turn", i, slices.Index(p.meshes, s.Mesh))
			}
		} else {
			if len(p.meshes) < i {
				return fmt.Errorf("stage %d is on a mesh of its own after stages on meshes again; stages lie on the meshes in turn", i)
			}
			for _, r := range s.Mesh.ranks {
				if taken[r] {
					return fmt.Errorf("rank %d is in the meshes of two stages; give each stage ranks of its own", r)
				}
				taken[r] = true
			}
			if !s.Mesh.outside() {
				p.me = len(p.meshes)
			}
			p.meshes = append(p.meshes, s.Mesh)
		}
		one := stage{Stage: s}
		if i > 0 {
			var err error
			if one.in, err = s.Mesh.newSpec(s.Shape, s.Placements); err != nil {
				return fmt.Errorf("what stage %d gets: %w", i, err)
			}
			if one.in.partial || !s.DType.Float() {
				return fmt.Errorf("stage %d gets %v %v; it has to be of a floating-point type, and on each axis Shard or Replicate", i, s.DType, one.in)
			}
		}
		p.stages = append(p.stages, one)
	}
	if len(p.stages) == 0 || len(p.stages)%len(p.meshes) != 0 {
		return fmt.Errorf("%d stages on %d meshes; give each mesh as many", len(p.stages), len(p.meshes))
	}
	return nil
}

// ValueAndGrad runs the stages for each of so many parts of a batch, and returns the sum of
// the losses of all stages, on every rank of the world, and its gradients by params: those of all stages,
// in one order on all ranks. A rank's gradients of parameters on other meshes are empty, as
// optimizers and ClipGradNorm expect. The gradients are those of Accumulate over the parts,
// and are summed over the axes of a mesh once.
//
// A rank has at most as many parts in memory at once as there are stages from its own to
// the last, about twice that if stages are interleaved. Between two stages each part is
// sent once forward and once, as a gradient, backward: rank by rank, each to the one at its
// position of the other mesh. With several stages a mesh, parts has to be a multiple of the
// number of meshes. The keys of NextKey begin anew for each stage and part, so that dropout
// does not depend on the schedule.
//
// A stage cannot go on without the others: an error on any rank aborts the world, and every
// rank gets it.
func (p *Pipeline) ValueAndGrad(ctx context.Context, parts int, params ...*Tensor) (loss float64, grads []Grad, err error) {
	switch {
	case len(p.stages) == 0:
		return 0, nil, errors.New("dtensor: Pipeline: it has no stages; make it with NewPipeline")
	case parts < 1:
		return 0, nil, fmt.Errorf("dtensor: Pipeline: %d parts; give at least 1", parts)
	case len(p.stages) > len(p.meshes) && parts%len(p.meshes) != 0:
		return 0, nil, fmt.Errorf("dtensor: Pipeline: %d parts are no multiple of %d meshes, as interleaved stages need; change one of them",
			parts, len(p.meshes))
	case p.meshes[0].eng.same:
		return 0, nil, errors.New("dtensor: Pipeline: with same bits on it does not run: its sums depend on the parts; use Accumulate")
	case len(params) == 0:
		return 0, nil, fmt.Errorf("dtensor: Pipeline: no parameters")
	}
	r := &pipelining{Pipeline: p, eng: p.meshes[0].eng, params: params, parts: parts, flights: map[flightKey]*flight{},
		inboxes: map[way]*inbox{}}
	return r.run(ctx)
}

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
	own     *Tensor // the sum of the stages' own losses, float64; nil: there are none
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
	outer := *e
	e.ctx, e.scope = ctx, r.scope
	defer func() {
		e.ctx, e.tape, e.scope, e.detecting = outer.ctx, outer.tape, outer.scope, outer.detecting
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
	loss, err = r.total()
	return loss, grads, err
}

// total returns the sum of the losses of all stages, on every rank of the world.
func (r *pipelining) total() (float64, error) {
	word := []float64{0}
	for _, sum := range []*Tensor{r.sum.value, r.own} {
		if sum != nil {
			word[0] += sum.Item()
		}
	}
	if slices.ContainsFunc(r.stages, func(s stage) bool { return s.ForwardWithLoss != nil }) {
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
	}
	for i, p := range r.params {
		p.node = f.leaves[i]
		if r.sum.leaves != nil {
			n := r.sum.leaves[i]
			p.node.grad, p.node.own, p.node.dt, p.node.rows = n.grad, n.own, n.dt, n.rows
		}
	}
	f.out.accumulate(gy)
	if f.loss != nil {
		f.loss.accumulate(filled(f.loss.spec.replicated(), f.loss.DType(), 1))
		r.addOwn(f)
	}
	f.tape.run(0)
	e.detecting = nil
	var gx *tensor.Tensor
	if f.in != nil {
		if n := f.in.node; n.grad != nil {
			gx = tensor.Clone(n.arrived().Cast(s.DType).to(s.in, "gradient of a stage's input").local)
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
	if r.sum.value != nil {
		value = addWide(r.sum.value, value)
	}
	r.sum.value = value
	keepTensors(f.scope, value)
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
	for i, n := range r.sum.leaves {
		to := r.params[i].node
		to.grad, to.own, to.dt, to.rows = n.grad, n.own, n.dt, n.rows
	}
	grads := make([]Grad, len(r.params))
	t.collect(r.params, grads)
	for _, g := range grads {
		g.keep(r.scope)
	}
	return grads
}

// An inbox is what this rank gets from one other, part after part. One more than is needed
// has been asked for, so that it arrives while this rank computes.
type inbox struct {
	list []arrival
	left int // parts that have not been asked for
}

// An arrival is a tensor on its way.
type arrival struct {
	*comm.Pending
	data *tensor.Tensor
}

// receive returns what comes next to a stage, or with from 1 to the stage before it as
// gradient, from the rank of this number in c. Its shape is local.
func (r *pipelining) receive(c *comm.Comm, to *stage, from int, local []int) *tensor.Tensor {
	key := way{to, from}
	box := r.inboxes[key]
	if box == nil {
		box = &inbox{left: r.parts}
		r.inboxes[key] = box
	}
	if c == nil { // both stages are on this mesh
		first := box.list[0]
		box.list = box.list[1:]
		return first.data
	}
	for box.left > 0 && len(box.list) < 2 {
		data := tensor.New(r.eng.dev, to.DType, local...)
		call := comm.Call{Kind: comm.RecvKind, Root: from, Dst: BufferOf(data), Cause: pipelineCauses[from]}
		box.list = append(box.list, arrival{c.Start(r.eng.ctx, call), data})
		box.left--
	}
	first := box.list[0]
	box.list = box.list[1:]
	wait(first.Pending)
	return first.data
}

// send hands on what belongs to a stage, or with to 0 its gradient to the stage before. It
// is freed when it has been sent, if last is set.
func (r *pipelining) send(c *comm.Comm, of *stage, to int, data *tensor.Tensor, last bool) {
	if c == nil {
		key := way{of, 1 - to}
		box := r.inboxes[key]
		if box == nil {
			box = &inbox{}
			r.inboxes[key] = box
		}
		box.list = append(box.list, arrival{nil, tensor.Clone(data)})
		if last {
			data.Free()
		}
		return
	}
	r.sent = slices.DeleteFunc(r.sent, func(a arrival) bool {
		select {
		case <-a.Done():
			wait(a.Pending)
			if a.data != nil {
				a.data.Free()
			}
			return true
		default:
			return false
		}
	})
	call := comm.Call{Kind: comm.SendKind, Root: to, Src: BufferOf(data), Cause: pipelineCauses[1-to]}
	a := arrival{c.Start(r.eng.ctx, call), nil}
	if last {
		a.data = data
	}
	r.sent = append(r.sent, a)
}

// pipelineCauses are the causes of what comes from the stage before, and from the next one.
var pipelineCauses = [2]string{"Pipeline: activations", "Pipeline: gradients"}

// A way leads to a stage from the one before it (from 0), or back (from 1).
type way struct {
	*stage
	from int
}

// moved returns a copy of a tensor that it frees: one that the innermost scope owns.
func moved(t *tensor.Tensor) *tensor.Tensor {
	own := tensor.Clone(t)
	t.Free()
	return own
}

// wait throws the error of a call that was started.
func wait(p *comm.Pending) {
	if err := p.Wait(); err != nil {
		fault.Throw(err)
	}
}
