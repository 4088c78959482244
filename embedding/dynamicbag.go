package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Bag looks up bags of keys and makes one row of each: the sum, mean or maximum of its
// rows, as the function Bag does. A key without a row counts as a row of zeros.
//
//	keys [n]      offsets [bags]   →   [bags, D] R
//	keys [B, L]   offsets nil      →   [B, D], S(0) where keys are
//
// weights are factors of the rows for Mode Sum, in the shape of keys, and get a gradient;
// nil stands for ones. Bags are divided over the axis of the table, each is made on one
// rank, and what is replicated is gathered. Keys that are sharded other than by bags are
// replicated first. With same bits the rows of all keys are gathered, and each rank makes all bags.
func (d *Dynamic) Bag(keys, offsets, weights *dtensor.Tensor, mode Mode) *dtensor.Tensor {
	const op = "Bag"
	d.checkKeys(op, keys)
	checkBags(op, keys, offsets, weights, &BagOptions{Mode: mode})
	mesh := d.mesh()
	if mesh.SameBits() {
		return d.bagOfAll(keys, offsets, weights, mode)
	}
	b := dynamicBags{d: d, places: mesh.Every(layout.Replicate())}
	if offsets == nil {
		b.divideEqual(keys, weights)
	} else {
		b.divide(op, keys, offsets, weights)
	}
	shape := []int{b.count, d.config.Dim}
	if !mesh.Inside() {
		return mesh.Wrap(op, tensor.New(mesh.Device(), d.config.DType, 0), nil, false, shape, b.places...).Redistribute(b.final...)
	}
	inputs := []*dtensor.Tensor{d.table.input()}
	l := d.newLookup(op, b.keys, b.places, dtensor.Tracked(inputs[0]))
	slots := l.x.distinct[0].Slot
	p := newPooling(mesh.Device(), mode, tensor.Read[int32](slots), b.starts, 0, l.rows.Dim(0), -1)
	runtime.KeepAlive(slots)
	p.setScale(b.factors, d.config.DType.Wide())
	out := mesh.Wrap(op, p.forward(l.rows, nil), nil, false, shape, b.places...)
	if weights != nil {
		inputs = append(inputs, weights)
	}
	out = dtensor.Record(op, out, inputs, func(gy *dtensor.Tensor) []dtensor.Grad {
		values := p.spread(tensor.Widen(gy.Redistribute(b.places...).Local()))
		var grads []dtensor.Grad
		if weights != nil {
			dots := tensor.Sum(tensor.Mul(tensor.Widen(p.rows(l.rows)), values), []int{1}, false)
			grads = append(grads, dtensor.Dense(b.factorGrad(op, weights, dots)))
		}
		rows := l.backward(p.backward(values))
		return append([]dtensor.Grad{d.table.take(rows)}, grads...)
	})
	return out.Redistribute(b.final...)
}

// dynamicBags are the bags of one lookup that this rank makes.
type dynamicBags struct {
	d       *Dynamic
	count   int                // on all ranks
	places  []layout.Placement // of the bags as they are made
	final   []layout.Placement // of what the caller gets
	keys    *tensor.Tensor     // [n], of this rank's bags
	factors *tensor.Tensor     // [n]; nil: ones
	starts  []int              // where this rank's bags begin in keys, and the last one ends
	byKey   []layout.Placement // of keys as this rank has them
	rows    int                // of dimension 0 of these
}

// divideEqual divides bags of one length.
func (b *dynamicBags) divideEqual(keys, weights *dtensor.Tensor) {
	b.count = keys.Dim(0)
	b.final = slices.Clone(b.places)
	for axis, p := range keys.Placements() {
		if p.Shards(0) {
			b.places[axis], b.final[axis] = p, p
		}
	}
	if b.places[b.d.axis].IsReplicate() {
		b.places[b.d.axis] = layout.Shard(0)
	}
	layout.Refit(b.places, keys.Placements())
	local := keys.Redistribute(b.places...).Local()
	b.byKey, b.rows = b.places, local.Dim(0)
	b.keys = local.Reshape(local.Numel())
	if weights != nil {
		its := weights.Redistribute(b.places...).Local()
		b.factors = its.Reshape(its.Numel())
	}
	if !b.d.mesh().Inside() {
		return
	}
	for i := range local.Dim(0) + 1 {
		b.starts = append(b.starts, i*local.Dim(1))
	}
}

// divide divides bags that begin at offsets.
func (b *dynamicBags) divide(op string, keys, offsets, weights *dtensor.Tensor) {
	b.final = slices.Clone(b.places)
	b.places[b.d.axis] = layout.Shard(0)
	o := bags{}
	starts, count := o.bounds(op, keys, offsets)
	b.count = count
	mesh := b.d.mesh()
	whole := keys.Redistribute(b.final...).Local()
	var factors *tensor.Tensor
	if weights != nil {
		factors = weights.Redistribute(b.final...).Local()
	}
	if !mesh.Inside() {
		return
	}
	at, bags, keysOf := 0, layout.ChunkSizes(count, mesh.Axes()[b.d.axis].Size), []int(nil) // by rank
	for rank, n := range bags {
		first, end := starts[at], starts[at+n]
		keysOf = append(keysOf, end-first)
		if rank == mesh.Coord()[b.d.axis] {
			for _, start := range starts[at : at+n+1] {
				b.starts = append(b.starts, start-first)
			}
			b.rows, b.keys = end-first, tensor.Narrow(whole, 0, first, end-first)
			if factors != nil {
				b.factors = tensor.Narrow(factors, 0, first, end-first)
			}
		}
		at += n
	}
	b.byKey = mesh.Every(layout.Replicate())
	b.byKey[b.d.axis] = layout.ShardSizes(0, keysOf...)
}

// factorGrad returns the gradient of weights, given that of this rank's factors.
func (b *dynamicBags) factorGrad(op string, weights *dtensor.Tensor, dots *tensor.Tensor) *dtensor.Tensor {
	local := weights.Shape()
	local[0] = b.rows
	return b.d.mesh().Wrap(op, tensor.Cast(dots, weights.DType()).Reshape(local...), nil, false, weights.Shape(), b.byKey...)
}

// bagOfAll is Bag with same bits.
func (d *Dynamic) bagOfAll(keys, offsets, weights *dtensor.Tensor, mode Mode) *dtensor.Tensor {
	final := d.mesh().Every(layout.Replicate())
	all := keys.Redistribute(slices.Clone(final)...)
	none := func(int64) bool { return false }
	bags := bagsOf(d.Lookup(all.Reshape(all.Numel())), all, offsets, weights, BagOptions{Mode: mode}, none)
	if offsets == nil {
		for axis, p := range keys.Placements() {
			if p.Shards(0) {
				final[axis] = p
			}
		}
		layout.Refit(final, keys.Placements())
	}
	return bags.Redistribute(final...)
}
