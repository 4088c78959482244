package layout

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Every row of every rule is exact: with inputs placed as it says, what the ranks
// compute of their parts is the result, placed as it says. On two axes, every pair of rows.
func TestRowsEqualTheOperator(t *testing.T) {
	for seed := range uint64(max(1, *caseCount/5000)) {
		rnd := rand.New(rand.NewPCG(*caseSeed, seed))
		axes := randomAxes(rnd)
		for axes.Len() > 2 {
			axes = randomAxes(rnd)
		}
		for _, op := range operators(t, rnd) {
			rows := op.rule.Rows()
			for k := range numel([]int{len(rows), len(rows)}) {
				pair := []Row{rows[k%len(rows)], rows[k/len(rows)]}[:axes.Len()]
				if axes.Len() == 1 && k >= len(rows) {
					break
				}
				if err := checkRows(rnd, op, axes, pair); err != nil {
					t.Fatalf("seed %d: %s on %v with rows %v: %v", seed, op.rule.Name(), axes, pair, err)
				}
			}
		}
	}
}

// checkRows runs an operator with a row for each axis. Rows that give no valid layout
// together are passed over.
func checkRows(rnd *rand.Rand, op operator, axes Axes, rows []Row) error {
	c := Choice{}
	for i := range op.rule.Inputs() {
		l, err := New(axes, op.rule.inShape[i], column(rows, func(r Row) Placement { return r.In[i] })...)
		if err != nil {
			return nil
		}
		c.In = append(c.In, l)
	}
	for i := range op.rule.Outputs() {
		l, err := New(axes, op.rule.OutShape(i), column(rows, func(r Row) Placement { return r.Out[i] })...)
		if err != nil {
			return nil
		}
		c.Out = append(c.Out, l)
	}
	twins := make([]*twin, len(c.In))
	for i, l := range c.In {
		twins[i] = newTwin(rnd, l, op.values[i])
	}
	return runOperator(op, twins, &c)
}

func column(rows []Row, f func(Row) Placement) []Placement {
	var places []Placement
	for _, r := range rows {
		places = append(places, f(r))
	}
	return places
}

// runOperator applies an operator on every position to what it holds and checks that
// the results are what the operator gives for the global values.
func runOperator(op operator, in []*twin, c *Choice) error {
	var global []dense
	for i, x := range in {
		global = append(global, dense{x.shape, op.values[i], make([]int, len(x.shape))})
	}
	want := op.apply(global)
	axes := c.In[0].Axes()
	out := make([]*twin, len(c.Out))
	for i, l := range c.Out {
		out[i] = emptyTwin(l, want[i].data)
	}
	for pos := range axes.Count() {
		coord := axes.Coord(pos)
		var local []dense
		for i, x := range in {
			part := dense{shape: c.In[i].LocalShape(coord), offset: c.In[i].Offset(coord)}
			walk(x.shape, part.offset, part.shape, func(e int) { part.data = append(part.data, x.held[pos][e]) })
			local = append(local, part)
		}
		for i, part := range op.apply(local) {
			if got, want := fmt.Sprint(part.shape), fmt.Sprint(c.Out[i].LocalShape(coord)); got != want {
				return fmt.Errorf("from %v to %v: position %v computes shape %v, but holds %v", c.In, c.Out, coord, got, want)
			}
			k := 0
			walk(out[i].shape, c.Out[i].Offset(coord), part.shape, func(e int) {
				out[i].held[pos][e] = part.data[k]
				k++
			})
		}
	}
	for i, l := range c.Out {
		if err := out[i].check(l); err != nil {
			return fmt.Errorf("from %v to %v: result %d: %w", c.In, c.Out, i, err)
		}
	}
	return nil
}

// Whatever the layouts of the inputs, the choice can be reached and is exact, and it
// costs no more than bringing every input to R.
func TestChooseEqualsTheOperator(t *testing.T) {
	for seed := range uint64(max(1, *caseCount/500)) {
		rnd := rand.New(rand.NewPCG(*caseSeed+1, seed))
		axes := randomAxes(rnd)
		for _, op := range operators(t, rnd) {
			if err := checkChoice(rnd, op, axes); err != nil {
				t.Fatalf("seed %d: %s on %v: %v", seed, op.rule.Name(), axes, err)
			}
		}
	}
}

func checkChoice(rnd *rand.Rand, op operator, axes Axes) error {
	n := op.rule.Inputs()
	in := make([]Layout, n)
	elemBytes := make([]int, n)
	twins := make([]*twin, n)
	costs := Costs{Latency: 1, Bandwidth: 1e9 / float64(1+rnd.IntN(1000))}
	for i := range in {
		in[i] = randomLayout(rnd, axes, op.rule.inShape[i], true)
		elemBytes[i] = 1
		twins[i] = newTwin(rnd, in[i], op.values[i])
	}
	c, err := op.rule.Choose(in, elemBytes, costs)
	if err != nil {
		return err
	}
	var cost, replicate int64
	for i := range in {
		plan, err := NewPlan(in[i], c.In[i], elemBytes[i], costs)
		if err != nil {
			return err
		}
		for k := range plan.Steps {
			if twins[i], err = twins[i].run(&plan.Steps[k]); err != nil {
				return err
			}
		}
		cost += int64(plan.Cost)
		whole, err := NewPlan(in[i], in[i].Replicated(), elemBytes[i], costs)
		if err != nil {
			return err
		}
		replicate += int64(whole.Cost)
	}
	if cost != int64(c.Cost) || cost > replicate {
		return fmt.Errorf("from %v to %v: cost %d, said to be %d, all R: %d", in, c.In, cost, int64(c.Cost), replicate)
	}
	return runOperator(op, twins, c)
}
