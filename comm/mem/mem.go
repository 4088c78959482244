// Package mem is the backend whose ranks are goroutines of one process: for
// tests, for jobs of thousands of ranks, and the reference that the other
// backends are compared with.
//
// Each collective is one meeting of all ranks, at which they show each other
// their calls. What is to be computed is divided into parts, not among ranks: the
// last to come begins, and if it is much, others take parts too. So an element of a
// reduction is folded once, and is written where every rank wants it. When no part is
// left all ranks go on.
//
//	for _, end := range mem.Open(4) {
//		go func() {
//			defer end.End("")
//			train(ctx, comm.NewWorld(end))
//		}()
//	}
//
// Run is this loop with errors and a wait for all ranks. In tests use commtest.Run.
package mem

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// Open returns the world of n ranks: one end for each, of which a Comm is made
// with comm.NewWorld.
func Open(n int) []*Rank { return OpenNumbered(ints.Range(n)) }

// OpenNumbered is Open for ranks of a larger job. Errors name the ranks by these numbers.
func OpenNumbered(numbers []int) []*Rank {
	n := len(numbers)
	j := &job{numbers: numbers, ended: map[int]string{}, over: make([]atomic.Pointer[string], n), watched: map[<-chan struct{}]struct{}{}}
	g := newGroup(j, nil, ints.Range(n))
	ranks := make([]*Rank, n)
	for r := range ranks {
		ranks[r] = &g.ranks[r]
	}
	return ranks
}

// job is the state that all groups of one world share.
type job struct {
	mu      sync.Mutex
	numbers []int          // the ranks' numbers in errors, by world number
	ended   map[int]string // the cause of each rank's end, by world number

	over []atomic.Pointer[string] // the same, for callers without the lock

	watched map[<-chan struct{}]struct{} // the contexts whose end wakes everybody, by Done

	waits    []*waiting     // the waiting calls of all ranks in all groups
	changes  int            // how often waits has changed
	describe bool           // waiting ranks are to name their calls
	deadlock *DeadlockError // has ended all groups

	failed atomic.Bool // a group was aborted or there is a deadlock; for callers without the lock

	workers []*worker // those that nobody uses

	attrs backend.Attrs // see backend.CommonBackend
}

// wakeAll wakes the ranks that wait in any group; the job's lock is held.
func (j *job) wakeAll() {
	for _, w := range j.waits {
		w.rank.wake.Signal()
	}
}

// group is one communicator, guarded by its job's lock.
type group struct {
	*job
	parent   *group
	world    []int
	ranks    []Rank
	meetings [2]meeting      // the one in progress is number turn%2
	turn     int             // how many meetings all ranks have come to
	calls    []*backend.Call // room for the calls of a meeting
	sends    map[direction]*sendSlot
	aborted  *backend.AbortError
}

func newGroup(j *job, parent *group, world []int) *group {
	g := &group{job: j, parent: parent, world: world, ranks: make([]Rank, len(world)), calls: make([]*backend.Call, len(world)),
		sends: map[direction]*sendSlot{}}
	for i := range g.ranks {
		r := &g.ranks[i]
		r.g, r.rank, r.wake.L = g, i, &j.mu
	}
	return g
}

// wake wakes those of the group's ranks that wait.
func (g *group) wake() {
	for i := range g.ranks {
		g.ranks[i].wake.Signal()
	}
}

// Rank is one rank's end of a group. It implements backend.Backend.
type Rank struct {
	g    *group
	rank int
	wake sync.Cond // what this rank waits for may have come

	turn  int    // how many meetings this rank has come to
	shown [2]any // what it has shown at meeting number turn%2

	// Room for a call, kept for the next one.
	waiting     waiting
	messageNeed messageNeed
}

// Rank returns this rank's number in the group.
func (r *Rank) Rank() int { return r.rank }

// number returns the number by which errors name a rank of the group.
func (g *group) number(rank int) int { return g.numbers[g.world[rank]] }

// Size returns the number of ranks.
func (r *Rank) Size() int { return len(r.g.world) }

// SupportsRows reports that calls may have rows.
func (r *Rank) SupportsRows() bool { return true }

// Memory returns nil: any memory will do.
func (r *Rank) Memory() mem.Allocator { return nil }

// Common returns where the ranks keep what they all have.
func (r *Rank) Common() *backend.Attrs { return &r.g.attrs }

// End says that this rank will make no more calls on any communicator: calls
// of others that need it fail. cause is "" if it ended without an error.
func (r *Rank) End(cause string) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if _, ok := r.g.ended[r.g.world[r.rank]]; !ok {
		r.g.ended[r.g.world[r.rank]] = cause
		r.g.over[r.g.world[r.rank]].Store(&cause)
	}
	r.g.wakeAll()
}

// Abort ends the group and those split from it.
func (r *Rank) Abort(cause error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.abort(cause)
}

func (r *Rank) abort(cause error) {
	if r.g.aborted == nil {
		r.g.aborted = &backend.AbortError{Rank: r.g.number(r.rank), Cause: cause.Error(), Err: cause}
		r.g.failed.Store(true)
		r.g.wakeAll()
	}
}

// dead returns the error that has ended the group, nil if none has.
func (g *group) dead() error {
	if g.deadlock != nil {
		return g.deadlock
	}
	for ; g != nil; g = g.parent {
		if g.aborted != nil {
			return g.aborted
		}
	}
	return nil
}

// A need is the condition for which a call waits.
type need interface {
	done() bool     // the condition holds
	missing() []int // the ranks that have not acted yet, by world number
}

// wait returns when call has what it needs; the job's lock is held.
func (r *Rank) wait(ctx context.Context, call *backend.Call, n need) error {
	if n.done() {
		return nil
	}
	w := r.begin(ctx, call, n)
	defer r.end()
	for !n.done() {
		if err := r.waitError(ctx, n); err != nil {
			return err
		}
		if r.g.describe && w.party.Call == "" {
			w.party = r.party(call)
		}
		r.g.watch(ctx)
		r.wake.Wait()
	}
	return nil
}

// waitError returns the error that ends a wait for n, nil while the wait may succeed; the job's
// lock is held.
func (r *Rank) waitError(ctx context.Context, n need) error {
	if e := r.g.dead(); e != nil {
		return e
	}
	if len(r.g.ended) > 0 {
		for _, w := range n.missing() {
			if cause, ok := r.g.ended[w]; ok {
				err := &backend.EndedError{Rank: r.g.numbers[w], Cause: cause}
				r.abort(err)
				return err
			}
		}
	}
	if cause := backend.Cancelled(ctx); cause != nil {
		var late []int
		for _, w := range n.missing() {
			late = append(late, r.g.numbers[w])
		}
		err := backend.Late(cause, late)
		r.abort(err)
		return err
	}
	return nil
}

// watch makes the end of ctx wake all waiting ranks; the job's lock is held.
func (j *job) watch(ctx context.Context) {
	done := ctx.Done()
	if _, ok := j.watched[done]; ok || done == nil || ctx.Err() != nil {
		return
	}
	j.watched[done] = struct{}{}
	context.AfterFunc(ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.watched, done)
		j.wakeAll()
	})
}

// Split makes new groups; the first member of each makes it.
func (r *Rank) Split(ctx context.Context, members []int) (backend.Backend, error) {
	var made *group
	if len(members) > 0 && members[0] == r.rank {
		made = newGroup(r.g.job, r.g, ints.Pick(r.g.world, members))
	}
	m, err := r.meet(ctx, &backend.Call{Kind: backend.SplitKind, Src: backend.Of([]int64{0})}, made)
	if err != nil || len(members) == 0 {
		return nil, err
	}
	return &m.shown(members[0]).(*group).ranks[slices.Index(members, r.rank)], nil
}
