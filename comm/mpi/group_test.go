//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
)

// communicators: more of them than a library has, of which the program keeps a few and
// lets go of the others.
func communicators(ctx context.Context, r *Rank) error {
	const (
		each = 50               // of which one is kept
		most = 4 * reclaimEvery // there at a time, kept ones apart
	)
	made := 3000
	if r.Size() > 2 {
		made = 160 // where ranks share a core, MPICH's MPI_Comm_split takes 10 ms and more
	}
	world := comm.NewWorld(r)
	parent, err := world.Split(ctx, 0, 0)
	if err != nil {
		return err
	}
	kept := map[int]*comm.Comm{}
	check := func(k int, c *comm.Comm) error {
		x := []int64{int64(k)}
		if err := comm.AllReduce(ctx, c, x, comm.Sum); err != nil || x[0] != int64(k*c.Size()) {
			return fmt.Errorf("communicator %d of %d ranks: %d, %w", k, c.Size(), x[0], err)
		}
		return nil
	}
	for k := range made {
		from, color := parent, 0
		switch k % 4 {
		case 1: // the last rank is in none
			if r.Size() > 2 && r.Rank() == r.Size()-1 {
				color = -1
			}
		case 2: // two groups, or a rank without one
			color = r.Rank() / 2
		case 3: // of one that is not used any more either
			if from, err = parent.Split(ctx, 0, -r.Rank()); err != nil {
				return fmt.Errorf("parent of %d: %w", k, err)
			}
		}
		c, err := from.Split(ctx, color, 0)
		if err != nil {
			return fmt.Errorf("%d: %w", k, err)
		}
		if c == nil {
			continue
		}
		if err := check(k, c); err != nil {
			return err
		}
		if k%each == 7 {
			kept[k] = c
		}
		r.job.mu.Lock()
		there := len(r.job.groups)
		r.job.mu.Unlock()
		if there > most+2*len(kept) {
			return fmt.Errorf("after %d there are %d communicators, of which %d are kept", k+1, there, len(kept))
		}
	}
	for k := range made {
		if c := kept[k]; c != nil {
			if err := check(k, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// turns: goroutines split communicators at the same time, and some make and close windows. They come in another
// order on each rank.
func turns(ctx context.Context, r *Rank) error {
	const many, times = 4, 4
	world := comm.NewWorld(r)
	failed := make(chan error, many)
	var parents []*comm.Comm
	for range many {
		c, err := world.Split(ctx, 0, r.Rank())
		if err != nil {
			return err
		}
		parents = append(parents, c)
	}
	for _, k := range rand.Perm(many) {
		go func() {
			c := parents[k]
			for range times {
				part, err := c.Split(ctx, 0, -c.Rank())
				if err != nil {
					failed <- err
					return
				}
				x := []int64{int64(k)}
				if err := comm.AllReduce(ctx, part, x, comm.Sum); err != nil || x[0] != int64(k*r.Size()) {
					failed <- fmt.Errorf("communicator %d of %d ranks: %d, %w", k, r.Size(), x[0], err)
					return
				}
				if k%2 == 0 {
					w, _, err := part.Internals().OpenWindow(ctx, 64)
					if err == nil {
						err = w.Close()
					}
					if err != nil {
						failed <- err
						return
					}
				}
				c = part
			}
			failed <- nil
		}()
	}
	var all error
	for range many {
		all = errors.Join(all, <-failed)
	}
	return all
}

func TestCommunicators(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { l.pass(t, n, "communicators") })
		}
	})
}

func TestTurns(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { l.pass(t, n, "turns") })
		}
	})
}

// TestResidue: ranks free a communicator only if none of them uses it and nothing is
// on its way.
func TestResidue(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(g []*group) // of one communicator, by rank
		free   bool
	}{
		{"nothing was called", func([]*group) {}, true},
		{"one is used", func(g []*group) { g[2].unused.Store(false) }, false},
		{"all are used", func(g []*group) {
			for _, g := range g {
				g.unused.Store(false)
			}
		}, false},
		{"as many collectives", func(g []*group) {
			for _, g := range g {
				g.calls.Store(71)
			}
		}, true},
		{"one has made more", func(g []*group) { g[3].calls.Store(1) }, false},
		{"one has made more, one less", func(g []*group) {
			for i, n := range []uint64{5, 6, 4, 5} {
				g[i].calls.Store(n)
			}
		}, false},
		{"messages were received", func(g []*group) { g[1].messages.Store(3); g[2].messages.Store(-2); g[0].messages.Store(-1) }, true},
		{"a message was not", func(g []*group) { g[1].messages.Store(3); g[2].messages.Store(-2) }, false},
		{"one was aborted", func(g []*group) { g[0].aborted.Store(&comm.AbortError{}) }, false},
		{"of a Split one has no group", func(g []*group) { family(g[:3], 3) }, true},
		{"what was split from it is used", func(g []*group) { family(g[:3], 3)[1].unused.Store(false) }, false},
		{"what was split from it was called", func(g []*group) { family(g[:2], 2)[1].calls.Store(2) }, false},
		{"what was split from that was", func(g []*group) { family(family(g[:2], 2), 2)[0].messages.Store(1) }, false},
	} {
		g := family(make([]*group, 4), 4)
		test.change(g)
		sum := int64(0)
		for _, g := range g {
			sum += g.residue()
		}
		if free := sum == 0; free != test.free {
			t.Errorf("%s: free is %v, want %v", test.name, free, test.free)
		}
	}
}

// family is a communicator of n ranks that was split from that of parents, and is not used.
func family(parents []*group, n int) []*group {
	made := make([]*group, n)
	for r := range made {
		made[r] = newGroup(9, 0, r, n)
		made[r].unused.Store(true)
		if p := parents[r]; p != nil {
			p.children = append(p.children, made[r])
		}
	}
	return made
}
