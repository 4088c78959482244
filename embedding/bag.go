package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Mode says how the rows of a bag become one. The zero Mode is Mean, as in
// torch.nn.EmbeddingBag; torchrec's collections begin with Sum.
type Mode uint8

// The modes.
const (
	Mean Mode = iota
	Sum
	Max
	modes
)

var modeNames = [modes]string{"mean", "sum", "max"}

// String returns "mean", "sum" or "max".
func (m Mode) String() string {
	if m < modes {
		return modeNames[m]
	}
	return "invalid"
}

// ParseMode is the inverse of String; ok is false for a name that is none.
func ParseMode(name string) (m Mode, ok bool) {
	i := slices.Index(modeNames[:], name)
	return Mode(max(i, 0)), i >= 0
}

// BagOptions are Options for lookups of bags. As in
// torch.nn.functional.embedding_bag, ids equal to PaddingIdx are left out of
// their bags: they count neither for the mean nor for the maximum.
type BagOptions struct {
	Options
	Mode Mode
	// IncludeLastOffset says that offsets has one number more than there are
	// bags: where the last one ends, which is the number of ids.
	IncludeLastOffset bool
}

// Bag looks up bags of rows and makes one row of each: the sum, mean or maximum
// of its rows, without a tensor of all of them.
//
//	weight [V, D]   ids [n]      offsets [bags]   →   [bags, D]
//	weight [V, D]   ids [B, L]   offsets nil      →   [B, D]
//
// Bag b is ids[offsets[b]:offsets[b+1]], or with a nil offsets row b of ids. An
// empty bag gives zeros. weights, in the shape of ids, are factors of the rows
// for Mode Sum, and get a gradient; nil stands for ones.
//
//	weight   ids    result   communication                gradient
//	R        R      R        none                         none
//	S(0)     R      P(sum)   none; R after 1 for Max      none
//	S(1)     R      S(1)     none                         none
//	R        S(0)   S(0)     a status and a count         a count, 1 of ids and rows
//	other    S      S(0)     ids, and the result from R or P(sum)
//
// ids of bags of a fixed length may be sharded by bags, S(0); any other sharding
// of ids, offsets and weights is undone first. The gradient of weight is a
// dtensor.Rows; that of weights is Partial where the table is sharded.
//
// Bags of a table of bfloat16 are computed in float32 and rounded, as torch does: once,
// or where the result is P(sum) once on each rank and once in their sum.
//
// With same bits the rows of all ids are gathered, and each rank makes all bags.
//
// dtensor.Gradients refuses Bag by its name. Of ids [B, L] the Sum, Mean or Amax over dimension 1 of their Lookup has the same
// values, and second derivatives.
//
// Bag throws as Lookup does, and an *Error for offsets that do not start at 0,
// descend, pass the end or with IncludeLastOffset stop before it, and for weights with
// another Mode than Sum.
func Bag(weight, ids, offsets, weights *dtensor.Tensor, o BagOptions) *dtensor.Tensor {
	return (&Table{weight: weight}).bag(ids, offsets, weights, o, false)
}

// bag is Bag. direct says that the rows are pooled where they are also with same bits: all ranks have them.
func (t *Table) bag(ids, offsets, weights *dtensor.Tensor, o BagOptions, direct bool) *dtensor.Tensor {
	defer t.weight.Mesh().Span("Bag").End()
	const op = "Bag"
	weight := t.weight
	s := o.check(op, weight)
	s.stored, s.mode = t.stored, o.Mode
	checkIDs(op, weight, ids, s)
	checkBags(op, ids, offsets, weights, &o)
	ids, final := placeBags(weight, ids)
	if !direct && weight.Mesh().SameBits() {
		return t.bagOfAll(ids, offsets, weights, o, final)
	}
	p := rolesOf(op, weight, ids, s)
	b := &bags{o: o, scale: weights, final: final}
	b.result = make([]layout.Placement, len(p.ids))
	bagCount := ids.Dim(0)
	var starts []int
	if offsets != nil {
		starts, bagCount = b.bounds(op, ids, offsets)
	}
	shape := []int{bagCount, weight.Dim(1)}
	for axis := range b.result {
		b.result[axis] = p.ids[axis]
		switch {
		case slices.Contains(p.masked, axis) && o.Mode != Max:
			b.result[axis] = layout.Partial(layout.Sum)
		case slices.Contains(p.columns, axis):
			b.result[axis] = p.weight[axis]
		}
	}
	table := p.table(s)
	inputs := []*dtensor.Tensor{t.input()}
	if weights != nil {
		b.scale = weights.Redistribute(p.ids...)
		inputs = append(inputs, weights)
	}
	if !p.mesh.Inside() {
		empty := p.mesh.Wrap(op, tensor.New(p.mesh.Device(), weight.DType(), 0), nil, false, shape, b.result...)
		return empty.Redistribute(b.finalPlacements()...)
	}
	b.lookup = newLookup(p, s, table, ids, dtensor.Tracked(inputs...))
	b.divide(starts, b.ids)
	out := p.mesh.Wrap(op, b.forward(), nil, false, shape, b.result...)
	out = dtensor.Record(op, out, inputs, func(gy *dtensor.Tensor) []dtensor.Grad {
		rows, scales := b.backward(gy)
		grads := []dtensor.Grad{t.gradOf(table, rows)}
		if weights != nil {
			grads = append(grads, dtensor.Dense(scales))
		}
		return grads
	})
	return out.Redistribute(b.finalPlacements()...)
}

// bagOfAll is bag with same bits, of ids that all ranks have.
func (t *Table) bagOfAll(ids, offsets, weights *dtensor.Tensor, o BagOptions, final []layout.Placement) *dtensor.Tensor {
	whole := *t
	whole.options = o.Options
	padding := func(id int64) bool {
		return o.PaddingIdx != nil && int(id) == (*o.PaddingIdx+t.weight.Dim(0))%t.weight.Dim(0)
	}
	rows := whole.lookUp(ids.Reshape(ids.Numel())).Reduced()
	return bagsOf(rows, ids, offsets, weights, BagOptions{Mode: o.Mode, IncludeLastOffset: o.IncludeLastOffset}, padding, final)
}

// bagsOf makes bags of the rows [n, D] of ids, which all ranks have, without those that padding reports. The bags are placed as
// the rows are, but where final shards them.
func bagsOf(rows, ids, offsets, weights *dtensor.Tensor, o BagOptions, padding func(id int64) bool,
	final []layout.Placement) *dtensor.Tensor {
	mesh, were := rows.Mesh(), rows.Placements() // R, or S(1) where the table is divided by columns
	whole := mesh.Every(layout.Replicate())
	if weights != nil { // their gradients are sums over columns
		rows = rows.Redistribute(whole...)
	}
	numbers := make([]int64, ids.Local().Numel())
	for i, id := range tensor.ToSlice[int64](tensor.Cast(ids.Local(), tensor.Int64)) {
		numbers[i] = int64(i)
		if !padding(id) {
			continue
		}
		if o.PaddingIdx == nil {
			o.PaddingIdx = &i
		}
		numbers[i] = int64(*o.PaddingIdx)
	}
	at := mesh.Wrap("Bag", tensor.FromSlice(mesh.Device(), numbers, ids.Local().Shape()...), nil, false, ids.Shape(), whole...)
	places := slices.Clone(were)
	for axis, p := range final {
		if p.IsShard() {
			places[axis] = p
		}
	}
	layout.Refit(places, were)
	return (&Table{weight: rows}).bag(at, offsets, weights, o, true).Redistribute(places...)
}

// checkBags throws unless offsets and weights fit the ids.
func checkBags(op string, ids, offsets, weights *dtensor.Tensor, o *BagOptions) {
	switch {
	case o.Mode >= modes:
		refuse(op, "Mode is %d; use Mean, Sum or Max", o.Mode)
	case offsets == nil && ids.NDim() != 2:
		refuse(op, "ids %v have %d dimensions and there are no offsets; give bags of one length, [B, L], or offsets", ids, ids.NDim())
	case offsets != nil && ids.NDim() != 1:
		refuse(op, "ids %v have %d dimensions and there are offsets; give a list of ids", ids, ids.NDim())
	case offsets != nil && (offsets.NDim() != 1 || offsets.DType() != tensor.Int64 && offsets.DType() != tensor.Int32):
		refuse(op, "offsets %v are not a list of int64 or int32", offsets)
	case offsets != nil && offsets.Mesh() != ids.Mesh():
		refuse(op, "offsets are on mesh %v and ids on another, %v; move one of them", offsets.Mesh(), ids.Mesh())
	case offsets != nil && o.IncludeLastOffset && offsets.Dim(0) == 0:
		refuse(op, "offsets are empty, and IncludeLastOffset says that they hold the last one")
	case o.Mode == Max && o.ScaleGradByFreq:
		refuse(op, "ScaleGradByFreq is not defined for Mode Max; use Sum or Mean")
	}
	if weights == nil {
		return
	}
	switch {
	case o.Mode != Sum:
		refuse(op, "per-sample weights are given with Mode %v; they are for Sum", o.Mode)
	case !slices.Equal(weights.Shape(), ids.Shape()):
		refuse(op, "per-sample weights %v for ids %v; give one for each id", weights, ids)
	case !weights.DType().Float():
		refuse(op, "per-sample weights %v are no floating-point numbers; Cast them", weights)
	case weights.Mesh() != ids.Mesh():
		refuse(op, "per-sample weights are on mesh %v and ids on another, %v; move one of them", weights.Mesh(), ids.Mesh())
	}
}

// placeBags brings ids to a layout that keeps bags whole: sharded by bags where
// the table is replicated, else replicated. final has the placements of the result.
func placeBags(weight, ids *dtensor.Tensor) (placed *dtensor.Tensor, final []layout.Placement) {
	n := len(ids.Mesh().Axes())
	places := make([]layout.Placement, 3*n)
	final, want, were := places[:n:n], places[n:2*n], places[2*n:]
	for axis := range were {
		at := ids.Placement(axis)
		were[axis] = at
		if ids.NDim() == 2 && at.Shards(0) {
			final[axis] = at
			if weight.Placement(axis).IsReplicate() && !weight.Mesh().SameBits() {
				want[axis] = at
			}
		}
	}
	layout.Refit(want, were)
	return ids.Redistribute(want...), final
}

// bounds returns where bags begin and the last one ends, from offsets.
func (b *bags) bounds(op string, ids, offsets *dtensor.Tensor) (starts []int, count int) {
	count = offsets.Dim(0)
	if b.o.IncludeLastOffset {
		count--
	}
	whole := offsets.Full()
	if whole.Numel() == 0 { // no bags, or a rank outside
		return []int{0}, count
	}
	n := ids.Dim(0)
	list := tensor.Cast(whole, tensor.Int64)
	defer runtime.KeepAlive(list)
	starts = make([]int, 0, whole.Numel()+1)
	for i, at := range tensor.Read[int64](list) {
		switch {
		case i == 0 && at != 0:
			refuse(op, "offsets[0] is %d; the first bag begins at 0", at)
		case i > 0 && int(at) < starts[i-1]:
			refuse(op, "offsets[%d] is %d, below offsets[%d], which is %d; they must not descend", i, at, i-1, starts[i-1])
		case int(at) > n:
			refuse(op, "offsets[%d] is %d, past the end of the %d ids", i, at, n)
		}
		starts = append(starts, int(at))
	}
	switch last := len(starts) - 1; {
	case !b.o.IncludeLastOffset:
		starts = append(starts, n)
	case starts[last] != n:
		refuse(op, "offsets[%d] is %d, but there are %d ids; with IncludeLastOffset it says where the last bag ends, so give %d, or fewer ids",
			last, starts[last], n, n)
	}
	return starts, count
}
