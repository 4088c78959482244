// Package deadlock finds ranks that wait for each other.
//
// The nodes of the graph are waits: a rank has one for each communicator in which it
// waits. A wait is for the first rank that has not come. It is stuck
//
//   - if that rank waits in the same communicator, whose calls it makes in order, and
//     that wait is stuck; or
//   - if that rank has not begun the call, its program is blocked in some waits, and
//     all of these are stuck. This holds only while no other goroutine of that rank may
//     make the call: see Circle.Crossed.
//
// A wait for any rank is stuck if each of the others has ended, or its program is blocked in
// some waits that are all stuck. A stuck wait is part of a circle or behind one.
package deadlock

import (
	"iter"
	"slices"
)

// A Wait is a call that a rank waits in.
type Wait struct {
	Comm     uint64 // the communicator's number, the same on all ranks
	On       int    // the first rank that has not come; Anyone, or -1 if that is not known, and the wait may end
	Attended bool   // the program is blocked in the call; else the call is asynchronous
}

// Anyone is the On of a wait that any other rank ends.
const Anyone = -2

// A Rank is the waits of one rank.
type Rank struct {
	Waits     []Wait // at most one for each communicator
	Elsewhere bool   // the program is known to do something beside its waits
	Moves     bool   // its waits may be about to end, or the rank is stopped
	Ended     bool   // it will do nothing more
}

// A Circle is a set of ranks that wait for each other.
type Circle struct {
	Ranks []int // each waits for the next, and the last for the first, which is the lowest rank

	// Involved are all ranks whose waits keep the circle closed, in ascending order.
	Involved []int

	// Crossed are the involved ranks that wait in one communicator while another rank waits
	// for them in another, and those that wait for any. The circle is real only if none of their goroutines can do anything
	// until one of their waits ends.
	Crossed []int
}

// A node is one wait: the rank, and the wait's index in the rank's list.
type node struct{ rank, wait int }

type graph []Rank

// Circles returns one circle for each group of stuck waits that lead to the same circle.
func Circles(ranks []Rank) iter.Seq[Circle] {
	return func(yield func(Circle) bool) {
		g := graph(ranks)
		stuck := g.stuck()
		tried := map[node]node{} // the start of the walk that visited the node
		for r := range g {
			for i := range g[r].Waits {
				start := node{r, i}
				at := start
				for stuck[at] && tried[at] == (node{}) {
					tried[at] = node{start.rank, start.wait + 1} // the zero node is none
					at = g.needs(at)[0]
				}
				if stuck[at] && tried[at] == (node{start.rank, start.wait + 1}) && !yield(g.circle(at)) {
					return
				}
			}
		}
	}
}

// stuck returns the waits that cannot end.
func (g graph) stuck() map[node]bool {
	stuck := map[node]bool{}
	behind := map[node][]node{}
	var free []node
	for r := range g {
		for i := range g[r].Waits {
			n := node{r, i}
			needs := g.needs(n)
			stuck[n] = !g[r].Moves && !g[r].Ended && len(needs) > 0
			if !stuck[n] {
				free = append(free, n)
			}
			for _, m := range needs {
				behind[m] = append(behind[m], n)
			}
		}
	}
	for ; len(free) > 0; free = free[1:] {
		for _, n := range behind[free[0]] {
			if stuck[n] {
				stuck[n] = false
				free = append(free, n)
			}
		}
	}
	return stuck
}

// needs returns the waits of which at least one must end before n can. It returns none if the
// rank for which n waits may come without that.
func (g graph) needs(n node) (waits []node) {
	w := &g[n.rank].Waits[n.wait]
	if w.On == Anyone {
		for r := range g {
			if r == n.rank || g[r].Ended {
				continue
			}
			theirs := g.blocked(r)
			if len(theirs) == 0 {
				return nil
			}
			waits = append(waits, theirs...)
		}
		if waits == nil { // nobody else is there
			waits = []node{n}
		}
		return waits
	}
	if w.On < 0 {
		return nil
	}
	on := &g[w.On]
	for i := range on.Waits {
		if on.Waits[i].Comm == w.Comm {
			return []node{{w.On, i}}
		}
	}
	return g.blocked(w.On)
}

// blocked returns the waits that a rank's program is blocked in; none if it does something beside.
func (g graph) blocked(rank int) (waits []node) {
	if g[rank].Elsewhere {
		return nil
	}
	for i := range g[rank].Waits {
		if g[rank].Waits[i].Attended {
			waits = append(waits, node{rank, i})
		}
	}
	return waits
}

// circle returns the circle through at, which is stuck.
func (g graph) circle(at node) (c Circle) {
	c.Ranks = []int{at.rank}
	for next := g.needs(at)[0]; next != at; next = g.needs(next)[0] {
		c.Ranks = append(c.Ranks, next.rank)
	}
	low := slices.Index(c.Ranks, slices.Min(c.Ranks))
	c.Ranks = slices.Concat(c.Ranks[low:], c.Ranks[:low])

	found, seen := []node{at}, map[node]bool{at: true}
	for i := 0; i < len(found); i++ {
		n := found[i]
		c.Involved = append(c.Involved, n.rank)
		if g[n.rank].Waits[n.wait].On == Anyone { // the rank itself may end it
			c.Crossed = append(c.Crossed, n.rank)
		}
		for _, next := range g.needs(n) {
			if g[next.rank].Waits[next.wait].Comm != g[n.rank].Waits[n.wait].Comm {
				c.Crossed = append(c.Crossed, next.rank)
			}
			if !seen[next] {
				seen[next] = true
				found = append(found, next)
			}
		}
	}
	slices.Sort(c.Involved)
	slices.Sort(c.Crossed)
	c.Involved, c.Crossed = slices.Compact(c.Involved), slices.Compact(c.Crossed)
	return c
}
