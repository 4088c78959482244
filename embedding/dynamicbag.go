package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
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
	var params []*dtensor.Tensor
	if weights != nil {
		params = append(params, weights)
	}
	b.gradient = b.places
	return b.lookUp(op, mode, params, func(p *pooling, rows, dy *tensor.Tensor) *dtensor.Tensor {
		return b.factorGrad(op, weights, tensor.Sum(tensor.Mul(tensor.Widen(p.rows(rows)), dy), []int{1}, false))
	})
}

// Bags looks up the lists of keys that a batch has for a feature and makes one row of each list, as Collection.Bags does of
// ids: samples stay where they are, and each rank has lists of its own. A Collection that the table is one of looks up its lists
// with those of all other tables.
//
//	j of B samples   →   [B, D], placed as the samples are
//
// Lists may have weights, for Mode Sum, which get no gradient, or factors by position, which do: see PositionWeights. A list
// without keys gives zeros. Where the samples are replicated over the axis of the table, its ranks divide the lists, and what
// they make of them is added up. With same bits every rank gathers the whole batch first.
//
// Bags throws an *Error for a batch that lacks the feature or is on another mesh, and for weights with another Mode than Sum.
func (d *Dynamic) Bags(j *Jagged, feature string, mode Mode) *dtensor.Tensor {
	const op = "Bags"
	mesh, f := d.mesh(), slices.Index(j.features, feature)
	switch {
	case j.mesh != mesh:
		refuse(op, "the batch is on mesh %v and %v on another, %v; make it on that of the table", j.mesh, d, mesh)
	case f < 0:
		refuse(op, "the batch for %v has no feature %q; it has %s", d, feature, j.featureNames())
	case mode >= modes:
		refuse(op, "Mode is %d; use Mean, Sum or Max", mode)
	case j.weighs(f) && mode != Sum:
		refuse(op, "feature %q has weights, and Mode is %v; they are for Sum", feature, mode)
	}
	places := j.batch.Placements()
	b := dynamicBags{d: d, count: j.Samples(), places: slices.Clone(places), gradient: places, final: places}
	if !mesh.Inside() {
		return b.lookUp(op, mode, nil, nil)
	}
	j = j.expanded()
	if mesh.SameBits() {
		return d.bagsOfAll(j.gathered(), f, mode).Redistribute(places...)
	}
	if axis := d.axis; !places[axis].IsShard() && mesh.Axes()[axis].Size > 1 {
		j = j.share(f, axis)
		b.places[axis] = layout.Partial(layout.Sum)
	}
	b.keys, b.factors = j.idsOf(f), j.weightsOf(f)
	b.starts = append(b.starts, 0)
	for i, n := range j.lengthsOf(f) {
		b.starts = append(b.starts, b.starts[i]+n)
	}
	return b.lookUp(op, mode, j.positionParams([]int{f}), func(p *pooling, rows, dy *tensor.Tensor) *dtensor.Tensor {
		return j.sumOfRanks(op, f, j.positionGrad(f, p, rows, dy))
	})
}

// share returns the batch, whose samples are replicated over an axis, with those lists of feature f alone that this rank is to
// look up: the others are empty.
func (j *Jagged) share(f, axis int) *Jagged {
	size, lengths := j.mesh.Axes()[axis].Size, slices.Clone(j.lengthsOf(f))
	sizes := layout.ChunkSizes(len(lengths), size)
	first := ints.Sum(sizes[:j.mesh.Coord()[axis]])
	end := first + sizes[j.mesh.Coord()[axis]]
	before, n := ints.Sum(lengths[:first]), ints.Sum(lengths[first:end])
	clear(lengths[:first])
	clear(lengths[end:])
	its := *j
	its.lengths, its.lists, its.starts = lengths, make([]int, len(j.lists)), make([]int, len(j.starts))
	for g := range j.features {
		if g >= f {
			its.lists[g+1], its.starts[g+1] = len(lengths), n
		}
	}
	its.ids = tensor.Narrow(j.idsOf(f), 0, before, n)
	if j.weights != nil {
		its.weights = tensor.Narrow(j.weights, 0, j.starts[f]+before, n)
	}
	places := j.batch.Placements()
	places[axis] = layout.Shard(0) // so that sumOfRanks adds up what these ranks have
	its.batch, _ = layout.New(j.mesh.LayoutAxes(), []int{j.Samples()}, places...)
	return &its
}

// lookUp looks up the bags. params are factors of the rows that get a gradient, none or one, which factorGrad computes from the
// rows that were looked up and the gradient dy of those of the used keys, [k, D].
func (b *dynamicBags) lookUp(op string, mode Mode, params []*dtensor.Tensor,
	factorGrad func(p *pooling, rows, dy *tensor.Tensor) *dtensor.Tensor) *dtensor.Tensor {
	d, mesh := b.d, b.d.mesh()
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
	out = dtensor.Record(op, out, append(inputs, params...), func(gy *dtensor.Tensor) []dtensor.Grad {
		values := p.spread(tensor.Widen(gy.Redistribute(b.gradient...).Local()))
		var grads []dtensor.Grad
		if len(params) > 0 {
			grads = append(grads, dtensor.Dense(factorGrad(p, l.rows, values)))
		}
		rows := l.backward(p.backward(values))
		return append([]dtensor.Grad{d.table.take(rows)}, grads...)
	})
	return out.Redistribute(b.final...)
}

// dynamicBags are the bags of one lookup that this rank makes.
type dynamicBags struct {
	d        *Dynamic
	count    int                // on all ranks
	places   []layout.Placement // of the bags as they are made
	gradient []layout.Placement // of their gradient
	final    []layout.Placement // of what the caller gets
	keys     *tensor.Tensor     // [n], of this rank's bags
	factors  *tensor.Tensor     // [n]; nil: ones
	starts   []int              // where this rank's bags begin in keys, and the last one ends
	byKey    []layout.Placement // of keys as this rank has them
	rows     int                // of dimension 0 of these
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
	b.d.divide(b.places)
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

// bagsOfAll returns the bags of feature f of a batch that each rank has, with same bits.
func (d *Dynamic) bagsOfAll(j *Jagged, f int, mode Mode) *dtensor.Tensor {
	every := d.mesh().Every(layout.Replicate())
	list := func(x *tensor.Tensor) *dtensor.Tensor {
		return d.mesh().Wrap("Bags", x, nil, false, x.Shape(), every...)
	}
	var offsets []int
	at := 0
	for _, n := range j.lengthsOf(f) {
		offsets, at = append(offsets, at), at+n
	}
	var weights *dtensor.Tensor
	if j.positions[f] != nil {
		weights = j.positions[f].IndexSelect(0, list(j.positionsOf(f)))
	} else if its := j.weightsOf(f); its != nil {
		weights = list(its)
	}
	return d.Bag(list(j.idsOf(f)), list(listOf(d.mesh().Device(), offsets)), weights, mode)
}

// bagOfAll is Bag with same bits.
func (d *Dynamic) bagOfAll(keys, offsets, weights *dtensor.Tensor, mode Mode) *dtensor.Tensor {
	all, final := placeBags(d.table.weight, keys)
	none := func(int64) bool { return false }
	return bagsOf(d.Lookup(all.Reshape(all.Numel())), all, offsets, weights, BagOptions{Mode: mode}, none, final)
}
