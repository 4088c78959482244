package loss

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
)

// A sharding says how the logits are divided over the mesh, and which ranks communicate.
// It follows from global facts, so it is the same on all ranks. The fields marked local
// say what this rank holds.
type sharding struct {
	op      string
	mesh    *dtensor.Mesh
	classes int     // C
	leaf    int     // with same bits: the classes whose statistics are made at once and added in pairs; 0: those that a rank has
	nodes   [][]int // with leaves: those of each node that a rank of classGroup has, see layout.CutAtLeaves
	dim     int     // of the classes: 1, or 0 if the logits have one dimension

	logits, targets []layout.Placement // what the operands are brought to
	shape           []int              // of the targets: the positions
	classAxes       []string           // shard the classes
	batchAxes       []string           // shard the positions

	lo, n        int          // local: the classes lo to lo+n
	mine         []int        // local: of nodes, those of this rank; of all others one alone
	outer, inner int          // local: the logits are [outer, n, inner], the positions [outer, inner]
	offset       []int        // local: the global position of the first target
	local        []int        // local: the shape of the positions
	classGroup   *comm.Comm   // nil: every rank has all classes of its positions
	batchGroup   *comm.Comm   // nil: every rank has all positions
	cause        causes       // for the counters of communication
	facts        uint32       // of the logits, which all ranks must have the same
	dtype        tensor.DType // of the logits
	wide         tensor.DType // of what goes with them: see dtype.DType.Wide
}

// causes name the collectives of a loss.
type causes struct{ classes, batch, hidden string }

// checkType throws unless logits are float32, float64 or bfloat16.
func checkType(op string, logits *dtensor.Tensor) {
	if dt := logits.DType(); dt != tensor.Float32 && dt != tensor.Float64 && dt != tensor.BFloat16 {
		refuse(op, fmt.Sprintf("logits %v are not float32, float64 or bfloat16; Cast them to one of these", logits))
	}
}

// statLeaves is how many leaves the classes have at most: joining them costs little beside
// reading the logits.
const statLeaves = 16

// leafOf returns the size of the leaves of a number of classes. One of several has nodes of products too.
func leafOf(classes int) int {
	return pairwise.Leaf(classes, max(pairwise.Least, ints.DivUp(classes, statLeaves)))
}

// byLeaves reports whether statistics of classes can be made leaf by leaf: those of smoothing with
// weights cannot.
func (o *Options) byLeaves() bool { return o.LabelSmoothing == 0 || o.Weight == nil }

// shardingOf returns the sharding of logits of [C], [N, C] or [N, C, d1, …]. leaves says
// that with same bits statistics of the classes are made leaf by leaf: the classes are then
// divided so that ranks have nodes of them, and are gathered else. It throws if the layout of the
// logits cannot be handled.
func shardingOf(op string, logits *dtensor.Tensor, leaves bool) *sharding {
	shape := logits.Shape()
	if len(shape) == 0 {
		refuse(op, fmt.Sprintf("logits %v have no dimension of classes; give [C], [N, C] or [N, C, d1, …]", logits))
	}
	p := &sharding{op: op, mesh: logits.Mesh(), dim: min(1, len(shape)-1), dtype: logits.DType(), wide: logits.DType().Wide(),
		facts: logits.Facts(),
		cause: causes{classes: op + ": classes", batch: op + ": positions"}}
	p.classes = shape[p.dim]
	p.shape = slices.Delete(slices.Clone(shape), p.dim, p.dim+1)
	p.logits = logits.Placements()
	p.targets = make([]layout.Placement, len(p.logits))
	if leaves && p.mesh.SameBits() {
		p.leaf = leafOf(p.classes)
		p.logits, p.nodes = layout.CutAtLeaves(logits.Layout().Axes(), p.logits, p.dim, p.classes, p.leaf)
	}
	for axis, place := range p.logits {
		if p.mesh.SameBits() && (place.IsPartial() || place.Shards(p.dim) && p.leaf == 0) { // each rank adds up all classes
			place = layout.Replicate()
			p.logits[axis] = place
		}
		if place.IsPartial() {
			// A rank sums the parts of its own classes faster than those of all.
			place = layout.Replicate()
			if !p.logits[axis].IsMask() && !shardsDim(p.logits, p.dim) {
				place = layout.Shard(p.dim)
			}
			p.logits[axis] = place
		}
		d, sharded := place.Dim()
		many := p.mesh.Axes()[axis].Size > 1
		switch name := p.mesh.Axes()[axis].Name; {
		case !sharded:
		case d == p.dim:
			if many {
				p.classAxes = append(p.classAxes, name)
			}
		default:
			if d > p.dim {
				place = place.WithDim(d - 1)
			}
			p.targets[axis] = place
			if many {
				p.batchAxes = append(p.batchAxes, name)
			}
		}
	}
	return p
}

// do makes a call of ranks whose logits must be alike.
func (p *sharding) do(g *comm.Comm, call comm.Call) {
	call.Facts = p.facts
	p.mesh.Do(g, call)
}

// shardsDim reports whether a placement shards tensor dimension d.
func shardsDim(places []layout.Placement, d int) bool {
	return slices.ContainsFunc(places, func(p layout.Placement) bool { return p.Shards(d) })
}

// bind sets the local fields from logits in the layout of p.
func (p *sharding) bind(logits *dtensor.Tensor) {
	local := logits.Local().Shape()
	p.outer, p.n, p.inner = 1, local[p.dim], 1
	for d, size := range local {
		switch {
		case d < p.dim:
			p.outer *= size
		case d > p.dim:
			p.inner *= size
		}
	}
	p.local = slices.Delete(slices.Clone(local), p.dim, p.dim+1)
	offset, inside := logits.Offset()
	if !inside {
		return
	}
	p.lo = offset[p.dim]
	p.offset = slices.Delete(slices.Clone(offset), p.dim, p.dim+1)
	p.join()
}

// join finds the communicators and this rank's nodes of the classes.
func (p *sharding) join() {
	rank := 0
	if len(p.classAxes) > 0 {
		p.classGroup = p.mesh.Group(p.classAxes...)
		rank = p.classGroup.Rank()
	}
	if p.mine = []int{1}; p.leaf > 0 {
		p.mine = p.nodes[rank]
	}
	if len(p.batchAxes) > 0 {
		p.batchGroup = p.mesh.Group(p.batchAxes...)
	}
}

// positions returns the number of positions on this rank.
func (p *sharding) positions() int { return p.outer * p.inner }

// at returns the global position of local position i, as a flat index.
func (p *sharding) at(i int) int { return ints.IndexIn(p.shape, p.offset, p.local, i) }

// targetError makes the error about the target at a flat global position.
func (p *sharding) targetError(flat int, target, ignored int64) *TargetError {
	return &TargetError{Op: p.op, Target: target, Position: tensor.UnravelIndex(flat, p.shape), Classes: p.classes, Ignored: ignored}
}
