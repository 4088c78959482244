package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// bags is one call of Bag on one rank.
type bags struct {
	*lookup
	o      BagOptions
	scale  *dtensor.Tensor    // factors of the rows; nil: ones
	result []layout.Placement // of the bags as they are computed
	final  []layout.Placement // of what the caller gets, on axes that shard the bags
	p      *pooling
	table  *tensor.Tensor // what p takes rows of: this rank's rows, or the distinct ones that were fetched
}

// divide assigns the local ids to bags, after MaxNorm has been applied to their rows. starts is nil for bags of one length.
func (b *bags) divide(starts []int, local *tensor.Tensor) {
	if starts == nil {
		starts = make([]int, local.Dim(0)+1)
		for i := range starts {
			starts[i] = i * local.Dim(1)
		}
	}
	if b.s.renorm {
		b.renormalize()
	}
	whole := tensor.Cast(local, tensor.Int64)
	if b.own.stored != nil {
		b.divideStored(starts, tensor.Read[int64](whole))
	} else {
		b.table = b.own.local
		b.p = newPooling(local.Device(), b.o.Mode, tensor.Read[int64](whole), starts, b.own.row, b.own.rows(), b.s.padding)
	}
	runtime.KeepAlive(whole)
	var factors *tensor.Tensor
	if b.scale != nil {
		factors = b.scale.Local().Reshape(b.scale.Local().Numel())
	}
	b.p.setScale(factors, b.own.local.DType().Wide())
}

// forward returns this rank's part of the bags, [bags, D].
func (b *bags) forward() *tensor.Tensor {
	var others *maxima
	if g := b.group(b.masked...); g != nil {
		others = &maxima{g, b.mesh, b.op + ": maxima"}
	}
	return b.p.forward(b.table, others)
}

// backward returns the gradients of the table and of the weights.
func (b *bags) backward(gy *dtensor.Tensor) (*dtensor.Rows, *dtensor.Tensor) {
	values := b.p.spread(tensor.Widen(gy.Redistribute(reduced(b.result)...).Local()))
	var scales *dtensor.Tensor
	if b.scale != nil {
		scales = b.scaleGrad(values)
	}
	b.x.counts = nil // those of all ids, used or not
	u := tensor.Unique(b.p.tensor(b.p.row), 0, b.table.Dim(0))
	if b.own.stored != nil {
		u.Index = tensor.IndexSelect(b.distinct().Index, 0, u.Index)
	}
	return b.gradient(u, b.p.backward(values)), scales
}

// scaleGrad returns the gradient of the weights for the gradients [k, d] of the
// bags of the used ids: the products of rows and gradients. Ranks that have
// other rows or other columns have the rest of the sum.
func (b *bags) scaleGrad(dy *tensor.Tensor) *dtensor.Tensor {
	dots := tensor.Sum(tensor.Mul(tensor.Widen(b.p.rows(b.table)), dy), []int{1}, false)
	local := b.scale.Local()
	flat := tensor.Zeros(local.Device(), local.DType(), local.Numel())
	tensor.IndexAddTo(flat, 0, b.p.tensor(b.p.at), tensor.Cast(dots, local.DType()))
	places := b.scale.Placements()
	for _, axis := range slices.Concat(b.masked, b.columns) {
		places[axis] = layout.Partial(layout.Sum)
	}
	return b.mesh.Wrap(b.op, flat.Reshape(local.Shape()...), nil, false, b.scale.Shape(), places...)
}

// finalPlacements returns the placements of what the caller gets: where ids were sharded
// by bags, the bags are too.
func (b *bags) finalPlacements() []layout.Placement {
	places := slices.Clone(b.result)
	for axis, place := range b.final {
		if place.IsShard() {
			places[axis] = place
		}
	}
	layout.Refit(places, b.result)
	return places
}
