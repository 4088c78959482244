package embedding

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Demand is what a planner knows of one table.
type Demand struct {
	Name      string
	Rows, Dim int
	// IDs is how many ids a sample has: the pooling factor, over all features
	// that share the table.
	IDs float64
	// Distinct is how many of the ids of one rank's part of a batch are
	// distinct; 0: as many as there can be. Power laws make it small: measure it.
	Distinct float64
}

// PlanOptions say what to plan for.
type PlanOptions struct {
	Axis  string // that divides tables
	Ranks int    // along it
	// Copies is how many groups of such ranks there are, each with all tables;
	// 0: 1. The batch is divided over all ranks of all groups.
	Copies int
	Batch  int // samples of a step, over all ranks
	// MemoryBytes is what the tables of one rank may take, their optimizer's
	// state with them; 0: no limit.
	MemoryBytes int
	// StateBytes is what the optimizer keeps for a row; row-wise Adagrad: 4.
	StateBytes int
}

// A Plan is a layout for each of some tables.
type Plan struct {
	Layouts     []Layout
	MemoryBytes []int         // of each rank along the axis
	Time        time.Duration // of what a step of a Collection with these layouts moves, estimated
	rates       Rates
	demands     []Demand
	options     PlanOptions
	choices     []choice
}

// A choice is a way to lay out a table: a kind, and for table-wise a rank.
type choice struct {
	kind kind
	rank int
}

type kind uint8

const (
	dataParallel kind = iota
	rowWise
	columnWise
	tableWise
)

var kindNames = [...]string{"data-parallel", "row-wise", "column-wise", "table-wise"}

func (c choice) layout(axis string) Layout {
	switch c.kind {
	case rowWise:
		return RowWise(axis)
	case columnWise:
		return ColumnWise(axis)
	case tableWise:
		return TableWise(axis, c.rank)
	}
	return Replicated()
}

// NewPlan chooses a layout for each table: data-parallel, row-wise,
// column-wise, or table-wise on one of the ranks. No rank gets more than
// MemoryBytes; under that, the time that the slowest rank needs for a lookup and
// its gradient is to be short, as estimated from the rates. It begins with several
// simple plans and improves each, table by table and by exchanging two, until
// nothing helps; so the plan is good, not always the best.
//
// The same arguments give the same plan, so ranks with the same rates agree. If
// no plan is found that fits, NewPlan returns an error with the numbers.
func NewPlan(demands []Demand, rates Rates, o PlanOptions) (*Plan, error) {
	o.Copies = max(o.Copies, 1)
	switch {
	case o.Ranks < 1:
		return nil, &Error{Op: "NewPlan", Detail: fmt.Sprintf("Ranks is %d; give how many lie along axis %q", o.Ranks, o.Axis)}
	case o.Batch < 0 || o.MemoryBytes < 0 || o.StateBytes < 0:
		return nil, &Error{Op: "NewPlan", Detail: fmt.Sprintf("Batch %d, MemoryBytes %d, StateBytes %d: none may be negative", o.Batch, o.MemoryBytes, o.StateBytes)}
	}
	for _, d := range demands {
		if d.Rows < 0 || d.Dim < 0 || !(d.IDs >= 0) || !(d.Distinct >= 0) {
			return nil, &Error{Op: "NewPlan", Detail: fmt.Sprintf("table %q has %d rows of %d features, %v ids a sample, %v distinct; none may be negative", d.Name, d.Rows, d.Dim, d.IDs, d.Distinct)}
		}
	}
	p := &Plan{rates: rates, demands: demands, options: o}
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
	l := p.load(p.choices)
	p.MemoryBytes, p.Time = l.memory, best.time
	for _, c := range p.choices {
		p.Layouts = append(p.Layouts, c.layout(o.Axis))
	}
	return p, nil
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

// choicesOf lists the choices of a table.
func (p *Plan) choicesOf(t int) []choice {
	if p.options.Ranks == 1 {
		return []choice{{kind: dataParallel}}
	}
	list := []choice{{kind: dataParallel}, {kind: rowWise}}
	if c := (choice{kind: columnWise}); p.fits(t, c) {
		list = append(list, c)
	}
	for r := range p.options.Ranks {
		list = append(list, choice{tableWise, r})
	}
	return list
}

// starts returns the plans to begin with: each kind for all tables, and the
// largest tables first, each where it is best then.
func (p *Plan) starts() [][]choice {
	n := len(p.demands)
	list := [][]choice{make([]choice, n)}
	if p.options.Ranks == 1 {
		return list
	}
	rows, columns, greedy := make([]choice, n), make([]choice, n), make([]choice, n)
	order := make([]int, n)
	for t := range n {
		rows[t].kind, columns[t].kind, greedy[t].kind = rowWise, columnWise, rowWise
		if !p.fits(t, columns[t]) {
			columns[t].kind = rowWise
		}
		order[t] = t
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return p.demands[b].Rows*p.demands[b].Dim - p.demands[a].Rows*p.demands[a].Dim
	})
	packed, used := make([]choice, n), make([]int, p.options.Ranks)
	for _, t := range order {
		r := slices.Index(used, slices.Min(used))
		packed[t] = choice{tableWise, r}
		used[r] += p.bytes(p.demands[t].Rows, p.demands[t].Dim)
	}
	for _, t := range order {
		p.settle(greedy, t)
	}
	return append(list, rows, columns, packed, greedy)
}

// settle gives a table the best choice while the others stay, and reports
// whether that is another.
func (p *Plan) settle(plan []choice, t int) bool {
	others, with := p.load(plan, t), p.load(nil)
	was := plan[t]
	at, best := was, p.valueWith(&with, &others, t, was)
	for _, c := range p.choicesOf(t) {
		if v := p.valueWith(&with, &others, t, c); v.less(best) {
			best, at = v, c
		}
	}
	plan[t] = at
	return at != was
}

// pairs is the number of tables up to which two are exchanged.
const pairs = 32

// sweeps is how often all tables are looked at, at most; a few are enough.
const sweeps = 50

// improve improves a plan in place until nothing helps, and returns its value.
func (p *Plan) improve(plan []choice) value {
	better := true
	for i := 0; better && i < sweeps; i++ {
		better = false
		for t := range plan {
			better = p.settle(plan, t) || better
		}
		if len(plan) <= pairs {
			better = p.exchange(plan) || better
		}
	}
	return p.value(plan)
}

// exchange exchanges the choices of two tables wherever that is better, and
// reports whether it was anywhere.
func (p *Plan) exchange(plan []choice) (better bool) {
	now := p.value(plan)
	for a := range plan {
		for b := range a {
			if plan[a] == plan[b] || !p.fits(a, plan[b]) || !p.fits(b, plan[a]) {
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

// fits reports whether a table can be laid out so: one column cannot be divided.
func (p *Plan) fits(t int, c choice) bool { return c.kind != columnWise || p.demands[t].Dim > 1 }

// A load is what a plan asks of the ranks along the axis.
type load struct {
	memory   []int
	exchange []float64 // bytes received in all-to-alls
	gather   []float64 // bytes received in all-gathers
	copies   []float64 // bytes copied
	shared   bool      // some table is divided: there are all-to-alls
	copied   bool      // some table has copies: there are all-gathers
}

// value estimates a plan.
func (p *Plan) value(plan []choice) value {
	l := p.load(plan)
	return p.valueOf(&l)
}

// valueWith estimates a plan that is others and one more table, with being space for it.
func (p *Plan) valueWith(with, others *load, t int, c choice) value {
	copy(with.memory, others.memory)
	copy(with.exchange, others.exchange)
	copy(with.gather, others.gather)
	copy(with.copies, others.copies)
	with.shared, with.copied = others.shared, others.copied
	p.add(with, t, c)
	return p.valueOf(with)
}

func (p *Plan) valueOf(l *load) value {
	var v value
	for r, m := range l.memory {
		if limit := p.options.MemoryBytes; limit > 0 {
			v.over += max(0, m-limit)
		}
		v.memory = max(v.memory, m)
		v.time = max(v.time, p.rates.AllToAll.transfer(l.exchange[r])+p.rates.AllGather.transfer(l.gather[r])+p.rates.Copy.transfer(l.copies[r]))
	}
	if l.shared { // ids, rows and gradients
		v.time += 3 * p.rates.AllToAll.Latency
	}
	if l.copied { // counts, and gradients
		v.time += 2 * p.rates.AllGather.Latency
	}
	return v
}

// load adds up what the tables ask for, those of without excepted.
func (p *Plan) load(plan []choice, without ...int) load {
	n := p.options.Ranks
	l := load{memory: make([]int, n), exchange: make([]float64, n), gather: make([]float64, n), copies: make([]float64, n)}
	for t, c := range plan {
		if !slices.Contains(without, t) {
			p.add(&l, t, c)
		}
	}
	return l
}

// add adds what one table asks for. With U distinct ids of it on each rank, rows
// of w bytes, P ranks along the axis and C copies of the axis, a rank receives
//
//	                 all-to-all                       all-gather
//	data-parallel                                     P·C·U·(8+w)
//	row-wise         U·(8+w+w)                        C·U·(8+w)          if C > 1
//	column-wise      U·(8·P+w+w)                      C·U·(8·P+w)        if C > 1
//	table-wise       U·w, and the owner P·U·(8+w)     owner: C·P·U·(8+w) if C > 1
func (p *Plan) add(l *load, t int, c choice) {
	d, ranks, copies := p.demands[t], p.options.Ranks, float64(p.options.Copies)
	u, w, n := p.distinct(t), float64(4*d.Dim), float64(ranks)
	rows, columns := (d.Rows+ranks-1)/ranks, (d.Dim+ranks-1)/ranks // of torch.chunk
	if c.kind == dataParallel {
		l.copied = l.copied || n*copies > 1
	} else {
		l.shared, l.copied = true, l.copied || copies > 1
	}
	for r := range ranks {
		var exchange, gather, copied float64
		switch c.kind {
		case dataParallel:
			l.memory[r] += p.bytes(d.Rows, d.Dim)
			if n > 1 || copies > 1 {
				gather = n * u * (8 + w)
			}
			copied = 2 * u * w
		case rowWise:
			l.memory[r] += p.bytes(max(0, min(rows, d.Rows-r*rows)), d.Dim)
			exchange, gather, copied = u*(8+2*w), u*(8+w), 4*u*w
		case columnWise:
			l.memory[r] += p.bytes(d.Rows, max(0, min(columns, d.Dim-r*columns)))
			exchange, gather, copied = u*(8*n+2*w), u*(8*n+w), 4*u*w
		case tableWise:
			exchange, copied = u*w, 2*u*w
			if r == c.rank {
				l.memory[r] += p.bytes(d.Rows, d.Dim)
				exchange, gather = exchange+n*u*(8+w), n*u*(8+w)
				copied += 2 * n * u * w
			}
		}
		if c.kind != dataParallel && copies == 1 {
			gather = 0
		}
		l.exchange[r] += exchange
		l.gather[r] += copies * gather
		l.copies[r] += copied + copies*gather
	}
}

// distinct returns how many distinct ids of table t a rank has in a step.
func (p *Plan) distinct(t int) float64 {
	d := p.demands[t]
	ids := d.IDs * float64(p.options.Batch) / float64(p.options.Ranks*p.options.Copies)
	if d.Distinct > 0 {
		ids = min(ids, d.Distinct)
	}
	return min(ids, float64(d.Rows))
}

// bytes returns what a part of a table takes, with its optimizer's state.
func (p *Plan) bytes(rows, columns int) int {
	if columns == 0 {
		rows = 0
	}
	return rows * (4*columns + p.options.StateBytes)
}
