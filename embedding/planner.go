package embedding

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Demand is what a planner knows of one table.
type Demand struct {
	Name      string // of this table alone; "": none
	Rows, Dim int
	DType     tensor.DType // as Config's: 0 is Float32
	// IDs is how many ids a sample has: the pooling factor, over all features
	// that share the table; 0: as many as Sample has, or without a Sample one.
	IDs float64
	// Distinct is how many of the ids of one rank's part of a batch are
	// distinct; 0: as many as there can be. Power laws make it small: measure it.
	Distinct float64
	// Sample are the ids of one rank's part of a batch, repetitions too; nil: none. It says
	// how evenly the requests for rows of a row-wise table come to the ranks, and lets the
	// planner choose RowCyclicKind where contiguous rows are worse. Distinct may then be 0.
	Sample []int64
	// StateBytes is what an optimizer of its own keeps for a row, beside the StateBytes of the
	// PlanOptions: SparseAdam 8 an element of float32.
	StateBytes int

	// Kinds are the kinds of layout that the table may have; none: all, but RowCyclicKind
	// only with a Sample. One kind pins it, TableWiseKind with one of Ranks to a rank. Along an axis of one rank all are the same.
	Kinds []Kind
	// Ranks are those along the axis that may have the table if it is table-wise; none: all.
	Ranks []int
	// Group names tables that get one layout, those that are table-wise one rank; "": none.
	Group string
}

// PlanOptions say what to plan for.
type PlanOptions struct {
	Axis  string // that divides tables
	Ranks int    // along it
	// Copies is how many groups of such ranks there are, each with all tables;
	// 0: 1. The batch is divided over all ranks of all groups.
	Copies int
	Batch  int // samples of a step, over all ranks; at least 1
	// MemoryBytes is what the tables of one rank may take, their optimizer's
	// state with them; 0: no limit.
	MemoryBytes int
	// StateBytes is what the optimizer keeps for a row of every table; row-wise Adagrad: 4.
	// Where tables have different ones, see Demand.
	StateBytes int
}

// A Plan is a layout for each of some tables.
type Plan struct {
	Layouts     []Layout
	MemoryBytes []int // of each rank along the axis
	// Time is what a step takes of the slowest rank for a Collection with these layouts, estimated: lookup, gradient,
	// and an update of the rows that were looked up.
	Time    time.Duration
	rates   Rates
	demands []Demand
	options PlanOptions
	units   []unit
	choices []choice // by unit
}

// A unit is the tables of a group, or a table without one.
type unit struct {
	tables []int
	kinds  []Kind // that it may have, ascending
	ranks  []int  // that may have it if it is table-wise, ascending
	bytes  int    // of all its rows
	costs  [kinds]cost
	memory [kinds][]int // of its parts by rank; of those that are table-wise nothing
}

// A choice is a way to lay out a unit: a kind, and for table-wise a rank.
type choice struct {
	kind Kind
	rank int
}

// A Kind is a kind of layout that a planner chooses.
type Kind uint8

// The kinds.
const (
	DataParallelKind Kind = iota // Replicated
	RowWiseKind
	ColumnWiseKind
	TableWiseKind
	RowCyclicKind
	kinds
)

var kindNames = [kinds]string{"data-parallel", "row-wise", "column-wise", "table-wise", "row-wise in turn"}

// String returns "data-parallel", "row-wise", "column-wise", "table-wise" or "row-wise in turn".
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "invalid"
}

func (c choice) layout(axis string) Layout {
	switch c.kind {
	case RowWiseKind:
		return RowWise(axis)
	case ColumnWiseKind:
		return ColumnWise(axis)
	case RowCyclicKind:
		return RowCyclic(axis)
	case TableWiseKind:
		return TableWise(axis, c.rank)
	}
	return Replicated()
}

// PlanTables is NewPlan for the tables of a collection, and sets the Layout of each. sample are the lists of one rank's
// part of a batch, the same on all ranks, of every feature of these tables; without it samples have one id of each feature,
// and nothing more is known of the ids. A table without features is planned as with one. The plan has no Dynamic tables,
// which lie where they were made: MemoryBytes is then what the others may take.
//
// It returns an error, and leaves the tables as they are, where NewPlan does, and for a feature that sample lacks.
func PlanTables(tables []CollectionTable, rates Rates, o PlanOptions, sample ...Lists) (_ *Plan, err error) {
	defer fault.Locate(&err)
	var demands []Demand
	var planned []*CollectionTable
	for i := range tables {
		t := &tables[i]
		if t.Dynamic != nil {
			continue
		}
		d := Demand{Name: t.Name, Rows: t.Rows, Dim: t.Dim, DType: t.DType, IDs: float64(len(t.Features))}
		for _, name := range t.Features {
			if len(sample) == 0 {
				break
			}
			at := slices.IndexFunc(sample, func(l Lists) bool { return l.Feature == name })
			if at < 0 {
				return nil, &Error{Op: "PlanTables", Detail: fmt.Sprintf("the sample has no lists of feature %q of table %q; give those of one "+
					"rank's part of a batch, of every feature", name, t.Name)}
			}
			d.IDs, d.Sample = 0, append(d.Sample, sample[at].IDs...) // as many as there are
		}
		planned, demands = append(planned, t), append(demands, d)
	}
	plan, err := NewPlan(demands, rates, o)
	if err != nil {
		return nil, err
	}
	for i, t := range planned {
		t.Layout = plan.Layouts[i]
	}
	return plan, nil
}

// NewPlan chooses a layout for each table: data-parallel, row-wise in blocks or in turn,
// column-wise, or table-wise on one of the ranks. No rank gets more than
// MemoryBytes; under that, the time that the slowest rank needs for a lookup,
// its gradient and the update is to be short, as estimated from the rates. It begins with several
// simple plans and improves each, table by table and by exchanging two, until
// nothing helps; so the plan is good, not always the best. Tables of a Group count
// as one.
//
// The same arguments give the same plan, so ranks with the same rates agree. If
// no plan is found that fits, NewPlan returns an error with the numbers; if what tables may
// have cannot fit, it names these tables, and the rank.
func NewPlan(demands []Demand, rates Rates, o PlanOptions) (_ *Plan, err error) {
	defer fault.Locate(&err)
	o.Copies = max(o.Copies, 1)
	switch {
	case o.Ranks < 1:
		return nil, planError("Ranks is %d; give how many lie along axis %q", o.Ranks, o.Axis)
	case o.Batch < 1:
		return nil, planError("Batch is %d; give how many samples a step has, over all ranks", o.Batch)
	case o.MemoryBytes < 0 || o.StateBytes < 0:
		return nil, planError("MemoryBytes %d, StateBytes %d: none may be negative", o.MemoryBytes, o.StateBytes)
	}
	p, err := newPlan(demands, rates, o)
	if err != nil {
		return nil, err
	}
	if err := p.impossible(); err != nil {
		return nil, err
	}
	var best value
	for _, start := range p.starts() {
		v := p.improve(start)
		if p.choices == nil || v.less(best) {
			best, p.choices = v, start
		}
	}
	if best.over > 0 {
		return nil, p.refusal(best)
	}
	p.MemoryBytes, p.Time = p.load(p.choices).memory, best.time
	p.Layouts = make([]Layout, len(demands))
	for u, c := range p.choices {
		for _, t := range p.units[u].tables {
			p.Layouts[t] = c.layout(o.Axis)
		}
	}
	return p, nil
}

// newPlan checks the tables and puts them in units.
func newPlan(demands []Demand, rates Rates, o PlanOptions) (*Plan, error) {
	p := &Plan{rates: rates, demands: slices.Clone(demands), options: o}
	groups, named := map[string]int{}, map[string]int{}
	for t, d := range demands {
		if err := p.check(d); err != nil {
			return nil, err
		}
		if of, ok := named[d.Name]; ok && d.Name != "" {
			return nil, planError("two tables are called %q, demands %d and %d; give each a name of its own", d.Name, of, t)
		}
		named[d.Name] = t
		if d.IDs == 0 {
			p.demands[t].IDs = 1
			if n := len(d.Sample); n > 0 {
				p.demands[t].IDs = float64(n*o.Ranks*o.Copies) / float64(o.Batch)
			}
		}
		if d.Sample != nil { // from here on each of its ids once
			p.demands[t].Sample = slices.Compact(slices.Sorted(slices.Values(d.Sample)))
		}
		u, ok := groups[d.Group]
		if !ok || d.Group == "" {
			u, groups[d.Group] = len(p.units), len(p.units)
			p.units = append(p.units, unit{})
		}
		p.units[u].tables = append(p.units[u].tables, t)
	}
	if d, bytes, ok := o.tooLarge(demands); !ok {
		return nil, planError("table %q has %d rows of %d features of %d bytes: "+
			"the tables up to it take %.3g bytes, and %d times as many may be 2⁶² at most; give fewer rows",
			d.Name, d.Rows, d.Dim, d.size(), bytes, o.Ranks)
	}
	for i := range p.units {
		u := &p.units[i]
		p.restrict(u)
		if len(u.kinds) == 0 {
			return nil, p.noLayout(u)
		}
		for _, t := range u.tables {
			u.bytes += p.bytes(&demands[t], demands[t].Rows, demands[t].Dim)
			for _, k := range u.kinds {
				u.costs[k].add(p.costOf(t, k))
			}
		}
		for _, k := range u.kinds {
			if k != TableWiseKind {
				u.memory[k] = p.memory(u, k)
			}
		}
	}
	return p, nil
}

func planError(format string, args ...any) *Error {
	return &Error{Op: "NewPlan", Detail: fmt.Sprintf(format, args...)}
}

// check returns an error for what makes no sense of a table.
func (p *Plan) check(d Demand) error {
	if dt := d.DType; dt != 0 && dt != tensor.Float32 && dt != tensor.Float64 && dt != tensor.BFloat16 {
		return planError("table %q holds %v; use bfloat16, float32 or float64", d.Name, dt)
	}
	if d.Rows < 0 || d.Dim < 0 || !(d.IDs >= 0) || !(d.Distinct >= 0) || d.StateBytes < 0 {
		return planError("table %q has %d rows of %d features, %v ids a sample, %v distinct, StateBytes %d; none may be negative", d.Name, d.Rows,
			d.Dim, d.IDs, d.Distinct, d.StateBytes)
	}
	if math.IsInf(d.IDs, 0) {
		return planError("table %q has %v ids a sample; give a finite number", d.Name, d.IDs)
	}
	for _, k := range d.Kinds {
		if k >= kinds {
			return planError("table %q may have kind %d; use DataParallelKind to RowCyclicKind", d.Name, k)
		}
	}
	for i, id := range d.Sample {
		if id < 0 || id >= int64(d.Rows) {
			return planError("Sample[%d] of table %q is %d; its ids are from 0 to %d", i, d.Name, id, d.Rows-1)
		}
	}
	for _, r := range d.Ranks {
		if r < 0 || r >= p.options.Ranks {
			return planError("table %q may lie on rank %d of axis %q, which has %d; use 0 to %d", d.Name, r, p.options.Axis, p.options.Ranks,
				p.options.Ranks-1)
		}
	}
	return nil
}

// restrict sets the kinds and ranks that all tables of a unit may have.
func (p *Plan) restrict(u *unit) {
	all := func(may func(d Demand) bool) bool {
		return !slices.ContainsFunc(u.tables, func(t int) bool { return !may(p.demands[t]) })
	}
	for r := range p.options.Ranks {
		if all(func(d Demand) bool { return len(d.Ranks) == 0 || slices.Contains(d.Ranks, r) }) {
			u.ranks = append(u.ranks, r)
		}
	}
	if p.options.Ranks == 1 {
		u.kinds = []Kind{DataParallelKind}
		return
	}
	for k := range kinds {
		if all(func(d Demand) bool {
			return (len(d.Kinds) == 0 && (k != RowCyclicKind || d.Sample != nil) || slices.Contains(d.Kinds, k)) &&
				(k != ColumnWiseKind || d.Dim > 1) && // one column cannot be divided
				(k != TableWiseKind || len(u.ranks) > 0)
		}) {
			u.kinds = append(u.kinds, k)
		}
	}
}

// A value says how good a plan is: first how many bytes are over the limit on
// all ranks, then its time, then its memory.
type value struct {
	over   int
	time   time.Duration
	memory int
}

func (v value) less(w value) bool {
	return cmp.Or(cmp.Compare(v.over, w.over), cmp.Compare(v.time, w.time), cmp.Compare(v.memory, w.memory)) < 0
}

// may reports whether a unit may be laid out so.
func (u *unit) may(c choice) bool {
	return slices.Contains(u.kinds, c.kind) && (c.kind != TableWiseKind || slices.Contains(u.ranks, c.rank))
}

// starts returns the plans to begin with: each kind for all units that may have it, and
// the largest units first, each where it is best then. Table-wise units begin on the rank
// that has the least.
func (p *Plan) starts() [][]choice {
	order := make([]int, len(p.units))
	for u := range order {
		order[u] = u
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.units[b].bytes, p.units[a].bytes) })
	var list [][]choice
	for _, k := range []Kind{DataParallelKind, RowWiseKind, ColumnWiseKind, TableWiseKind, RowWiseKind} {
		plan, used := make([]choice, len(p.units)), make([]int, p.options.Ranks)
		for _, i := range order {
			u := &p.units[i]
			switch {
			case slices.Contains(u.kinds, k):
				plan[i].kind = k
			case k == ColumnWiseKind && slices.Contains(u.kinds, RowWiseKind):
				plan[i].kind = RowWiseKind
			default:
				plan[i].kind = u.kinds[0]
			}
			if plan[i].kind == TableWiseKind {
				plan[i].rank = slices.MinFunc(u.ranks, func(a, b int) int { return cmp.Compare(used[a], used[b]) })
				used[plan[i].rank] += u.bytes
			}
		}
		list = append(list, plan)
		if p.options.Ranks == 1 {
			return list
		}
	}
	greedy := list[len(list)-1]
	l := p.load(greedy)
	for _, u := range order {
		p.settle(greedy, &l, u)
	}
	return list
}

// settle gives a unit the best choice while the others stay, and reports whether that is
// another. l is the load of the plan.
func (p *Plan) settle(plan []choice, l *load, u int) bool {
	was := plan[u]
	l.add(p, u, was, -1)
	at, best := was, p.valueWith(l, u, was)
	for _, a := range p.alternatives(l, u) {
		if a.value.less(best) {
			best, at = a.value, a.choice
		}
	}
	l.add(p, u, at, 1)
	plan[u] = at
	return at != was
}

// pairs is the number of units up to which two are exchanged.
const pairs = 32

// sweeps is how often all units are looked at, at most; a few are enough.
const sweeps = 50

// improve improves a plan in place until nothing helps, and returns its value.
func (p *Plan) improve(plan []choice) value {
	better := true
	for i := 0; better && i < sweeps; i++ {
		better = false
		l := p.load(plan)
		for u := range plan {
			better = p.settle(plan, &l, u) || better
		}
		if len(plan) <= pairs {
			better = p.exchange(plan) || better
		}
	}
	return p.value(plan)
}

// exchange exchanges the choices of two units wherever that is better, and
// reports whether it was anywhere.
func (p *Plan) exchange(plan []choice) (better bool) {
	now := p.value(plan)
	for a := range plan {
		for b := range a {
			if plan[a] == plan[b] || !p.units[a].may(plan[b]) || !p.units[b].may(plan[a]) {
				continue
			}
			plan[a], plan[b] = plan[b], plan[a]
			if v := p.value(plan); v.less(now) {
				now, better = v, true
			} else {
				plan[a], plan[b] = plan[b], plan[a]
			}
		}
	}
	return better
}
