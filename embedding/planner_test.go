package embedding

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// someRates are of a machine that does not matter.
var someRates = Rates{AllToAll: Rate{10 * time.Microsecond, 2e9}, AllGather: Rate{15 * time.Microsecond, 3e9},
	Table: 20 * time.Microsecond, ID: 150 * time.Nanosecond, Row: 300 * time.Nanosecond, Copy: Rate{Bandwidth: 2e9}}

// choicesOf lists the choices of a unit.
func (u *unit) choicesOf() []choice {
	var list []choice
	for _, k := range u.kinds {
		if k != TableWiseKind {
			list = append(list, choice{kind: k})
			continue
		}
		for _, r := range u.ranks {
			list = append(list, choice{k, r})
		}
	}
	return list
}

// bruteForce tries all plans.
func bruteForce(p *Plan) value {
	plan := make([]choice, len(p.units))
	var best value
	found := false
	var try func(t int)
	try = func(t int) {
		if t == len(plan) {
			if v := p.value(plan); !found || v.less(best) {
				best, found = v, true
			}
			return
		}
		for _, c := range p.units[t].choicesOf() {
			plan[t] = c
			try(t + 1)
		}
	}
	try(0)
	return best
}

// TestPlannerAgainstBruteForce holds that the planner finds a plan that fits
// wherever there is one, that it never passes the limit, and that its plans are
// nearly always the best and never much slower.
func TestPlannerAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	best, fits := 0, 0
	const cases = 400
	for i := range cases {
		o := PlanOptions{Axis: "tp", Ranks: 1 + rng.IntN(3), Copies: 1 + rng.IntN(2), Batch: 1 << rng.IntN(12), StateBytes: 4 * rng.IntN(2)}
		var demands []Demand
		total := 0
		for k := range 1 + rng.IntN(4) {
			d := Demand{Name: fmt.Sprint("t", k), Rows: rng.IntN(1 << (1 + rng.IntN(14))), Dim: 1 + rng.IntN(64), IDs: float64(rng.IntN(5)),
				Distinct: float64(rng.IntN(300))}
			if i%2 > 0 && rng.IntN(2) > 0 { // row-wise among them, so that each group has a layout
				d.Kinds = []Kind{RowWiseKind, Kind(rng.IntN(int(kinds)))}
				d.Ranks = []int{rng.IntN(o.Ranks)}
				d.Group = []string{"", "g"}[rng.IntN(2)]
			}
			demands = append(demands, d)
			total += d.Rows * (4*d.Dim + o.StateBytes)
		}
		if rng.IntN(3) > 0 {
			o.MemoryBytes = 1 + int(float64(total)*(0.8+rng.Float64())/float64(o.Ranks))
		}
		p, err := NewPlan(demands, someRates, o)
		all, err2 := newPlan(demands, someRates, o)
		if err2 != nil {
			t.Fatal(err2)
		}
		want := bruteForce(all)
		if err != nil {
			if want.over == 0 {
				t.Fatalf("case %d: %v, but there is a plan of %v", i, err, want)
			}
			continue
		}
		fits++
		if o.MemoryBytes > 0 && slices.Max(p.MemoryBytes) > o.MemoryBytes {
			t.Fatalf("case %d: memory %v over the limit %d", i, p.MemoryBytes, o.MemoryBytes)
		}
		if p.Time <= want.time {
			best++
		}
		if p.Time < want.time || float64(p.Time) > 1.25*float64(want.time) {
			t.Errorf("case %d: %v, the best is %v\n%v", i, p.Time, want.time, p)
		}
	}
	if fits < cases/2 || best < fits*95/100 {
		t.Errorf("of %d cases %d fit, and %d plans are the best", cases, fits, best)
	}
}

// TestEstimate holds that an estimate counts what each call, each table, each id, each row that is asked for
// and the bytes of ids' and rows' elements take: 100 samples of 3 ids, 10 of them distinct, in 2 tables of 50 rows.
func TestEstimate(t *testing.T) {
	second := Rate{Bandwidth: 1} // a byte
	for _, c := range []struct {
		name          string
		rates         Rates
		kind          Kind
		ranks, copies int
		want          time.Duration
	}{
		{"tables", Rates{Table: 7}, DataParallelKind, 1, 1, 2 * 7},
		{"tables, divided", Rates{Table: 7}, RowWiseKind, 2, 1, 2 * 7},
		{"ids", Rates{ID: 7}, DataParallelKind, 1, 1, 2 * 300 * 7},
		{"ids, of half of the samples", Rates{ID: 7}, TableWiseKind, 2, 1, 2 * 150 * 7},
		{"rows", Rates{Row: 8}, DataParallelKind, 1, 1, 2 * 10 * 8},
		{"rows of all ranks", Rates{Row: 8}, DataParallelKind, 2, 1, 2 * 20 * 8},
		{"rows that come again", Rates{Row: 8}, DataParallelKind, 8, 1, 2 * (80 + 50) / 2 * 8},
		{"rows of this rank", Rates{Row: 8}, RowWiseKind, 2, 1, 2 * 10 * 8},
		{"rows of both copies", Rates{Row: 8}, RowWiseKind, 2, 2, 2 * 20 * 8},
		{"rows of their owner", Rates{Row: 8}, TableWiseKind, 2, 1, 2 * 20 * 8},
		{"parts of rows", Rates{Row: 8}, ColumnWiseKind, 2, 1, 2 * 20 * 8},
		{"elements", Rates{Copy: second}, DataParallelKind, 1, 1, (300 + 10) * (16 + 8) * time.Second},
		{"elements of parts", Rates{Copy: second}, ColumnWiseKind, 2, 1, (150 + 20/2) * (16 + 8) * time.Second},
		{"gradients of float32", Rates{AllGather: second}, DataParallelKind, 2, 1, 2 * 2 * 10 * (8 + 16) * time.Second},
		{"ids, rows and gradients", Rates{AllToAll: second}, RowWiseKind, 2, 1, 10 * (2*8 + 16 + 8 + 2*16) * time.Second},
		{"a status, counts and gradients", Rates{AllGather: Rate{Latency: 5}}, DataParallelKind, 2, 1, 3 * 5},
		{"a status, and of copies counts and gradients", Rates{AllGather: Rate{Latency: 5}}, RowWiseKind, 2, 2, 3 * 5},
		{"three exchanges", Rates{AllToAll: Rate{Latency: 5}}, RowWiseKind, 2, 1, 3 * 5},
		{"and of columns the sums of their squares", Rates{AllToAll: Rate{Latency: 5}}, ColumnWiseKind, 2, 1, (3 + 2) * 5},
	} {
		demands := []Demand{{Name: "a", Rows: 50, Dim: 4, IDs: 3, Distinct: 10},
			{Name: "b", Rows: 50, Dim: 4, IDs: 3, Distinct: 10, DType: tensor.BFloat16}}
		o := PlanOptions{Axis: "tp", Ranks: c.ranks, Copies: c.copies, Batch: 100, StateBytes: 4}
		p, err := newPlan(demands, c.rates, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.value([]choice{{kind: c.kind}, {kind: c.kind}}).time; got != c.want {
			t.Errorf("%s: %s on %d ranks, %d copies: %v, want %v", c.name, c.kind, c.ranks, c.copies, got, c.want)
		}
	}
}

// A table of which nothing is said but its size has one id a sample, or as many as its Sample says: it is not for nothing.
func TestDemandWithoutIDs(t *testing.T) {
	o := PlanOptions{Axis: "tp", Ranks: 2, Copies: 2, Batch: 64}
	sample := make([]int64, 48) // of the 16 samples of a rank
	for i := range sample {
		sample[i] = int64(i % 40)
	}
	for _, c := range []struct{ without, with Demand }{
		{Demand{Name: "users", Rows: 100_000_000, Dim: 64}, Demand{Name: "users", Rows: 100_000_000, Dim: 64, IDs: 1}},
		{Demand{Name: "users", Rows: 50, Dim: 64, Sample: sample}, Demand{Name: "users", Rows: 50, Dim: 64, Sample: sample, IDs: 3}},
		{Demand{Name: "users", Rows: 50, Dim: 64, Sample: []int64{}}, Demand{Name: "users", Rows: 50, Dim: 64, Sample: []int64{}, IDs: 1}},
	} {
		got, err := NewPlan([]Demand{c.without}, someRates, o)
		if err != nil {
			t.Fatal(err)
		}
		want, err := NewPlan([]Demand{c.with}, someRates, o)
		if err != nil || got.String() != want.String() || got.Time != want.Time {
			t.Errorf("%v, with IDs %v, %v", got, want, err)
		}
	}
	tables := []CollectionTable{{Config: Config{Name: "users", Rows: 100_000_000, Dim: 64}}}
	o.Batch = 1 << 14
	if _, err := PlanTables(tables, someRates, o); err != nil || tables[0].Layout.String() != "row-wise over tp" {
		t.Errorf("a table without features lies %v, %v", tables[0].Layout, err)
	}
}

// TestEstimateGrows holds that no layout gets cheaper by more ids, more distinct ids or wider rows.
func TestEstimateGrows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		d := Demand{Rows: 1 + rng.IntN(10_000), Dim: 2 + rng.IntN(100), IDs: float64(1 + rng.IntN(9)), Distinct: float64(1 + rng.IntN(500))}
		more := []Demand{d, d, d}
		more[0].IDs++
		more[1].Distinct += 50
		more[2].Dim += 16
		for k := range kinds {
			timeOf := func(d Demand) time.Duration {
				o := PlanOptions{Axis: "tp", Ranks: 4, Copies: 1, Batch: 2048, StateBytes: 4}
				p, err := newPlan([]Demand{d}, someRates, o)
				if err != nil {
					t.Fatal(err)
				}
				p.units[0].costs[k] = p.costOf(0, k)
				return p.value([]choice{{kind: k}}).time
			}
			for i, larger := range more {
				if a, b := timeOf(d), timeOf(larger); b < a || i != 1 && b == a {
					t.Errorf("%v: %v for %+v, %v for %+v", k, a, d, b, larger)
				}
			}
		}
	}
}

// TestPlanOfClearCases holds what everybody knows: copies of a few rows on each rank are the cheapest, a huge table is
// divided by rows, and where others are divided, copies of a few rows cost the two calls that they alone need, no more.
func TestPlanOfClearCases(t *testing.T) {
	host := someRates
	host.AllGather = host.AllToAll // as between ranks of one host
	for _, ranks := range []int{2, 4, 8} {
		o := PlanOptions{Axis: "tp", Ranks: ranks, Batch: 4096, StateBytes: 4}
		for want, d := range map[Kind]Demand{
			DataParallelKind: {Name: "country", Rows: 5, Dim: 16, IDs: 1},
			RowWiseKind:      {Name: "users", Rows: 100_000_000, Dim: 64, IDs: 1},
		} {
			p, err := NewPlan([]Demand{d}, host, o)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.choices[0].kind; got != want {
				t.Errorf("%d ranks, %d rows: %v, want %v\n%v", ranks, d.Rows, got, want, p)
			}
		}
		// A table of 5 rows costs less than the calls that copies of it alone would need.
		p, err := NewPlan([]Demand{{Name: "country", Rows: 5, Dim: 16, IDs: 1}, {Name: "users", Rows: 100_000_000, Dim: 64, IDs: 1}}, host, o)
		if err != nil {
			t.Fatal(err)
		}
		alone := 2 * host.AllGather.Latency
		if with := p.value([]choice{{kind: DataParallelKind}, p.choices[1]}).time; with-p.Time > alone+10*time.Microsecond {
			t.Errorf("%d ranks: copies of 5 rows would take %v more, and their calls %v\n%v", ranks, with-p.Time, alone, p)
		}
	}
}

// TestPlanConstraints holds that tables have the kinds and ranks that they may have, and
// those of a group one layout, where without that the plan is another.
func TestPlanConstraints(t *testing.T) {
	demands := make([]Demand, 6)
	for i := range demands {
		demands[i] = Demand{Name: fmt.Sprint("t", i), Rows: 1000 * (i + 1), Dim: 8, IDs: 1}
	}
	demands[0].Kinds, demands[0].Ranks = []Kind{TableWiseKind}, []int{2}
	demands[1].Kinds = []Kind{ColumnWiseKind}
	demands[2].Kinds, demands[2].Ranks = []Kind{TableWiseKind, DataParallelKind}, []int{0, 3}
	demands[2].Group, demands[3].Group, demands[4].Group = "g", "g", "h"
	demands[5].Kinds, demands[5].Group = []Kind{RowWiseKind}, "h"
	o := PlanOptions{Axis: "tp", Ranks: 4, Batch: 4096, MemoryBytes: 400_000}
	p, err := NewPlan(demands, someRates, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"table-wise on rank 2 of tp", "column-wise over tp", "", p.Layouts[2].String(),
		"row-wise over tp", "row-wise over tp"} {
		if got := p.Layouts[i].String(); got != want && want != "" {
			t.Errorf("table %d is %s, want %s\n%v", i, got, want, p)
		}
	}
	if c := p.choices[2]; c.kind != DataParallelKind && (c.kind != TableWiseKind || c.rank != 0 && c.rank != 3) {
		t.Errorf("the group g is %v", p.Layouts[2])
	}
	if text := p.String(); !strings.Contains(text, "no other kind is allowed") {
		t.Error(text)
	}
	demands[3].Kinds = []Kind{RowWiseKind}
	if _, err := NewPlan(demands, someRates, o); err == nil ||
		!strings.Contains(err.Error(), `the 2 tables of group "g" have no layout that all of them may have`) {
		t.Error(err)
	}
}

// BenchmarkNewPlan plans as many tables as the largest models have, and prints the plan.
func BenchmarkNewPlan(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	demands := make([]Demand, 2000)
	bytes := 0
	for i := range demands {
		demands[i] = Demand{Name: fmt.Sprint("t", i), Rows: 1 + int(math.Exp(16*rng.Float64())), Dim: 16 << rng.IntN(4),
			IDs: float64(1 + rng.IntN(10)), Distinct: float64(1 + rng.IntN(500))}
		bytes += 4 * demands[i].Rows * (demands[i].Dim + 1)
	}
	for b.Loop() {
		p, err := NewPlan(demands, someRates, PlanOptions{Axis: "tp", Ranks: 64, Batch: 1 << 14, MemoryBytes: bytes / 40, StateBytes: 4})
		if err != nil {
			b.Fatal(err)
		}
		if p.String() == "" {
			b.Fatal("no text")
		}
	}
}

// TestPlanText holds what the planner says of three tables that a person would
// place the same way.
func TestPlanText(t *testing.T) {
	p, err := NewPlan([]Demand{
		{Name: "users", Rows: 1_000_000, Dim: 16, IDs: 1},
		{Name: "country", Rows: 20, Dim: 16, IDs: 1},
	}, someRates, PlanOptions{Axis: "tp", Ranks: 4, Batch: 4096, MemoryBytes: 20 << 20, StateBytes: 4})
	if err != nil {
		t.Fatal(err)
	}
	text := p.String()
	for _, want := range []string{
		"plan for 2 tables, batches of 4096, 4 ranks along tp",
		"measured: all-to-all 10µs + 2.0 GB/s, all-gather 15µs + 3.0 GB/s",
		"users      1000000 rows of 16, 68.0 MB, 1024 distinct ids a step: row-wise over tp; column-wise would take",
		"table-wise would not fit, data-parallel would not fit",
		"country         20 rows of 16, 1.4 kB, 20 distinct ids a step: ",
		"(limit 21.0 MB); estimated",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Tables of one size share a line, and many ranks are told by the least and the most.
func TestPlanTextFitsOnAScreen(t *testing.T) {
	var demands []Demand
	for i := range 2000 {
		demands = append(demands, Demand{Name: fmt.Sprint("t", i), Rows: 1000 << (i % 10), Dim: 16, IDs: 1, Kinds: []Kind{RowWiseKind}})
	}
	p, err := NewPlan(demands, someRates, PlanOptions{Axis: "tp", Ranks: 64, Batch: 4096, StateBytes: 4})
	if err != nil {
		t.Fatal(err)
	}
	text := p.String()
	if n := strings.Count(text, "\n"); n > 12 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	for _, want := range []string{"\nt9 and 199 more     512000 rows of 16, ", "\nmemory of a rank: ", " on average (no limit); estimated "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// An overview has a line for each layout, for many ranks one of all table-wise tables, and
// names each table or says how many more there are.
func TestPlanOverview(t *testing.T) {
	for _, c := range []struct {
		ranks, tables int
		want          []string
	}{
		{2, 5, []string{
			"plan for 5 tables, batches of 4096, 2 ranks along tp\n",
			"row-wise over tp            t0, t3: 1000 to 8000 rows, 576.0 kB, 3048 distinct ids a step\n",
			"table-wise on rank 0 of tp  t1: 2000 rows, 128.0 kB, 2000 distinct ids a step\n",
			"\nmemory of each rank: ",
		}},
		{64, 2000, []string{
			"row-wise over tp                  t0, t3, t6, t9, t12, t15, t18, t21 and 659 more: 1000 to 512000 rows, ",
			"table-wise, each on a rank of tp  t1, t4, t7, t10, t13, t16, t19, t22 and 659 more: 1000 to 512000 rows, ",
			"column-wise over tp               t2, t5, ",
			"\nmemory of a rank: ",
		}},
	} {
		var demands []Demand
		for i := range c.tables {
			d := Demand{Name: fmt.Sprint("t", i), Rows: 1000 << (i % 10), Dim: 16, IDs: 1,
				Kinds: []Kind{[]Kind{RowWiseKind, TableWiseKind, ColumnWiseKind}[i%3]}}
			if c.ranks == 2 {
				d.Ranks = []int{i / 3}
			}
			demands = append(demands, d)
		}
		p, err := NewPlan(demands, someRates, PlanOptions{Axis: "tp", Ranks: c.ranks, Batch: 4096})
		if err != nil {
			t.Fatal(err)
		}
		text := p.Overview()
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if n := strings.Count(text, "\n"); n > 6 {
			t.Errorf("%d lines:\n%s", n, text)
		}
		for line := range strings.Lines(text) {
			if len(line) > 141 {
				t.Errorf("%d characters: %s", len(line), line)
			}
		}
	}
}

// A sample of ids that are sorted by frequency has the planner deal the rows out in turn;
// of ids that are not the blocks stay. The plan keeps its word on the memory of each rank.
func TestPlanOfASample(t *testing.T) {
	const rows, ranks = 100_003, 4
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.05, 1, rows-1)
	skewed, even := make([]int64, 4096), make([]int64, 4096)
	for i := range skewed {
		skewed[i], even[i] = int64(zipf.Uint64()), rng.Int64N(rows)
	}
	o := PlanOptions{Axis: "tp", Ranks: ranks, Batch: 4096 * ranks, MemoryBytes: 20_000_000}
	rowWise := []Kind{RowWiseKind, RowCyclicKind}
	for _, c := range []struct {
		sample []int64
		kinds  []Kind
		want   string
	}{
		{skewed, rowWise, "row-wise in turn over tp"}, {even, rowWise, "row-wise over tp"}, {nil, rowWise, "row-wise over tp"},
		{skewed, []Kind{RowWiseKind}, "row-wise over tp"}, {nil, []Kind{RowCyclicKind}, "row-wise in turn over tp"},
	} {
		p, err := NewPlan([]Demand{{Name: "a", Rows: rows, Dim: 64, IDs: 1, Sample: c.sample, Kinds: c.kinds}}, someRates, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Layouts[0].String(); got != c.want {
			t.Errorf("%d ids, kinds %v: %s, want %s\n%v", len(c.sample), c.kinds, got, c.want, p)
		}
		if total := ints.Sum(p.MemoryBytes); total != rows*64*4 {
			t.Errorf("%v: %d bytes together", p.Layouts[0], total)
		}
	}
	p, err := NewPlan([]Demand{{Name: "a", Rows: rows, Dim: 64, IDs: 1, Sample: skewed}}, someRates, o)
	if err != nil || p.choices[0].kind == RowWiseKind || !strings.Contains(p.String(), "row-wise would take") {
		t.Errorf("%v, %v", p, err)
	}
	_, err = NewPlan([]Demand{{Name: "a", Rows: 3, Dim: 4, Sample: []int64{2, 3}}}, someRates, o)
	if err == nil || !strings.Contains(err.Error(), `Sample[1] of table "a" is 3; its ids are from 0 to 2`) {
		t.Error(err)
	}
}

// TestPlanIsKept holds that tables made by a plan take the memory that it says,
// and that all ranks measure and plan the same.
func TestPlanIsKept(t *testing.T) {
	demands := []Demand{{Name: "a", Rows: 1001, Dim: 6, IDs: 1}, {Name: "b", Rows: 7, Dim: 3, IDs: 2}, {Name: "c", Rows: 50, Dim: 9, IDs: 1},
		{Name: "d", Rows: 0, Dim: 2}, {Name: "e", Rows: 101, Dim: 2, IDs: 1, Kinds: []Kind{RowCyclicKind}}}
	for i, shape := range [][2]int{{1, 1}, {1, 3}, {2, 2}, {1, 3}} {
		if i == 3 {
			for t := range demands {
				demands[t].DType = tensor.BFloat16
			}
		}
		texts := make([]string, shape[0]*shape[1])
		commtest.Run(t, len(texts), func(ctx context.Context, world *comm.Comm) error {
			m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: shape[0]}, dtensor.Axis{Name: "tp", Size: shape[1]})
			if err != nil {
				return err
			}
			rates, err := MeasureRates(ctx, m, "tp")
			if err != nil {
				return err
			}
			if rates.Copy.Bandwidth <= 0 || rates.Table <= 0 || rates.ID < 0 || rates.Row < 0 || rates.AllGather.Latency < 0 {
				return fmt.Errorf("measured %v", rates)
			}
			if _, err := MeasureRates(ctx, m, "no"); err == nil {
				return errors.New("there is no axis no")
			}
			p, err := NewPlan(demands, rates, PlanOptions{Axis: "tp", Ranks: shape[1], Copies: shape[0], Batch: 64, MemoryBytes: 30_000,
				StateBytes: 0})
			if err != nil {
				return err
			}
			texts[world.Rank()] = p.String()
			var tables []CollectionTable
			for i, d := range demands {
				tables = append(tables, CollectionTable{Config: Config{Name: d.Name, Rows: d.Rows, Dim: d.Dim, DType: d.DType, Layout: p.Layouts[i]}})
			}
			bytes := 0
			err = dtensor.Try(ctx, m, func() {
				for _, w := range NewCollection(m, tables...).Params() {
					bytes += w.Local().Bytes()
				}
			})
			if want := p.MemoryBytes[m.Coord()[1]]; bytes != want {
				return fmt.Errorf("the tables take %d bytes, planned are %d", bytes, want)
			}
			return err
		})
		for _, text := range texts {
			if text != texts[0] {
				t.Errorf("ranks plan differently:\n%s\n%s", text, texts[0])
			}
		}
	}
}

// PlanTables gives tables the layouts that NewPlan chooses, and leaves them alone if there is no plan.
func TestPlanTables(t *testing.T) {
	tables := []CollectionTable{{Config: Config{Name: "large", Rows: 100_000, Dim: 8}, Features: []string{"a", "b"}},
		{Config: Config{Name: "small", Rows: 5, Dim: 8, DType: tensor.BFloat16}, Features: []string{"c"}}}
	o := PlanOptions{Axis: "tp", Ranks: 4, Batch: 256}
	want, err := NewPlan([]Demand{{Name: "large", Rows: 100_000, Dim: 8, IDs: 2},
		{Name: "small", Rows: 5, Dim: 8, DType: tensor.BFloat16, IDs: 1}}, TypicalRates(), o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := PlanTables(tables, TypicalRates(), o)
	if err != nil || got.String() != want.String() {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	for i := range tables {
		if g, w := fmt.Sprint(tables[i].Layout), fmt.Sprint(want.Layouts[i]); g != w {
			t.Errorf("%s lies %s, want %s", tables[i].Name, g, w)
		}
	}
	withKeys := append([]CollectionTable{{Dynamic: &Dynamic{}, Features: []string{"k"}}}, tables...)
	if got, err := PlanTables(withKeys, TypicalRates(), o); err != nil || got.String() != want.String() ||
		!reflect.ValueOf(withKeys[0].Config).IsZero() {
		t.Errorf("beside a table of keys: %v, %v; want %v", got, err, want)
	}
	lists := []Lists{{Feature: "b", Lengths: []int{1, 2}, IDs: []int64{7, 9, 7}}, {Feature: "c", Lengths: []int{1, 0}, IDs: []int64{4}},
		{Feature: "of no table", IDs: []int64{-1}}, {Feature: "a", Lengths: []int{0, 2}, IDs: []int64{99_999, 7}}}
	o.Batch = 8 // samples; a rank has two
	if want, err = NewPlan([]Demand{{Name: "large", Rows: 100_000, Dim: 8, IDs: 5. / 2, Sample: []int64{99_999, 7, 7, 9, 7}},
		{Name: "small", Rows: 5, Dim: 8, DType: tensor.BFloat16, IDs: 1. / 2, Sample: []int64{4}}}, TypicalRates(), o); err != nil {
		t.Fatal(err)
	}
	if got, err := PlanTables(withKeys, TypicalRates(), o, lists...); err != nil || got.String() != want.String() || got.Time != want.Time {
		t.Errorf("with a sample: %v, %v; want %v", got, err, want)
	}
	before := fmt.Sprint(tables)
	if _, err := PlanTables(tables, TypicalRates(), o, lists[1:]...); err == nil || fmt.Sprint(tables) != before ||
		!strings.Contains(err.Error(), `the sample has no lists of feature "b" of table "large"`) {
		t.Errorf("%v; the tables are now %v", err, tables)
	}
	o.MemoryBytes = 1
	if _, err := PlanTables(tables, TypicalRates(), o); err == nil || fmt.Sprint(tables) != before {
		t.Errorf("%v; the tables are now %v", err, tables)
	}
}

// The memory of a plan has what each table's own optimizer keeps, which column-wise tables divide if it is of the elements.
func TestPlannerCountsTheStateOfEachTable(t *testing.T) {
	o := PlanOptions{Axis: "tp", Ranks: 2, Batch: 64, StateBytes: 4}
	for kind, want := range map[Kind]int{
		RowWiseKind:    50*(8*4+8*8+4) + 50*(8*4+4),
		ColumnWiseKind: 100*(4*4+(8*8+4)/2) + 100*(4*4+4),
	} {
		adam := Demand{Name: "adam", Rows: 100, Dim: 8, IDs: 1, Kinds: []Kind{kind}, StateBytes: 8 * 8}
		adagrad := Demand{Name: "adagrad", Rows: 100, Dim: 8, IDs: 1, Kinds: []Kind{kind}}
		p, err := NewPlan([]Demand{adam, adagrad}, someRates, o)
		if err != nil || !slices.Equal(p.MemoryBytes, []int{want, want}) {
			t.Fatalf("%v: %v, %v, want %d on each rank", kind, p, err, want)
		}
	}
	for says, d := range map[string]Demand{
		"StateBytes -1; none may be negative":         {Name: "x", Rows: 1, Dim: 1, StateBytes: -1},
		"has +Inf ids a sample; give a finite number": {Name: "x", Rows: 1, Dim: 1, IDs: math.Inf(1)},
	} {
		if _, err := NewPlan([]Demand{d}, someRates, o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: want %q", err, says)
		}
	}
}

// Two tables of one name are refused; those without one are told apart by their places.
func TestPlanOfTablesWithOneName(t *testing.T) {
	demands := []Demand{{Name: "users", Rows: 8, Dim: 2}, {Rows: 8, Dim: 2}, {Rows: 8, Dim: 2}, {Name: "users", Rows: 9, Dim: 2, Group: "g"}}
	o := PlanOptions{Axis: "a", Ranks: 2, Batch: 4}
	if _, err := NewPlan(demands[:3], someRates, o); err != nil {
		t.Error(err)
	}
	const says = `two tables are called "users", demands 0 and 3; give each a name of its own`
	if _, err := NewPlan(demands, someRates, o); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %q", err, says)
	}
}
