package embedding

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// PositionWeights are factors of the rows of some features by the position of the id in
// its list, which are trained with the tables: what torchrec calls a position-weighted
// feature processor. The tables of the features have Mode Sum.
//
//	recent, err := embedding.NewPositionWeights(mesh, []string{"clicked"}, []int{50})
//	...
//	batch, err = recent.Apply(batch)
//	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
//		x := tables.Bags(batch).Values() // bag = Σ weight[position] · row
//		...
//	}, append(tables.Params(), recent.Params()...)...)
type PositionWeights struct {
	mesh     *dtensor.Mesh
	features []string
	weights  []*dtensor.Tensor // by feature: [most] float32 on every rank
}

// NewPositionWeights makes factors of one, for each feature as many as the longest of its
// lists may have ids.
func NewPositionWeights(mesh *dtensor.Mesh, features []string, most []int) (_ *PositionWeights, err error) {
	defer fault.Locate(&err)
	if len(most) != len(features) {
		return nil, fmt.Errorf("embedding: NewPositionWeights: %d lengths for %d features; give one for each", len(most), len(features))
	}
	p := &PositionWeights{mesh: mesh, features: slices.Clone(features)}
	for f, name := range features {
		switch {
		case slices.Contains(features[:f], name):
			return nil, fmt.Errorf("embedding: NewPositionWeights: feature %q is given twice", name)
		case most[f] < 0:
			return nil, fmt.Errorf("embedding: NewPositionWeights: lists of feature %q have up to %d ids; that is not negative", name, most[f])
		}
		w := dtensor.Full(mesh, tensor.Float32, 1, []int{most[f]}, mesh.Every(layout.Replicate())...)
		w.Local().Persist()
		p.weights = append(p.weights, w)
	}
	return p, nil
}

// Params returns the factors of each feature, [most]: what to train.
func (p *PositionWeights) Params() []*dtensor.Tensor { return p.weights }

// Apply returns the batch with these factors, as they are at each lookup. It returns an
// error, on the rank that can see it, for a list that is longer than there are factors,
// and for a feature that the batch has not or that has weights already.
func (p *PositionWeights) Apply(j *Jagged) (_ *Jagged, err error) {
	defer fault.Locate(&err)
	if j.mesh != p.mesh {
		return nil, fmt.Errorf("embedding: Apply: the batch is on mesh %v and the factors on another, %v; make it on theirs", j.mesh, p.mesh)
	}
	all := *j
	all.positions = slices.Clone(j.positions)
	for i, name := range p.features {
		f := slices.Index(j.features, name)
		if f < 0 {
			return nil, fmt.Errorf("embedding: Apply: the batch has no feature %q; it has %s", name, j.featureNames())
		}
		if j.weighs(f) {
			return nil, fmt.Errorf("embedding: Apply: feature %q has weights already; give it none", name)
		}
		for list, n := range j.lengthsOf(f) {
			if most := p.weights[i].Dim(0); n > most {
				return nil, fmt.Errorf("embedding: Apply: list %d of feature %q has %d ids, and there are factors for %d; cut it or make more", list,
					name, n, most)
			}
		}
		all.positions[f] = p.weights[i]
	}
	return &all, nil
}

// weighs reports whether the ids of a feature have factors.
func (j *Jagged) weighs(f int) bool { return j.weighted[f] || j.positions[f] != nil }

// positionParams returns the factors by position of those features that have some, which
// are at these places in the batch.
func (j *Jagged) positionParams(at []int) (params []*dtensor.Tensor) {
	for _, f := range at {
		if j.positions[f] != nil {
			params = append(params, j.positions[f])
		}
	}
	return params
}

// positionsOf returns the position of each id of a feature in its list, [n].
func (j *Jagged) positionsOf(f int) *tensor.Tensor {
	var at []int
	for _, n := range j.lengthsOf(f) {
		for i := range n {
			at = append(at, i)
		}
	}
	return listOf(j.mesh.Device(), at)
}

// listOf returns numbers as a tensor.
func listOf(dev tensor.Device, numbers []int) *tensor.Tensor {
	list := make([]int64, len(numbers))
	for i, n := range numbers {
		list[i] = int64(n)
	}
	return tensor.FromSlice(dev, list, len(list))
}

// positionGrad returns the gradient of a feature's factors by position, [most], on this
// rank: of each used id the product of its row and of dy, [k, D], which is that of its bag.
func (j *Jagged) positionGrad(f int, p *pooling, rows, dy *tensor.Tensor) *tensor.Tensor {
	grad := tensor.Zeros(j.mesh.Device(), tensor.Float32, j.positions[f].Dim(0))
	dots := tensor.Sum(tensor.Mul(tensor.Widen(p.rows(rows)), dy), []int{1}, false)
	tensor.IndexAddTo(grad, 0, tensor.IndexSelect(j.positionsOf(f), 0, p.tensor(p.at)), dots)
	return grad
}

// sumOfRanks returns what this rank has of the gradient of a feature's factors as that of
// all ranks with other samples.
func (j *Jagged) sumOfRanks(op string, f int, mine *tensor.Tensor) *dtensor.Tensor {
	places := j.batch.Placements()
	for axis, p := range places {
		if p.IsShard() {
			places[axis] = layout.Partial(layout.Sum)
		}
	}
	return j.mesh.Wrap(op, mine, nil, false, j.positions[f].Shape(), places...)
}
