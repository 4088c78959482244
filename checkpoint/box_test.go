package checkpoint

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// whole is the box of all elements.
func whole(shape []int) box { return box{make([]int, len(shape)), shape} }

// naive lists what runs should, element by element.
func naive(x, y box) (list [][2]int) {
	index := slices.Clone(x.offset)
	for i := range x.numel() {
		at := i
		for d := len(index) - 1; d >= 0; d-- {
			index[d] = x.offset[d] + at%x.size[d]
			at /= x.size[d]
		}
		j, in := 0, true
		for d := range index {
			k := index[d] - y.offset[d]
			in = in && k >= 0 && k < y.size[d]
			j = j*y.size[d] + k
		}
		if in {
			list = append(list, [2]int{i, j})
		}
	}
	return list
}

func TestRunsAgainstEveryElement(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 5000 {
		dims := rng.IntN(5)
		x, y := box{make([]int, dims), make([]int, dims)}, box{make([]int, dims), make([]int, dims)}
		for d := range dims {
			x.offset[d], x.size[d] = rng.IntN(3), rng.IntN(4)
			y.offset[d], y.size[d] = rng.IntN(3), rng.IntN(4)
			if rng.IntN(2) == 0 {
				y.offset[d], y.size[d] = x.offset[d], x.size[d]
			}
		}
		var got [][2]int
		pieces := 0
		for u := range runs(x, y) {
			pieces++
			for i := range u.n {
				got = append(got, [2]int{u.x + i, u.y + i})
			}
		}
		m := meet(x, y)
		for lo := range x.numel() {
			for _, hi := range []int{lo + 1, lo + 3} {
				has := slices.ContainsFunc(got, func(g [2]int) bool { return lo <= g[0] && g[0] < hi })
				if m.touches(lo, hi) != has {
					t.Fatalf("%v and %v: touches %d to %d is %v", x, y, lo, hi, !has)
				}
			}
		}
		want := naive(x, y)
		if !slices.Equal(got, want) {
			t.Fatalf("%v and %v: got %v, want %v", x, y, got, want)
		}
		if x.overlaps(y) != (len(want) > 0) {
			t.Fatalf("%v and %v share %d elements, overlaps says %v", x, y, len(want), x.overlaps(y))
		}
		if slices.Equal(x.size, y.size) && slices.Equal(x.offset, y.offset) && pieces > 1 {
			t.Fatalf("%v and itself: %d runs", x, pieces)
		}
	}
}

func TestSlabs(t *testing.T) {
	for _, shape := range [][]int{{}, {1}, {0}, {7}, {7, 5}, {1, 1, 9}, {3, 4, 5}, {2, 0, 3}, {5, 1, 3, 2}} {
		for _, most := range []int{1, 2, 3, 7, 10, 1000} {
			at := 0
			for b := range slabs(shape, most) {
				if b.numel() > most {
					t.Errorf("%v in pieces of %d: %v", shape, most, b)
				}
				for u := range runs(whole(shape), b) {
					if u.x != at {
						t.Fatalf("%v in pieces of %d: %v begins at %d, want %d", shape, most, b, u.x, at)
					}
					at += u.n
				}
			}
			if at != whole(shape).numel() {
				t.Errorf("%v in pieces of %d: %d elements", shape, most, at)
			}
		}
	}
}
