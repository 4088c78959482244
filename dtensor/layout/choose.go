package layout

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Choice is what a rule comes to for given inputs: the layouts to bring them to,
// and those that the results then have. It must not be modified.
type Choice struct {
	In, Out []Layout
	// Cost is that of redistributing the inputs.
	Cost time.Duration
	// Nodes is nil, or what StayAtLeaves returns of the index that is summed over, if the ranks along the mesh axis
	// Along have other nodes than one of a size each. Whoever computes the operator adds them up: Out says what the result is
	// then.
	Nodes [][]int
	Along int
}

// maxTrials is the largest number of combinations of rows that Choose compares.
const maxTrials = 256

// Choose finds the row for each mesh axis that brings the inputs, whose elements
// have the given bytes each, to layouts that the rule allows at the least cost. It
// compares the rows of all axes jointly, so it sees that an axis can be cheaper to
// change when another one changes too.
//
// Inputs that already follow a row are left as they are. Otherwise the cost of
// reducing results that the row leaves partial counts as well, so that a small operand
// is moved rather than a large result reduced. A row is only considered if an input
// has what it asks for: an axis that no input shards is not sharded, and a reduction
// that no input holds is not introduced. Of rows of the same cost the first wins,
// in the order: partial inputs kept, shards of the first input, of the second, and so
// on, other shards, R.
//
// A MaskPartial input stays one only if it stays as it is on all axes: its mask is
// of the rows that are there.
//
// The choice depends on the arguments alone. It returns an error if the inputs are not
// as many as the rule's, of its shapes, and on one mesh.
func (r *Rule) Choose(in []Layout, elemBytes []int, costs Costs) (*Choice, error) {
	if err := r.check(in, elemBytes); err != nil {
		return nil, err
	}
	c := chooser{rule: r, in: in, bytes: elemBytes, costs: costs.filled(), planners: make([]*planner, len(in)),
		known: make([]map[Layout]time.Duration, len(in))}
	for i := range c.known {
		c.known[i] = map[Layout]time.Duration{}
	}
	return c.choose()
}

// check returns an error unless the inputs fit the rule.
func (r *Rule) check(in []Layout, elemBytes []int) error {
	if len(in) != len(r.in) || len(elemBytes) != len(r.in) {
		return fmt.Errorf("layout: Choose: %s: %d inputs and %d element sizes for a rule of %d inputs", r.name, len(in), len(elemBytes),
			len(r.in))
	}
	for i, l := range in {
		if l.spec.Value().shape != pack(r.inShape[i]) {
			return fmt.Errorf("layout: Choose: %s: input %d is %v, but the rule was made for shape %v", r.name, i, l, r.inShape[i])
		}
		if l.Axes() != in[0].Axes() {
			return fmt.Errorf("layout: Choose: %s: input %d is on mesh %v and input 0 on mesh %v; move one of them", r.name, i, l.Axes(),
				in[0].Axes())
		}
	}
	return nil
}

// A chooser finds one choice.
type chooser struct {
	rule     *Rule
	in       []Layout
	bytes    []int
	costs    Costs
	planners []*planner                 // for each input, nil until asked for
	known    []map[Layout]time.Duration // for each input, the cost of reaching a layout
}

// choose tries the combinations of rows in order.
func (c *chooser) choose() (*Choice, error) {
	candidates := make([][]Row, c.in[0].Axes().Len())
	total := 1
	for axis := range candidates {
		candidates[axis] = c.candidates(axis)
		total *= len(candidates[axis])
	}
	for total > maxTrials {
		longest := 0
		for axis := range candidates {
			if len(candidates[axis]) > len(candidates[longest]) {
				longest = axis
			}
		}
		n := len(candidates[longest])
		candidates[longest] = c.dropWorst(longest, candidates[longest])
		total = total / n * (n - 1)
	}
	var best *Choice
	var least time.Duration
	rows := make([]Row, len(candidates))
	for k := range total {
		for axis := len(candidates) - 1; axis >= 0; axis-- {
			n := len(candidates[axis])
			rows[axis] = candidates[axis][k%n]
			k /= n
		}
		choice, pending, err := c.try(rows)
		if err != nil {
			continue // explicit sizes that do not nest, reductions that cannot be exchanged, masked rows that would move
		}
		if choice.Cost == 0 {
			return choice, nil
		}
		if cost := choice.Cost + pending; best == nil || cost < least {
			best, least = choice, cost
		}
	}
	if best == nil {
		return nil, fmt.Errorf("layout: Choose: %s: no row fits inputs %v", c.rule.name, c.in)
	}
	return best, nil
}

// candidates returns the rows to consider for an axis; the last is all R.
func (c *chooser) candidates(axis int) []Row {
	r := c.rule
	var rows []Row
	add := func(row Row) {
		if !slices.ContainsFunc(rows, func(x Row) bool { return slices.Equal(x.In, row.In) }) {
			rows = append(rows, row)
		}
	}
	for _, row := range r.partials {
		for i, p := range row.In {
			if p.IsPartial() && c.in[i].Placement(axis) == p {
				add(row)
			}
		}
	}
	if p := c.in[0].Placement(axis); p.IsMask() && r.mask {
		row := r.replicated()
		row.In[0], row.Out[0] = p, p
		add(row)
	}
	isSharded := false
	for i, l := range c.in {
		p := l.Placement(axis)
		d, ok := p.Dim()
		if !ok {
			continue
		}
		isSharded = true
		if l := r.in[i][d]; l != 0 && r.whole&(1<<l) == 0 {
			add(r.sharded(l, p))
		}
	}
	if isSharded {
		if row, ok := r.cut(c.in[0].Axes().Size(axis)); ok {
			add(row)
		}
		for _, l := range r.letters() {
			if r.size[l] >= c.spread(l, axis) {
				add(r.sharded(l, Shard(0)))
			}
		}
	}
	add(r.replicated())
	return rows
}

// spread returns how many blocks a letter is split into if an axis shards it as well
// as the other axes that do now: there should be an element for each.
func (c *chooser) spread(l letter, axis int) int {
	n := 1
	for j, size := range c.in[0].Axes().Sizes() {
		sharded := j == axis
		for i, in := range c.in {
			d, ok := in.Placement(j).Dim()
			sharded = sharded || ok && c.rule.in[i][d] == l
		}
		if sharded {
			n *= size
		}
	}
	return n
}

// dropWorst returns the rows without the one that costs most when the other axes
// stay as they are; the last row, all R, is kept, since it always fits.
func (c *chooser) dropWorst(axis int, rows []Row) []Row {
	worst, most := 0, time.Duration(-1)
	for k, row := range rows[:len(rows)-1] {
		var cost time.Duration
		for i, l := range c.in {
			places := l.Placements()
			places[axis] = row.In[i]
			to, err := l.With(places...)
			if err != nil {
				cost = time.Hour
				continue
			}
			cost += c.cost(i, to)
		}
		if cost >= most {
			worst, most = k, cost
		}
	}
	return slices.Delete(slices.Clone(rows), worst, worst+1)
}

// errMoved says why a row is passed over.
var errMoved = errors.New("a MaskPartial that stays one cannot change on other axes")

// errCut says why a row is passed over.
var errCut = errors.New("the ranks' parts of a sum are no nodes of it")

// try returns the choice of one row for each axis and the cost of reducing what it
// leaves partial.
func (c *chooser) try(rows []Row) (choice *Choice, pending time.Duration, err error) {
	axes := c.in[0].Axes()
	choice = &Choice{In: make([]Layout, len(c.in)), Out: make([]Layout, len(c.rule.out))}
	places := make([]Placement, len(rows))
	for i, l := range c.in {
		for axis, row := range rows {
			places[axis] = row.In[i]
		}
		if choice.In[i], err = l.With(places...); err != nil {
			return nil, 0, err
		}
		if choice.In[i] != l && slices.ContainsFunc(places, Placement.IsMask) {
			return nil, 0, errMoved
		}
	}
	apart := -1 // the axis of Choice.Nodes
	if c.rule.nodes {
		nodes, along, ok := c.rule.nodesOf(choice.In[0], rows)
		if !ok {
			return nil, 0, errCut
		}
		if len(along) == 1 && !OneEach(nodes) {
			apart, choice.Nodes, choice.Along = along[0], nodes, along[0]
		}
	}
	for i := range choice.Out {
		for axis, row := range rows {
			if places[axis] = row.Out[i]; axis == apart {
				places[axis] = Replicate()
			}
		}
		if choice.Out[i], err = New(axes, c.rule.outShape[i], places...); err != nil {
			return nil, 0, err
		}
	}
	for i, to := range choice.In {
		choice.Cost += c.cost(i, to)
	}
	for _, out := range choice.Out {
		local := out.LocalNumel(make([]int, len(rows)))
		for axis, n := range axes.Sizes() {
			switch {
			case axis == apart: // two nodes of most ranks
				pending += c.costs.collective(n, 2*local*(n-1)/n*c.bytes[0])
			case out.Placement(axis).IsPartial() && n > 1:
				pending += c.costs.collective(n, local*(n-1)/n*c.bytes[0])
			}
		}
	}
	return choice, pending, nil
}

// cost returns what the plan costs that brings input i to a layout. Rows that are dealt out in turn have no plan.
func (c *chooser) cost(i int, to Layout) time.Duration {
	if to == c.in[i] || to.Cyclic() >= 0 || c.in[i].Cyclic() >= 0 {
		return 0
	}
	cost, known := c.known[i][to]
	if !known {
		if c.planners[i] == nil {
			c.planners[i] = newPlanner(c.in[i], c.bytes[i], c.costs)
		}
		p := c.planners[i]
		p.toward(to)
		for _, h := range p.path() {
			cost += h.cost
		}
		c.known[i][to] = cost
	}
	return cost
}
