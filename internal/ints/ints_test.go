package ints_test

import (
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/ints"
)

func TestInts(t *testing.T) {
	if one, two := ints.Counted(1, "rank"), ints.Counted(2, "rank"); one != "1 rank" || two != "2 ranks" {
		t.Errorf("counted: %q and %q", one, two)
	}
	if s, p := ints.Sum([]int64{2, 3, 4}), ints.Product([]int{2, 3, 4}); s != 9 || p != 24 {
		t.Errorf("sum %d, product %d, want 9 and 24", s, p)
	}
	if s, p := ints.Sum[int](nil), ints.Product[int](nil); s != 0 || p != 1 {
		t.Errorf("of nothing: sum %d, product %d, want 0 and 1", s, p)
	}
	if got := ints.Starts([]int{2, 0, 3}); !slices.Equal(got, []int{0, 2, 2}) {
		t.Errorf("starts %v, want [0 2 2]", got)
	}
	if got := ints.Starts(nil); len(got) != 0 {
		t.Errorf("starts of nothing: %v", got)
	}
	if got := ints.Range(3); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("range %v, want [0 1 2]", got)
	}
	if got := ints.Pick([]string{"a", "b", "c"}, []int{2, 0, 2}); !slices.Equal(got, []string{"c", "a", "c"}) {
		t.Errorf("picked %v, want [c a c]", got)
	}
	for i, want := range []int{12, 13, 17, 18} { // rows 2 and 3 of 4, columns 2 and 3 of 5
		if got := ints.IndexIn([]int{4, 5}, []int{2, 2}, []int{2, 2}, i); got != want {
			t.Errorf("element %d is at %d, want %d", i, got, want)
		}
	}
	for a := range 20 {
		for b := 1; b < 6; b++ {
			n := 0
			for n*b < a {
				n++
			}
			if d, r := ints.DivUp(a, b), ints.RoundUp(a, b); d != n || r != n*b {
				t.Errorf("%d by %d: DivUp %d, RoundUp %d, want %d and %d", a, b, d, r, n, n*b)
			}
		}
	}
}
