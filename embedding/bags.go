package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// bags is one call of Bag on one rank. It works on those ids alone whose rows
// this rank has, that are in a bag and are not padding: the used ids, in order.
type bags struct {
	*lookup
	o      BagOptions
	scale  *dtensor.Tensor    // factors of the rows; nil: ones
	result []layout.Placement // of what the bags come to
	final  []layout.Placement // what it is brought to on axes that shard the bags

	count int            // bags on this rank
	at    []int64        // positions of the used ids among the local ids
	rows  *tensor.Tensor // [k] int64: their rows, counted from this rank's first
	bag   *tensor.Tensor // [k] int64: their bags
	bagOf []int64        // the same
	sizes []int          // how many ids of each bag are no padding, on all ranks
	won   []int32        // Max: the used id that gave each element, -1 for none here
}

// divide assigns the local ids to bags. starts is nil for bags of one length.
func (b *bags) divide(starts []int, local *tensor.Tensor) {
	ids := tensor.ToSlice[int64](tensor.Cast(local, tensor.Int64))
	b.count = len(starts) - 1
	if starts == nil {
		b.count = local.Dim(0)
		for i := range b.count + 1 {
			starts = append(starts, i*local.Dim(1))
		}
	}
	b.sizes = make([]int, b.count)
	var rows []int64
	for bag := range b.count {
		for i := starts[bag]; i < starts[bag+1]; i++ {
			if int(ids[i]) == b.s.padding {
				continue
			}
			b.sizes[bag]++
			if row := int(ids[i]) - b.lo; row >= 0 && row < b.n {
				b.at, b.bagOf, rows = append(b.at, int64(i)), append(b.bagOf, int64(bag)), append(rows, int64(row))
			}
		}
	}
	dev := local.Device()
	b.rows, b.bag = tensor.FromSlice(dev, rows, len(rows)), tensor.FromSlice(dev, b.bagOf, len(rows))
}

// forward returns this rank's part of the bags, [count, d].
func (b *bags) forward() *tensor.Tensor {
	if b.s.renorm {
		b.renormalize()
	}
	if b.o.Mode == Max {
		return pick(b.table.DType(), largest[float32], largest[float64])(b)
	}
	values := tensor.TakeRows(b.table, b.rows, 0) // [k, d]
	if f := b.factors(values.DType()); f != nil {
		tensor.BinaryTo(values, tensor.OpMul, values, f)
	}
	return b.pool(values)
}

// factors returns what the row of each used id is multiplied by, [k, 1]; nil: 1.
func (b *bags) factors(dt tensor.DType) *tensor.Tensor {
	k := len(b.at)
	dev := b.table.Device()
	switch {
	case b.scale != nil:
		flat := b.scale.Local().Reshape(b.scale.Local().Numel())
		return tensor.Cast(tensor.IndexSelect(flat, 0, tensor.FromSlice(dev, b.at, k)), dt).Reshape(k, 1)
	case b.o.Mode == Mean:
		f := make([]float64, k)
		for i, bag := range b.bagOf {
			f[i] = 1 / float64(b.sizes[bag])
		}
		return tensor.Cast(tensor.FromSlice(dev, f, k, 1), dt)
	}
	return nil
}

// pool adds up the rows [k, d] of each bag.
func (b *bags) pool(values *tensor.Tensor) *tensor.Tensor {
	var counts []int64 // of the bags that have a used id
	slot := make([]int64, b.count)
	for i := range slot {
		slot[i] = -1
	}
	for i, bag := range b.bagOf {
		if i == 0 || bag != b.bagOf[i-1] {
			slot[bag] = int64(len(counts))
			counts = append(counts, 0)
		}
		counts[len(counts)-1]++
	}
	dev, k, m := values.Device(), len(b.at), len(counts)
	segments := tensor.Uniq{Index: tensor.Arange(dev, tensor.Int64, 0, m), Count: tensor.FromSlice(dev, counts, m),
		Slot: b.bag, Order: tensor.Arange(dev, tensor.Int32, 0, k)}
	sums := segments.SumRows(values).Values
	return tensor.TakeRows(sums, tensor.FromSlice(dev, slot, b.count), 0)
}

// backward returns the gradients of the table and of the weights.
func (b *bags) backward(gy *dtensor.Tensor) (*dtensor.Rows, *dtensor.Tensor) {
	want := slices.Clone(b.result)
	for axis, place := range want {
		if place.IsPartial() {
			want[axis] = layout.Replicate()
		}
	}
	dy := gy.Redistribute(want...).Local()
	var values *tensor.Tensor // [k, d] the gradients of the used rows
	var scales *dtensor.Tensor
	if b.o.Mode == Max {
		values = pick(dy.DType(), largestGrad[float32], largestGrad[float64])(b, dy)
	} else {
		values = tensor.TakeRows(dy, b.bag, 0)
		if b.scale != nil {
			scales = b.scaleGrad(values)
		}
		if f := b.factors(values.DType()); f != nil {
			tensor.BinaryTo(values, tensor.OpMul, values, f)
		}
	}
	u := tensor.Unique(b.rows, 0, b.n)
	b.counts = nil // those of all ids, used or not
	return b.gradient(u.SumRows(values), u.Count), scales
}

// scaleGrad returns the gradient of the weights for the gradients [k, d] of the
// bags of the used ids: the products of rows and gradients. Ranks that have
// other rows or other columns have the rest of the sum.
func (b *bags) scaleGrad(dy *tensor.Tensor) *dtensor.Tensor {
	dots := tensor.Sum(tensor.Mul(tensor.TakeRows(b.table, b.rows, 0), dy), []int{1}, false)
	local := b.scale.Local()
	flat := tensor.Zeros(local.Device(), local.DType(), local.Numel())
	tensor.IndexAddTo(flat, 0, tensor.FromSlice(local.Device(), b.at, len(b.at)), tensor.Cast(dots, local.DType()))
	places := slices.Clone(b.scale.Placements())
	for _, axis := range slices.Concat(b.masked, b.columns) {
		places[axis] = layout.Partial(layout.Sum)
	}
	return b.mesh.Wrap(b.op, flat.Reshape(local.Shape()...), nil, false, b.scale.Shape(), places...)
}

// settle returns what the result is brought to: where ids were sharded by bags,
// so is it.
func (b *bags) settle() []layout.Placement {
	places := slices.Clone(b.result)
	for axis, place := range b.final {
		if place.IsShard() {
			places[axis] = place
		}
	}
	return places
}
