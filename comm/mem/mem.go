// Package mem is the backend whose ranks are goroutines of one process: for
// tests, and the reference that the other backends are compared with.
//
// Each collective is two meetings of all ranks. At the first they show each
// other their calls; then each computes its own result from the others' memory,
// aside if they read where it belongs; after the second, when all have read,
// nobody's memory is needed any more.
package mem

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// Open returns the world of n ranks: one end for each, of which a Comm is made
// with comm.NewWorld.
func Open(n int) []*Rank {
	j := &job{ended: map[int]string{}, watched: map[<-chan struct{}]struct{}{}}
	j.wake.L = &j.mu
	world := make([]int, n)
	for r := range world {
		world[r] = r
	}
	g := newGroup(j, nil, world)
	ranks := make([]*Rank, n)
	for r := range ranks {
		ranks[r] = newRank(g, r)
	}
	return ranks
}

// job is what all groups of one world share. Every change of a group or of the
// job wakes everybody who waits.
type job struct {
	mu    sync.Mutex
	wake  sync.Cond
	ended map[int]string // by world number, with the cause

	watched map[<-chan struct{}]struct{} // the contexts whose end wakes everybody, by Done
}

// group is one communicator, guarded by its job's lock.
type group struct {
	*job
	parent   *group
	world    []int
	meetings [2]meeting // the one in progress is number turn%2
	turn     int
	mail     map[pair]*letter
	aborted  *comm.AbortError
}

func newGroup(j *job, parent *group, world []int) *group {
	g := &group{job: j, parent: parent, world: world, mail: map[pair]*letter{}}
	for i := range g.meetings {
		g.meetings[i].values = make([]any, len(world))
	}
	return g
}

// meeting collects one value from each rank. There are two by turns: who comes to
// one has done with the values of that before, and nobody comes to the next but
// one before all have.
type meeting struct {
	values []any
	came   int
}

// Rank is one rank's end of a group. It implements comm.Backend.
type Rank struct {
	g    *group
	rank int

	// Room for a call, kept for the next one.
	calls      []*comm.Call
	dsts, srcs []unsafe.Pointer
	aside      []uint64 // aligned for any element
}

func newRank(g *group, rank int) *Rank {
	n := len(g.world)
	return &Rank{g: g, rank: rank, calls: make([]*comm.Call, n), dsts: make([]unsafe.Pointer, 1), srcs: make([]unsafe.Pointer, n)}
}

// Rank returns this rank's number in the group.
func (r *Rank) Rank() int { return r.rank }

// Size returns the number of ranks.
func (r *Rank) Size() int { return len(r.g.world) }

// TakesRows reports that calls may have rows.
func (r *Rank) TakesRows() bool { return true }

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
	for !done() {
		if e := r.g.dead(); e != nil {
			return e
		}
		if len(r.g.ended) > 0 {
			for _, w := range missing() {
				if cause, ok := r.g.ended[w]; ok {
					err := &comm.EndedError{Rank: w, Cause: cause}
					r.abort(err)
					return err
				}
			}
		}
		if ctx.Err() != nil {
			err := comm.Late(context.Cause(ctx), missing())
			r.abort(err)
			return err
		}
		r.g.watch(ctx)
		r.g.wake.Wait()
	}
	return nil
}

// watch has everybody woken when ctx ends; the job's lock is held.
func (j *job) watch(ctx context.Context) {
	done := ctx.Done()
	if _, ok := j.watched[done]; ok || done == nil {
		return
	}
	j.watched[done] = struct{}{}
	context.AfterFunc(ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.watched, done)
		j.wake.Broadcast()
	})
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
	m := &g.meetings[g.turn%2]
	if m.complete() { // the last but one: nobody needs it any more
		clear(m.values)
		m.came = 0
	}
	m.values[r.rank] = value
	if m.came++; m.complete() {
		g.turn++
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
		made = newGroup(r.g.job, r.g, world)
	}
	all, err := r.meet(ctx, made)
	if err != nil || len(members) == 0 {
		return nil, err
	}
	return newRank(all[members[0]].(*group), slices.Index(members, r.rank)), nil
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
	calls := r.calls
	for i, v := range values {
		calls[i] = v.(*comm.Call)
	}
	for i, c := range calls {
		if c.Fingerprint() != calls[0].Fingerprint() {
			return r.mismatch(calls, 0, i)
		}
	}
	if err = agree(calls, r.g.world); err == nil {
		r.compute(calls)
	}
	r.part(true)
	if err == nil && inPlace(call) {
		simd.Copy(call.Dst.Data(), r.asideFor(call))
	}
	clear(calls)
	return err
}

// inPlace reports whether the others read where call's result belongs.
func inPlace(call *comm.Call) bool {
	return call.Kind == comm.AllReduceKind && call.Dst.Ptr == call.Src.Ptr
}

// asideFor returns memory for call's result.
func (r *Rank) asideFor(call *comm.Call) []byte {
	bytes := call.Dst.Bytes()
	if words := (bytes + 7) / 8; words > len(r.aside) {
		r.aside = make([]uint64, words)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(r.aside))), bytes)
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
