package forecast

import (
	"math"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

// Times are looked up on lines between points; a machine of twice the ranks is half as fast.
func TestMachine(t *testing.T) {
	m := &Machine{Cores: 2, Ranks: 2, Products: map[string][]Point{"float32": {{1e9, 0.1}}, "float64": {{1e6, 2e-4}, {1e9, 0.1}}},
		Memory:    []Point{{100, 1e-6}, {1100, 2e-6}},
		Functions: []Point{{1e9, 1}}, Program: 1e-6, Host: Link{1e-6, 1e9},
		Rows: map[string]float64{"TakeRows": 1e-7}, Attention: 3}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dtype  string
		flops, bytes int
		rows         int
		want         float64
	}{
		{"MatMul", "float32", 2e9, 600, 0, 1e-6 + 0.2},  // the call and the product
		{"MatMul", "bfloat16", 5e8, 0, 0, 1e-6 + 0.05},  // as float32
		{"MatMul", "float64", 4e6, 0, 4, 1e-6 + 4*2e-4}, // four small ones
		{"Add", "", 0, 600, 0, 1.5e-6},
		{"Add", "", 0, 1, 0, 1e-6},
		{"Add", "", 0, 11000, 0, 2e-5},
		{"Gelu", "", 1e6, 600, 0, 1e-3},
		{"Attention", "float32", 1e9, 0, 0, 1e-6 + 0.3},
		{"AttentionGrad", "float32", 1e9, 0, 0, 1e-6 + 0.1},
		{"TakeRows", "", 0, 600, 100, 1.5e-6 + 100*1e-7},
		{"Other", "", 0, 600, 100, 1.5e-6},
	} {
		if got := m.Kernel(c.name, c.dtype, c.flops, c.bytes, c.rows); !near(got, c.want) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	four := m.For(4)
	if got := four.Kernel("TakeRows", "", 0, 600, 10); !near(got, 3e-6+2e-6) || !near(four.Program, 2e-6) || !near(four.Host.Bandwidth, 5e8) {
		t.Errorf("four ranks: TakeRows %v, %+v", got, four)
	}
	// What other threads take is the rank's where no core is free.
	p := &Itself{Seconds: 3e-3, Others: 1e-3, Kernels: 1000}
	for _, c := range []struct {
		ranks int
		want  float64
	}{{1, 3e-6}, {2, 4e-6}, {4, 8e-6}} {
		if got := m.For(c.ranks).Of(p).Program; !near(got, c.want) {
			t.Errorf("%d ranks: the program takes %v for each kernel, want %v", c.ranks, got, c.want)
		}
	}
	m.Memory[1].Work = 50
	if err := m.Check(); err == nil {
		t.Error("points in no order are accepted")
	}
}

// 8 ranks on two hosts of 4: what crosses the link of a host is shared by the groups on it.
func TestCollectives(t *testing.T) {
	n := Net{{"host", 4, Link{1e-6, 1e9}}, {"fabric", 8, Link{1e-5, 1e8}}}
	if got := n.Units(); len(got) != 1 || got[0] != 4 {
		t.Fatalf("units %v", got)
	}
	world, pair := Together(n.Units(), []int{0, 1, 2, 3, 4, 5, 6, 7}), Together(n.Units(), []int{1, 5})
	if world[0] != 4 || pair[0] != 1 {
		t.Fatalf("together %v, %v", world, pair)
	}
	for _, c := range []struct {
		kind     string
		bytes    float64
		size     int
		together []int
		want     float64
	}{
		{"Barrier", 0, 1, pair, 0},
		{"Barrier", 0, 4, []int{4}, 1e-6},
		{"Barrier", 0, 8, world, 1e-5},
		{"AllReduce", 1e6, 4, []int{4}, 2e-6 + 2e6/1e9},
		{"AllReduce", 1e6, 8, world, 1e-5 + 1e6/1e8},        // hosts exchange what they have reduced
		{"AllReduce", 1e6, 2, pair, 1e-5 + 4*1e6/1e8},       // and four such pairs share the link
		{"AllGather", 1e6, 8, world, 1e-5 + 4*1e6/1e8},      // the parts of four ranks
		{"AllToAll", 1e6, 8, world, 1e-5 + 0.5*4*1e6/1e8},   // half of what four ranks have
		{"ReduceScatter", 100, 4, []int{4}, 1e-6 + 400/1e9}, // in slots
	} {
		if got := n.Collective(c.kind, c.bytes, c.size, c.together); !near(got, c.want) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// Two ranks meet twice; one of them sends the other a message between. The times add up, and the
// critical path is that of who comes last.
func TestSimulate(t *testing.T) {
	net := Net{{"host", 2, Link{1, 1e9}}}
	groups := []Group{{Key: "world", Size: 2, Here: []int{0, 1}, Together: nil}}
	rank := func(number int, tail float64, calls []Call, events ...Event) *Rank {
		return &Rank{Rank: number, Count: 1, Timeline: &Timeline{Groups: groups, Calls: calls, Events: events, Tail: tail}}
	}
	meet := []Call{{Kind: "Barrier", Cause: "a"}, {Kind: "Send"}, {Kind: "Recv"}}
	r := &Report{Size: 2, Ranks: []*Rank{
		rank(0, 1, meet, Event{Compute: 2, Peer: -1}, Event{Compute: 4, Call: 1, Peer: 1}, Event{Compute: 0, Peer: -1}),
		rank(1, 2, meet, Event{Compute: 5, Peer: -1}, Event{Compute: 1, Call: 2, Peer: 0}, Event{Compute: 0, Peer: -1}),
	}}
	_, p := Simulate(r, net)
	// Both have met at 5, and go on at 6; the message leaves at 10 and is there at 11; they meet at 11, to 12.
	if p == nil || !near(p.Seconds, 14) || p.Last != 1 {
		t.Fatalf("%+v", p)
	}
	total := 0.0
	for _, s := range p.Path {
		total += s.Seconds
	}
	if !near(total, p.Seconds) {
		t.Errorf("the path takes %v: %+v", total, p.Path)
	}
	for i, want := range []RankTime{{0, 1, 7, 3, 4}, {1, 1, 8, 3, 3}} {
		if got := p.Ranks[i]; !near(got.Compute, want.Compute) || !near(got.Communication, want.Communication) || !near(got.Waits, want.Waits) {
			t.Errorf("rank %d: %+v, want %+v", i, got, want)
		}
	}
	r.Ranks[1].Timeline.Events = r.Ranks[1].Timeline.Events[:2]
	if _, p := Simulate(r, net); p != nil {
		t.Errorf("a rank that meets nobody: %+v", p)
	}
}
