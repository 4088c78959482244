package embedding

import (
	"math"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/tensor"
)

// A load is what the ranks along the axis hold, and how long each of them takes, under a
// plan.
type load struct {
	memory []int
	time   []float64 // ns
	shared int       // units that are divided: there are all-to-alls
	copied int       // units that have copies: there are all-gathers
}

// A cost is how long a unit takes of a step.
type cost struct {
	each, owner    float64 // ns: of each rank, and more of the owner of one that is table-wise
	shared, copied bool
}

func (c *cost) add(d cost) {
	c.each += d.each
	c.owner += d.owner
	c.shared = c.shared || d.shared
	c.copied = c.copied || d.copied
}

// at returns what rank r takes.
func (c *cost) at(at choice, r int) float64 {
	if at.kind == TableWiseKind && at.rank == r {
		return c.each + c.owner
	}
	return c.each
}

// load adds up the loads of the units.
func (p *Plan) load(plan []choice) load {
	l := load{memory: make([]int, p.options.Ranks), time: make([]float64, p.options.Ranks)}
	for u, c := range plan {
		l.add(p, u, c, 1)
	}
	return l
}

// add adds a unit to the load, or with a sign of -1 takes it away.
func (l *load) add(p *Plan, u int, c choice, sign int) {
	its := &p.units[u].costs[c.kind]
	if its.shared {
		l.shared += sign
	}
	if its.copied {
		l.copied += sign
	}
	if c.kind == TableWiseKind {
		l.memory[c.rank] += sign * p.units[u].bytes
		l.time[c.rank] += float64(sign) * its.owner
	}
	for r, m := range p.units[u].memory[c.kind] {
		l.memory[r] += sign * m
	}
	each := float64(sign) * its.each
	for r := range l.time {
		l.time[r] += each
	}
}

// memory returns the bytes of the parts of a unit by rank, if its tables are divided or
// replicated.
func (p *Plan) memory(u *unit, k Kind) []int {
	ranks := p.options.Ranks
	bytes := make([]int, ranks)
	for _, t := range u.tables {
		d := &p.demands[t]
		for r := range bytes {
			rows, columns := d.Rows, d.Dim
			switch k {
			case RowWiseKind: // the sizes of torch.chunk
				n := (rows + ranks - 1) / ranks
				rows = max(0, min(n, rows-r*n))
			case ColumnWiseKind:
				n := (columns + ranks - 1) / ranks
				columns = max(0, min(n, columns-r*n))
			case RowCyclicKind:
				rows = (rows - r + ranks - 1) / ranks
			}
			bytes[r] += p.bytes(d, rows, columns)
		}
	}
	return bytes
}

// value estimates a plan.
func (p *Plan) value(plan []choice) value {
	l := p.load(plan)
	v, slowest := value{}, 0.0
	for r, m := range l.memory {
		v.over += p.over(m)
		v.memory, slowest = max(v.memory, m), max(slowest, l.time[r])
	}
	return p.timed(v, slowest, l.shared > 0, l.copied > 0)
}

// valueWith estimates a plan that is others and one more unit.
func (p *Plan) valueWith(others *load, u int, c choice) value {
	v, slowest, its, more := value{}, 0.0, &p.units[u].costs[c.kind], p.units[u].memory[c.kind]
	for r, m := range others.memory {
		switch {
		case more != nil:
			m += more[r]
		case r == c.rank:
			m += p.units[u].bytes
		}
		v.over += p.over(m)
		v.memory, slowest = max(v.memory, m), max(slowest, others.time[r]+its.at(c, r))
	}
	return p.timed(v, slowest, others.shared > 0 || its.shared, others.copied > 0 || its.copied)
}

// over returns by how many bytes a rank's memory is over the limit.
func (p *Plan) over(memory int) int {
	if p.options.MemoryBytes == 0 {
		return 0
	}
	return max(0, memory-p.options.MemoryBytes)
}

// timed returns v with the time of a step: that of the slowest rank in ns, and what all
// ranks take.
func (p *Plan) timed(v value, slowest float64, shared, copied bool) value {
	v.time = time.Duration(slowest) + time.Duration(len(p.demands))*p.rates.Table
	if p.options.Ranks*p.options.Copies > 1 { // a status
		v.time += p.rates.AllGather.Latency
	}
	if shared { // ids, rows and gradients
		v.time += 3 * p.rates.AllToAll.Latency
	}
	if copied { // counts, and gradients
		v.time += 2 * p.rates.AllGather.Latency
	}
	return v
}

// An alternative is a choice for a unit and what the plan comes to with it.
type alternative struct {
	choice
	value
}

// alternatives returns the best choice of each kind for a unit, by kind.
func (p *Plan) alternatives(others *load, u int) (list []alternative) {
	for _, k := range p.units[u].kinds {
		if k == TableWiseKind {
			list = append(list, p.bestRank(others, u))
		} else {
			c := choice{kind: k}
			list = append(list, alternative{c, p.valueWith(others, u, c)})
		}
	}
	return list
}

// bestRank returns the best choice among the ranks that may have a unit. What they have
// without it is compared once for all of them.
func (p *Plan) bestRank(others *load, u int) (best alternative) {
	its, bytes := &p.units[u].costs[TableWiseKind], p.units[u].bytes
	over, mostMemory, mostTime := 0, newMostOf[int](), newMostOf[float64]()
	for r, m := range others.memory {
		over += p.over(m)
		mostMemory.add(r, m)
		mostTime.add(r, others.time[r])
	}
	for i, r := range p.units[u].ranks {
		m := others.memory[r] + bytes
		v := value{over: over - p.over(others.memory[r]) + p.over(m), memory: max(mostMemory.without(r), m)}
		slowest := max(mostTime.without(r)+its.each, others.time[r]+its.each+its.owner)
		v = p.timed(v, slowest, true, others.copied > 0 || its.copied)
		if i == 0 || v.less(best.value) {
			best = alternative{choice{TableWiseKind, r}, v}
		}
	}
	return best
}

// mostOf is the two largest of the numbers, not negative, of some ranks.
type mostOf[T int | float64] struct {
	first, second T
	rank          int // of first
}

func newMostOf[T int | float64]() mostOf[T] { return mostOf[T]{rank: -1} }

func (l *mostOf[T]) add(r int, n T) {
	if n > l.first || l.rank < 0 {
		l.first, l.second, l.rank = n, l.first, r
	} else {
		l.second = max(l.second, n)
	}
}

// without is the largest number of the other ranks, 0 if there are none.
func (l *mostOf[T]) without(r int) T {
	if r == l.rank {
		return l.second
	}
	return l.first
}

// costOf returns what a table of a kind takes of a step. With N ids of it on each rank, U
// of them distinct, rows of w bytes, gradients of rows of g bytes, P ranks along the axis
// and C copies of the axis, a rank looks up N ids, and receives
//
//	                 all-to-all                       all-gather                      rows asked for
//	data-parallel                                     P·C·U·(8+g)                     P·C·U
//	row-wise         U·(S·8+w+S·g)                    C·S·U·(8+g)        if C > 1     C·S·U
//	column-wise      U·(8·P+w+g)                      C·U·(8·P+g)        if C > 1     C·P·U of w/P bytes
//	table-wise       U·w, and the owner P·U·(8+g)     owner: C·P·U·(8+g) if C > 1     owner: C·P·U
//
// where S is how many times the mean the rank with the most of the distinct ids of a
// Sample has, in blocks or in turn, 1 without one. Rows that come more than once are changed
// once: those count half. Of a column-wise table U rows are joined, and a row-wise optimizer adds up the squares
// of columns in one more call.
func (p *Plan) costOf(t int, k Kind) cost {
	d, copies := &p.demands[t], float64(p.options.Copies)
	u, n := p.distinct(t), float64(p.options.Ranks)
	w, g := float64(d.size()*d.Dim), float64(max(d.size(), tensor.Float32.Size())*d.Dim) // gradients of bfloat16 are sent as float32
	// come is how many rows are asked for, of so many bytes, of those that a rank has.
	ns := func(exchange, gather, come, width, has float64) float64 {
		if k != DataParallelKind && copies == 1 {
			gather = 0
		}
		come *= copies
		come = (come + min(come, has)) / 2
		return p.rates.AllToAll.ns(exchange) + p.rates.AllGather.ns(copies*gather) + come*(float64(p.rates.Row)+p.rates.Copy.ns(width))
	}
	rows := float64(d.Rows)
	c := cost{each: p.ids(t) * (float64(p.rates.ID) + p.rates.Copy.ns(w)), shared: k != DataParallelKind, copied: copies > 1}
	switch k {
	case DataParallelKind:
		c.copied = n*copies > 1
		gather := n * u * (8 + g)
		if !c.copied {
			gather = 0
		}
		c.each += ns(0, gather, n*u, w, rows)
	case RowWiseKind, RowCyclicKind:
		s := d.skew(p.options.Ranks, k == RowCyclicKind)
		c.each += ns(u*(8*s+w+g*s), u*s*(8+g), u*s, w, rows/n)
	case ColumnWiseKind:
		c.each += ns(u*(8*n+w+g), u*(8*n+g), n*u, w/n, rows) + u*float64(p.rates.Split.Latency) + p.rates.Split.ns(u*w)
		if state := p.options.stateOf(d); state > 0 && state < d.size()*d.Dim {
			c.each += float64(p.rates.AllToAll.Latency)
		}
	case TableWiseKind:
		c.each += ns(u*w, 0, 0, 0, 0)
		c.owner = wholeNS(ns(n*u*(8+g), n*u*(8+g), n*u, w, rows))
	}
	c.each = wholeNS(c.each)
	return c
}

// wholeNS rounds to 1/1024 ns, so that sums of costs are exact in any order: a load from
// which a unit is taken away is that of the others to the bit.
func wholeNS(ns float64) float64 { return math.Round(ns*1024) / 1024 }

// ids returns how many ids of table t a rank has in a step.
func (p *Plan) ids(t int) float64 {
	return p.demands[t].IDs * float64(p.options.Batch) / float64(p.options.Ranks*p.options.Copies)
}

// distinct returns how many distinct ids of table t a rank has in a step.
func (p *Plan) distinct(t int) float64 {
	d, ids := &p.demands[t], p.ids(t)
	switch {
	case d.Distinct > 0:
		ids = min(ids, d.Distinct)
	case len(d.Sample) > 0:
		ids = min(ids, float64(len(d.Sample)))
	}
	return min(ids, float64(d.Rows))
}

// skew returns how many times the mean the rank has, which has most of the distinct ids of
// the sample, if the rows lie in blocks or in turn; 1 without a sample.
func (d *Demand) skew(ranks int, inTurn bool) float64 {
	if len(d.Sample) == 0 {
		return 1
	}
	counts, block := make([]int, ranks), (int64(d.Rows)+int64(ranks)-1)/int64(ranks)
	for _, id := range d.Sample {
		if inTurn {
			counts[id%int64(ranks)]++
		} else {
			counts[id/block]++
		}
	}
	return float64(slices.Max(counts)*ranks) / float64(len(d.Sample))
}

// bytes returns what a part of a table takes, with its optimizer's state.
func (p *Plan) bytes(d *Demand, rows, columns int) int {
	if columns == 0 {
		rows = 0
	}
	state := p.options.stateOf(d)
	if state >= d.size()*d.Dim && columns < d.Dim { // it is of the elements, and divided with them
		state = (state*columns + d.Dim - 1) / d.Dim
	}
	return rows * (d.size()*columns + state)
}

// stateOf returns what the optimizer of a table keeps for a row.
func (o *PlanOptions) stateOf(d *Demand) int { return o.StateBytes + d.StateBytes }

// size is that of an element.
func (d *Demand) size() int {
	if d.DType == 0 {
		return tensor.Float32.Size()
	}
	return d.DType.Size()
}

// mostBytes is what all tables on all ranks may take together, so that no sum of bytes
// overflows.
const mostBytes = 1 << 62

// tooLarge returns the bytes of the tables up to the first one with which they are more
// than mostBytes on all ranks, and that one; ok is true if there is none.
func (o *PlanOptions) tooLarge(demands []Demand) (d Demand, bytes float64, ok bool) {
	for _, d := range demands {
		bytes += float64(d.Rows) * (float64(d.size())*float64(d.Dim) + float64(o.StateBytes) + float64(d.StateBytes))
		if bytes*float64(o.Ranks) > mostBytes {
			return d, bytes, false
		}
	}
	return Demand{}, bytes, true
}
