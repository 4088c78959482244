package deadlock

import (
	"reflect"
	"slices"
	"testing"
)

func in(comm uint64, on int) Wait { return Wait{Comm: comm, On: on, Attended: true} }

func waiting(waits ...Wait) Rank { return Rank{Waits: waits} }

func TestCircles(t *testing.T) {
	async := Wait{Comm: 1, On: 1}
	for _, c := range []struct {
		name  string
		ranks []Rank
		want  []Circle
	}{
		{"nobody waits", []Rank{{Elsewhere: true}, {Elsewhere: true}}, nil},
		{"a line", []Rank{waiting(in(1, 1)), waiting(in(1, 2)), {Elsewhere: true}}, nil},
		{"in one communicator", []Rank{waiting(in(1, 1)), waiting(in(1, 0))}, []Circle{{Ranks: []int{0, 1}, Involved: []int{0, 1}}}},
		{"that moves", []Rank{waiting(in(1, 1)), {Waits: []Wait{in(1, 0)}, Moves: true}}, nil},
		{"over two", []Rank{waiting(in(1, 1)), waiting(in(2, 0))}, []Circle{{Ranks: []int{0, 1}, Involved: []int{0, 1}, Crossed: []int{0, 1}}}},
		{"over two, and one does more", []Rank{{Waits: []Wait{in(1, 1)}, Elsewhere: true}, waiting(in(2, 0))}, nil},
		{"in one, and one does more", []Rank{{Waits: []Wait{in(1, 1)}, Elsewhere: true}, waiting(in(1, 0))},
			[]Circle{{Ranks: []int{0, 1}, Involved: []int{0, 1}}}},
		{"beside a call that goes on by itself", []Rank{{Waits: []Wait{async}, Elsewhere: true}, waiting(in(2, 0))}, nil},
		{"behind a circle", []Rank{waiting(in(1, 2)), waiting(in(1, 2)), waiting(in(1, 3)), waiting(in(1, 2))},
			[]Circle{{Ranks: []int{2, 3}, Involved: []int{2, 3}}}},
		{"two circles", []Rank{waiting(in(1, 1)), waiting(in(1, 0)), waiting(in(2, 3)), waiting(in(3, 2))},
			[]Circle{{Ranks: []int{0, 1}, Involved: []int{0, 1}}, {Ranks: []int{2, 3}, Involved: []int{2, 3}, Crossed: []int{2, 3}}}},
		{"partly over two", []Rank{waiting(in(1, 1)), waiting(in(1, 2)), waiting(in(2, 0))},
			[]Circle{{Ranks: []int{0, 1, 2}, Involved: []int{0, 1, 2}, Crossed: []int{0, 2}}}},
		{"for any, which all wait", []Rank{waiting(in(1, Anyone)), waiting(in(2, Anyone)), waiting(in(3, 0))},
			[]Circle{{Ranks: []int{0, 1}, Involved: []int{0, 1, 2}, Crossed: []int{0, 1, 2}}}},
		{"for any, and one does more", []Rank{waiting(in(1, Anyone)), waiting(in(2, Anyone)), {Waits: []Wait{async}, Elsewhere: true}}, nil},
		{"for any, and one's wait may end", []Rank{waiting(in(1, Anyone)), waiting(in(2, Anyone)), waiting(in(3, -1))}, nil},
		{"for any of those that have not ended", []Rank{waiting(in(1, Anyone)), waiting(in(2, Anyone)), {Elsewhere: true, Ended: true}},
			[]Circle{{Ranks: []int{0, 1}, Involved: []int{0, 1}, Crossed: []int{0, 1}}}},
		{"for any, alone", []Rank{waiting(in(1, Anyone))}, []Circle{{Ranks: []int{0}, Involved: []int{0}, Crossed: []int{0}}}},
	} {
		if got := slices.Collect(Circles(c.ranks)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
