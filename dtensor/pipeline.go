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
		return nil, fault.Located(fmt.Errorf("dtensor: NewPipeline: %w", err))
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
	for i, given := range stages {
		if err := p.check(i, given, stages[0].Mesh); err != nil {
			return err
		}
		if err := p.place(i, given.Mesh, taken); err != nil {
			return err
		}
		arranged := stage{Stage: given}
		if i > 0 {
			var err error
			if arranged.in, err = given.Mesh.newSpec(given.Shape, given.Placements); err != nil {
				return fmt.Errorf("what stage %d gets: %w", i, err)
			}
			if arranged.in.partial || !given.DType.Float() {
				return fmt.Errorf("stage %d gets %v %v; it has to be of a floating-point type, and on each axis Shard or Replicate", i, given.DType,
					arranged.in)
			}
		}
		p.stages = append(p.stages, arranged)
	}
	switch {
	case len(p.stages) == 0:
		return errors.New("no stages; give at least one")
	case len(p.stages)%len(p.meshes) != 0:
		return fmt.Errorf("%d stages on %d meshes; give each mesh as many", len(p.stages), len(p.meshes))
	}
	return nil
}

// check returns what is wrong with stage i by itself, and beside the mesh of stage 0.
func (p *Pipeline) check(i int, s Stage, first *Mesh) error {
	switch {
	case s.Mesh == nil || s.Forward == nil && s.ForwardWithLoss == nil:
		return fmt.Errorf("stage %d has no Mesh or no Forward; give both", i)
	case s.Forward != nil && s.ForwardWithLoss != nil:
		return fmt.Errorf("stage %d has Forward and ForwardWithLoss; give one of them", i)
	case s.Mesh.parent != p.world:
		return fmt.Errorf("the mesh of stage %d was made from another communicator; make it with NewMeshOf from this one", i)
	case !slices.Equal(s.Mesh.axes, first.axes):
		return fmt.Errorf("stage %d has the mesh %v, stage 0 %v; give all the same axes", i, s.Mesh, first)
	}
	return nil
}

// place enters the mesh of stage i, unless an earlier stage lies on it. taken are the ranks of the meshes before.
func (p *Pipeline) place(i int, mesh *Mesh, taken map[int]bool) error {
	if slices.Contains(p.meshes, mesh) {
		if mesh != p.meshes[i%len(p.meshes)] {
			return fmt.Errorf("stage %d is on the mesh of stage %d; stages lie on the meshes in turn", i, slices.Index(p.meshes, mesh))
		}
		return nil
	}
	if len(p.meshes) < i {
		return fmt.Errorf("stage %d is on a mesh of its own after stages on meshes again; stages lie on the meshes in turn", i)
	}
	for _, r := range mesh.ranks {
		if taken[r] {
			return fmt.Errorf("rank %d is in the meshes of two stages; give each stage ranks of its own", r)
		}
		taken[r] = true
	}
	if !mesh.outside() {
		p.me = len(p.meshes)
	}
	p.meshes = append(p.meshes, mesh)
	return nil
}

// ValueAndGrad runs the stages for each of the parts of a batch, and returns the sum of
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
// does not depend on the schedule; in another number of stages or parts other elements are dropped. With same bits the gradients and
// losses of 2, 4, 8, … parts are added in pairs, as Accumulate does it, and have its bits. Where stages have losses of their own, these
// and the last stage's are added in float64 in the order of the stages, on any meshes, and rounded where a stage adds some of them itself.
//
// A stage cannot go on without the others: an error on any rank aborts the world, and every
// rank gets it.
func (p *Pipeline) ValueAndGrad(ctx context.Context, parts int, params ...*Tensor) (loss float64, grads []Grad, err error) {
	defer fault.Catch(&err)
	switch {
	case len(p.stages) == 0:
		return 0, nil, fault.Located(errors.New("dtensor: Pipeline: it has no stages; make it with NewPipeline"))
	case parts < 1:
		return 0, nil, fault.Located(fmt.Errorf("dtensor: Pipeline: %d parts; give at least 1", parts))
	case len(p.stages) > len(p.meshes) && parts%len(p.meshes) != 0:
		return 0, nil, fault.Located(fmt.Errorf("dtensor: Pipeline: %d parts are no multiple of %d meshes, as interleaved stages need; "+
			"change one of them", parts, len(p.meshes)))
	case len(params) == 0:
		return 0, nil, fault.Located(errors.New("dtensor: Pipeline: no parameters; give those of all stages on every rank"))
	}
	wantParams(params)
	r := &pipelining{Pipeline: p, eng: p.meshes[0].eng, params: params, parts: parts, flights: map[flightKey]*inFlight{},
		inboxes: map[way]*inbox{}}
	r.eng.scaled = 0
	if r.eng.same && p.hasLosses() {
		r.terms = make([]float64, parts*(len(p.stages)+1))
	}
	return r.run(ctx)
}

// hasLosses reports whether a stage has a loss of its own.
func (p *Pipeline) hasLosses() bool {
	return slices.ContainsFunc(p.stages, func(s stage) bool { return s.ForwardWithLoss != nil })
}
