package dtensor

import (
	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// A form is what an operator's layouts depend on: which dimensions of its
// operands are the same index, as in an einsum. MatMul is
//
//	in  [b m k] [b k n]   out [b m n]
//
// and every sharding it can be computed with follows: a letter that all
// results have can be sharded in operands and results alike (an operand
// without it is replicated); a letter that a result lacks is contracted, and
// sharding it leaves that result Partial(contract). For each mesh axis the
// form therefore has these rows:
//
//	all operands R                      results R
//	S(letter) where an operand has it   S(letter), or P(contract) if contracted
//	a row of linear                     results P as the operands
//
// choose takes the cheapest row for each axis.
type form struct {
	in, out  [][]letter
	shapes   [][]int         // global shapes of the results
	whole    letters         // letters that no rank may have a part of only
	contract layout.ReduceOp // how contracted letters combine
	addend   uint            // operands (bits) added once to a contracted result: P(sum) there
	linear   []linearRow
}

// A letter names one index of a form; 0 is a dimension that is nobody else's
// and stays whole, such as a size of 1 that is broadcast.
type letter uint8

// letters is a set of letters.
type letters uint64

func (s letters) has(l letter) bool { return s>>l&1 != 0 }

func set(ls ...letter) letters {
	var s letters
	for _, l := range ls {
		s |= 1 << l
	}
	return s
}

// A linearRow says that the result is Partial with some reduction if the
// operands in partial (bits) are and all others are replicated.
type linearRow struct {
	partial uint
	ops     reduceSet
}

// reduceSet is a set of reductions.
type reduceSet uint8

func (s reduceSet) has(op layout.ReduceOp) bool { return s>>op&1 != 0 }

// The reductions that can be exchanged with an operator.
const (
	linearOps reduceSet = 1<<layout.Sum | 1<<layout.Avg // a·x + b·y
	allOps    reduceSet = 1<<layout.Sum | 1<<layout.Avg | 1<<layout.Prod | 1<<layout.Min | 1<<layout.Max
	sumOnly   reduceSet = 1 << layout.Sum
)

// A rule is what a form came to for some operand layouts: the layouts that the
// operands are brought to and those of the results.
type rule struct {
	in, out []*spec
}

// maxOperands is the largest number of operands of an operator whose rules are cached.
const maxOperands = 4

// A ruleKey names a rule: the operator, what else its form depends on, and the
// operands' layouts.
type ruleKey struct {
	op   string
	attr [3]int
	in   [maxOperands]*spec
}

// choose picks the cheapest row for each mesh axis.
func (f *form) choose(m *Mesh, op string, in []*spec) *rule {
	want := make([][]layout.Placement, len(in))
	for i := range in {
		want[i] = make([]layout.Placement, len(m.axes))
	}
	out := make([][]layout.Placement, len(f.out))
	for i := range out {
		out[i] = make([]layout.Placement, len(m.axes))
	}
	for axis, a := range m.axes {
		best := f.bestRow(axis, a.Size, in)
		for i := range in {
			want[i][axis] = best.want(f, i)
		}
		for i := range out {
			out[i][axis] = best.result(f, i)
		}
	}
	r := &rule{in: make([]*spec, len(in)), out: make([]*spec, len(out))}
	for i, s := range in {
		r.in[i] = m.chosenSpec(op, s.shape, want[i])
	}
	for i := range out {
		r.out[i] = m.chosenSpec(op, f.shapes[i], out[i])
	}
	return r
}

// chosenSpec is the spec of placements that were chosen axis by axis. Explicit
// sizes were made for what other axes left then; if they no longer fit, all of
// them become chunks, which always do. Operands and results share their
// letters' placements, so they all come to the same.
func (m *Mesh) chosenSpec(op string, shape []int, p []layout.Placement) *spec {
	if s, err := m.newSpec(shape, p); err == nil {
		return s
	}
	for i := range p {
		if d, ok := p[i].Dim(); ok {
			p[i] = layout.Shard(d)
		}
	}
	return m.mustSpec(op, shape, p)
}

// A row is one way to compute on one mesh axis.
type row struct {
	shard   letter           // the letter that is sharded; 0: none
	as      layout.Placement // the kind of shard: chunk or explicit sizes
	partial uint             // operands that are Partial(op)
	op      layout.ReduceOp
	cost    float64
}

// want returns the placement of operand i in the row.
func (r *row) want(f *form, i int) layout.Placement {
	if r.shard != 0 {
		for d, l := range f.in[i] {
			if l == r.shard {
				return r.as.WithDim(d)
			}
		}
		if f.addend>>i&1 != 0 && f.contracts(r.shard) {
			return layout.Partial(layout.Sum)
		}
		return layout.Replicate()
	}
	if r.partial>>i&1 != 0 {
		return layout.Partial(r.op)
	}
	return layout.Replicate()
}

// result returns the placement of result i in the row.
func (r *row) result(f *form, i int) layout.Placement {
	switch {
	case r.shard != 0:
		for d, l := range f.out[i] {
			if l == r.shard {
				return r.as.WithDim(d)
			}
		}
		return layout.Partial(f.contract)
	case r.partial != 0:
		return layout.Partial(r.op)
	}
	return layout.Replicate()
}

// contracts reports whether the first result lacks the letter.
func (f *form) contracts(l letter) bool {
	for _, o := range f.out[0] {
		if o == l {
			return false
		}
	}
	return true
}

// bestRow returns the cheapest row for an axis of n ranks. Of equal ones the
// first in this order wins: Partial kept, the shards of the operands from left
// to right, replicated.
func (f *form) bestRow(axis, n int, in []*spec) row {
	best := row{cost: -1}
	try := func(r row) {
		for i, s := range in {
			r.cost += moveCost(s, axis, n, r.want(f, i))
		}
		if best.cost < 0 || r.cost < best.cost {
			best = r
		}
	}
	for _, l := range f.linear {
		if op, ok := partialAs(in, axis, l); ok {
			try(row{partial: l.partial, op: op})
		}
	}
	for i, s := range in {
		d, ok := s.placements[axis].Dim()
		if !ok {
			continue
		}
		if l := f.in[i][d]; l != 0 && !f.whole.has(l) {
			try(row{shard: l, as: s.placements[axis]})
			continue
		}
		// The dimension must be whole here: another one of the same operand can
		// take its place for one all-to-all.
		for d, l := range f.in[i] {
			if l != 0 && !f.whole.has(l) && s.shape[d] >= n && !f.contracts(l) && !shardsDim(s, d) {
				try(row{shard: l, as: layout.Shard(d)})
			}
		}
	}
	try(row{})
	return best
}

// partialAs reports whether the row applies: every operand in it is Partial
// with the same reduction, one of the row's.
func partialAs(in []*spec, axis int, l linearRow) (op layout.ReduceOp, ok bool) {
	for i, s := range in {
		if l.partial>>i&1 == 0 {
			continue
		}
		p := s.placements[axis]
		its, partial := p.Op()
		if !partial || p.IsMask() || !l.ops.has(its) || ok && its != op {
			return 0, false
		}
		op, ok = its, true
	}
	return op, ok
}

func shardsDim(s *spec, d int) bool {
	for _, p := range s.placements {
		if p.Shards(d) {
			return true
		}
	}
	return false
}

// moveCost is about how many elements a rank receives to bring an operand to
// another placement on one axis of n ranks.
func moveCost(s *spec, axis, n int, to layout.Placement) float64 {
	from := s.placements[axis]
	if from == to || n == 1 {
		return 0
	}
	size := float64(s.numel)
	for i, p := range s.placements {
		if i != axis && p.IsShard() {
			size /= float64(s.mesh.axes[i].Size)
		}
	}
	const call = 64 // a collective is never free
	part := size / float64(n)
	switch {
	case from.IsReplicate():
		return 0
	case from.IsShard() && to.IsShard():
		return call + part*float64(n-1)/float64(n)
	case from.IsShard():
		return call + part*float64(n-1)
	case to.IsShard():
		return call + part*float64(n-1)
	default:
		return call + 2*part*float64(n-1)
	}
}
