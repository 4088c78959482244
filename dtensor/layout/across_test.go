package layout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A crossing gives every rank of the target mesh each element of its box once, from
// a rank that holds it, and from itself whatever it holds already.
func TestAcrossEqualsItsTwin(t *testing.T) {
	eachCase(t, func(rnd *rand.Rand) error {
		if rnd.IntN(8) > 0 {
			return nil // an eighth of the cases is plenty
		}
		shape := randomShape(rnd)
		from, to := randomLayout(rnd, randomAxes(rnd), shape, false), randomLayout(rnd, randomAxes(rnd), shape, false)
		world := max(from.Axes().Count(), to.Axes().Count()) + rnd.IntN(3)
		x, err := Across(from, to, rnd.Perm(world)[:from.Axes().Count()], rnd.Perm(world)[:to.Axes().Count()])
		if err != nil {
			return err
		}
		source, target := newTwin(rnd, from, someValues(from.Numel())), emptyTwin(to, someValues(to.Numel()))
		for rank := range world {
			for _, s := range x.Sends(rank) {
				if !slices.ContainsFunc(x.Recvs(s.Peer), func(r Transfer) bool {
					return r.Peer == rank && slices.Equal(r.Global, s.Global) && slices.Equal(r.Size, s.Size) && slices.Equal(r.Src, s.Src) &&
						slices.Equal(r.Dst, s.Dst)
				}) {
					return fmt.Errorf("%+v: rank %d sends %v, which is not received", x, rank, s)
				}
			}
			for _, r := range x.Recvs(rank) {
				if !slices.ContainsFunc(x.Sends(r.Peer), func(s Transfer) bool { return s.Peer == rank && slices.Equal(s.Global, r.Global) }) {
					return fmt.Errorf("%+v: rank %d receives %v, which is not sent", x, rank, r)
				}
				sender, receiver := slices.Index(x.FromRanks, r.Peer), slices.Index(x.ToRanks, rank)
				own := slices.Index(x.FromRanks, rank)
				var wrong error
				walk(shape, r.Global, r.Size, func(e int) {
					if target.held[receiver][e] != absent {
						wrong = fmt.Errorf("%+v: rank %d receives element %d twice", x, rank, e)
					}
					if own >= 0 && source.held[own][e] != absent && r.Peer != rank {
						wrong = fmt.Errorf("%+v: rank %d receives element %d, which it holds", x, rank, e)
					}
					target.held[receiver][e] = source.held[sender][e]
				})
				if wrong != nil {
					return wrong
				}
			}
		}
		return target.check(to)
	})
}

func TestAcrossRefuses(t *testing.T) {
	two, _ := NewAxes(Axis{"tp", 2})
	three, _ := NewAxes(Axis{"tp", 3})
	from := mustLayout(t, two, []int{4}, Shard(0))
	for _, c := range []struct {
		from, to           Layout
		fromRanks, toRanks []int
		want               string
	}{
		{from, mustLayout(t, three, []int{5}, Shard(0)), []int{0, 1}, []int{0, 1, 2}, "shape [4] to shape [5]"},
		{from, mustLayout(t, three, []int{4}, Partial(Sum)), []int{0, 1}, []int{0, 1, 2}, "to [4] P(sum) on mesh (tp=3)"},
		{from, mustLayout(t, three, []int{4}, Shard(0)), []int{0, 1}, []int{0, 1}, "2 to ranks for the 3 positions"},
		{from, mustLayout(t, three, []int{4}, Shard(0)), []int{1, 1}, []int{0, 1, 2}, "rank 1 is twice in the from ranks [1 1]"},
	} {
		if _, err := Across(c.from, c.to, c.fromRanks, c.toRanks); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
