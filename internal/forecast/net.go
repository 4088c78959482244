package forecast

import (
	"math"
	"math/bits"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// A Level is ranks that reach each other in one way, from the host to the whole job.
type Level struct {
	Name  string `json:"name"`
	Ranks int    `json:"ranks"` // that a unit of the level has, the first ranks one, and so on; of the last all
	Link         // of a unit of the level below, shared by its ranks; of the first a rank's own
}

// A Net is the levels of a job, the innermost first; nil: nothing is known.
type Net []Level

// Units returns the ranks of a unit of each level but the last.
func (n Net) Units() (ranks []int) {
	if len(n) == 0 {
		return nil
	}
	for _, l := range n[:len(n)-1] {
		ranks = append(ranks, l.Ranks)
	}
	return ranks
}

// Together returns by level but the last how many of some ranks one unit has at most.
func Together(units, ranks []int) []int {
	most := make([]int, len(units))
	for i, size := range units {
		in := map[int]int{}
		for _, r := range ranks {
			in[r/size]++
			most[i] = max(most[i], in[r/size])
		}
	}
	return most
}

// Collective returns the seconds that a call takes from when the last rank has come to it. bytes
// are those that a rank hands in, together is the group's Together.
//
// Ranks of one host copy as package comm/shm does. Over a network the call is the fastest of the
// standard algorithms: recursive doubling and halving, rings, binomial trees, pairwise exchange
// (R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in
// MPICH, International Journal of High Performance Computing Applications 19(1), 2005). A host sends
// and receives on its link what one rank would, for each group that it has part of, as algorithms
// do that know the hosts; an all-to-all sends all.
func (n Net) Collective(kind string, bytes float64, size int, together []int) float64 {
	if size < 2 {
		return 0
	}
	seconds, inner := 0.0, 1
	for i, l := range n {
		members := size
		if i < len(together) {
			members = together[i]
		}
		parts := ints.DivUp(members, inner) // units of the level below that take part
		switch {
		case parts < 2:
		case i == 0:
			seconds = copied(kind, bytes, members, l.Link)
		default:
			seconds = max(seconds, n.crossing(i, kind, bytes, inner, parts))
		}
		if members == size {
			break
		}
		inner = max(members, 1)
	}
	return seconds
}

// smallest is the largest number of bytes that ranks of a host put into the slots by which they meet: up to it they meet once.
const smallest = 4096

// copied is a call between ranks of a host.
func copied(kind string, bytes float64, size int, l Link) float64 {
	p := float64(size)
	moved := bytes // read and written
	switch kind {
	case "Barrier":
		return l.Latency
	case "AllGather", "AllGatherV", "Split":
		moved = 2 * p * bytes
	case "ReduceScatter", "ReduceScatterV":
		moved = bytes + bytes/p
	case "Scan", "Exscan":
		moved = p * bytes
	case "Gather", "GatherV":
		moved = 2 * p * bytes
	default: // a fold divided among the ranks, or a copy of as much as a rank hands in
		moved = 2 * bytes
	}
	if bytes <= smallest {
		return l.Latency + p*bytes/l.Bandwidth
	}
	return 2*l.Latency + moved/l.Bandwidth
}

// crossing is a call between parts units of the level below level i.
func (n Net) crossing(i int, kind string, bytes float64, inner, parts int) float64 {
	l, below := n[i], n[i-1].Ranks
	p, steps, alpha := float64(parts), float64(bits.Len(uint(parts-1))), l.Latency
	beta := max(1, float64(below)/float64(inner)) / l.Bandwidth // groups that share the link of a unit below
	rest := (p - 1) / p
	switch kind {
	case "Barrier":
		return steps * alpha
	case "AllReduce":
		return min(steps*(alpha+bytes*beta), 2*steps*alpha+2*rest*bytes*beta)
	case "Reduce", "Broadcast":
		return min(steps*(alpha+bytes*beta), 2*steps*alpha+2*rest*bytes*beta, (steps+p-1)*alpha+2*rest*bytes*beta)
	case "AllGather", "AllGatherV", "Split", "Gather", "GatherV":
		return steps*alpha + (p-1)*float64(inner)*bytes*beta
	case "ReduceScatter", "ReduceScatterV", "Scatter", "ScatterV":
		return steps*alpha + rest*bytes*beta
	case "AllToAll", "AllToAllV":
		all := float64(inner) * bytes * beta // of the ranks of a unit
		return min(steps*alpha+all/2*steps, math.Max(p-1, 1)*alpha+rest*all)
	case "Scan", "Exscan":
		return steps * (alpha + bytes*beta)
	}
	return alpha + bytes*beta // a message
}

// message returns the seconds of a message between two ranks.
func (n Net) message(bytes float64, from, to int) float64 {
	for i, l := range n {
		if i == len(n)-1 || from/l.Ranks == to/l.Ranks {
			if i == 0 {
				return l.Latency + 2*bytes/l.Bandwidth
			}
			return l.Latency + bytes/l.Bandwidth
		}
	}
	return 0
}
