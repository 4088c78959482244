package optim

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// ClipGradNorm scales the gradients of params in place so that the norm of all
// their elements together is at most limit, and returns the norm from before:
//
//	norm = √(Σ g²) over every element of every global gradient
//	g *= min(1, limit/(norm + 1e-6))
//
// as torch.nn.utils.clip_grad_norm_ does. An element that several ranks hold
// counts once, and the rows of a row-sparse gradient are added up before they
// are squared. It makes one collective of one number for each mesh, over the
// axes that shard any parameter, and none if there is no such axis. All ranks
// of the mesh get the same norm.
//
// Parameters may be on meshes of different ranks, such as the stages of a
// pipeline. One more collective, over the communicator that these meshes were
// made from, then adds them up: all its ranks make the call and get the norm.
//
// A norm that is not finite is returned as it is and the gradients stay: look
// at it before the step. A limit of +Inf only measures.
func ClipGradNorm(ctx context.Context, params []*dtensor.Tensor, grads []dtensor.Grad, limit float64) (norm float64, err error) {
	switch {
	case !(limit > 0):
		return 0, fmt.Errorf("optim: ClipGradNorm: the limit is %v; give a positive one", limit)
	case len(grads) != len(params):
		return 0, fmt.Errorf("optim: ClipGradNorm: %d gradients for %d parameters; pass what ValueAndGrad returned for the same list", len(grads), len(params))
	case len(params) == 0:
		return 0, nil
	}
	err = dtensor.Try(ctx, params[0].Mesh(), func() {
		var pieces []piece
		var meshes []*dtensor.Mesh
		for i, p := range params {
			if !slices.Contains(meshes, p.Mesh()) {
				meshes = append(meshes, p.Mesh())
			}
			if local := localOf(&grads[i]); local != nil {
				pieces = append(pieces, newPiece(i, p, local))
			}
		}
		norm = math.Sqrt(sumSquares(meshes, pieces))
		scale := limit / (norm + 1e-6)
		if !(scale < 1) || math.IsInf(norm, 0) {
			return
		}
		for _, p := range pieces {
			tensor.ScaleTo(p.local, scale)
		}
	})
	return norm, err
}

// A piece is this rank's part of one gradient.
type piece struct {
	mesh   *dtensor.Mesh
	local  *tensor.Tensor // every element of the rank's part once
	shards uint           // bit i: axis i shards the parameter
}

// localOf returns this rank's part of *g, nil for the zero Grad. A row-sparse
// gradient is coalesced in place.
func localOf(g *dtensor.Grad) *tensor.Tensor {
	rows, ok := g.Rows()
	if !ok {
		d := g.Dense()
		if d == nil {
			return nil
		}
		return d.Local()
	}
	rows = rows.Coalesce()
	rows.Index.Persist()
	rows.Values.Persist()
	*g = dtensor.Sparse(rows)
	return rows.Values
}

func newPiece(i int, param *dtensor.Tensor, local *tensor.Tensor) piece {
	if param.Layout().IsPartial() {
		fault.Throw(fmt.Errorf("optim: ClipGradNorm: parameter %d is %v, a sum of what the ranks hold; redistribute it to Replicate or Shard", i, param))
	}
	p := piece{mesh: param.Mesh(), local: local}
	for axis, place := range param.Placements() {
		if place.IsShard() {
			p.shards |= 1 << axis
		}
	}
	return p
}

// sumSquares returns the sum of squares of the global gradients. The meshes are
// taken in the order in which the parameters name them, the same on all ranks.
func sumSquares(meshes []*dtensor.Mesh, pieces []piece) float64 {
	apart := slices.ContainsFunc(meshes, func(m *dtensor.Mesh) bool { return !sameRanks(m, meshes[0]) })
	total := 0.0
	for _, m := range meshes {
		if !m.Inside() {
			continue
		}
		if sum := meshSquares(m, pieces); !apart || m.Comm().Rank() == 0 {
			total += sum
		}
	}
	if apart {
		for _, m := range meshes {
			if m.Parent() != meshes[0].Parent() {
				fault.Throw(fmt.Errorf("optim: ClipGradNorm: parameters are on mesh %v and mesh %v, of other ranks and made from another communicator; make both with NewMeshOf from the same one",
					meshes[0], m))
			}
		}
		total = allReduce(meshes[0], meshes[0].Parent(), total)
	}
	return total
}

// sameRanks reports whether two meshes hold the same ranks, in any order.
func sameRanks(a, b *dtensor.Mesh) bool {
	return a == b || slices.Equal(slices.Sorted(slices.Values(a.Ranks())), slices.Sorted(slices.Values(b.Ranks())))
}

// allReduce returns the sum of v over the ranks of c.
func allReduce(m *dtensor.Mesh, c *comm.Comm, v float64) float64 {
	sum := []float64{v}
	buf := comm.Of(sum)
	m.Do(c, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: buf, Src: buf, Cause: "ClipGradNorm"})
	return sum[0]
}

// meshSquares returns the sum of squares of the gradients on one mesh.
func meshSquares(m *dtensor.Mesh, pieces []piece) float64 {
	var axes uint
	for _, p := range pieces {
		if p.mesh == m {
			axes |= p.shards
		}
	}
	var mine []*tensor.Tensor
	for _, p := range pieces {
		if p.mesh == m && isFirst(m, axes&^p.shards) {
			mine = append(mine, p.local)
		}
	}
	sum := 0.0
	for _, s := range tensor.SumSquares(mine...) {
		sum += s
	}
	var names []string
	for i, a := range m.Axes() {
		if axes>>i&1 != 0 && a.Size > 1 {
			names = append(names, a.Name)
		}
	}
	if len(names) > 0 {
		sum = allReduce(m, m.Group(names...), sum)
	}
	return sum
}

// isFirst reports whether this rank is the first along the given axes, which
// replicate a gradient: the one that counts it.
func isFirst(m *dtensor.Mesh, axes uint) bool {
	for i, c := range m.Coord() {
		if axes>>i&1 != 0 && c != 0 {
			return false
		}
	}
	return true
}
