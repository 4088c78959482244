package embedding

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Jagged is a batch of lists of ids: for each feature and each sample a list
// of any length, the input of a Collection. The samples may be sharded over axes
// of the mesh; a rank then holds the lists of its own samples.
//
//	            sample 0   sample 1   sample 2
//	"user"      4 9        1          (none)
//	"item"      7          7 2 5      8
//
// has the features user, item, the lengths 2 1 0 1 3 1 and the ids 4 9 1 7 7 2 5 8.
type Jagged struct {
	mesh     *dtensor.Mesh
	features []string
	batch    layout.Layout // [B] in global samples
	samples  int           // of this rank
	lengths  []int         // [features · samples], feature by feature
	starts   []int         // starts[f] is where the ids of feature f begin; one more for the end
	ids      *tensor.Tensor
	weights  *tensor.Tensor // one float32 for each id; nil: ones
}

// NewJagged makes a batch of samples global samples, in the given placements (of
// their one dimension; none: replicated). lengths and ids are those of this
// rank's samples, feature by feature; weights is a factor for each id, or nil.
// The slices are copied. A rank outside the mesh passes anything.
//
// What does not fit is returned as an error, on the rank that can see it.
func NewJagged(mesh *dtensor.Mesh, features []string, samples int, lengths []int, ids []int64, weights []float32,
	placements ...layout.Placement) (*Jagged, error) {
	if len(placements) == 0 {
		placements = make([]layout.Placement, len(mesh.Axes()))
	}
	axes, err := layout.NewAxes(mesh.Axes()...)
	if err != nil {
		return nil, err
	}
	batch, err := layout.New(axes, []int{samples}, placements...)
	if err != nil {
		return nil, fmt.Errorf("embedding: NewJagged: %w", err)
	}
	if batch.IsPartial() {
		return nil, fmt.Errorf("embedding: NewJagged: the samples are %v; use Replicate or Shard", batch)
	}
	for i, name := range features {
		if slices.Contains(features[:i], name) {
			return nil, fmt.Errorf("embedding: NewJagged: feature %q is given twice", name)
		}
	}
	j := &Jagged{mesh: mesh, features: slices.Clone(features), batch: batch}
	if !mesh.Inside() {
		return j, nil
	}
	_, j.samples = batch.Span(mesh.Coord(), 0)
	if want := len(features) * j.samples; len(lengths) != want {
		return nil, fmt.Errorf("embedding: NewJagged: %d lengths for %d features of the %d samples of this rank; give %d", len(lengths),
			len(features), j.samples, want)
	}
	j.lengths, j.starts = slices.Clone(lengths), make([]int, len(features)+1)
	for i, n := range lengths {
		f := i / max(j.samples, 1)
		if n < 0 {
			return nil, fmt.Errorf("embedding: NewJagged: the length of sample %d of feature %q is %d; lengths are not negative", i%j.samples,
				features[f], n)
		}
		j.starts[f+1] += n
	}
	for f := range features {
		j.starts[f+1] += j.starts[f]
	}
	if total := j.starts[len(features)]; len(ids) != total {
		return nil, fmt.Errorf("embedding: NewJagged: %d ids, but the lengths add up to %d", len(ids), total)
	}
	if weights != nil && len(weights) != len(ids) {
		return nil, fmt.Errorf("embedding: NewJagged: %d weights for %d ids; give one for each", len(weights), len(ids))
	}
	j.ids = tensor.FromSlice(mesh.Device(), ids, len(ids))
	if weights != nil {
		j.weights = tensor.FromSlice(mesh.Device(), weights, len(weights))
	}
	return j, nil
}

// Features returns the names of the features; do not modify it.
func (j *Jagged) Features() []string { return j.features }

// Samples returns the number of global samples.
func (j *Jagged) Samples() int { return j.batch.Dim(0) }

// Lengths returns how many ids each of this rank's samples has for a feature, nil
// on a rank outside the mesh; do not modify it. ok is false if there is no such
// feature.
func (j *Jagged) Lengths(feature string) (lengths []int, ok bool) {
	f := slices.Index(j.features, feature)
	if f < 0 {
		return nil, false
	}
	return j.lengthsOf(f), true
}

func (j *Jagged) lengthsOf(f int) []int {
	if j.lengths == nil {
		return nil
	}
	return j.lengths[f*j.samples : (f+1)*j.samples]
}

// idsOf returns this rank's ids of a feature, [n].
func (j *Jagged) idsOf(f int) *tensor.Tensor {
	return tensor.Narrow(j.ids, 0, j.starts[f], j.starts[f+1]-j.starts[f])
}

// weightsOf returns the factors of the ids of a feature, [n]; nil: ones.
func (j *Jagged) weightsOf(f int) *tensor.Tensor {
	if j.weights == nil {
		return nil
	}
	return tensor.Narrow(j.weights, 0, j.starts[f], j.starts[f+1]-j.starts[f])
}
