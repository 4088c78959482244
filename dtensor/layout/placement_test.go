package layout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestPlacementForms(t *testing.T) {
	for _, c := range []struct {
		p           Placement
		short, full string
	}{
		{Replicate(), "R", "Replicate()"},
		{Shard(0), "S(0)", "Shard(dim=0)"},
		{Shard(-1), "S(-1)", "Shard(dim=-1)"},
		{ShardSizes(1, 1, 3, 1, 3), "S(1)[1 3 1 3]", "ShardSizes(dim=1, sizes=[1 3 1 3])"},
		{ShardSizes(0, 0), "S(0)[0]", "ShardSizes(dim=0, sizes=[0])"},
		{ShardCyclic(), "C(0)", "ShardCyclic()"},
		{Partial(Sum), "P(sum)", "Partial(sum)"},
		{Partial(Avg), "P(avg)", "Partial(avg)"},
		{Partial(Prod), "P(prod)", "Partial(prod)"},
		{Partial(Min), "P(min)", "Partial(min)"},
		{Partial(Max), "P(max)", "Partial(max)"},
		{MaskPartial([]int{10, 29}, 0), "MaskP", "MaskPartial(offset_shape=[10 29], offset_dim=0)"},
		{MaskPartial([]int{10, 29}, -1), "MaskP", "MaskPartial(offset_shape=[10 29], offset_dim=1)"},
	} {
		if got := fmt.Sprint(c.p); got != c.short {
			t.Errorf("%%v prints %q, want %q", got, c.short)
		}
		if got := fmt.Sprintf("%#v", c.p); got != c.full {
			t.Errorf("%%#v prints %q, want %q", got, c.full)
		}
		text := c.short
		if c.p.IsMask() {
			text = c.full
		}
		if got, err := Parse(text); err != nil || got != c.p {
			t.Errorf("Parse(%q) is %#v, %v; want %#v", text, got, err, c.p)
		}
	}
}

func TestPlacementsAreValues(t *testing.T) {
	shape := []int{10, 29}
	sizes := []int{1, 3}
	list := []Placement{
		Replicate(), Shard(0), Shard(1), ShardSizes(0, sizes...), ShardSizes(0, 3, 1), ShardSizes(1, 1, 3), Partial(Sum), Partial(Max),
		MaskPartial(shape, 0), MaskPartial(shape, 1), MaskPartial([]int{10, 30}, 0),
	}
	shape[0], sizes[0] = 0, 0 // what was given can change; the placements cannot
	again := []Placement{
		{}, Shard(0), Shard(1), ShardSizes(0, 1, 3), ShardSizes(0, 3, 1), ShardSizes(1, 1, 3), Partial(Sum), Partial(Max),
		MaskPartial([]int{10, 29}, 0), MaskPartial([]int{10, 29}, -1), MaskPartial([]int{10, 30}, 0),
	}
	index := map[Placement]int{}
	for i, p := range list {
		index[p] = i
	}
	for i, p := range again {
		if got, ok := index[p]; !ok || got != i {
			t.Errorf("%#v is found at %d, %v; want %d", p, got, ok, i)
		}
	}
}

func TestSizesOfShards(t *testing.T) {
	if got := ShardSizes(1, 1, 3, 0).Sizes(); !slices.Equal(got, []int{1, 3, 0}) {
		t.Errorf("the sizes of S(1)[1 3 0] are %v", got)
	}
	for _, p := range []Placement{Shard(1), Replicate(), MaskPartial([]int{10, 29}, 0)} {
		if got := p.Sizes(); got != nil {
			t.Errorf("the sizes of %v are %v, want none", p, got)
		}
	}
}

func TestNormalize(t *testing.T) {
	if p, ok := Shard(-1).normalize(3); !ok || p != Shard(2) {
		t.Errorf("S(-1) of 3 dimensions is %v, %v; want S(2)", p, ok)
	}
	if p, ok := ShardSizes(-3, 1, 2).normalize(3); !ok || p != ShardSizes(0, 1, 2) {
		t.Errorf("S(-3)[1 2] of 3 dimensions is %v, %v; want S(0)[1 2]", p, ok)
	}
	for _, c := range []struct{ dim, ndim int }{{2, 2}, {-3, 2}, {0, 0}, {1 << 40, 2}, {-1 << 40, 2}} {
		if p, ok := Shard(c.dim).normalize(c.ndim); ok {
			t.Errorf("S(%d) of %d dimensions is %v, want it out of range", c.dim, c.ndim, p)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "not a placement",
		"Q(0)":                            "not a placement",
		"S(0":                             "not a placement",
		"S(x)":                            "not an integer",
		"S(0)[1 x]":                       "list of integers",
		"S(0)[]":                          "list of integers",
		"P(median)":                       `unknown reduction "median"`,
		"P(sum)[1]":                       `"[1]" after the placement`,
		"MaskP":                           "use R, S(0)",
		"MaskPartial(offset_shape=10, 0)": "cannot be read",
	} {
		if p, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) is %#v, %v; want an error with %q", text, p, err, want)
		}
	}
}

func TestFormatPlacementsCanBeParsed(t *testing.T) {
	for _, text := range []string{"", "R", "S(0),R", "P(sum),S(1)[1 3],R", "S(-1)"} {
		p, err := parsePlacements(text)
		if got := FormatPlacements(p); err != nil || got != text {
			t.Errorf("%q comes back as %q, %v", text, got, err)
		}
	}
	if _, err := parsePlacements("R,,R"); err == nil {
		t.Error("an empty placement is accepted")
	}
}

// Chunk sizes are those of torch.chunk, padded with empty chunks.
func TestChunkSizes(t *testing.T) {
	for _, c := range []struct {
		size, n int
		want    string
	}{
		{8, 4, "[2 2 2 2]"}, {7, 4, "[2 2 2 1]"}, {5, 4, "[2 2 1 0]"}, {2, 4, "[1 1 0 0]"}, {0, 2, "[0 0]"}, {6, 4, "[2 2 2 0]"}, {3, 1, "[3]"},
	} {
		if got := fmt.Sprint(ChunkSizes(c.size, c.n)); got != c.want {
			t.Errorf("%d over %d: got %s, want %s", c.size, c.n, got, c.want)
		}
	}
}

func TestRefit(t *testing.T) {
	for _, c := range []struct{ from, places, want string }{
		{"S(0),S(0)[1 2]", "R,S(0)[1 2]", "R,S(0)"},
		{"S(0),S(0)[1 2]", "S(1),S(0)[1 2]", "S(1),S(0)"},
		{"S(0),S(0)[1 2]", "S(0),S(0)[1 2]", "S(0),S(0)[1 2]"},
		{"S(1),S(0)[1 2]", "R,S(0)[1 2]", "R,S(0)[1 2]"},
		{"S(0)[1 2],S(0)", "S(0)[1 2],R", "S(0)[1 2],R"},
		{"S(0),S(1),S(0)[1 2]", "R,S(1),S(0)[1 2]", "R,S(1),S(0)"},
	} {
		from, err := parsePlacements(c.from)
		if err != nil {
			t.Fatal(err)
		}
		places, err := parsePlacements(c.places)
		if err != nil {
			t.Fatal(err)
		}
		if Refit(places, from); FormatPlacements(places) != c.want {
			t.Errorf("%s of what was %s: %s, want %s", c.places, c.from, FormatPlacements(places), c.want)
		}
	}
}

// The shards of a layout cover each element once, except for the axes that do not shard;
// and a layout is equal to another made of equal parts.
func TestLayoutEqualsItsTwin(t *testing.T) {
	eachCase(t, func(rnd *rand.Rand) error {
		axes, shape := randomAxes(rnd), randomShape(rnd)
		l := randomLayout(rnd, axes, shape, true)
		copies := 1
		for i, p := range l.Placements() {
			if !p.IsShard() {
				copies *= axes.Size(i)
			}
		}
		owned, held := make([]int, numel(shape)), make([]int, numel(shape))
		for pos := range axes.Count() {
			coord := axes.Coord(pos)
			if got := axes.Position(coord); got != pos {
				return fmt.Errorf("position %d has coordinate %v, whose position is %d", pos, coord, got)
			}
			if got := l.LocalNumel(coord); got != numel(l.LocalShape(coord)) {
				return fmt.Errorf("%v at %v: %d elements of shape %v", l, coord, got, l.LocalShape(coord))
			}
			walk(shape, l.Offset(coord), l.LocalShape(coord), func(e int) {
				held[e]++
				if l.Owner(coord) {
					owned[e]++
				}
			})
		}
		for e := range held {
			if held[e] != copies || owned[e] != 1 {
				return fmt.Errorf("%v on %v: element %d is held %d times, want %d, and owned %d times", l, axes, e, held[e], copies, owned[e])
			}
		}
		again, err := New(axes, l.Shape(), l.Placements()...)
		if err != nil || again != l || again.String() != l.String() {
			return fmt.Errorf("%v made again is %v, %v", l, again, err)
		}
		return nil
	})
}

func TestLayoutIsSmallAndQuiet(t *testing.T) {
	axes, err := NewAxes(Axis{"data", 2}, Axis{"model", 3})
	if err != nil {
		t.Fatal(err)
	}
	l := mustLayout(t, axes, []int{7, 5}, ShardSizes(0, 3, 4), Shard(-1))
	coord := []int{1, 2}
	if n := testing.AllocsPerRun(100, func() {
		_, _ = l.Span(coord, 1)
		_ = l.LocalNumel(coord)
		_ = l.Placement(0)
	}); n != 0 {
		t.Errorf("asking for a shard allocates %v times, want 0", n)
	}
	if got, want := fmt.Sprint(l.LocalShape(coord), l.Offset(coord)), "[4 1] [3 4]"; got != want {
		t.Errorf("local shape and offset at %v are %s, want %s", coord, got, want)
	}
	if got, want := l.String(), "[7, 5] S(0)[3 4],S(1)"; got != want {
		t.Errorf("printed as %q, want %q", got, want)
	}
}

// Reductions whose order matters do not meet, except on an axis of one rank.
func TestPartialsOfTwoKinds(t *testing.T) {
	for _, c := range []struct {
		sizes [2]int
		p, q  Placement
		ok    bool
	}{
		{[2]int{2, 2}, Partial(Max), Partial(Sum), false},
		{[2]int{2, 2}, Partial(Avg), Partial(Sum), true},
		{[2]int{1, 2}, Partial(Max), Partial(Sum), true},
		{[2]int{2, 1}, Partial(Max), Partial(Prod), true},
	} {
		axes, err := NewAxes(Axis{Name: "a", Size: c.sizes[0]}, Axis{Name: "b", Size: c.sizes[1]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(axes, []int{4}, c.p, c.q); (err == nil) != c.ok {
			t.Errorf("%v, %v on axes of %v ranks: %v", c.p, c.q, c.sizes, err)
		}
	}
}

func TestNewAxesRefuses(t *testing.T) {
	for _, c := range []struct {
		axes []Axis
		want string
	}{
		{[]Axis{{"a", 0}}, "size 0"},
		{[]Axis{{"", 2}}, `named ""`},
		{[]Axis{{"a,b", 2}}, `named "a,b"`},
		{[]Axis{{"a", 2}, {"a", 2}}, `two axes are named "a"`},
	} {
		if _, err := NewAxes(c.axes...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want an error with %q", c.axes, err, c.want)
		}
	}
	axes, err := NewAxes(Axis{"data", 2}, Axis{"model", 4})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := axes.String(), "(data=2,model=4)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if i, ok := axes.Index("model"); !ok || i != 1 {
		t.Errorf("model is axis %d, %v; want 1", i, ok)
	}
	if _, ok := axes.Index("pipe"); ok {
		t.Error("there is an axis called pipe")
	}
}

// parsePlacements returns the placements that FormatPlacements printed. The empty
// text is no placement.
func parsePlacements(s string) ([]Placement, error) {
	var list []Placement
	depth, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && (s[i] != ',' || depth > 0) {
			switch s[i] {
			case '(', '[':
				depth++
			case ')', ']':
				depth--
			}
			continue
		}
		if i == len(s) && len(list) == 0 && strings.TrimSpace(s) == "" {
			break
		}
		p, err := Parse(s[start:i])
		if err != nil {
			return nil, err
		}
		list = append(list, p)
		start = i + 1
	}
	return list, nil
}
