// Package mem is the backend whose ranks are goroutines of one process: for
// tests, and the reference that the other backends are compared with.
//
// Each collective is two meetings of all ranks. At the first they show each
// other their calls. Then each computes its own result from the others' memory,
// in scratch memory if the others read where the result belongs. After the
// second meeting nobody reads another's memory any more.
package mem

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

	waits    []*waiting     // of all ranks and groups
	changes  int            // of waits, so far
	describe bool           // who waits is to say in which call
	deadlock *DeadlockError // it has ended all groups

	failed atomic.Bool // a group was aborted or there is a deadlock; for those who do not hold the lock
}

// group is one communicator, guarded by its job's lock.
type group struct {
	*job
	parent   *group
	world    []int
	meetings [2]meeting // the one in progress is number turn%2
	turn     int
	sends    map[direction]*sendSlot
	aborted  *comm.AbortError
}

func newGroup(j *job, parent *group, world []int) *group {
	g := &group{job: j, parent: parent, world: world, sends: map[direction]*sendSlot{}}
	for i := range g.meetings {
		g.meetings[i] = meeting{world: world, values: make([]any, len(world))}
	}
	return g
}

// A meeting collects one value from each rank. A group has two and uses them in turn:
// a rank that comes to one no longer reads the values of the other, and no rank comes to
// the other again before all have come to this one.
type meeting struct {
	world   []int // the ranks' world numbers
	values  []any
	arrived int
}

// Rank is one rank's end of a group. It implements comm.Backend.
type Rank struct {
	g    *group
	rank int

	// Room for a call, kept for the next one.
	calls       []*comm.Call
	dsts, srcs  []unsafe.Pointer
	scratch     []uint64 // aligned for any element: the result, while others read where it belongs
	waiting     waiting
	messageNeed messageNeed
}

func newRank(g *group, rank int) *Rank {
	n := len(g.world)
	return &Rank{g: g, rank: rank, calls: make([]*comm.Call, n), dsts: make([]unsafe.Pointer, 1), srcs: make([]unsafe.Pointer, n)}
}

// Rank returns this rank's number in the group.
func (r *Rank) Rank() int { return r.rank }

// Size returns the number of ranks.
func (r *Rank) Size() int { return len(r.g.world) }

// SupportsRows reports that calls may have rows.
func (r *Rank) SupportsRows() bool { return true }

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
		r.g.failed.Store(true)
		r.g.wake.Broadcast()
	}
}

// dead returns what has ended the group, if anything has.
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

// A need is what a call waits for.
type need interface {
	done() bool     // it has come
	missing() []int // the ranks that have not acted yet, by world number
}

// wait returns when call has what it needs; the job's lock is held.
func (r *Rank) wait(ctx context.Context, call *comm.Call, it need) error {
	if it.done() {
		return nil
	}
	w := r.begin(ctx, call, it)
	defer r.end()
	for !it.done() {
		if err := r.hopeless(ctx, it); err != nil {
			return err
		}
		if r.g.describe && w.party.Call == "" {
			w.party = r.party(call)
		}
		r.g.watch(ctx)
		r.g.wake.Wait()
	}
	return nil
}

// hopeless returns why a wait for it will not end, nil if it may; the job's lock is held.
func (r *Rank) hopeless(ctx context.Context, it need) error {
	if e := r.g.dead(); e != nil {
		return e
	}
	if len(r.g.ended) > 0 {
		for _, w := range it.missing() {
			if cause, ok := r.g.ended[w]; ok {
				err := &comm.EndedError{Rank: w, Cause: cause}
				r.abort(err)
				return err
			}
		}
	}
	if cause := comm.Cancelled(ctx); cause != nil {
		err := comm.Late(cause, it.missing())
		r.abort(err)
		return err
	}
	return nil
}

// watch has everybody woken when ctx ends, if it has not; the job's lock is held.
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
		j.wake.Broadcast()
	})
}

// meet gives every rank the values of all, for call. Once all have come no rank fails.
func (r *Rank) meet(ctx context.Context, call *comm.Call, value any) ([]any, error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	if e := r.g.dead(); e != nil {
		return nil, e
	}
	m := r.arrive(value)
	err := r.wait(ctx, call, m)
	return m.values, err
}

// leave is the meeting that ends a call. All ranks are on their way to it, so it
// watches for nothing else: no rank may return while another reads its memory.
func (r *Rank) leave(value any) []any {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	m := r.arrive(value)
	for !m.done() {
		r.g.wake.Wait()
	}
	return m.values
}

// arrive adds a value to the meeting in progress; the job's lock is held.
func (r *Rank) arrive(value any) *meeting {
	g := r.g
	m := &g.meetings[g.turn%2]
	if m.done() { // of the meeting before last, whose values nobody reads any more
		clear(m.values)
		m.arrived = 0
	}
	m.values[r.rank] = value
	if m.arrived++; m.done() {
		g.turn++
		g.wake.Broadcast()
	}
	return m
}

func (m *meeting) done() bool { return m.arrived == len(m.values) }

func (m *meeting) missing() (late []int) {
	for i, v := range m.values {
		if v == nil {
			late = append(late, m.world[i])
		}
	}
	return late
}

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
	all, err := r.meet(ctx, &comm.Call{Kind: comm.SplitKind, Src: comm.Of([]int64{0})}, made)
	if err != nil || len(members) == 0 {
		return nil, err
	}
	return newRank(all[members[0]].(*group), slices.Index(members, r.rank)), nil
}

// Do carries out one call.
func (r *Rank) Do(ctx context.Context, call *comm.Call) error {
	if err := call.Carried("comm/mem", patterns); err != nil {
		r.Abort(err)
		return err
	}
	if call.Kind.PointToPoint() {
		return r.message(ctx, call)
	}
	values, err := r.meet(ctx, call, call)
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
		err = r.compute(calls)
	}
	r.leave(true)
	if err == nil && inPlace(call) {
		simd.Copy(call.Dst.Data(), r.scratchFor(call))
	}
	clear(calls)
	return err
}

// inPlace reports whether the others read the memory that call's result belongs in.
func inPlace(call *comm.Call) bool {
	return call.Kind.Shape().InPlace && call.Dst.Ptr == call.Src.Ptr
}

// scratchFor returns memory for call's result.
func (r *Rank) scratchFor(call *comm.Call) []byte {
	bytes := call.Dst.Bytes()
	if words := (bytes + 7) / 8; words > len(r.scratch) {
		r.scratch = make([]uint64, words)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(r.scratch))), bytes)
}

// mismatch is the error of ranks a and b, which all ranks have seen to differ.
func (r *Rank) mismatch(calls []*comm.Call, a, b int) error {
	sites := r.leave(calls[r.rank].Site())
	party := func(i int) comm.Party {
		return comm.Party{Rank: r.g.world[i], Call: calls[i].String(), Site: fmt.Sprint(sites[i])}
	}
	err := comm.Mismatch(party(a), party(b))
	r.leave(true)
	return err
}
