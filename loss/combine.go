package loss

import (
	"math"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// stat is the message of one rank about one position: the columns of
// tensor.CrossEntropyStats.
type stat[T dtype.Float] struct{ Max, Sum, Target, All T }

// with combines the statistics of two parts of the classes. It is associative, apart
// from rounding.
func (a stat[T]) with(b stat[T]) stat[T] {
	m := max(a.Max, b.Max)
	return stat[T]{m, shifted(a, m) + shifted(b, m), dot(a, m) + dot(b, m), a.All + b.All}
}

// dot returns Target of a part; if that is Σ q·(x - Max), it returns Σ q·(x - m).
func dot[T dtype.Float](s stat[T], m T) T {
	if s.All == 0 || s.Max == m {
		return s.Target
	}
	return s.Target + s.All*(s.Max-m)
}

// shifted returns Σ exp(x - m) of a part, 0 if it has no classes or only -Inf.
func shifted[T dtype.Float](s stat[T], m T) T {
	if s.Max == m || s.Sum == 0 {
		return s.Sum
	}
	return s.Sum * T(math.Exp(float64(s.Max)-float64(m)))
}

// The attributes of a world under which its reductions of statistics and sums are kept.
type (
	statKey[T dtype.Float] struct{}
	partialKey             struct{}
)

func statFunc[T dtype.Float](c *comm.Comm) *comm.Func {
	return c.Internals().Attr(statKey[T]{}, func() any { return newFunc("cross-entropy statistics", stat[T].with) }).(*comm.Func)
}

func newFunc[T any](name string, f func(a, b T) T) *comm.Func {
	fn, err := comm.NewFunc(name, f)
	if err != nil {
		panic(err) // the types of this package hold numbers only
	}
	return fn
}

// joined returns the statistics of some parts of the classes, as many as a power of two, joined in
// pairs. Those of a part begin step elements after those of the one before.
func joined[T dtype.Float](stats []T, parts, step int) stat[T] {
	if parts == 1 {
		return statAt(stats)
	}
	return joined(stats, parts/2, step).with(joined(stats[parts/2*step:], parts/2, step))
}

// statAt returns the statistics that come first.
func statAt[T dtype.Float](stats []T) stat[T] {
	return stat[T]{stats[kernel.StatMax], stats[kernel.StatSumExp], stats[kernel.StatTarget], stats[kernel.StatSum]}
}

// combine fills in the rows of the local positions, from the statistics [rows, 4]
// of the local classes, or of each node of them. It makes the one collective over the classes: an all-gather for
// two ranks or with same bits; else a reduction, which moves fewer bytes.
func combine[T dtype.Float](j *job, stats *tensor.Tensor) {
	g := j.classGroup
	n, nodes := j.positions(), j.mine
	if g != nil && n > 0 {
		of := j.nodes
		if j.leaf == 0 && g.Size() == 2 {
			of = [][]int{{1}, {1}}
		}
		if nodes = slices.Concat(of...); len(nodes) > 1 {
			all := tensor.New(stats.Device(), stats.DType(), len(nodes), n, kernel.Stats)
			j.mesh.GatherNodes(g, bytesOf(all), bytesOf(stats), of, j.cause.classes, j.facts)
			runtime.KeepAlive(stats)
			stats = all
		} else {
			nodes = j.mine
			buf := bytesOf(stats)
			j.do(g, comm.Call{Kind: comm.AllReduceKind, Op: comm.Custom, Func: statFunc[T](g), Dst: buf, Src: buf, Cause: j.cause.classes})
		}
	}
	flat := tensor.ToSlice[T](stats)
	var fold pairwise.Fold[stat[T]]
	for i := range j.rows {
		for k, leaves := range nodes {
			fold.PushNode(statAt(flat[(k*n+i)*kernel.Stats:]), leaves, stat[T].with)
		}
		r, s := &j.rows[i], fold.Sum(stat[T].with)
		r.max, r.sum, r.target, r.all = float64(s.Max), float64(s.Sum), float64(s.Target), float64(s.All)
	}
}

// bytesOf is the memory of a tensor as a collective of structs takes it.
func bytesOf(t *tensor.Tensor) comm.Buffer {
	return comm.Buffer{Ptr: t.Ptr(), Count: t.Bytes(), DType: comm.Uint8}
}

// A badTarget is the first target that is no class. at is its flat global position plus
// one; 0: every target is a class.
type badTarget struct{ at, target int64 }

// partial is the message between the ranks of different positions: the sums of losses
// and weights, and a status that says whether one has a bad target.
type partial struct {
	loss, weight float64
	bad          badTarget
}

func (a partial) with(b partial) partial {
	a.loss += b.loss
	a.weight += b.weight
	if a.bad.at == 0 || b.bad.at != 0 && b.bad.at < a.bad.at {
		a.bad = b.bad
	}
	return a
}

// acrossPositions sums over the axes that shard the positions. It makes the one
// collective over them, which with Reduction None carries the status alone.
func (j *job) acrossPositions(sum partial) partial {
	g := j.batchGroup
	if g == nil {
		return sum
	}
	all := []partial{sum}
	buf := comm.Raw(all)
	fn := g.Internals().Attr(partialKey{}, func() any { return newFunc("cross-entropy sums", partial.with) }).(*comm.Func)
	j.do(g, comm.Call{Kind: comm.AllReduceKind, Op: comm.Custom, Func: fn, Dst: buf, Src: buf, Cause: j.cause.batch})
	return all[0]
}

// ofPositions is acrossPositions with same bits: the numbers are added up pairwise. Ranks that have
// nodes add these up; else every rank gathers the numbers of all positions.
func (j *job) ofPositions(losses, weights []float64, bad badTarget) partial {
	g := j.batchGroup
	if g == nil {
		return partial{pairwise.Sum(losses), pairwise.Sum(weights), bad}
	}
	leaf := pairwise.Leaf(j.shape[0], 1) // in rows of positions
	places, nodes := layout.StayAtLeaves(j.mesh.LayoutAxes(), j.targets, 0, j.shape[0], leaf)
	divided := slices.Equal(places, j.targets) && len(nodes) == g.Size()
	if !divided {
		nodes = slices.Repeat([][]int{{1}}, g.Size())
	}
	var mine []partial
	for at, its := 0, nodes[g.Rank()]; len(mine) < len(its); {
		node := partial{bad: bad}
		if divided {
			n := its[len(mine)] * len(losses) / ints.Sum(its)
			node.loss, node.weight = pairwise.Sum(losses[at:at+n]), pairwise.Sum(weights[at:at+n])
			at += n
		}
		mine = append(mine, node)
	}
	leaves := slices.Concat(nodes...)
	all := make([]partial, len(leaves))
	j.mesh.GatherNodes(g, comm.Raw(all), comm.Raw(mine), nodes, j.cause.batch, j.facts)
	var fold pairwise.Fold[partial]
	for k, node := range all {
		fold.PushNode(node, leaves[k], partial.with)
	}
	total := fold.Sum(partial.with)
	if !divided {
		total.loss, total.weight = pairwise.Sum(j.gathered(losses)), pairwise.Sum(j.gathered(weights))
	}
	return total
}

// gathered returns a number of each position, of which the rank has those of its positions.
func (j *job) gathered(mine []float64) []float64 {
	local := tensor.FromSlice(j.mesh.Device(), mine, j.local...)
	return tensor.ToSlice[float64](j.mesh.Wrap(j.op, local, nil, false, j.shape, j.targets...).Full())
}

// throw throws the error about a bad target.
func (j *job) throw(bad badTarget) {
	fault.Throw(j.targetError(int(bad.at)-1, bad.target, j.o.ignored()))
}
