package layout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The plan, carried out on the elements of every rank, gives the target layout, and
// costs no more than going through Replicate one axis at a time.
func TestPlanEqualsItsTwin(t *testing.T) {
	eachCase(t, func(rnd *rand.Rand) error {
		axes, shape := randomAxes(rnd), randomShape(rnd)
		from, to := randomLayout(rnd, axes, shape, true), randomLayout(rnd, axes, shape, true)
		costs := Costs{}
		if rnd.IntN(4) == 0 {
			// Costs under which bytes, or the size of groups, matter even here.
			costs = Costs{Latency: time.Nanosecond, Peer: time.Duration(rnd.IntN(5)), Bandwidth: 1e6 * float64(1+rnd.IntN(9)), Copy: 1e8}
		}
		plan, err := NewPlan(from, to, 1, costs)
		if err != nil {
			return err
		}
		if err := checkPlan(rnd, plan); err != nil {
			return fmt.Errorf("%v to %v on %v: %w\n%v", from, to, axes, err, plan)
		}
		if naive := naiveCost(from, to, 1, costs); plan.Cost > naive {
			return fmt.Errorf("%v to %v on %v: cost %v, through R %v\n%v", from, to, axes, plan.Cost, naive, plan)
		}
		return nil
	})
}

func checkPlan(rnd *rand.Rand, plan *Plan) error {
	t := newTwin(rnd, plan.From, someValues(plan.From.Numel()))
	if err := t.check(plan.From); err != nil {
		return fmt.Errorf("the twin itself: %w", err)
	}
	at := plan.From
	for i := range plan.Steps {
		s := &plan.Steps[i]
		if s.From != at {
			return fmt.Errorf("step %d starts from %v, but the one before ends at %v", i+1, s.From, at)
		}
		if i > 0 && plan.Steps[i-1].Kind == Mask {
			return fmt.Errorf("step %d moves masked ids, but not their mask", i+1)
		}
		if KeepsMask(plan.From, plan.To) && (s.Kind == Mask || s.Kind == Rows) {
			return fmt.Errorf("step %d is %v where the mask is kept", i+1, s)
		}
		var err error
		if t, err = t.run(s); err != nil {
			return err
		}
		at = s.To
		if err := t.check(at); err != nil {
			return fmt.Errorf("after step %d: %w", i+1, err)
		}
	}
	if at != plan.To {
		return fmt.Errorf("it ends at %v", at)
	}
	return nil
}

// naiveCost returns the cost of bringing every axis to R, those of a mask together and
// the others from the last one on, and then to its target, the first one first.
func naiveCost(from, to Layout, elemBytes int, costs Costs) time.Duration {
	p := newPlanner(from, elemBytes, costs)
	p.toward(to)
	var total time.Duration
	at := p.from
	step := func(places []Placement) {
		next := &node{places: places}
		if c, changed, ok := p.outline(at, next); ok {
			total += p.edge(at, next, c, changed).cost
			at = next
		} else if !slices.Equal(at.places, places) {
			panic(fmt.Sprintf("no step from %v to %v", at.places, next.places))
		}
	}
	move := func(axis int, q Placement) {
		next := slices.Clone(at.places)
		next[axis] = q
		step(next)
	}
	unmasked := slices.Clone(at.places)
	for i, q := range unmasked {
		if q.IsMask() && !p.keeps {
			unmasked[i] = Replicate()
		}
	}
	step(unmasked)
	for i := len(p.sizes) - 1; i >= 0; i-- {
		if !at.places[i].IsMask() {
			move(i, Replicate())
		}
	}
	for i := range p.sizes {
		if !p.to.places[i].IsMask() {
			move(i, p.to.places[i])
		}
	}
	if !slices.Equal(at.places, p.to.places) { // masks are made on all axes at once
		c, changed, _ := p.outline(at, p.to)
		total += p.edge(at, p.to, c, changed).cost
	}
	return total
}

// Communication counts that must never be exceeded: those of a system that
// redistributes one axis at a time.
func TestPlanCounts(t *testing.T) {
	for n := 1; n <= 5; n++ {
		axes, err := NewAxes(Axis{"tp", n})
		if err != nil {
			t.Fatal(err)
		}
		for rows := range 12 {
			shape := []int{rows, 3 * n}
			for _, c := range []struct {
				from, to Placement
				want     Kind
			}{
				{Shard(0), Replicate(), AllGather},
				{Shard(1), Replicate(), AllGather},
				{Replicate(), Shard(0), Slice},
				{Replicate(), Replicate(), Relabel},
				{Partial(Sum), Replicate(), AllReduce},
				{Partial(Max), Replicate(), AllReduce},
				{Partial(Sum), Shard(0), ReduceScatter},
				{Partial(Avg), Shard(1), ReduceScatter},
				{MaskPartial([]int{maskRows}, 0), Replicate(), Rows},
				{MaskPartial([]int{maskRows}, 0), Shard(0), Rows},
				{Shard(0), Shard(1), AllToAll},
				{Shard(1), Shard(0), AllToAll},
				{Replicate(), Partial(Prod), Partition},
			} {
				plan, err := NewPlan(mustLayout(t, axes, shape, c.from), mustLayout(t, axes, shape, c.to), 4, Costs{})
				if err != nil {
					t.Fatal(err)
				}
				most := 1
				if c.want.Local() || n == 1 {
					most = 0
				}
				if got := plan.Collectives(); got > most {
					t.Errorf("%d ranks, %v: %v → %v takes\n%v\nwant one %v", n, shape, c.from, c.to, plan, c.want)
				}
				even := rows > 0 && rows%n == 0 && n > 1 && c.from != c.to
				if even && plan.Steps[0].Kind != c.want {
					t.Errorf("%d ranks, %v: %v → %v takes\n%v\nwant %v", n, shape, c.from, c.to, plan, c.want)
				}
			}
		}
	}
}

func mustLayout(t *testing.T, axes Axes, shape []int, placements ...Placement) Layout {
	t.Helper()
	l, err := New(axes, shape, placements...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
