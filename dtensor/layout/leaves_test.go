package layout

import (
	"fmt"
	"testing"
)

// A dimension is cut so that each rank has a node or two of its leaves, and stays as it is where that is so already. It may also stay
// where some ranks have nothing of it.
func TestCutAtLeaves(t *testing.T) {
	R, S := Replicate(), Shard
	for _, c := range []struct {
		grid    []int
		places  []Placement
		n, leaf int
		want    string
		stays   string // what StayAtLeaves returns, if that is something else
	}{
		{[]int{1}, []Placement{S(0)}, 96, 6, "[S(0)] [[16]]", ""},
		{[]int{4}, []Placement{S(0)}, 96, 6, "[S(0)] [[4] [4] [4] [4]]", ""},
		{[]int{4}, []Placement{ShardSizes(0, 6, 12, 12, 66)}, 96, 6, "[S(0)] [[4] [4] [4] [4]]", ""},
		{[]int{3}, []Placement{S(0)}, 96, 6, "[S(0)[36 36 24]] [[4 2] [2 4] [4]]", ""},
		{[]int{3}, []Placement{S(0)}, 8, 1, "[S(0)] [[2 1] [1 2] [2]]", ""}, // as it is
		{[]int{3}, []Placement{ShardSizes(0, 4, 2, 2)}, 8, 1, "[S(0)[4 2 2]] [[4] [2] [2]]", ""},
		{[]int{3}, []Placement{S(0)}, 12, 3, "[S(0)[6 3 3]] [[2] [1] [1]]", ""},
		{[]int{5}, []Placement{S(0)}, 16, 1, "[S(0)[4 3 3 3 3]] [[4] [2 1] [1 2] [2 1] [1 2]]", "[S(0)] [[4] [4] [4] [4] []]"},
		{[]int{3}, []Placement{S(0)}, 6, 3, "[R] [[2]]", ""}, // too few leaves
		{[]int{3}, []Placement{S(0)}, 0, 0, "[R] [[0]]", ""},
		{[]int{5}, []Placement{S(0)}, 8, 1, "[S(0)[2 2 2 1 1]] [[2] [2] [2] [1] [1]]", "[S(0)] [[2] [2] [2] [2] []]"},
		{[]int{7}, []Placement{S(0)}, 16, 1, "[S(0)[3 3 2 2 2 2 2]] [[2 1] [1 2] [2] [2] [2] [2] [2]]",
			"[S(0)] [[2 1] [1 2] [2 1] [1 2] [2 1] [1] []]"},
		{[]int{3}, []Placement{ShardSizes(0, 6, 0, 2)}, 8, 1, "[S(0)[3 3 2]] [[2 1] [1 2] [2]]", "[S(0)[6 0 2]] [[4 2] [] [2]]"},
		{[]int{3}, []Placement{ShardSizes(0, 7, 0, 1)}, 8, 1, "[S(0)[3 3 2]] [[2 1] [1 2] [2]]", ""}, // three nodes
		{[]int{2}, []Placement{ShardSizes(0, 0, 8)}, 8, 1, "[S(0)] [[4] [4]]", "[S(0)[0 8]] [[] [8]]"},
		{[]int{3, 2}, []Placement{S(0), S(0)}, 32, 1, "[R R] [[32]]", ""}, // no single axis
		{[]int{3, 2}, []Placement{S(1), S(0)}, 32, 1, "[S(1) S(0)] [[16] [16]]", ""},
		{[]int{3, 1}, []Placement{S(0), S(0)}, 32, 4, "[S(0)[12 12 8] S(0)] [[2 1] [1 2] [2]]", ""},
		{[]int{2, 2}, []Placement{S(0), S(0)}, 32, 4, "[S(0) S(0)] [[2] [2] [2] [2]]", ""},
		{[]int{3}, []Placement{R}, 32, 4, "[R] [[8]]", ""},
	} {
		var axes []Axis
		for i, size := range c.grid {
			axes = append(axes, Axis{Name: fmt.Sprint("a", i), Size: size})
		}
		on, err := NewAxes(axes...)
		if err != nil {
			t.Fatal(err)
		}
		if c.stays == "" {
			c.stays = c.want
		}
		cut, nodes := CutAtLeaves(on, c.places, 0, c.n, c.leaf)
		stay, its := StayAtLeaves(on, c.places, 0, c.n, c.leaf)
		if got, left := fmt.Sprint(cut, nodes), fmt.Sprint(stay, its); got != c.want || left != c.stays {
			t.Errorf("%v on %v, %d elements in leaves of %d: %s and %s, want %s and %s", c.places, c.grid, c.n, c.leaf, got, left, c.want, c.stays)
		}
	}
}
