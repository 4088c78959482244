// Package mem is the backend whose ranks are goroutines of one process: for
// tests, and the reference that the other backends are compared with.
//
// Each collective is two meetings of all ranks. At the first they show each
// other their calls; then each computes its own result, aside, from the
// others' memory; after the second, when all have read, each stores it.
package mem

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// Open returns the world of n ranks: one end for each, of which a Comm is made
// with comm.NewWorld.
func Open(n int) []*Rank {
	j := &job{ended: map[int]string{}}
	j.wake.L = &j.mu
	world := make([]int, n)
	for r := range world {
		world[r] = r
	}
	g := &group{job: j, world: world, mail: map[pair][]*letter{}}
	ranks := make([]*Rank, n)
	for r := range ranks {
		ranks[r] = &Rank{g, r}
	}
	return ranks
}

// job is what all groups of one world share. Every change of a group or of the
// job wakes everybody who waits.
type job struct {
	mu    sync.Mutex
	wake  sync.Cond
	ended map[int]string // by world number, with the cause
}

// group is one communicator, guarded by its job's lock.
type group struct {
	*job
	parent  *group
	world   []int
	now     *meeting
	mail    map[pair][]*letter
	aborted *comm.AbortError
}

// meeting collects one value from each rank.
type meeting struct {
	values []any
	came   int
}

// Rank is one rank's end of a group. It implements comm.Backend.
type Rank struct {
	g    *group
	rank int
}

// Rank returns this rank's number in the group.
func (r *Rank) Rank() int { return r.rank }

// Size returns the number of ranks.
func (r *Rank) Size() int { return len(r.g.world) }

// Memory returns nil: any memory will do.
func (r *Rank) Memory() mem.Allocator { return nil }

// End says that this rank will make no more calls on any communicator: calls
// of others that need it fail. cause is "" if it ended without an error.
func (r *Rank) End(cause string) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if _, ok := r.g.ended[r.g.world[r.rank]]; !ok {
		r.g.ended[r.g.world[r.rank]] = cause
	}
	r.g.wake.Broadcast()
}

// Abort ends the group and those split from it.
func (r *Rank) Abort(cause error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.abort(cause)
}

func (r *Rank) abort(cause error) {
	if r.g.aborted == nil {
		r.g.aborted = &comm.AbortError{Rank: r.g.world[r.rank], Cause: cause.Error(), Err: cause}
		r.g.wake.Broadcast()
	}
}

// dead returns the abort that ended the group, if one did.
func (g *group) dead() *comm.AbortError {
	for ; g != nil; g = g.parent {
		if g.aborted != nil {
			return g.aborted
		}
	}
	return nil
}

// wait returns when done is true; the job's lock is held. missing lists the
// ranks it still needs.
func (r *Rank) wait(ctx context.Context, done func() bool, missing func() []int) error {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			r.g.mu.Lock()
			defer r.g.mu.Unlock()
			r.g.wake.Broadcast()
		})
		defer stop()
	}
	for !done() {
		if e := r.g.dead(); e != nil {
			return e
		}
		late := missing()
		for _, w := range late {
			if cause, ok := r.g.ended[w]; ok {
				err := &comm.EndedError{Rank: w, Cause: cause}
				r.abort(err)
				return err
			}
		}
		if ctx.Err() != nil {
			err := comm.Late(context.Cause(ctx), late)
			r.abort(err)
			return err
		}
		r.g.wake.Wait()
	}
	return nil
}

// meet gives every rank the values of all. Once all have come no rank fails.
func (r *Rank) meet(ctx context.Context, value any) ([]any, error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return nil, e
	}
	m := r.come(value)
	err := r.wait(ctx, m.complete, func() (late []int) {
		for i, v := range m.values {
			if v == nil {
				late = append(late, r.g.world[i])
			}
		}
		return late
	})
	return m.values, err
}

// part is a meeting that ends a call: all ranks are on their way to it, and
// none may go before the others have done with its memory, whatever happens.
func (r *Rank) part(value any) []any {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	m := r.come(value)
	for !m.complete() {
		r.g.wake.Wait()
	}
	return m.values
}

// come adds a value to the meeting in progress; the job's lock is held.
func (r *Rank) come(value any) *meeting {
	g := r.g
	if g.now == nil {
		g.now = &meeting{values: make([]any, len(g.world))}
	}
	m := g.now
	m.values[r.rank] = value
	if m.came++; m.came == len(g.world) {
		g.now = nil
		g.wake.Broadcast()
	}
	return m
}

func (m *meeting) complete() bool { return m.came == len(m.values) }

// Split makes new groups; the first member of each makes it.
func (r *Rank) Split(ctx context.Context, members []int) (comm.Backend, error) {
	var made *group
	if len(members) > 0 && members[0] == r.rank {
		world := make([]int, len(members))
		for i, m := range members {
			world[i] = r.g.world[m]
		}
		made = &group{job: r.g.job, parent: r.g, world: world, mail: map[pair][]*letter{}}
	}
	all, err := r.meet(ctx, made)
	if err != nil || len(members) == 0 {
		return nil, err
	}
	return &Rank{all[members[0]].(*group), slices.Index(members, r.rank)}, nil
}

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *comm.Call) error {
	switch call.Kind {
	case comm.SendKind:
		return r.send(ctx, call)
	case comm.RecvKind:
		return r.recv(ctx, call)
	}
	values, err := r.meet(ctx, call)
	if err != nil {
		return err
	}
	calls := make([]*comm.Call, len(values))
	for i, v := range values {
		calls[i] = v.(*comm.Call)
	}
	for i, c := range calls {
		if c.Fingerprint() != calls[0].Fingerprint() {
			return r.mismatch(calls, 0, i)
		}
	}
	var result []byte
	if err = agree(calls, r.g.world); err == nil {
		result = compute(calls, r.rank)
	}
	r.part(true)
	copy(call.Dst.Data(), result)
	return err
}

// mismatch is the error of ranks a and b, which all ranks have seen to differ.
func (r *Rank) mismatch(calls []*comm.Call, a, b int) error {
	sites := r.part(calls[r.rank].Site())
	party := func(i int) comm.Party {
		return comm.Party{Rank: r.g.world[i], Call: calls[i].String(), Site: fmt.Sprint(sites[i])}
	}
	err := comm.Mismatch(party(a), party(b))
	r.part(true)
	return err
}
