package optim

import (
	"context"
	"errors"
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
// counts once, and equal rows of a row-sparse gradient are added up before they
// are squared. It makes one collective of one number for each mesh, over the
// axes that shard any parameter, and none if there is no such axis. All ranks
// of the mesh get the same norm.
//
// Parameters may be on meshes of different ranks, such as the stages of a pipeline.
// One more collective, over the communicator that these meshes were made from, then adds
// up their squares: all its ranks make the call and get the norm.
//
// If the norm is NaN or infinite, the gradients stay as they are, and all ranks get
// an error that names the first such gradient and is ErrNotFinite. A program that skips
// such steps checks for it:
//
//	norm, err := optim.ClipGradNorm(ctx, params, grads, 1)
//	if errors.Is(err, optim.ErrNotFinite) {
//		continue
//	}
//
// A limit of +Inf only measures: the norm is returned as it is, without that error.
//
// A fused table (see embedding.Table.Fuse) takes no part: its rows have been changed when ValueAndGrad returns, and the
// gradient of its Param is zero. Neither the norm nor the scaling has it. To clip a table together with the other
// parameters, undo Fuse and give it to an optimizer; to bound its gradient alone, use embedding.FusedOptimizer.MaxGradient.
func ClipGradNorm(ctx context.Context, params []*dtensor.Tensor, grads []dtensor.Grad, limit float64) (norm float64, err error) {
	if err := checkClip("ClipGradNorm", params, grads, limit); err != nil || len(params) == 0 {
		return 0, err
	}
	err = dtensor.Try(ctx, params[0].Mesh(), func() {
		defer params[0].Mesh().Span("ClipGradNorm").End()
		var pieces []piece
		var meshes []*dtensor.Mesh
		for i, p := range params {
			meshes = addMesh(meshes, p.Mesh())
			if local := localOf(&grads[i]); local != nil {
				its := newPiece(i, p, local)
				if p.Mesh().SameBits() {
					its.nodes = newNodes(grads[i].Dense())
				}
				pieces = append(pieces, its)
			}
		}
		var sums []float64 // of each parameter, with same bits
		if params[0].Mesh().SameBits() {
			sums = pairwiseSquares(clip(limit), meshes, len(params), pieces)
			for _, sum := range sums {
				norm += sum
			}
		} else {
			norm = sumSquares(clip(limit), meshes, pieces)
		}
		norm = math.Sqrt(norm)
		if math.IsInf(limit, 1) {
			return
		}
		if math.IsNaN(norm) || math.IsInf(norm, 0) {
			cause := "no gradient alone makes it so"
			if i := firstNotFinite(clip(limit), meshes, pieces, sums); i >= 0 {
				cause = fmt.Sprintf("gradient %d, of parameter %v, is the first that makes it so", i, params[i])
			}
			fault.Throw(fmt.Errorf("optim: ClipGradNorm: %w: it is %v, and %s; leave out the step, or find the operator with %s=1",
				ErrNotFinite, norm, cause, dtensor.AnomalyVar))
		}
		scale := limit / (norm + 1e-6)
		if !(scale < 1) {
			return
		}
		for _, p := range pieces {
			tensor.ScaleTo(p.local, scale)
		}
	})
	return norm, err
}

// ClipGradValue brings each element of the gradients of params, in place, between -limit and
// limit, as torch.nn.utils.clip_grad_value_ does. NaN stays. Equal rows of a row-sparse gradient
// are added up before. It communicates nothing.
func ClipGradValue(ctx context.Context, params []*dtensor.Tensor, grads []dtensor.Grad, limit float64) error {
	if err := checkClip("ClipGradValue", params, grads, limit); err != nil || len(params) == 0 {
		return err
	}
	return dtensor.Try(ctx, params[0].Mesh(), func() {
		defer params[0].Mesh().Span("ClipGradValue").End()
		for i := range grads {
			if local := localOf(&grads[i]); local != nil {
				tensor.Copy(local, tensor.Clamp(local, -limit, limit))
			}
		}
	})
}

// checkClip returns an error unless the limit is positive and there is a gradient for each parameter.
func checkClip(call string, params []*dtensor.Tensor, grads []dtensor.Grad, limit float64) error {
	switch {
	case !(limit > 0):
		return fault.Located(fmt.Errorf("optim: %s: the limit is %v; give a positive one", call, limit))
	case len(grads) != len(params):
		return fault.Located(fmt.Errorf("optim: %s: %d gradients for %d parameters; pass what ValueAndGrad returned for the same list",
			call, len(grads), len(params)))
	}
	return nil
}

// ErrNotFinite is in the chain of ClipGradNorm's error if the norm is NaN or infinite.
var ErrNotFinite = errors.New("the norm of the gradients is not finite")

// A piece is this rank's part of one gradient.
type piece struct {
	param  int // which parameter's
	mesh   *dtensor.Mesh
	local  *tensor.Tensor // every element of the rank's part once
	shards uint           // bit i: axis i shards the parameter
	nodes  nodes          // with dtensor.Mesh.SameBits; else zero
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
		fault.Throw(fmt.Errorf("optim: ClipGradNorm: parameter %d is %v, a sum of what the ranks hold; redistribute it to Replicate or Shard", i,
			param))
	}
	p := piece{param: i, mesh: param.Mesh(), local: local}
	for axis, place := range param.Placements() {
		if place.IsShard() {
			p.shards |= 1 << axis
		}
	}
	return p
}

// sumSquares returns the sum of squares of the global gradients. The meshes are
// taken in the order in which the parameters name them, the same on all ranks.
func sumSquares(limit clip, meshes []*dtensor.Mesh, pieces []piece) float64 {
	apart := areApart(meshes)
	total := 0.0
	for _, m := range meshes {
		if !m.Inside() {
			continue
		}
		if sum := meshSquares(limit, m, pieces); !apart || m.Comm().Rank() == 0 {
			total += sum
		}
	}
	if apart {
		total = limit.allReduceOne(meshes[0], wantOneParent(meshes), comm.Sum, total)
	}
	return total
}

// wantOneParent returns the communicator that all meshes were made from; it throws if there is none.
func wantOneParent(meshes []*dtensor.Mesh) *comm.Comm {
	for _, m := range meshes {
		if m.Parent() != meshes[0].Parent() {
			fault.Throw(fmt.Errorf("optim: ClipGradNorm: parameters are on mesh %v and mesh %v, of other ranks and made from another "+
				"communicator; make both with NewMeshOf from the same one",
				meshes[0], m))
		}
	}
	return meshes[0].Parent()
}

// firstNotFinite returns the first parameter whose squares do not add up to a finite
// number on some rank, -1 if they do and only their sum is too large. sums are
// those of all parameters, with same bits, the first that is too large with those before it; else nil.
func firstNotFinite(limit clip, meshes []*dtensor.Mesh, pieces []piece, sums []float64) int {
	total := 0.0
	for i, sum := range sums {
		if total += sum; math.IsNaN(total) || math.IsInf(total, 0) {
			return i
		}
	}
	first, sharded := math.Inf(1), false
	for _, p := range pieces {
		sharded = sharded || p.shards != 0
		if sum := tensor.SumSquares(p.local)[0]; math.IsNaN(sum) || math.IsInf(sum, 0) {
			first = min(first, float64(p.param))
		}
	}
	switch {
	case areApart(meshes):
		first = limit.allReduceOne(meshes[0], meshes[0].Parent(), comm.Min, first)
	case sharded:
		first = limit.allReduceOne(meshes[0], meshes[0].Comm(), comm.Min, first)
	}
	if math.IsInf(first, 1) {
		return -1
	}
	return int(first)
}

// areApart reports whether meshes hold different ranks.
func areApart(meshes []*dtensor.Mesh) bool {
	return slices.ContainsFunc(meshes, func(m *dtensor.Mesh) bool { return !sameRanks(m, meshes[0]) })
}

// sameRanks reports whether two meshes hold the same ranks, in any order.
func sameRanks(a, b *dtensor.Mesh) bool {
	return a == b || slices.Equal(slices.Sorted(slices.Values(a.Ranks())), slices.Sorted(slices.Values(b.Ranks())))
}

// addMesh adds a mesh to those before it, once.
func addMesh(meshes []*dtensor.Mesh, m *dtensor.Mesh) []*dtensor.Mesh {
	if slices.Contains(meshes, m) {
		return meshes
	}
	return append(meshes, m)
}

// allReduce sets each of v to op of it over the ranks of c. call has the cause, and what else ranks compare.
func allReduce[T comm.Elem](m *dtensor.Mesh, c *comm.Comm, op comm.Op, call comm.Call, v []T) {
	buf := comm.Of(v)
	call.Kind, call.Op, call.Dst, call.Src = comm.AllReduceKind, op, buf, buf
	m.Do(c, call)
}

// A clip is the limit of a ClipGradNorm, which all ranks have to give: its calls carry it.
type clip float64

func (limit clip) String() string { return fmt.Sprintf("a limit of %v", float64(limit)) }

// call is what all calls of ClipGradNorm have.
func (limit clip) call() comm.Call {
	bits := math.Float64bits(float64(limit))
	return comm.Call{Cause: "ClipGradNorm", Facts: uint32(bits^bits>>32) * 2654435761 >> 8, Subject: limit}
}

// allReduceOne returns op of v over the ranks of c.
func (limit clip) allReduceOne(m *dtensor.Mesh, c *comm.Comm, op comm.Op, v float64) float64 {
	all := []float64{v}
	allReduce(m, c, op, limit.call(), all)
	return all[0]
}

// shardAxes returns the axes that shard any of the parameters of a mesh, as bits.
func shardAxes(m *dtensor.Mesh, pieces []piece) (axes uint) {
	for _, p := range pieces {
		if p.mesh == m {
			axes |= p.shards
		}
	}
	return axes
}

// axisNames names those of the axes that have more than one rank.
func axisNames(m *dtensor.Mesh, axes uint) (names []string) {
	for i, a := range m.Axes() {
		if axes>>i&1 != 0 && a.Size > 1 {
			names = append(names, a.Name)
		}
	}
	return names
}

// meshSquares returns the sum of squares of the gradients on one mesh.
func meshSquares(limit clip, m *dtensor.Mesh, pieces []piece) float64 {
	axes := shardAxes(m, pieces)
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
	if names := axisNames(m, axes); len(names) > 0 {
		sum = limit.allReduceOne(m, m.Group(names...), comm.Sum, sum)
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
