package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/tensor"
)

// LookupAs is Lookup and Redistribute in one. The rows of a row-wise table go
// from the table to the ranks that are to have them, without a tensor of all
// local rows between, and so do their gradients.
//
//	weight     ids     to      communication                        gradient
//	S(0)       R       R       1 of the rows                        none
//	S(0)       R       S(0)    1 of the rows, to those who keep it  1 of the rows' gradients, to the owners
//	R,S(0)     S(0),R  S(0),R  a status and a count, 1 of the rows  1 of ids and rows
//
// Values and gradients are those of Lookup(weight, ids, o).Redistribute(to...),
// to the bit, and all other layouts are looked up so, with dtensor.Mesh.SameBits every one: the gradients of
// equal ids are then added up in the order of one rank. It throws as these do.
func LookupAs(weight, ids *dtensor.Tensor, o Options, to ...layout.Placement) *dtensor.Tensor {
	return (&Table{weight: weight, options: o}).LookupAs(ids, to...)
}

// LookupAs returns the rows that ids name in the given placements; see the
// function LookupAs.
func (t *Table) LookupAs(ids *dtensor.Tensor, to ...layout.Placement) *dtensor.Tensor {
	defer t.weight.Mesh().Span("LookupAs").End()
	const op = "LookupAs"
	t.needNumbers("Lookup")
	weight := t.weight
	s := t.settings(op)
	checkIDs(op, weight, ids, s)
	p := rolesOf(op, weight, ids, s)
	replies, wholeRows := p.fromOwners(ids, s, to), p.wholeRows(weight, s, to)
	if !replies && !wholeRows || !p.mesh.Inside() || p.mesh.SameBits() || t.stored != nil {
		return t.lookUp(ids).Redistribute(to...)
	}
	shape := append(ids.Shape(), weight.Dim(1))
	at := ids.Redistribute(p.ids...)
	input := t.input()
	l := newLookup(p, s, weight, at, dtensor.Tracked(input))
	if wholeRows {
		out := p.mesh.Wrap(op, l.forward(), nil, false, shape, p.result...).Redistribute(to...)
		return t.record(op, out, input, ids, false, func(gy *dtensor.Tensor) []dtensor.Grad {
			return []dtensor.Grad{t.take(l.backwardOfWhole(gy.Redistribute(to...).Local()))}
		})
	}
	shard := to[p.masked[0]].IsShard()
	r := dtensor.NewOwnerReplies(weight, p.masked[0], l.ids, shard, op)
	rows := tensor.New(l.ids.Device(), weight.DType(), r.Shape()...)
	r.Forward(rows, l.own.local, l.base, false)
	out := p.mesh.Wrap(op, rows, nil, false, shape, to...)
	return t.record(op, out, input, ids, false, func(gy *dtensor.Tensor) []dtensor.Grad {
		if !shard {
			return []dtensor.Grad{t.take(l.backward(gy))}
		}
		dy := gy.Redistribute(to...).Local().Reshape(r.Kept(), l.own.columns())
		u, values := r.Backward(dy, l.base, l.own.rows())
		defer values.Free()
		return []dtensor.Grad{t.take(l.gradient(u, values))}
	})
}

// fromOwners reports whether owners can reply with the rows in the placements to: one
// axis masks the rows, which are then replicated or sharded by their first dimension
// there, and nothing else changes.
func (p *roles) fromOwners(ids *dtensor.Tensor, s settings, to []layout.Placement) bool {
	if len(p.masked) != 1 || len(p.requests)+len(p.columns) > 0 || p.premasked || s.renorm || ids.NDim() == 0 ||
		len(to) != len(p.result) || !slices.Equal(p.weight, p.weightWas) {
		return false
	}
	for axis, place := range to {
		switch {
		case axis != p.masked[0]:
			if place != p.result[axis] {
				return false
			}
		case place.IsReplicate():
		case place != layout.Shard(0), slices.ContainsFunc(p.result, func(q layout.Placement) bool { return q.Shards(0) }):
			return false
		}
	}
	return true
}

// wholeRows reports whether the parts of rows that ranks look up become whole rows, and
// nothing else changes: one axis shards the columns, in parts of one size, and the result
// is replicated there.
func (p *roles) wholeRows(weight *dtensor.Tensor, s settings, to []layout.Placement) bool {
	if len(p.columns) != 1 || len(p.requests)+len(p.masked) > 0 || s.renorm || len(to) != len(p.result) {
		return false
	}
	want := slices.Clone(p.result)
	axis := p.columns[0]
	want[axis] = layout.Replicate()
	return slices.Equal(to, want) && slices.Equal(p.weight, p.weightWas) &&
		p.weight[axis] == layout.Shard(1) && weight.Dim(1)%p.mesh.Axes()[axis].Size == 0
}

// backwardOfWhole returns the gradient of the table for the gradient dy of whole rows,
// [N, D]. It reads dy as parts of rows, [N·P, D/P], of which every P-th is this rank's:
// nothing is copied to cut them out.
func (l *lookup) backwardOfWhole(dy *tensor.Tensor) *dtensor.Rows {
	g, ids := l.group(l.columns[0]), tensor.Cast(l.ids, tensor.Int64)
	size, n := g.Size(), ids.Numel()
	parts := index.New[int64](ids.Device(), n*size)
	for i := range parts.Elems {
		parts.Elems[i] = -1
	}
	for i, id := range tensor.Read[int64](ids) {
		parts.Elems[i*size+g.Rank()] = id
	}
	runtime.KeepAlive(ids)
	u := tensor.Unique(parts.Tensor(ids.Device(), n*size), l.base, l.own.rows())
	return l.gradient(u, dy.Reshape(n*size, l.own.columns()))
}
