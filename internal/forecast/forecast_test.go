package forecast

import (
	"slices"
	"testing"
)

// Along each axis the first rank runs, the last, and one of each interval of equal shards.
func TestChoose(t *testing.T) {
	m := &Mesh{Names: []string{"dp", "tp"}, Sizes: []int{512, 8}, Whole: true, Breaks: [][]int{nil, {5}}}
	run, grid, err := Choose(4096, []*Mesh{{Names: []string{"all"}, Sizes: []int{4096}, Whole: true, Breaks: [][]int{nil}}, m}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []int
	for _, dp := range []int{0, 255, 511} {
		for _, tp := range []int{0, 2, 5, 7} {
			want = append(want, dp*8+tp)
		}
	}
	if !slices.Equal(run, want) {
		t.Errorf("run %v, want %v", run, want)
	}
	r := Request{Size: 4096, Run: run, Grid: grid}
	for rank, want := range map[int]int{0: 0, 4: 2, 6: 5, 7: 7, 8: 255 * 8, 510*8 + 1: 255*8 + 2, 4095: 4095, 511 * 8: 511 * 8} {
		if got := r.For(rank); got != want {
			t.Errorf("rank %d: %d stands in for it, want %d", rank, got, want)
		}
	}
	for _, rank := range run {
		if r.For(rank) != rank {
			t.Errorf("%d stands in for rank %d, which runs", r.For(rank), rank)
		}
	}
	if run, _, _ = Choose(4096, []*Mesh{m}, []int{8 * 17}); !slices.Contains(run, 8*17) {
		t.Errorf("rank %d does not run: %v", 8*17, run)
	}
}

// Without a grid the next rank below stands in.
func TestBelow(t *testing.T) {
	r := Request{Size: 10, Run: []int{0, 4, 9}}
	for rank, want := range []int{0, 0, 0, 0, 4, 4, 4, 4, 4, 9} {
		if got := r.For(rank); got != want {
			t.Errorf("rank %d: %d, want %d", rank, got, want)
		}
	}
}

func TestBreaks(t *testing.T) {
	sizes := []int{4, 4, 4, 4, 4, 3, 0, 0, 0}
	if got := breaks(len(sizes), func(a, b int) bool { return sizes[a] == sizes[b] }); !slices.Equal(got, []int{5, 6}) {
		t.Errorf("got %v", got)
	}
}
