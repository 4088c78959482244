package embedding

import (
	"runtime"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// Pooled is what Bags returns: one row for each sample and feature.
type Pooled struct {
	values *dtensor.Tensor
	c      *Collection
}

// Values returns the rows of all features side by side, [B, ΣD], in the order of
// the collection's tables and of the features of each, in the batch's placements.
func (p *Pooled) Values() *dtensor.Tensor { return p.values }

// Feature returns the rows of one feature, [B, D]: a part of Values. It throws
// an *Error for a feature that the collection has not.
func (p *Pooled) Feature(name string) *dtensor.Tensor {
	f := p.c.features[p.c.mustFind(name)]
	return p.values.Narrow(1, f.at, f.width)
}

// Bags looks up the lists of ids of all features and makes one row of each list:
// the sum of its rows, times the batch's weights if it has any, their mean or
// their maximum. A list that is empty gives zeros; ids that are a table's
// PaddingIdx are left out, as in Bag. The weights get no gradient. Features that no
// table has are not looked at.
//
// Bags throws an *Error for a batch that lacks a feature, and an *IDError, on
// every rank, for an id that its table has not.
func (c *Collection) Bags(j *Jagged) *Pooled {
	const op = "Bags"
	at := c.columns(op, j)
	shape, places := []int{j.Samples(), c.width}, j.batch.Placements()
	if !c.mesh.Inside() {
		return &Pooled{c.mesh.Wrap(op, tensor.New(c.mesh.Device(), c.dtype, 0), nil, false, shape, places...), c}
	}
	v := c.newVisit(op, j, at, false)
	v.fetch()
	bags := make([]*poolings, len(c.features))
	out := tensor.New(c.mesh.Device(), c.dtype, j.samples, c.width)
	for t := range c.tables {
		for i, f := range c.of[t] {
			bags[f] = v.poolings(t, i, f)
			y := bags[f].sum(v.rows[t])
			tensor.UnpackBox(out, []int{0, c.features[f].at}, y.Reshape(y.Numel()), 0, y.Shape())
		}
	}
	v.rows = nil
	y := c.mesh.Wrap(op, out, nil, false, shape, places...)
	y = dtensor.Record(op, y, c.inputs(), func(gy *dtensor.Tensor) []dtensor.Grad {
		dy := tensor.Widen(gy.Redistribute(places...).Local())
		return v.grads(func(t, i, f int) *tensor.Tensor {
			w := c.features[f].width
			d := tensor.New(dy.Device(), dy.DType(), j.samples, w)
			tensor.PackBox(d.Reshape(d.Numel()), 0, dy, []int{0, c.features[f].at}, d.Shape())
			return bags[f].grad(d)
		})
	})
	return &Pooled{y, c}
}

// grads returns the gradients of the tables, where of gives those of the rows of
// a feature's ids: feature f, which is the i-th of table t.
func (v *visit) grads(of func(t, i, f int) *tensor.Tensor) []dtensor.Grad {
	values := make([]*tensor.Tensor, len(v.c.tables))
	for t := range values {
		parts := []*tensor.Tensor{tensor.New(v.c.mesh.Device(), tensor.Float32, 0, v.c.tables[t].weight.Dim(1))}
		for i, f := range v.c.of[t] {
			parts = append(parts, of(t, i, f))
		}
		if len(parts) == 2 {
			parts = parts[1:]
		}
		values[t] = tensor.Cat(0, parts...)
	}
	grads := make([]dtensor.Grad, len(values))
	for t, rows := range v.backward(values) {
		grads[t] = v.c.tables[t].take(rows)
	}
	return grads
}

// poolings is how the rows of one feature's ids become one for each sample.
type poolings struct {
	slots  *tensor.Tensor // [n]: which of the distinct rows each id is, -1: none
	bag    *tensor.Tensor // [n]: the sample of each id
	starts *tensor.Tensor // [m+1]: where the ids of the samples that have some begin
	slot   *tensor.Tensor // by sample: its place in starts, -1: none
	scale  *tensor.Tensor // [n, 1] factors of the rows; nil: ones
	single bool           // each sample has one id
	most   bool           // their maximum, not their sum
	won    []int32        // then: the id that gave each element, -1: none
}

func (v *visit) poolings(t, i, f int) *poolings {
	lengths := v.j.lengthsOf(v.at[f])
	n := v.j.idsOf(v.at[f]).Numel()
	dev := v.c.mesh.Device()
	p := &poolings{slots: tensor.Narrow(v.uniq[t].Slot, 0, v.first[t][i], n), single: true, most: v.c.modes[t] == Max}
	v.dropPadding(t, p)
	bag, starts, slot := newList[int64](dev, n), newList[int64](dev, len(lengths)+1), newList[int64](dev, len(lengths))
	at, m := 0, 0
	for s, k := range lengths {
		p.single = p.single && k == 1
		if slot.elems[s] = -1; k > 0 {
			slot.elems[s], starts.elems[m] = int64(m), int64(at)
			m++
		}
		for range k {
			bag.elems[at] = int64(s)
			at++
		}
	}
	starts.elems[m] = int64(at)
	p.bag, p.starts, p.slot = bag.tensor(dev, n), starts.tensor(dev, m+1), slot.tensor(dev, len(lengths))
	switch w := v.j.weightsOf(v.at[f]); {
	case w != nil:
		p.scale = w.Reshape(n, 1)
	case v.c.modes[t] == Mean && !p.single:
		p.scale = p.means(lengths)
	}
	return p
}

// means returns for each id one over how many of its sample are no padding, [n, 1].
func (p *poolings) means(lengths []int) *tensor.Tensor {
	scale := tensor.New(p.slots.Device(), tensor.Float32, p.slots.Numel(), 1)
	slots := tensor.Read[int32](p.slots)
	tensor.Edit(scale, func(share []float32) {
		at := 0
		for _, k := range lengths {
			used := 0
			for _, slot := range slots[at : at+k] {
				if slot >= 0 {
					used++
				}
			}
			for i := range k {
				share[at+i] = 1 / float32(max(used, 1))
			}
			at += k
		}
	})
	runtime.KeepAlive(p.slots)
	return scale
}

// dropPadding makes the slots of padding ids -1.
func (v *visit) dropPadding(t int, p *poolings) {
	k, ok := find(v.uniq[t].Index, v.c.settings[t].padding)
	if !ok {
		return
	}
	p.slots = tensor.Clone(p.slots)
	tensor.Edit(p.slots, func(slots []int32) {
		for i, s := range slots {
			if int(s) == k {
				slots[i] = -1
			}
		}
	})
}

// sum returns the rows of the samples, [b, D], from the distinct rows [U, D].
func (p *poolings) sum(rows *tensor.Tensor) *tensor.Tensor {
	dt := rows.DType()
	if p.most && !p.single {
		return tensor.Cast(p.largest(tensor.Widen(rows)), dt)
	}
	values := tensor.TakeRows(rows, p.slots, 0) // [n, D]
	if p.single && p.scale == nil {
		return values
	}
	values = tensor.Widen(values)
	if p.scale != nil {
		tensor.BinaryTo(values, tensor.OpMul, values, p.scale)
	}
	if p.single {
		return tensor.Cast(values, dt)
	}
	dev := values.Device()
	segments := tensor.Uniq{Index: tensor.Arange(dev, tensor.Int64, 0, p.starts.Numel()-1), Start: p.starts,
		Slot: p.bag, Order: tensor.Arange(dev, tensor.Int32, 0, p.bag.Numel())}
	return tensor.TakeRows(tensor.Cast(segments.SumRows(values).Values, dt), p.slot, 0)
}

// grad returns the gradients of the rows of the ids, [n, D], from those of the
// samples.
func (p *poolings) grad(dy *tensor.Tensor) *tensor.Tensor {
	values := dy
	switch {
	case p.single:
	case p.most:
		return p.largestGrad(dy)
	default:
		values = tensor.TakeRows(dy, p.bag, 0)
	}
	if p.scale != nil {
		values = tensor.Mul(values, p.scale)
	}
	return values
}

// largest returns the maxima of the samples, [b, D], from the distinct rows
// [U, D]: of equal ones the first, and NaN before all numbers.
func (p *poolings) largest(rows *tensor.Tensor) *tensor.Tensor {
	d, table := rows.Dim(1), tensor.Read[float32](rows)
	out := make([]float32, p.slot.Numel()*d)
	p.won = make([]int32, len(out))
	for i := range p.won {
		p.won[i] = -1
	}
	slots, bags := tensor.Read[int32](p.slots), tensor.Read[int64](p.bag)
	for i, slot := range slots {
		if slot < 0 {
			continue
		}
		at := int(bags[i]) * d
		for k, x := range table[int(slot)*d : int(slot+1)*d] {
			if best := out[at+k]; p.won[at+k] < 0 || x > best || x != x && best == best {
				out[at+k], p.won[at+k] = x, int32(i)
			}
		}
	}
	runtime.KeepAlive(rows)
	runtime.KeepAlive(p.slots)
	runtime.KeepAlive(p.bag)
	return tensor.FromSlice(rows.Device(), out, p.slot.Numel(), d)
}

// largestGrad returns the gradients of the rows of the ids, [n, D]: each element
// of a sample's goes to the row that gave it.
func (p *poolings) largestGrad(dy *tensor.Tensor) *tensor.Tensor {
	d := dy.Dim(1)
	values := make([]float32, p.bag.Numel()*d)
	defer runtime.KeepAlive(dy)
	for i, g := range tensor.Read[float32](dy) {
		if k := p.won[i]; k >= 0 {
			values[int(k)*d+i%d] = g
		}
	}
	return tensor.FromSlice(dy.Device(), values, p.bag.Numel(), d)
}
