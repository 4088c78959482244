package loss

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// TopK returns the k largest logits of each position, largest first, and their
// classes, int64; of equal ones the first classes, and NaN before all numbers.
//
//	logits [C] or [N, C]   →   [k] or [N, k]
//
//	logits    results   communication
//	R         R         none
//	S(0)      S(0)      none                           positions are sharded
//	S(1)      R         1 gather of k·16 bytes a position and rank
//	S(0),S(1) S(0),R    the same
//
// The logits stay where they are: each rank gives the k largest of its own. The
// results have no gradient. TopK throws an *Error for logits of another shape or
// type and for a k that is not between 1 and C.
func TopK(logits *dtensor.Tensor, k int) (values, classes *dtensor.Tensor) {
	const op = "TopK"
	switch {
	case logits.NDim() != 1 && logits.NDim() != 2:
		refuse(op, fmt.Sprintf("logits %v have %d dimensions; give [C] or [N, C]", logits, logits.NDim()))
	case k < 1 || k > logits.Dim(-1):
		refuse(op, fmt.Sprintf("k is %d; logits %v have %d classes", k, logits, logits.Dim(-1)))
	}
	p := planFor(op, logits)
	logits = logits.Detach().Redistribute(p.logits...)
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
	return p.mesh.Wrap(op, tensor.Cast(tensor.FromSlice(dev, v, local...), p.dtype), nil, false, shape, places...),
		p.mesh.Wrap(op, tensor.FromSlice(dev, c, local...), nil, false, shape, places...)
}

// largest returns the k largest of each local position, over all ranks that share
// its classes.
func (p *plan) largest(logits *tensor.Tensor, k int) []winner {
	n := p.positions()
	mine := make([]winner, n*k)
	for i := range mine {
		mine[i] = nobody()
	}
	if few := min(k, p.n); few > 0 && n > 0 {
		values, index := tensor.TopK(logits.Reshape(n, p.n), few, 1)
		classes := tensor.ToSlice[int64](index)
		for i, v := range tensor.ToSlice[float64](tensor.Cast(values, tensor.Float64)) {
			mine[i/few*k+i%few] = winner{v, classes[i] + int64(p.lo)}
		}
	}
	if p.classGroup == nil || len(mine) == 0 {
		return mine
	}
	size := p.classGroup.Size()
	all := make([]winner, size*len(mine))
	do(p, p.classGroup, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Raw(all), Src: comm.Raw(mine), Cause: p.cause.classes})
	of := make([]winner, 0, size*k)
	for i := range n {
		of = of[:0]
		for r := range size {
			of = append(of, all[r*len(mine)+i*k:][:k]...)
		}
		slices.SortFunc(of, winner.compare)
		copy(mine[i*k:], of[:k])
	}
	return mine
}

// A winner is the largest so far, and its class.
type winner struct {
	Sum   float64
	Class int64
}

// nobody loses against every class.
func nobody() winner { return winner{math.Inf(-1), math.MaxInt64} }

// compare orders the larger one first, of equal ones the first class. NaN is
// larger than all numbers.
func (a winner) compare(b winner) int {
	return cmp.Or(cmp.Compare(truth(b.Sum != b.Sum), truth(a.Sum != a.Sum)), cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.Class, b.Class))
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// with returns the one that comes first.
func (a winner) with(b winner) winner {
	if a.compare(b) <= 0 {
		return a
	}
	return b
}
