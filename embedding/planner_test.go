package embedding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
)

// someRates are of a machine that does not matter.
var someRates = Rates{AllToAll: Rate{10 * time.Microsecond, 2e9}, AllGather: Rate{15 * time.Microsecond, 3e9}, Copy: Rate{Bandwidth: 8e9}}

// bruteForce tries all plans.
func bruteForce(p *Plan) value {
	plan := make([]choice, len(p.demands))
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
		for _, c := range p.choicesOf(t) {
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
			d := Demand{Name: fmt.Sprint("t", k), Rows: rng.IntN(1 << (1 + rng.IntN(14))), Dim: 1 + rng.IntN(64), IDs: float64(rng.IntN(5)), Distinct: float64(rng.IntN(300))}
			demands = append(demands, d)
			total += d.Rows * (4*d.Dim + o.StateBytes)
		}
		if rng.IntN(3) > 0 {
			o.MemoryBytes = 1 + int(float64(total)*(0.8+rng.Float64())/float64(o.Ranks))
		}
		p, err := NewPlan(demands, someRates, o)
		want := bruteForce(&Plan{rates: someRates, demands: demands, options: o})
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

func TestPlanRefuses(t *testing.T) {
	large := Demand{Name: "large", Rows: 1000, Dim: 10, IDs: 1}
	for _, c := range []struct {
		demand Demand
		o      PlanOptions
		says   string
	}{
		{large, PlanOptions{Axis: "tp", Ranks: 2, Batch: 8, MemoryBytes: 1000},
			`1 tables of 40.0 kB together do not fit 2 ranks of 1.0 kB each: the best plan found is 38.0 kB over; the largest table is "large" with 40.0 kB (1000 rows of 10)`},
		{large, PlanOptions{Axis: "tp"}, "Ranks is 0"},
		{large, PlanOptions{Axis: "tp", Ranks: 1, Batch: -1}, "Batch -1"},
		{Demand{Name: "odd", Rows: -1}, PlanOptions{Ranks: 1}, `table "odd" has -1 rows`},
	} {
		if _, err := NewPlan([]Demand{c.demand}, someRates, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want %q", err, c.says)
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

// TestPlanIsKept holds that tables made by a plan take the memory that it says,
// and that all ranks measure and plan the same.
func TestPlanIsKept(t *testing.T) {
	demands := []Demand{{Name: "a", Rows: 1001, Dim: 6, IDs: 1}, {Name: "b", Rows: 7, Dim: 3, IDs: 2}, {Name: "c", Rows: 50, Dim: 9, IDs: 1}, {Name: "d", Rows: 0, Dim: 2}}
	for _, shape := range [][2]int{{1, 1}, {1, 3}, {2, 2}} {
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
			if rates.Copy.Bandwidth <= 0 || rates.AllGather.Latency < 0 {
				return fmt.Errorf("measured %v", rates)
			}
			if _, err := MeasureRates(ctx, m, "no"); err == nil {
				return errors.New("there is no axis no")
			}
			p, err := NewPlan(demands, rates, PlanOptions{Axis: "tp", Ranks: shape[1], Copies: shape[0], Batch: 64, MemoryBytes: 30_000, StateBytes: 0})
			if err != nil {
				return err
			}
			texts[world.Rank()] = p.String()
			var tables []CollectionTable
			for i, d := range demands {
				tables = append(tables, CollectionTable{Config: Config{Name: d.Name, Rows: d.Rows, Dim: d.Dim, Layout: p.Layouts[i]}})
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
