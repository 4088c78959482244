package layout

import "testing"

// Each row is held by one rank, at the place that Served gives it, and Below counts the rows before it.
func TestHeld(t *testing.T) {
	axes, err := NewAxes(Axis{Name: "a", Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []Placement{Shard(0), ShardCyclic(), ShardSizes(0, 4, 0, 6)} {
		for _, rows := range []int{0, 1, 2, 10, 11} {
			if place.Sizes() != nil && rows != 10 {
				continue
			}
			l, err := New(axes, []int{rows, 2}, place)
			if err != nil {
				t.Fatal(err)
			}
			seen := 0
			for rank := range 3 {
				held := l.Held([]int{rank})
				first, n := l.Span([]int{rank}, 0)
				below := 0
				for row := range rows + 1 {
					if got := held.Below(row); got != below {
						t.Errorf("%v, %d rows: rank %d has %d rows below %d, want %d", place, rows, rank, got, row, below)
					}
					if below < n && held.Row(below) == row {
						if got := l.Served(row); got != first+below {
							t.Errorf("%v, %d rows: row %d is %d of rank %d, want %d", place, rows, row, first+below, rank, got)
						}
						below++
					}
				}
				seen += below
			}
			if seen != rows {
				t.Errorf("%v: %d of %d rows are held", place, seen, rows)
			}
		}
	}
}
