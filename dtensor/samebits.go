package dtensor

import (
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// SameBitsVar is the environment variable that turns SameBits on from the start if it is
// 1; gorun --same-bits sets it.
const SameBitsVar = "GORUN_SAME_BITS"

// SetSameBits has all meshes of this rank compute floating-point numbers whose bits do not
// depend on the mesh or on placements: one rank alone gets the same. Turn it on, on all
// ranks, before the first operator.
//
// Sums of floating-point numbers are then pairwise, and divided over ranks only in halves of
// halves: where each rank has one, the result is Partial(Nodes), which is added up in pairs; where they have one or
// two, see layout.CutAtLeaves, these are added up at once. An
// operator that sums over a dimension which is sharded otherwise first gathers it, and each rank
// computes the whole sum, in the order of one rank, which costs memory, time and communication.
// Micro-batches of Accumulate have the bits of their batch.
// What cannot be computed so throws a *LayoutError that names it, on every rank. A mesh
// of several ranks on a GPU is refused.
func (m *Mesh) SetSameBits(on bool) {
	m.eng.setSame(on)
	if err := m.eng.wantHost(len(m.ranks)); err != nil {
		refuse("SetSameBits", err.Error(), "leave it off")
	}
}

// setSame turns SameBits on or off, and with it the pairwise sums of the device.
func (e *engine) setSame(on bool) {
	e.same = on
	if dev, ok := e.dev.(interface{ SetPairwise(on bool) }); ok {
		dev.SetPairwise(on)
	}
}

// SameBits reports whether SetSameBits is on.
func (m *Mesh) SameBits() bool { return m.eng.same }

// RefuseSameBits throws a *LayoutError if SameBits is on and the mesh has several ranks:
// for an operator that cannot promise it. why says what makes it so, and remedy what to do.
func (m *Mesh) RefuseSameBits(op, why, remedy string) {
	if m.eng.same && len(m.ranks) > 1 {
		refuse(op, "with same bits on it is not computed: "+why, remedy+", or leave same bits off")
	}
}

// wantHost returns an error if SameBits is on for several ranks whose tensors are on a GPU,
// where the order of a sum may depend on the shape of a shard.
func (e *engine) wantHost(ranks int) error {
	if !e.same || ranks == 1 || tensor.OnHost(e.dev) {
		return nil
	}
	return errors.New("with same bits on tensors of several ranks are on the CPU; here they are on a GPU")
}

// wantExact throws if a call folds numbers of several ranks so that the result depends on
// how they were divided: sums and products of floating-point numbers, and functions that
// nobody knows here.
func wantExact(c *comm.Comm, call *comm.Call) {
	if !call.Kind.Reduces() || c.Size() == 1 {
		return
	}
	sums := call.Op == comm.Sum || call.Op == comm.Avg || call.Op == comm.Prod
	if call.Op == comm.Custom || sums && inexact(call.DType()) {
		refuse(call.Cause, fmt.Sprintf("with same bits on, %v over %d ranks is not computed: its result depends on the number of ranks", call.Op,
			c.Size()), "replicate what is summed, or leave same bits off")
	}
}

// inexact reports whether sums of a type depend on their order.
func inexact(dt comm.DType) bool {
	return dt.Float() || dt == comm.Complex64 || dt == comm.Complex128
}

// wholeIndex returns the index on which p adds up a gradient: with SameBits every rank has
// all of it, as slices of several parts of the index may be added to one element.
func (p pickOp) wholeIndex(index *Tensor) *Tensor {
	if !index.spec.mesh.eng.same || !anyShard(index.spec) {
		return index
	}
	return index.Redistribute(index.spec.mesh.Every(layout.Replicate())...)
}
