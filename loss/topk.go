package loss

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// TopK returns the k largest logits of each position, largest first, and their
// classes, int64. Of equal logits the first class comes first; NaN comes before all
// numbers.
//
//	logits [C] or [N, C]   →   [k] or [N, k]
//
//	logits    results   communication
//	R         R         none
//	S(0)      S(0)      none                           positions are sharded
//	S(1)      R         1 gather of k·16 bytes a position and rank
//	S(0),S(1) S(0),R    the same
//
// The logits stay where they are: each rank sends the k largest of its own. The
// gradient of the values goes to their logits, in the layout of the logits, and
// communicates nothing; the classes have none. Partial logits are reduced first.
// TopK throws an *Error for logits of another shape or type and for a k that is
// not between 1 and C.
func TopK(logits *dtensor.Tensor, k int) (values, classes *dtensor.Tensor) {
	defer logits.Mesh().Span("TopK").End()
	const op = "TopK"
	checkRanked(op, logits)
	if k < 1 || k > logits.Dim(-1) {
		refuse(op, fmt.Sprintf("k is %d; logits %v have %d classes", k, logits, logits.Dim(-1)))
	}
	p := shardingOf(op, logits, false)
	logits = logits.Redistribute(p.logits...)
	shape, places, dev := append(slices.Clone(p.shape), k), p.targets, p.mesh.Device()
	if !p.mesh.Inside() {
		return p.mesh.Wrap(op, tensor.New(dev, p.dtype, 0), nil, false, shape, places...),
			p.mesh.Wrap(op, tensor.New(dev, tensor.Int64, 0), nil, false, shape, places...)
	}
	p.bind(logits)
	best := p.largest(logits.Local(), k)
	v, c := make([]float64, len(best)), make([]int64, len(best))
	for i, w := range best {
		v[i], c[i] = w.Sum, w.Class
	}
	local := append(slices.Clone(p.local), k)
	index := tensor.FromSlice(dev, c, local...)
	values = p.mesh.Wrap(op, tensor.Cast(tensor.FromSlice(dev, v, local...), p.dtype), nil, false, shape, places...)
	classes = p.mesh.Wrap(op, index, nil, false, shape, places...)
	return dtensor.RecordComposed(op, values, []*dtensor.Tensor{logits}, func(gy *dtensor.Tensor) []dtensor.Grad {
		dx := p.scatter(gy.Redistribute(places...).Local(), index, k)
		return []dtensor.Grad{dtensor.Dense(p.mesh.Wrap(op, dx.Reshape(logits.Local().Shape()...), nil, false, logits.Shape(), p.logits...))}
	}, func() *dtensor.Tensor { return logits.Gather(-1, classes) }), classes
}

// scatter returns the gradient of the local logits, [positions, n], from dy, the gradient
// of the k largest: each element of dy goes to its class, if this rank has it.
func (p *sharding) scatter(dy, classes *tensor.Tensor, k int) *tensor.Tensor {
	n := p.positions()
	dx := tensor.Zeros(dy.Device(), dy.DType(), n, p.n)
	if n == 0 || p.n == 0 {
		return dx
	}
	at := tensor.AddScalar(classes.Reshape(n, k), -float64(p.lo))
	own := tensor.Clamp(at, 0, float64(p.n-1))
	dy = tensor.MaskedFill(dy.Reshape(n, k), tensor.Compare(kernel.OpNe, at, own), 0)
	tensor.ScatterAddTo(dx, 1, own, dy)
	return dx
}

// Argmax returns the class of the largest logit of each position, int64. Of equal logits
// it is the first; NaN is larger than all numbers.
//
//	logits [C] or [N, C]   →   [] or [N]
//
//	logits    result   communication
//	R         R        none
//	S(0)      S(0)     none                       positions are sharded
//	S(1)      R        1 of 16 bytes a position   classes are sharded
//	S(0),S(1) S(0),R   1 of 16 bytes a position
//
// The logits stay where they are; dtensor.Tensor.Argmax would gather them. The result has
// no gradient. Argmax throws an *Error for logits of another shape or type or without
// classes.
func Argmax(logits *dtensor.Tensor) *dtensor.Tensor {
	const op = "Argmax"
	checkRanked(op, logits)
	p := shardingOf(op, logits, false)
	logits = logits.Detach().Redistribute(p.logits...)
	if !p.mesh.Inside() {
		return p.mesh.Wrap(op, tensor.New(p.mesh.Device(), tensor.Int64, 0), nil, false, p.shape, p.targets...)
	}
	p.bind(logits)
	first := noCandidates(p.positions())
	p.fillLargest(first, 1, logits.Local())
	return p.mesh.Wrap(op, tensor.FromSlice(p.mesh.Device(), p.bestClasses(first), p.local...), nil, false, p.shape, p.targets...)
}

// checkRanked throws unless logits have the shapes and types of TopK.
func checkRanked(op string, logits *dtensor.Tensor) {
	checkType(op, logits)
	switch {
	case logits.NDim() != 1 && logits.NDim() != 2:
		refuse(op, fmt.Sprintf("logits %v have %d dimensions; give [C] or [N, C]", logits, logits.NDim()))
	case logits.Dim(-1) == 0:
		refuse(op, fmt.Sprintf("logits %v have no class to choose", logits))
	}
}

// largest returns the k largest of each local position, over all ranks that share
// its classes.
func (p *sharding) largest(logits *tensor.Tensor, k int) []candidate {
	n := p.positions()
	mine := noCandidates(n * k)
	p.fillLargest(mine, k, logits)
	if p.classGroup == nil || len(mine) == 0 {
		return mine
	}
	size := p.classGroup.Size()
	all := make([]candidate, size*len(mine))
	p.do(p.classGroup, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Raw(all), Src: comm.Raw(mine), Cause: p.cause.classes})
	of := make([]candidate, 0, size*k)
	for i := range n {
		of = of[:0]
		for r := range size {
			of = append(of, all[r*len(mine)+i*k:][:k]...)
		}
		slices.SortFunc(of, candidate.compare)
		copy(mine[i*k:], of[:k])
	}
	return mine
}

// fillLargest fills in the k largest logits of each local position and their classes, fewer
// if this rank has fewer classes.
func (p *sharding) fillLargest(best []candidate, k int, logits *tensor.Tensor) {
	n, few := p.positions(), min(k, p.n)
	if few == 0 || n == 0 {
		return
	}
	values, index := tensor.TopK(logits.Reshape(n, p.n), few, 1)
	classes := tensor.ToSlice[int64](index)
	for i, v := range tensor.ToSlice[float64](tensor.Cast(values, tensor.Float64)) {
		best[i/few*k+i%few] = candidate{v, classes[i] + int64(p.lo)}
	}
}

// bestClasses returns the class of the best candidate of all ranks, for each of won, this
// rank's candidates. It makes the one collective over the classes.
func (p *sharding) bestClasses(won []candidate) []int64 {
	if p.classGroup != nil && len(won) > 0 {
		attrs := p.classGroup.Internals()
		f := attrs.Attr(candidateKey{}, func() any { return newFunc("largest sum and its class", candidate.with) }).(*comm.Func)
		buf := comm.Raw(won)
		p.do(p.classGroup, comm.Call{Kind: comm.AllReduceKind, Op: comm.Custom, Func: f, Dst: buf, Src: buf, Cause: p.cause.classes})
	}
	classes := make([]int64, len(won))
	for i, w := range won {
		classes[i] = w.Class
	}
	return classes
}

type candidateKey struct{}

// A candidate is the largest value found so far, and its class.
type candidate struct {
	Sum   float64
	Class int64
}

// noCandidates returns n candidates that come after every class.
func noCandidates(n int) []candidate {
	return slices.Repeat([]candidate{{math.Inf(-1), math.MaxInt64}}, n)
}

// compare orders the larger one first, of equal ones the first class. NaN is
// larger than all numbers.
func (a candidate) compare(b candidate) int {
	return cmp.Or(cmp.Compare(truth(b.Sum != b.Sum), truth(a.Sum != a.Sum)), cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.Class, b.Class))
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// with returns the one that comes first.
func (a candidate) with(b candidate) candidate {
	if a.compare(b) <= 0 {
		return a
	}
	return b
}
