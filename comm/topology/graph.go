package topology

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Graph gives each rank any ranks as its neighbours. It is MPI's distributed graph.
type Graph struct {
	comm                  *comm.Comm
	sources, destinations []int
	steps                 []exchange
}

// NewGraph makes a graph of the ranks of c in which this rank sends to destinations, each from 0
// to c.Size()-1, and receives from sources. If sources is nil, the sources are the ranks that
// have this one among their destinations, in ascending order. Otherwise it must list the same
// ranks, each as often, in any order. If rank a lists rank b several times among its
// destinations, the i-th of them sends to the i-th a among b's sources. All ranks must call
// NewGraph, all with sources or all with nil.
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
				return nil, fault.Located(fmt.Errorf("topology: NewGraph: %w: rank %d receives from %v, but ranks %v send to it; "+
					"give these as its sources",
					comm.ErrMismatch, c.WorldRank(r), list, in[r]))
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

// edges fills in[r] with the ranks that send to rank r, in ascending order. out[r] are the ranks
// to which rank r sends.
func edges(c *comm.Comm, out, in [][]int) error {
	for r, list := range out {
		for _, to := range list {
			if to < 0 || to >= len(out) {
				return fault.Located(fmt.Errorf("topology: NewGraph: rank %d has %d among its destinations; give ranks of 0 to %d",
					c.WorldRank(r), to, len(out)-1))
			}
			in[to] = append(in[to], r)
		}
	}
	return nil
}

// A pair is the messages between two ranks in one step: message number of each direction.
type pair struct{ low, high, number int }

// schedule returns this rank's exchanges. It divides the pairs of all ranks into steps in which
// each rank has at most one pair: every pair in turn gets the first step in which both its ranks
// are free. With at most d pairs for each rank there are fewer than 2d steps. In a pair the lower
// rank sends first.
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

// nth returns the index of the n-th x in list, counted from 0; -1 if list has fewer.
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

// Comm returns the graph's communicator. Its ranks have the same numbers as in the communicator
// that was given to NewGraph.
func (g *Graph) Comm() *comm.Comm { return g.comm }

// Sources returns the ranks that this one receives from.
func (g *Graph) Sources() []int { return slices.Clone(g.sources) }

// Destinations returns the ranks that this one sends to.
func (g *Graph) Destinations() []int { return slices.Clone(g.destinations) }

func (g *Graph) exchanges() []exchange { return g.steps }
