//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// wrongPrograms are what ranks must not do: calls of rank 0, and of the others.
var wrongPrograms = []struct {
	name         string
	first, other func(context.Context, *comm.Comm) error
	want         []string // what the error says
}{
	{"a call is left out", func(ctx context.Context, c *comm.Comm) error {
		return comm.Barrier(ctx, c)
	}, func(ctx context.Context, c *comm.Comm) error {
		return errors.Join(comm.AllReduce(ctx, c, make([]float32, 5), comm.Sum), comm.Barrier(ctx, c))
	}, []string{"rank 0 called Barrier", "called AllReduce sum float32[5]"}},
	{"another kind", func(ctx context.Context, c *comm.Comm) error {
		return comm.AllGather(ctx, c, make([]int32, 2*c.Size()), make([]int32, 2))
	}, func(ctx context.Context, c *comm.Comm) error {
		return comm.AllToAll(ctx, c, make([]int32, 2*c.Size()), make([]int32, 2*c.Size()))
	}, []string{"rank 0 called AllGather int32[2]", "called AllToAll int32["}},
	{"another count", func(ctx context.Context, c *comm.Comm) error {
		return comm.AllReduce(ctx, c, make([]float32, 70_000), comm.Sum)
	}, func(ctx context.Context, c *comm.Comm) error {
		return comm.AllReduce(ctx, c, make([]float32, 70_001), comm.Sum)
	}, []string{"rank 0 called AllReduce sum float32[70000]", "called AllReduce sum float32[70001]"}},
	{"another root", func(ctx context.Context, c *comm.Comm) error {
		return comm.Broadcast(ctx, c, make([]float64, 3), 0)
	}, func(ctx context.Context, c *comm.Comm) error {
		return comm.Broadcast(ctx, c, make([]float64, 3), 1)
	}, []string{"rank 0 called Broadcast float64[3] root 0", "called Broadcast float64[3] root 1"}},
	{"another type", func(ctx context.Context, c *comm.Comm) error {
		return comm.AllReduce(ctx, c, make([]float32, 3), comm.Sum)
	}, func(ctx context.Context, c *comm.Comm) error {
		return comm.AllReduce(ctx, c, make([]int32, 3), comm.Sum)
	}, []string{"rank 0 called AllReduce sum float32[3]", "called AllReduce sum int32[3]"}},
	{"another operation", func(ctx context.Context, c *comm.Comm) error {
		return comm.AllReduce(ctx, c, make([]float32, 3), comm.Sum)
	}, func(ctx context.Context, c *comm.Comm) error {
		return comm.AllReduce(ctx, c, make([]float32, 3), comm.Max)
	}, []string{"rank 0 called AllReduce sum float32[3]", "called AllReduce max float32[3]"}},
	{"a Recv and a collective", func(ctx context.Context, c *comm.Comm) error {
		return comm.Recv(ctx, c, make([]float32, 3), 1)
	}, func(ctx context.Context, c *comm.Comm) error {
		return comm.AllReduce(ctx, c, make([]float32, 3), comm.Sum)
	}, []string{"rank 0 called Recv float32[3]", "and waits for rank 1", "rank 1 called AllReduce sum float32[3]", "and waits for rank 0",
		"none of these calls can end"}},
	{"a long Send and a collective", func(ctx context.Context, c *comm.Comm) error {
		return comm.Send(ctx, c, make([]float32, 1<<20), 1)
	}, func(ctx context.Context, c *comm.Comm) error {
		return comm.Barrier(ctx, c)
	}, []string{"rank 0 called Send float32[1048576]", "rank 1 called Barrier", "none of these calls can end"}},
	{"a circle of Recvs", func(ctx context.Context, c *comm.Comm) error {
		return comm.Recv(ctx, c, make([]int8, 1), c.Size()-1)
	}, func(ctx context.Context, c *comm.Comm) error {
		return comm.Recv(ctx, c, make([]int8, 1), c.Rank()-1)
	}, []string{"rank 0 called Recv int8[1]", "rank 1 called Recv int8[1]", "none of these calls can end"}},
}

// wrong runs one of wrongPrograms, which must fail on every rank, with the lines of its
// calls.
func wrong(ctx context.Context, r *Rank) error {
	for _, p := range wrongPrograms {
		b, err := r.Split(ctx, all(r.Size()))
		if err != nil {
			return err
		}
		c := comm.NewWorld(b)
		call := p.other
		if r.Rank() == 0 {
			call = p.first
		}
		err = call(ctx, c)
		if !errors.Is(err, comm.ErrMismatch) {
			return fmt.Errorf("%s: got %v", p.name, err)
		}
		for _, want := range p.want {
			if !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%s: got %q, want %q", p.name, err, want)
			}
		}
		if strings.Count(strings.SplitN(err.Error(), "ranks disagree", 2)[1], " at mpi/check_test.go:") < 2 {
			return fmt.Errorf("%s: %q does not have the lines of two calls", p.name, err)
		}
	}
	return nil
}

func TestWrongPrograms(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(2, 3, 5) {
			t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
				t.Parallel() // its ranks wait for probes
				l.pass(t, n, "wrong")
			})
		}
	})
}

// slow is a right program whose calls take longer than a probe waits: rank 0 is late for
// a Recv and for a collective while the others are in them.
func slow(ctx context.Context, r *Rank) error {
	c := comm.NewWorld(r)
	pairs, err := c.Split(ctx, r.Rank()/2, 0)
	if err != nil {
		return err
	}
	x := make([]float32, 1)
	for range 2 {
		if r.Rank() == 0 {
			time.Sleep(stuckAfter * 5 / 2)
			if err := comm.Send(ctx, c, x, 1); err != nil {
				return err
			}
		}
		if r.Rank() == 1 {
			if err := comm.Recv(ctx, c, x, 0); err != nil {
				return err
			}
		}
		if err := errors.Join(comm.Barrier(ctx, c), comm.Barrier(ctx, pairs)); err != nil {
			return err
		}
	}
	return nil
}

func TestSlowIsNotStuck(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		t.Parallel() // its ranks sleep
		l.pass(t, 3, "slow")
	})
}

// Ranks that are told to compare their calls in different ways would wait for each other.
func TestCheckingDiffers(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		out, err := l.run(t, 2, "checking differs", "MPI_TEST_SIZE=2")
		if want := "compares calls with its neighbours' and rank 1 not at all; give all ranks the same GORUN_DEBUG"; err == nil ||
			!strings.Contains(out, want) {
			t.Errorf("%v, want %q:\n%s", err, want, out)
		}
	})
}

func TestChecking(t *testing.T) {
	for _, test := range []struct {
		o        Options
		variable string
		want     checking
	}{
		{Options{}, "", checkNeighbours}, {Options{}, "0", checkNone}, {Options{}, "1", checkAll},
		{Options{Debug: true}, "0", checkAll}, {Options{Unchecked: true}, "", checkNone}, {Options{Unchecked: true}, "1", checkNone},
	} {
		if got := checkingOf(test.o, test.variable); got != test.want {
			t.Errorf("%+v, %q: got %v, want %v", test.o, test.variable, got, test.want)
		}
	}
}

// Both ranks of an exchange of notes know of it, and neighbours exchange them always.
func TestPartners(t *testing.T) {
	for n := 2; n <= 6; n++ {
		counts := make([]int, n)
		for _, kind := range []comm.Kind{comm.AllReduceKind, comm.AllToAllVKind, comm.GatherVKind, comm.ScatterVKind, comm.BroadcastKind} {
			for _, checks := range []checking{checkNeighbours, checkAll} {
				partners := make([][]int, n)
				for me := range n {
					r := &Rank{group: &group{}, me: me, world: all(n), checks: checks}
					call := comm.Call{Kind: kind, Root: n - 1, SrcCounts: counts, DstCounts: counts}
					for _, t := range r.notes[:r.partners(&call)] {
						partners[me] = append(partners[me], t.peer)
					}
				}
				for me, with := range partners {
					for peer := range n {
						near := peer == (me+1)%n || peer == (me+n-1)%n || checks == checkAll || kind == comm.AllToAllVKind ||
							kind.Shape().Pairwise() && (me == n-1 || peer == n-1)
						has := slices.Contains(with, peer)
						if peer != me && has != near || peer == me && has || has != slices.Contains(partners[peer], me) {
							t.Errorf("n=%d %v %v: rank %d has %v, rank %d has %v", n, kind, checks, me, with, peer, partners[peer])
						}
					}
				}
			}
		}
	}
}

// What a probe finds: it comes back to its asker, unless a rank on its way does something
// else or has made the call that is waited for.
func TestProbe(t *testing.T) {
	const id = 9
	ask := func(s *stuck, begun uint64) *stuck {
		j := silentJob(0)
		g := &group{stuck: s, begun: map[messageKey]uint64{{comm.SendKind, 1}: begun}}
		j.groups[id] = g
		probe := silentJob(1)
		text := string(append([]byte{7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, byte(comm.SendKind)}, "rank 0 called x, "...))
		j.read(probe.write(controlProbe, 0, 0, id, []byte(text)))
		return s
	}
	for _, test := range []struct {
		name  string
		s     *stuck
		begun uint64
		found bool
	}{
		{"it waits", &stuck{first: 6}, 2, true},
		{"it has sent", &stuck{first: 6}, 3, false},
		{"it asked for another call", &stuck{first: 8}, 2, false},
		{"it did not ask", &stuck{}, 2, false},
		{"it does something", nil, 2, false},
	} {
		s := ask(test.s, test.begun)
		if found := s != nil && s.err != nil; found != test.found || found &&
			(!errors.Is(s.err, comm.ErrMismatch) || !strings.Contains(s.err.Error(), "disagree: rank 0 called x, none")) {
			t.Errorf("%s: found %v, %v", test.name, found, s)
		}
	}
}
