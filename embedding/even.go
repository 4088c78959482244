package embedding

import (
	"runtime"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/tensor"
)

// even reports whether each feature has one id for each sample and rows of one width, and all that is wanted of a
// row comes whole, as in most recommender systems. Then the bags are the rows themselves:
//
//	out [B, F·D]   is   [B·F, D]   of which row b·F+f is that of sample b and feature f
func (v *batchLookup) even() bool {
	j, features := v.j, v.c.features
	if len(features) == 0 || j.samples == 0 || features[0].width == 0 {
		return false
	}
	for f := range features {
		at := v.at[f]
		if features[f].width != features[0].width || j.inverse[at] != nil || j.positions[at] != nil || j.weighted[at] {
			return false
		}
		for _, n := range j.lengthsOf(at) {
			if n != 1 {
				return false
			}
		}
	}
	for t := range v.tables {
		if _, ok := find(v.distinct[t].Index, v.c.settings[t].padding); ok {
			return false
		}
		for i := range v.replyPeers {
			if _, n := v.segment(&v.replyPeers[i], t); n > 0 && v.replyPeers[i].boxes[t].columns != v.tables[t].width {
				return false
			}
		}
	}
	return true
}

// evenBags is Bags if even: one copy of all rows, from where they have come to where they are wanted.
func (v *batchLookup) evenBags() *Pooled {
	const op = "Bags"
	c, j := v.c, v.j
	features, width := len(c.features), c.features[0].width
	dev, places := c.mesh.Device(), j.batch.Placements()
	from := v.places()
	list := index.New[int64](dev, j.samples*features)
	for t := range c.tables {
		slots := tensor.Read[int32](v.distinct[t].Slot)
		for i, f := range c.of[t] {
			for b, slot := range slots[v.first[t][i]:][:j.samples] {
				list.Elems[b*features+f] = from[t][slot]
			}
		}
		runtime.KeepAlive(v.distinct[t].Slot)
	}
	which := list.Tensor(dev, j.samples*features)
	rows := v.got.Reshape(v.got.Numel()/width, width)
	out := tensor.TakeRows(rows, which, 0).Reshape(j.samples, features*width)
	v.got = nil
	y := c.mesh.Wrap(op, out, nil, false, []int{j.Samples(), c.width}, places...)
	return &Pooled{dtensor.Record(op, y, c.inputs(), func(gy *dtensor.Tensor) []dtensor.Grad {
		dy := tensor.Widen(gy.Redistribute(places...).Local()).Reshape(j.samples*features, width)
		sums := make([]*tensor.Tensor, len(c.tables))
		for t, u := range v.distinct {
			values, n := dy, u.Order.Numel()
			row := func(at int) int { return at%j.samples*features + c.of[t][at/j.samples] } // of dy, of an id of this table
			switch {
			case len(c.of[t]) == 0:
				values = tensor.New(dev, dy.DType(), 0, v.tables[t].width)
			case c.mesh.SameBits(): // where rows lie decides how they are added up: they lie as those of other Bags do
				its := index.New[int64](dev, n)
				for at := range its.Elems {
					its.Elems[at] = int64(row(at))
				}
				values = tensor.TakeRows(dy, its.Tensor(dev, n), 0)
			default: // the ids of this table are some of the rows of dy
				order := index.New[int32](dev, n)
				for k, at := range tensor.Read[int32](u.Order) {
					order.Elems[k] = int32(row(int(at)))
				}
				runtime.KeepAlive(u.Order)
				u.Order, u.Slot = order.Tensor(dev, n), which // of which SumRows wants the size alone
			}
			sums[t] = v.tables[t].sumRows(u, values).Values
		}
		grads := make([]dtensor.Grad, len(c.tables))
		for t, rows := range v.gradients(v.giveBack(sums)) {
			grads[t] = c.tables[t].take(rows)
		}
		return grads
	}), c}
}

// places returns by table where the distinct rows of this rank's ids are among all that have come, if each is whole.
func (v *batchLookup) places() [][]int64 {
	places := make([][]int64, len(v.tables))
	for t := range places {
		places[t] = make([]int64, v.distinct[t].Index.Numel())
	}
	next := int64(0)
	for i := range v.replyPeers {
		for t := range v.tables {
			first, n := v.segment(&v.replyPeers[i], t)
			for k := first; k < first+n; k++ {
				places[t][k] = next
				next++
			}
		}
	}
	return places
}
