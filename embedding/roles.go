package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// roles say what each axis of the mesh does in a lookup. They follow from global facts
// alone, so all ranks have the same.
type roles struct {
	op   string
	mesh *dtensor.Mesh

	masked     []int // axes that shard the rows and replicate the ids: results are MaskP
	requests   []int // axes that shard the rows and the ids: rows are requested of their owners
	replicated []int // axes that replicate the table and shard the ids: gradients are summed
	columns    []int // axes that shard the columns; the ids are replicated there

	weight []layout.Placement // of the table in the lookup: its own, with Replicate for Partial
	ids    []layout.Placement // of the ids in the lookup
	result []layout.Placement // of the rows that are looked up
	final  []layout.Placement // of what the caller gets

	weightWas, idsWere []layout.Placement // of what the caller gave

	premasked bool // the ids came masked for this table
	carries   bool // the result carries a mask; else it is P(sum) on masked axes
}

// rolesOf returns the roles for a lookup of ids in weight [V, D].
func rolesOf(op string, weight, ids *dtensor.Tensor, s settings) *roles {
	mesh := weight.Mesh()
	n := len(mesh.Axes())
	places := make([]layout.Placement, 6*n)
	p := &roles{op: op, mesh: mesh, weight: places[:n:n], ids: places[n : 2*n : 2*n], result: places[2*n : 3*n : 3*n],
		final: places[3*n : 4*n : 4*n], weightWas: places[4*n : 5*n : 5*n], idsWere: places[5*n:]}
	for axis := range n {
		p.weightWas[axis], p.idsWere[axis] = weight.Placement(axis), ids.Placement(axis)
	}
	copy(p.weight, p.weightWas)
	copy(p.ids, p.idsWere)
	p.premasked = fitsMask(op, weight, ids, s)
	for axis, w := range p.weight {
		if w.IsPartial() {
			p.weight[axis] = layout.Replicate()
		}
		if p.ids[axis].IsPartial() && !p.premasked || w.Shards(1) && mesh.Axes()[axis].Size > 1 {
			p.ids[axis] = layout.Replicate()
		}
	}
	if mesh.SameBits() && !p.premasked { // each owner adds up the gradients of all ids in their order
		clear(p.ids)
	}
	layout.Refit(p.ids, p.idsWere)
	last := ids.NDim() // the dimension of features in the result
	for axis, w := range p.weight {
		at := p.ids[axis]
		p.result[axis] = at // even where the axis has only one rank
		if mesh.Axes()[axis].Size > 1 {
			switch {
			case w.Shards(0) && at.IsShard():
				p.requests = append(p.requests, axis)
			case w.Shards(0):
				p.result[axis] = layout.MaskPartial([]int{weight.Dim(0), weight.Dim(1)}, 0)
				p.masked = append(p.masked, axis)
			case w.Shards(1):
				p.result[axis] = w.WithDim(last)
				p.columns = append(p.columns, axis)
			case at.IsShard():
				p.replicated = append(p.replicated, axis)
			}
		}
		p.final[axis] = p.result[axis]
		if own := p.idsWere[axis]; own.IsShard() { // the same part of the ids again, with whole rows
			p.final[axis] = own
		}
	}
	layout.Refit(p.final, p.result)
	p.carries = slices.ContainsFunc(p.result, layout.Placement.IsMask)
	if p.carries && !slices.Equal(p.result, p.final) && !mesh.SameBits() {
		// A mask does not survive the all-to-all; zeros in its place do.
		p.carries = false
		for axis, place := range p.result {
			if place.IsMask() {
				p.result[axis], p.final[axis] = layout.Partial(layout.Sum), layout.Partial(layout.Sum)
			}
		}
	}
	return p
}

// table returns the table in the layout for the lookup. It throws if that would leave the
// rows that MaxNorm changes behind.
func (p *roles) table(s settings) *dtensor.Tensor {
	table := s.weight.Redistribute(p.weight...)
	if s.renorm && table != s.weight {
		refuse(p.op, "MaxNorm changes %s in place, but it is a sum of what the ranks hold; redistribute it to Replicate or Shard", s.table())
	}
	return table
}

// reduced returns the placements with Replicate where they are Partial: those of
// the gradient of a result.
func reduced(result []layout.Placement) []layout.Placement {
	places := slices.Clone(result)
	for axis, place := range places {
		if place.IsPartial() {
			places[axis] = layout.Replicate()
		}
	}
	return places
}

// fitsMask reports whether the ids are masked for this table: MaskP on exactly
// the axes that shard its rows. It throws if they are masked for another.
func fitsMask(op string, weight, ids *dtensor.Tensor, s settings) bool {
	if ids.Mask() == nil {
		return false
	}
	for axis := range ids.Mesh().Axes() {
		shape, dim, ok := ids.Placement(axis).Offset()
		if ok && (dim != 0 || len(shape) == 0 || shape[0] != weight.Dim(0)) {
			refuse(op, "the mask of the ids is for dimension %d of %v, which conflicts with %s of %d rows; pass the ids before they were masked",
				dim, shape, s.table(), weight.Dim(0))
		}
		if ok != (weight.Placement(axis) == layout.Shard(0)) {
			return false // it is undone: ids are brought to Replicate
		}
	}
	return true
}

// group returns the communicator over a set of axes, nil for none.
func (p *roles) group(axes ...int) *comm.Comm { return groupOver(p.mesh, axisSet(axes)) }
