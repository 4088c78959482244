package embedding

import (
	"runtime"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/index"
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
// an *Error for a feature that the collection does not have.
func (p *Pooled) Feature(name string) *dtensor.Tensor {
	f := p.c.features[p.c.mustFind(name)]
	return p.values.Narrow(1, f.at, f.width)
}

// Bags looks up the lists of ids of all features and makes one row of each list:
// the sum of its rows, times the batch's weights if it has any, their mean or
// their maximum. A list that is empty gives zeros; ids that are a table's
// PaddingIdx are left out, as in Bag. The weights get no gradient, but those of
// PositionWeights do. Features that no
// table has are not looked at. With dtensor.Mesh.SameBits every rank gathers the whole
// batch first.
//
// Bags throws an *Error for a batch that lacks a feature, and an *IDError, on
// every rank, for an id that its table does not have.
func (c *Collection) Bags(j *Jagged) *Pooled {
	defer c.mesh.Span("Bags").End()
	const op = "Bags"
	at := c.columns(op, j)
	if c.mesh.SameBits() && c.mesh.Inside() { // each owner adds up the gradients of all samples in their order
		j = j.expanded()
		if all := j.gathered(); all != j {
			return &Pooled{c.Bags(all).Values().Redistribute(j.batch.Placements()...), c}
		}
	}
	shape, places := []int{j.Samples(), c.width}, j.batch.Placements()
	if !c.mesh.Inside() {
		return &Pooled{c.mesh.Wrap(op, tensor.New(c.mesh.Device(), c.dtype, 0), nil, false, shape, places...), c}
	}
	v := c.newLookup(op, j, at, false)
	if v.even() {
		return v.evenBags()
	}
	all := v.unpack(v.got)
	v.got = nil
	bags, inverses := make([]*pooling, len(c.features)), make([]*tensor.Tensor, len(c.features))
	params, rows := j.positionParams(at), make([]*tensor.Tensor, len(c.features))
	out := tensor.New(c.mesh.Device(), c.dtype, j.samples, c.width)
	for t := range c.tables {
		for i, f := range c.of[t] {
			bags[f] = v.pooling(t, i, f)
			y := bags[f].forward(all[t], nil)
			if inverse := j.inverse[at[f]]; inverse != nil { // the bags of the samples are copies
				inverses[f] = listOf(c.mesh.Device(), inverse)
				y = tensor.TakeRows(y, inverses[f], 0)
			}
			if j.positions[at[f]] != nil {
				rows[f] = all[t]
			}
			tensor.UnpackBox(out, []int{0, c.features[f].at}, y.Reshape(y.Numel()), 0, y.Shape())
		}
	}
	y := c.mesh.Wrap(op, out, nil, false, shape, places...)
	y = dtensor.Record(op, y, append(c.inputs(), params...), func(gy *dtensor.Tensor) []dtensor.Grad {
		dy := tensor.Widen(gy.Redistribute(places...).Local())
		factors := make([]*tensor.Tensor, len(c.features))
		grads := v.grads(func(t, i, f int) *tensor.Tensor {
			w := c.features[f].width
			d := tensor.New(dy.Device(), dy.DType(), j.samples, w)
			tensor.PackBox(d.Reshape(d.Numel()), 0, dy, []int{0, c.features[f].at}, d.Shape())
			if lists := len(j.lengthsOf(at[f])); inverses[f] != nil {
				d = tensor.DenseRows(tensor.Coalesce(inverses[f], d, 0, lists), lists)
			}
			d = bags[f].spread(d)
			if rows[f] != nil {
				factors[f] = j.positionGrad(at[f], bags[f], rows[f], d)
			}
			return bags[f].allIDs(bags[f].backward(d), j.idsOf(at[f]).Numel())
		})
		for f, its := range factors {
			if its != nil {
				grads = append(grads, dtensor.Dense(j.sumOfRanks(op, at[f], its)))
			}
		}
		return grads
	})
	return &Pooled{y, c}
}

// grads returns the gradients of the tables, where of gives those of the rows of
// a feature's ids: feature f, which is the i-th of table t.
func (v *batchLookup) grads(of func(t, i, f int) *tensor.Tensor) []dtensor.Grad {
	values := make([]*tensor.Tensor, len(v.c.tables))
	for t := range values {
		var parts []*tensor.Tensor
		for i, f := range v.c.of[t] {
			parts = append(parts, of(t, i, f))
		}
		if len(parts) == 0 {
			parts = append(parts, tensor.New(v.c.mesh.Device(), tensor.Float32, 0, v.c.tables[t].weight.Dim(1)))
		}
		values[t] = join(parts)
	}
	grads := make([]dtensor.Grad, len(values))
	for t, rows := range v.backward(values) {
		grads[t] = v.c.tables[t].take(rows)
	}
	return grads
}

// pooling divides the ids of feature f, the i-th of table t, into one bag a sample.
func (v *batchLookup) pooling(t, i, f int) *pooling {
	j, at := v.j, v.at[f]
	starts := make([]int, 1, len(j.lengthsOf(at))+1)
	for s, n := range j.lengthsOf(at) {
		starts = append(starts, starts[s]+n)
	}
	padding := -1
	if k, ok := find(v.distinct[t].Index, v.c.settings[t].padding); ok {
		padding = k
	}
	slots := tensor.Narrow(v.distinct[t].Slot, 0, v.first[t][i], j.idsOf(at).Numel())
	p := newPooling(v.mesh.Device(), v.c.modes[t], tensor.Read[int32](slots), starts, 0, v.distinct[t].Index.Numel(), padding)
	runtime.KeepAlive(slots)
	p.setScale(j.weightsOf(at), v.dtype.Wide())
	return p
}

// allIDs returns the rows [k, D] of the used ids as rows of all n ids, with zeros for the
// others.
func (p *pooling) allIDs(values *tensor.Tensor, n int) *tensor.Tensor {
	if p.used == n {
		return values
	}
	where := index.New[int64](p.dev, n)
	for i := range where.Elems {
		where.Elems[i] = -1
	}
	for i, at := range p.at.Elems[:p.used] {
		where.Elems[at] = int64(i)
	}
	return tensor.TakeRows(values, where.Tensor(p.dev, n), 0)
}
