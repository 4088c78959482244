package comm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// Split makes communicators of the ranks that give the same color, ordered by
// key and then by rank. All ranks must call it. A rank with a negative color
// joins none and gets nil. A group of one rank makes no shared state. A Split of all
// ranks with one color and their own numbers as keys is MPI's MPI_Comm_dup.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	return c.splitByColor(ctx, color, key, nil)
}

// splitByColor is Split. places, if it is not nil, says what each rank gives.
func (c *Comm) splitByColor(ctx context.Context, color, key int, places func(rank int) (color, key int)) (*Comm, error) {
	return c.split(ctx, color, key, places, fmt.Sprintf(":%d", color), func(s *splitting) (group, bool, error) {
		s.divide.Do(func() { s.groups, s.shared = divide(c.world, s.all) })
		return s.groups[color], s.shared, nil
	})
}

// Group makes a communicator of the given ranks of c, in that order. All ranks
// of c must call it with the same list; those outside it get nil. For several groups
// at once use Split.
func (c *Comm) Group(ctx context.Context, ranks []int) (*Comm, error) {
	hash := int(backend.HashCounts(ranks))
	places := func(int) (int, int) { return hash, len(ranks) }
	return c.split(ctx, hash, len(ranks), places, "", func(s *splitting) (g group, shared bool, err error) {
		for r := range c.size {
			if s.all[2*r] != s.all[0] || s.all[2*r+1] != s.all[1] {
				return g, false, fmt.Errorf("%w: ranks %d and %d gave different lists of ranks to Group, this one %v; give all the same",
					ErrMismatch, c.world[0], c.world[r], ranks)
			}
		}
		seen := make([]bool, c.size)
		for i, r := range ranks {
			if r < 0 || r >= c.size || seen[r] {
				return g, false, fmt.Errorf("ranks[%d] of Group is %d, in %v; give each of 0 to %d at most once", i, r, ranks, c.size-1)
			}
			seen[r] = true
		}
		if seen[c.rank] {
			g = newGroup(c.world, slices.Clone(ranks))
		}
		return g, len(ranks) > 1, nil
	})
}

// A splitting is what the ranks of a Split give, and the groups that follow. Ranks of one process share one.
type splitting struct {
	all    []int // two numbers of each rank
	divide sync.Once
	groups map[int]group // by colour
	shared bool          // some group has two ranks
}

// A splitKey is the key of a splitting: the communicator's name and the number of the Split.
type splitKey struct {
	name   string
	splits int
}

// A group is the ranks of a new communicator.
type group struct {
	members []int // their ranks in the communicator that is split
	world   []int // their world numbers
}

func newGroup(world, members []int) group {
	return group{members: members, world: ints.Pick(world, members)}
}

// divide returns the groups of the ranks that give the same colour, from the colour and the key of each rank.
func divide(world []int, all []int) (groups map[int]group, shared bool) {
	members := map[int][]int{}
	for r := range world {
		if color := all[2*r]; color >= 0 {
			members[color] = append(members[color], r)
		}
	}
	groups = map[int]group{}
	for color, ranks := range members {
		slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
		groups[color] = newGroup(world, ranks)
		shared = shared || len(ranks) > 1
	}
	return groups, shared
}

// split makes a communicator. It gathers two numbers from each rank, a and b from this one; places, if it is not
// nil, says which numbers each rank gives. choose then returns this rank's group, an empty one if it is in none,
// and says whether some rank's group has two ranks. suffix ends the communicator's name.
func (c *Comm) split(ctx context.Context, a, b int, places func(rank int) (a, b int), suffix string,
	choose func(s *splitting) (g group, shared bool, err error),
) (*Comm, error) {
	mine := Of([]int{a, b})
	if c.none() {
		return nil, noComm(&Call{Kind: SplitKind, Src: mine})
	}
	c.drain()
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.splits++
	key := splitKey{c.name, c.splits}
	s := c.shared.common.Get(key, func() any { return &splitting{all: make([]int, 2*c.size)} }).(*splitting)
	c.call = Call{Kind: SplitKind, Dst: Of(s.all), Src: mine}
	c.call.SetPlaces(places)
	if err := c.run(ctx, &c.call); err != nil {
		return nil, err // c.call stays, as others may still read it
	}
	c.call = Call{Kind: SplitKind, Src: mine} // without s.all, for errors of what follows
	c.shared.common.Delete(key)               // all ranks have s
	g, shared, err := choose(s)
	if err != nil {
		c.backend.Abort(err)
		return nil, c.fail(&c.call, err)
	}
	var joined Backend // of a group of two ranks or more
	if shared {
		members := g.members
		if len(members) == 1 {
			members = nil
		}
		if joined, err = c.backend.Split(ctx, members); err != nil {
			return nil, c.fail(&c.call, err)
		}
	}
	if len(g.members) == 0 {
		return nil, nil
	}
	name := fmt.Sprintf("%s/%d%s", c.name, c.splits, suffix)
	return newComm(name, c.shared, joined, slices.Index(g.members, c.rank), g.world, c.memory), nil
}
