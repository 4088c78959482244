package topology

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
)

// A Graph has any ranks as neighbours of a rank: MPI's distributed graph.
type Graph struct {
	comm                  *comm.Comm
	sources, destinations []int
	steps                 []exchange
}

// NewGraph makes a graph of the ranks of c in which this rank sends to destinations, each of 0
// to c.Size()-1, and receives from sources. If sources is nil, it is the ranks that have this
// one among their destinations, in the order of their numbers. Otherwise it must have these
// ranks in any order, each as often. A rank may be there more than once: then its first source
// receives what its first destination sends, and so on. All ranks must call it, nil
// or not as the others.
func NewGraph(ctx context.Context, c *comm.Comm, sources, destinations []int) (*Graph, error) {
	out, err := comm.AllGatherSlices(ctx, c, destinations)
	if err != nil {
		return nil, err
	}
	in := make([][]int, c.Size())
	if err := edges(c, out, in); err != nil {
		return nil, err
	}
	given := []int{0}
	if sources != nil {
		given[0] = 1
	}
	if err := agree(ctx, c, "NewGraph (1: with sources)", given); err != nil {
		return nil, err
	}
	if sources != nil {
		all, err := comm.AllGatherSlices(ctx, c, sources)
		if err != nil {
			return nil, err
		}
		for r, list := range all {
			if sorted := slices.Sorted(slices.Values(list)); !slices.Equal(sorted, in[r]) {
				return nil, fmt.Errorf("topology: NewGraph: %w: rank %d receives from %v, but ranks %v send to it; give these as its sources",
					comm.ErrMismatch, c.WorldRank(r), list, in[r])
			}
		}
	} else {
		sources = in[c.Rank()]
	}
	own, err := c.Split(ctx, 0, c.Rank())
	if err != nil {
		return nil, err
	}
	g := &Graph{comm: own, sources: slices.Clone(sources), destinations: slices.Clone(destinations)}
	g.steps = schedule(c.Rank(), g.sources, g.destinations, out)
	return g, nil
}

// edges sets in to the ranks that send to each rank, in order, given those that each sends to.
func edges(c *comm.Comm, out, in [][]int) error {
	for r, list := range out {
		for _, to := range list {
			if to < 0 || to >= len(out) {
				return fmt.Errorf("topology: NewGraph: rank %d has %d among its destinations; give ranks of 0 to %d", c.WorldRank(r), to, len(out)-1)
			}
			in[to] = append(in[to], r)
		}
	}
	return nil
}

// A pair is the messages between two ranks that go in one step: the number-th of each direction.
type pair struct{ low, high, number int }

// schedule returns this rank's exchanges. The pairs of all ranks are divided into steps in which
// a rank has at most one pair, by giving each in turn the first step in which both ranks are
// free: with at most d pairs a rank there are fewer than 2d steps. In a pair the lower rank
// sends first.
func schedule(me int, sources, destinations []int, out [][]int) []exchange {
	counts := map[pair]bool{}
	for r, list := range out {
		numbers := map[int]int{}
		for _, to := range list {
			counts[pair{min(r, to), max(r, to), numbers[to]}] = true
			numbers[to]++
		}
	}
	pairs := make([]pair, 0, len(counts))
	for p := range counts {
		pairs = append(pairs, p)
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.low, b.low), cmp.Compare(a.high, b.high))
	})
	busy := make([]map[int]bool, len(out)) // the steps of each rank
	for r := range busy {
		busy[r] = map[int]bool{}
	}
	type mine struct {
		step int
		exchange
	}
	var all []mine
	for _, p := range pairs {
		step := 0
		for busy[p.low][step] || busy[p.high][step] {
			step++
		}
		busy[p.low][step], busy[p.high][step] = true, true
		if p.low != me && p.high != me {
			continue
		}
		peer := p.low + p.high - me
		e := exchange{to: None, from: None, sendFirst: me < peer}
		if i := nth(destinations, peer, p.number); i >= 0 {
			e.to, e.destination = peer, i
		}
		if i := nth(sources, peer, p.number); i >= 0 {
			e.from, e.source = peer, i
		}
		all = append(all, mine{step, e})
	}
	slices.SortFunc(all, func(a, b mine) int { return a.step - b.step })
	exchanges := make([]exchange, len(all))
	for i, m := range all {
		exchanges[i] = m.exchange
	}
	return exchanges
}

// nth returns the index of the n-th x in list, from 0; -1 if there are not so many.
func nth(list []int, x, n int) int {
	for i, y := range list {
		if y == x {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return -1
}

// Comm returns the graph's communicator. Its ranks have the numbers that they have in that which
// the graph was made of.
func (g *Graph) Comm() *comm.Comm { return g.comm }

// Sources returns the ranks that this one receives from.
func (g *Graph) Sources() []int { return slices.Clone(g.sources) }

// Destinations returns the ranks that this one sends to.
func (g *Graph) Destinations() []int { return slices.Clone(g.destinations) }

func (g *Graph) exchanges() []exchange { return g.steps }
