package embedding

import (
	"runtime"
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

	count int         // bags on this rank
	used  int         // k
	at    list[int64] // positions of the used ids among the local ids, ascending
	rows  list[int64] // their rows, counted from this rank's first
	bag   list[int64] // their bags
	sizes []int       // how many ids of each bag are no padding, on all ranks
	won   []int32     // Max: the used id that gave each element, -1 for none here
}

// tensor returns the first k numbers of a list on the device, [k].
func (b *bags) tensor(l list[int64]) *tensor.Tensor { return l.tensor(b.table.Device(), b.used) }

// divide assigns the local ids to bags. starts is nil for bags of one length.
func (b *bags) divide(starts []int, local *tensor.Tensor) {
	whole := tensor.Cast(local, tensor.Int64)
	ids := tensor.Read[int64](whole)
	b.count = len(starts) - 1
	if starts == nil {
		b.count = local.Dim(0)
	}
	dev := local.Device()
	b.sizes, b.at, b.rows, b.bag = make([]int, b.count), newList[int64](dev, len(ids)), newList[int64](dev, len(ids)), newList[int64](dev, len(ids))
	for bag := range b.count {
		var from, to int
		if starts != nil {
			from, to = starts[bag], starts[bag+1]
		} else {
			from, to = bag*local.Dim(1), (bag+1)*local.Dim(1)
		}
		for i := from; i < to; i++ {
			if int(ids[i]) == b.s.padding {
				continue
			}
			b.sizes[bag]++
			if row := int(ids[i]) - b.lo; row >= 0 && row < b.n {
				b.at.elems[b.used], b.rows.elems[b.used], b.bag.elems[b.used] = int64(i), int64(row), int64(bag)
				b.used++
			}
		}
	}
	runtime.KeepAlive(whole)
}

// forward returns this rank's part of the bags, [count, d].
func (b *bags) forward() *tensor.Tensor {
	if b.s.renorm {
		b.renormalize()
	}
	if b.o.Mode == Max {
		return tensor.Cast(pick(b.table.DType(), largest[float32], largest[float64])(b), b.table.DType())
	}
	values := b.taken()
	if f := b.factors(values.DType()); f != nil {
		tensor.BinaryTo(values, tensor.OpMul, values, f)
	}
	return tensor.Cast(b.pool(values), b.table.DType())
}

// taken returns the rows of the used ids, widened, [k, d].
func (b *bags) taken() *tensor.Tensor {
	return tensor.Widen(tensor.TakeRows(b.table, b.tensor(b.rows), 0))
}

// factors returns what the row of each used id is multiplied by, [k, 1]; nil: 1.
func (b *bags) factors(dt tensor.DType) *tensor.Tensor {
	switch {
	case b.scale != nil:
		flat := b.scale.Local().Reshape(b.scale.Local().Numel())
		return tensor.Cast(tensor.IndexSelect(flat, 0, b.tensor(b.at)), dt).Reshape(b.used, 1)
	case b.o.Mode == Mean:
		return pick(dt, evenShares[float32], evenShares[float64])(b)
	}
	return nil
}

// evenShares returns for each used id one over the size of its bag, [k, 1].
func evenShares[T float](b *bags) *tensor.Tensor {
	f := tensor.New(b.table.Device(), tensor.WideType(b.table.DType()), b.used, 1)
	tensor.Edit(f, func(share []T) {
		for i := range share {
			share[i] = T(1 / float64(b.sizes[b.bag.elems[i]]))
		}
	})
	return f
}

// pool adds up the rows [k, d] of each bag.
func (b *bags) pool(values *tensor.Tensor) *tensor.Tensor {
	dev := values.Device()
	starts, m := newList[int64](dev, b.count+1), 0 // of the bags that have a used id
	slot := newList[int64](dev, b.count)
	for i := range slot.elems {
		slot.elems[i] = -1
	}
	bagOf := b.bag.elems[:b.used]
	for i, bag := range bagOf {
		if i == 0 || bag != bagOf[i-1] {
			slot.elems[bag], starts.elems[m] = int64(m), int64(i)
			m++
		}
	}
	starts.elems[m] = int64(b.used)
	segments := tensor.Uniq{Index: tensor.Arange(dev, tensor.Int64, 0, m), Start: starts.tensor(dev, m+1),
		Slot: b.tensor(b.bag), Order: tensor.Arange(dev, tensor.Int32, 0, b.used)}
	sums := segments.SumRows(values).Values
	return tensor.TakeRows(sums, slot.tensor(dev, b.count), 0)
}

// backward returns the gradients of the table and of the weights.
func (b *bags) backward(gy *dtensor.Tensor) (*dtensor.Rows, *dtensor.Tensor) {
	dy := tensor.Widen(gy.Redistribute(reduced(b.result)...).Local())
	var values *tensor.Tensor // [k, d] the gradients of the used rows
	var scales *dtensor.Tensor
	if b.o.Mode == Max {
		values = pick(dy.DType(), largestGrad[float32], largestGrad[float64])(b, dy)
	} else {
		values = tensor.TakeRows(dy, b.tensor(b.bag), 0)
		if b.scale != nil {
			scales = b.scaleGrad(values)
		}
		if f := b.factors(values.DType()); f != nil {
			tensor.BinaryTo(values, tensor.OpMul, values, f)
		}
	}
	u := tensor.Unique(b.tensor(b.rows), 0, b.n)
	b.counts = nil // those of all ids, used or not
	return b.gradient(u.SumRows(values), u), scales
}

// scaleGrad returns the gradient of the weights for the gradients [k, d] of the
// bags of the used ids: the products of rows and gradients. Ranks that have
// other rows or other columns have the rest of the sum.
func (b *bags) scaleGrad(dy *tensor.Tensor) *dtensor.Tensor {
	dots := tensor.Sum(tensor.Mul(b.taken(), dy), []int{1}, false)
	local := b.scale.Local()
	flat := tensor.Zeros(local.Device(), local.DType(), local.Numel())
	tensor.IndexAddTo(flat, 0, b.tensor(b.at), tensor.Cast(dots, local.DType()))
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
	layout.Refit(places, b.result)
	return places
}
