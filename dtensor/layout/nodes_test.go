package layout

import "testing"

// Ranks have parts of a sum only if these are nodes: equal parts of its outermost index, as many as
// a power of two, of enough terms; and results side by side only where each rank has several.
func TestNodesOfSums(t *testing.T) {
	linear := func(rows, inner int) (*Rule, error) {
		return Contraction("linear", "...i,oi->...o", [][]int{{rows, inner}, {6, inner}})
	}
	gradient := func(batch, rows int) (*Rule, error) {
		return Contraction("gradient", "...o,...i->oi", [][]int{{batch, rows, 3}, {batch, rows, 5}})
	}
	sum := func(shape ...int) (*Rule, error) { return Reduction("sum", Sum, shape, []int{0}, false) }
	for _, c := range []struct {
		rule  func() (*Rule, error)
		ranks int
		in    []Placement
		out   Placement // Replicate of a product: anything but nodes
	}{
		{func() (*Rule, error) { return linear(4, 256) }, 4, []Placement{Shard(1), Shard(1)}, Partial(Nodes)},
		{func() (*Rule, error) { return linear(4, 256) }, 8, []Placement{Shard(1), Shard(1)}, Replicate()},
		{func() (*Rule, error) { return linear(4, 252) }, 8, []Placement{Shard(1), Shard(1)}, Replicate()},
		{func() (*Rule, error) { return linear(6, 192) }, 3, []Placement{Shard(1), Shard(1)}, Replicate()},
		{func() (*Rule, error) { return linear(4, 256) }, 2, []Placement{ShardSizes(1, 64, 192), ShardSizes(1, 64, 192)}, Replicate()},
		{func() (*Rule, error) { return gradient(4, 67) }, 4, []Placement{Shard(0), Shard(0)}, Partial(Nodes)},
		{func() (*Rule, error) { return gradient(4, 128) }, 2, []Placement{Shard(1), Shard(1)}, Replicate()},
		{func() (*Rule, error) { return sum(8, 3) }, 4, []Placement{Shard(0)}, Partial(Nodes)},
		{func() (*Rule, error) { return sum(12, 3) }, 3, []Placement{Shard(0)}, Replicate()},
		{func() (*Rule, error) { return Reduction("sum", Sum, []int{5, 8}, []int{1}, false) }, 4, []Placement{Shard(1)}, Partial(Nodes)},
		{func() (*Rule, error) { return sum(5, 8) }, 4, []Placement{Shard(1)}, Shard(0)},
		{func() (*Rule, error) { return sum(5, 4) }, 4, []Placement{Shard(1)}, Replicate()},
	} {
		r, err := c.rule()
		if err != nil {
			t.Fatal(err)
		}
		least := 64
		if r.Inputs() == 1 {
			least = 1
		}
		axes, err := NewAxes(Axis{Name: "a", Size: c.ranks})
		if err != nil {
			t.Fatal(err)
		}
		var in []Layout
		for i, p := range c.in {
			l, err := New(axes, r.inShape[i], p)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, l)
		}
		choice, err := r.Nodes(least).Choose(in, make([]int, len(in)), Costs{})
		if err != nil {
			t.Fatal(err)
		}
		got := choice.Out[0].Placement(0)
		if (got == Partial(Nodes)) != (c.out == Partial(Nodes)) || len(in) == 1 && got != c.out {
			t.Errorf("%v of %v on %d ranks: %v, want %v", r.Name(), in, c.ranks, got, c.out)
		}
	}
}
