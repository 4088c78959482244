package embedding

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
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
	lengths  []int         // of the lists of this rank, feature by feature
	lists    []int         // lists[f] is where the lengths of feature f begin; one more for the end
	starts   []int         // starts[f] is where the ids of feature f begin; one more for the end
	ids      *tensor.Tensor
	weights  *tensor.Tensor // one float32 for each id; nil: ones

	weighted  []bool            // by feature: weights are those that were given, else ones
	inverse   [][]int           // by feature: the list of each sample; nil: the s-th is that of sample s
	positions []*dtensor.Tensor // by feature: factors by the position of an id in its list, see PositionWeights; nil: none
}

// Lists are what a batch has of one feature on one rank.
type Lists struct {
	Feature string
	Lengths []int     // of the lists
	IDs     []int64   // of all lists, one after the other
	Weights []float32 // a factor for each id; nil: ones
	// Inverse names for each of this rank's samples its list, counted from 0. Lists that
	// samples repeat are then looked up, pooled and trained once. nil: each sample has one,
	// in their order.
	Inverse []int
}

// NewJagged makes a batch of samples global samples, in the given placements (of
// their one dimension; none: replicated). lengths and ids are those of this
// rank's samples, feature by feature; weights is a factor for each id, or nil.
// The slices are copied. A rank outside the mesh passes anything.
//
// What does not fit is returned as an error, on the rank that can see it.
func NewJagged(mesh *dtensor.Mesh, features []string, samples int, lengths []int, ids []int64, weights []float32,
	placements ...layout.Placement) (_ *Jagged, err error) {
	defer fault.Locate(&err)
	j, err := newBatch("NewJagged", mesh, features, samples, placements)
	if err != nil || !mesh.Inside() {
		return j, err
	}
	if want := len(features) * j.samples; len(lengths) != want {
		return nil, fmt.Errorf("embedding: NewJagged: %d lengths for %d features of the %d samples of this rank; give %d", len(lengths),
			len(features), j.samples, want)
	}
	for f := range features {
		j.lists[f+1] = (f + 1) * j.samples
	}
	j.lengths = slices.Clone(lengths)
	if err := j.measure("NewJagged", "sample"); err != nil {
		return nil, err
	}
	if total := j.starts[len(features)]; len(ids) != total {
		return nil, fmt.Errorf("embedding: NewJagged: %d ids, but the lengths of this rank's samples add up to %d; give one for each",
			len(ids), total)
	}
	if weights != nil && len(weights) != len(ids) {
		return nil, fmt.Errorf("embedding: NewJagged: %d weights for %d ids; give one for each", len(weights), len(ids))
	}
	j.ids = tensor.FromSlice(mesh.Device(), ids, len(ids))
	if weights != nil {
		j.weights, j.weighted = tensor.FromSlice(mesh.Device(), weights, len(weights)), slices.Repeat([]bool{true}, len(features))
	}
	return j, nil
}

// JaggedOf makes a batch as NewJagged does, feature by feature: some may have weights, and
// samples may share lists. A feature whose samples repeat lists, as those of one session
// do, is given each list once, with the list of each sample in Inverse; so features have
// batches of their own sizes, on each rank another one.
//
//	sample 0   sample 1   sample 2
//	4 9        4 9        1          Lengths 2 1   IDs 4 9 1   Inverse 0 0 1
//
// Every list is that of a sample. Bags are as without Inverse, up to the order in which
// gradients of repeated lists are added up.
func JaggedOf(mesh *dtensor.Mesh, samples int, lists []Lists, placements ...layout.Placement) (_ *Jagged, err error) {
	defer fault.Locate(&err)
	const op = "JaggedOf"
	names := make([]string, len(lists))
	for f := range lists {
		names[f] = lists[f].Feature
	}
	j, err := newBatch(op, mesh, names, samples, placements)
	if err != nil || !mesh.Inside() {
		return j, err
	}
	var ids []int64
	var weights []float32
	some := false
	for f := range lists {
		l := &lists[f]
		j.lengths = append(j.lengths, l.Lengths...)
		j.lists[f+1] = len(j.lengths)
		ids = append(ids, l.IDs...)
		j.weighted[f] = l.Weights != nil
		some = some || j.weighted[f]
		switch {
		case l.Inverse == nil && len(l.Lengths) != j.samples:
			return nil, fmt.Errorf("embedding: JaggedOf: %d lengths of feature %q for the %d samples of this rank; give %d, or Inverse",
				len(l.Lengths), l.Feature, j.samples, j.samples)
		case l.Inverse != nil && len(l.Inverse) != j.samples:
			return nil, fmt.Errorf("embedding: JaggedOf: Inverse of feature %q names the lists of %d samples; this rank has %d", l.Feature,
				len(l.Inverse), j.samples)
		case l.Weights != nil && len(l.Weights) != len(l.IDs):
			return nil, fmt.Errorf("embedding: JaggedOf: %d weights for %d ids of feature %q; give one for each", len(l.Weights), len(l.IDs),
				l.Feature)
		}
		if err := j.setInverse(f, l); err != nil {
			return nil, err
		}
	}
	if err := j.measure(op, "list"); err != nil {
		return nil, err
	}
	for f := range lists {
		if n := j.starts[f+1] - j.starts[f]; n != len(lists[f].IDs) {
			return nil, fmt.Errorf("embedding: JaggedOf: %d ids of feature %q, but the lengths add up to %d; give one for each",
				len(lists[f].IDs), names[f], n)
		}
	}
	if some {
		for f := range lists {
			if lists[f].Weights == nil {
				weights = append(weights, slices.Repeat([]float32{1}, len(lists[f].IDs))...)
			}
			weights = append(weights, lists[f].Weights...)
		}
		j.weights = tensor.FromSlice(mesh.Device(), weights, len(weights))
	}
	j.ids = tensor.FromSlice(mesh.Device(), ids, len(ids))
	return j, nil
}

// setInverse takes which list of feature f each sample has.
func (j *Jagged) setInverse(f int, l *Lists) error {
	if l.Inverse == nil {
		return nil
	}
	used := make([]bool, len(l.Lengths))
	for s, list := range l.Inverse {
		if list < 0 || list >= len(used) {
			return fmt.Errorf("embedding: JaggedOf: Inverse[%d] of feature %q is %d; its lists are from 0 to %d", s, l.Feature, list, len(used)-1)
		}
		used[list] = true
	}
	if list := slices.Index(used, false); list >= 0 {
		return fmt.Errorf("embedding: JaggedOf: list %d of feature %q is that of no sample; leave it out", list, l.Feature)
	}
	j.inverse[f] = slices.Clone(l.Inverse)
	return nil
}

// newBatch makes a batch without lists.
func newBatch(op string, mesh *dtensor.Mesh, features []string, samples int, placements []layout.Placement) (*Jagged, error) {
	if len(placements) == 0 {
		placements = make([]layout.Placement, len(mesh.Axes()))
	}
	batch, err := layout.New(mesh.LayoutAxes(), []int{samples}, placements...)
	if err != nil {
		return nil, fmt.Errorf("embedding: %s: %w", op, err)
	}
	if batch.IsPartial() || batch.Cyclic() >= 0 {
		return nil, fmt.Errorf("embedding: %s: the samples are %v; use Replicate or Shard", op, batch)
	}
	for i, name := range features {
		if slices.Contains(features[:i], name) {
			return nil, fmt.Errorf("embedding: %s: feature %q is given twice", op, name)
		}
	}
	k := len(features)
	j := &Jagged{mesh: mesh, features: slices.Clone(features), batch: batch, lists: make([]int, k+1), starts: make([]int, k+1),
		weighted: make([]bool, k), inverse: make([][]int, k), positions: make([]*dtensor.Tensor, k)}
	if mesh.Inside() {
		_, j.samples = batch.Span(mesh.Coord(), 0)
	}
	return j, nil
}

// measure works out where the ids of each feature begin.
func (j *Jagged) measure(op, what string) error {
	for f := range j.features {
		j.starts[f+1] = j.starts[f]
		for i, n := range j.lengthsOf(f) {
			if n < 0 {
				return fmt.Errorf("embedding: %s: the length of %s %d of feature %q is %d; lengths are not negative", op, what, i, j.features[f], n)
			}
			j.starts[f+1] += n
		}
	}
	return nil
}

// expanded returns the batch with a list for each sample.
func (j *Jagged) expanded() *Jagged {
	if !slices.ContainsFunc(j.inverse, func(list []int) bool { return list != nil }) {
		return j
	}
	all := *j
	all.inverse, all.lengths = make([][]int, len(j.features)), nil
	all.lists, all.starts = make([]int, len(j.lists)), make([]int, len(j.starts))
	var at []int64 // of the ids in j
	for f := range j.features {
		lengths, starts := j.lengthsOf(f), make([]int, 1)
		for list, n := range lengths {
			starts = append(starts, starts[list]+n)
		}
		for s := range j.samples {
			list := s
			if j.inverse[f] != nil {
				list = j.inverse[f][s]
			}
			all.lengths = append(all.lengths, lengths[list])
			for i := range lengths[list] {
				at = append(at, int64(j.starts[f]+starts[list]+i))
			}
		}
		all.lists[f+1], all.starts[f+1] = len(all.lengths), len(at)
	}
	index := tensor.FromSlice(j.mesh.Device(), at, len(at))
	all.ids = tensor.IndexSelect(j.ids, 0, index)
	if j.weights != nil {
		all.weights = tensor.IndexSelect(j.weights, 0, index)
	}
	return &all
}

// Features returns the names of the features; do not modify it.
func (j *Jagged) Features() []string { return j.features }

// featureNames lists the features in an error: some of them, if there are many.
func (j *Jagged) featureNames() string {
	var names []string
	for _, name := range j.features {
		names = append(names, strconv.Quote(name))
	}
	if names == nil {
		return "none"
	}
	return someOf(names, 200)
}

// Samples returns the number of global samples.
func (j *Jagged) Samples() int { return j.batch.Dim(0) }

// Lengths returns how many ids each of this rank's samples has for a feature, or with
// Lists.Inverse each of its lists, nil on a rank outside the mesh; do not modify it. ok is false if there is no such
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
	return j.lengths[j.lists[f]:j.lists[f+1]]
}

// idsOf returns this rank's ids of a feature, [n].
func (j *Jagged) idsOf(f int) *tensor.Tensor {
	return tensor.Narrow(j.ids, 0, j.starts[f], j.starts[f+1]-j.starts[f])
}

// weightsOf returns the factors of the ids of a feature, [n]; nil: ones.
func (j *Jagged) weightsOf(f int) *tensor.Tensor {
	switch {
	case j.positions[f] != nil:
		return tensor.IndexSelect(j.positions[f].Local(), 0, j.positionsOf(f))
	case !j.weighted[f]:
		return nil
	}
	return tensor.Narrow(j.weights, 0, j.starts[f], j.starts[f+1]-j.starts[f])
}
