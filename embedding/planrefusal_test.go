package embedding

import (
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
)

func TestPlanRefuses(t *testing.T) {
	large := Demand{Name: "large", Rows: 1000, Dim: 10, IDs: 1}
	for _, c := range []struct {
		demand Demand
		o      PlanOptions
		says   string
	}{
		{large, PlanOptions{Axis: "tp", Ranks: 2, Batch: 8, MemoryBytes: 1000},
			`1 tables of 40.0 kB (40000 bytes) together do not fit 2 ranks of 1.0 kB (1000 bytes) each: ` +
				`the best plan found is 38.0 kB (38000 bytes) over; ` +
				`the largest table is "large" with 40.0 kB (40000 bytes) (1000 rows of 10)`},
		{large, PlanOptions{Axis: "tp", Ranks: 2, Batch: 8, MemoryBytes: 19_999},
			"40.0 kB (40000 bytes) together do not fit 2 ranks of 20.0 kB (19999 bytes) each: the best plan found is 2 bytes over"},
		{Demand{Name: "vast", Rows: 1 << 58, Dim: 64}, PlanOptions{Axis: "tp", Ranks: 2, Batch: 8, MemoryBytes: 1000},
			`table "vast" has 288230376151711744 rows of 64 features of 4 bytes: `},
		{Demand{Name: "wide", Rows: 1, Dim: 1 << 62}, PlanOptions{Axis: "tp", Ranks: 1, Batch: 8},
			`table "wide" has 1 rows of 4611686018427387904 features`},
		{Demand{Name: "odd", DType: tensor.Int64}, PlanOptions{Ranks: 1, Batch: 8}, `table "odd" holds int64; use bfloat16, float32 or float64`},
		{large, PlanOptions{Axis: "tp"}, "Ranks is 0"},
		{large, PlanOptions{Axis: "tp", Ranks: 1, Batch: -1}, "Batch is -1"},
		{large, PlanOptions{Axis: "tp", Ranks: 2}, "Batch is 0; give how many samples a step has, over all ranks"},
		{large, PlanOptions{Axis: "tp", Ranks: 2, Batch: 8, StateBytes: -4}, "StateBytes -4"},
		{Demand{Name: "odd", Rows: -1}, PlanOptions{Ranks: 1, Batch: 8}, `table "odd" has -1 rows`},
		{Demand{Name: "odd", Kinds: []Kind{5}}, PlanOptions{Ranks: 2, Batch: 8}, `table "odd" may have kind 5`},
		{Demand{Name: "odd", Ranks: []int{1, 2}}, PlanOptions{Axis: "tp", Ranks: 2, Batch: 8},
			`table "odd" may lie on rank 2 of axis "tp", which has 2`},
		{Demand{Name: "odd", Dim: 1, Kinds: []Kind{ColumnWiseKind}}, PlanOptions{Ranks: 2, Batch: 8},
			`table "odd" of 1 features has no layout: Kinds [column-wise], Ranks []; allow another kind`},
	} {
		if _, err := NewPlan([]Demand{c.demand}, someRates, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want %q", err, c.says)
		}
	}
}

// TestPlanRefusesTheImpossible holds that demands which no plan can meet are named: the group,
// the tables and the rank.
func TestPlanRefusesTheImpossible(t *testing.T) {
	table := func(name string, kb int, group string, ranks []int, kinds ...Kind) Demand {
		return Demand{Name: name, Rows: kb * 25, Dim: 10, IDs: 1, Group: group, Ranks: ranks, Kinds: kinds} // kb·1000 bytes
	}
	tw := TableWiseKind
	o := PlanOptions{Axis: "tp", Ranks: 4, Batch: 64, MemoryBytes: 50_000}
	for _, c := range []struct {
		demands []Demand
		says    string // "": it can be met
	}{
		{[]Demand{table("a", 30, "", []int{2}, tw), table("b", 30, "", nil), table("c", 25, "", []int{2}, tw)},
			`rank 2 of axis "tp" may have 50.0 kB (50000 bytes), but by Kinds and Ranks 55.0 kB (55000 bytes) have to lie there: ` +
				`table "a" (30.0 kB), table "c" (25.0 kB); allow other kinds or ranks`},
		{[]Demand{table("a", 30, "", []int{2}, tw), table("b", 30, "", []int{2, 3}, tw)}, ""},
		{[]Demand{table("a", 40, "", []int{2}, tw), table("b", 60, "", nil, RowWiseKind)}, `rank 2 of axis "tp" may have`},
		{[]Demand{table("a", 30, "", []int{2}, tw), table("b", 60, "", nil, RowWiseKind)}, ""},
		{[]Demand{table("a", 60, "", nil, tw)}, `table "a" of 60.0 kB (60000 bytes) may only be table-wise: of that a rank has 60.0 kB`},
		{[]Demand{table("a", 60, "", nil, tw, DataParallelKind)}, `may only be data-parallel or table-wise: of that a rank has 60.0 kB`},
		{[]Demand{table("a", 300, "", nil, RowWiseKind)},
			`table "a" of 300.0 kB (300000 bytes) may only be row-wise: of that a rank has 75.0 kB`},
		{[]Demand{table("a", 30, "g", nil, tw), table("b", 30, "g", nil)}, `group "g" of 60.0 kB (60000 bytes) may only be table-wise`},
		{[]Demand{table("a", 30, "g", nil, tw), table("b", 20, "g", nil)}, ""},
		{[]Demand{table("a", 1, "g", []int{0, 1}, tw), table("b", 1, "g", []int{1, 2}), table("c", 1, "g", []int{2, 3})},
			`the 3 tables of group "g" have no layout that all of them may have: "a" may be table-wise on ranks [0 1], ` +
				`"b" may be data-parallel or row-wise or column-wise or table-wise on ranks [1 2], ` +
				`"c" may be data-parallel or row-wise or column-wise or table-wise on ranks [2 3]; allow another kind, or rank`},
		{[]Demand{table("a", 1, "g", nil, tw), table("b", 1, "g", nil, RowWiseKind, DataParallelKind), table("c", 1, "g", nil, ColumnWiseKind)},
			`group "g" have no layout that all of them may have: "a" may be table-wise, "b" may be data-parallel or row-wise; allow`},
		{[]Demand{table("a", 1, "g", []int{0, 1}, tw), table("b", 1, "g", []int{1, 2}, tw), table("c", 1, "", []int{1}, tw)}, ""},
	} {
		p, err := NewPlan(c.demands, someRates, o)
		if (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want %q", err, c.says)
		}
		for i := range c.demands {
			if c.says == "" && len(c.demands[i].Ranks) > 0 && !slices.Contains(c.demands[i].Ranks, p.choices[unitOf(p, i)].rank) {
				t.Errorf("table %d is %v, its ranks are %v", i, p.Layouts[i], c.demands[i].Ranks)
			}
		}
	}
}

// A refusal counts the copies of tables that may only be replicated: without them these would fit.
func TestPlanRefusalCountsCopies(t *testing.T) {
	_, err := NewPlan([]Demand{
		{Name: "copied", Rows: 500, Dim: 10, IDs: 1, Kinds: []Kind{DataParallelKind}},
		{Name: "free", Rows: 1600, Dim: 10, IDs: 1}}, someRates, PlanOptions{Axis: "tp", Ranks: 2, Batch: 8, MemoryBytes: 50_000})
	const says = "2 tables of 84.0 kB (84000 bytes) together, 104.0 kB (104000 bytes) with the copies that Kinds ask for, " +
		"do not fit 2 ranks of 50.0 kB"
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %q", err, says)
	}
}

// unitOf returns the unit of a table.
func unitOf(p *Plan, table int) int {
	return slices.IndexFunc(p.units, func(u unit) bool { return slices.Contains(u.tables, table) })
}
