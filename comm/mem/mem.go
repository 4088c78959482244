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
	numbers := make([]int, n)
	for r := range numbers {
		numbers[r] = r
	}
	return OpenNumbered(numbers)
}

// OpenNumbered is Open for ranks of a larger job. Errors name the ranks by these numbers.
func OpenNumbered(numbers []int) []*Rank {
	n := len(numbers)
	j := &job{numbers: numbers, ended: map[int]string{}, over: make([]atomic.Pointer[string], n), watched: map[<-chan struct{}]struct{}{}}
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

// job is the state that all groups of one world share. Every change of a group or of the
// job wakes all ranks that wait.
type job struct {
	mu      sync.Mutex
	wake    sync.Cond
	numbers []int          // the ranks' numbers in errors, by world number
	ended   map[int]string // the cause of each rank's end, by world number

	over []atomic.Pointer[string] // the same, for callers without the lock

	watched map[<-chan struct{}]struct{} // the contexts whose end wakes everybody, by Done

	waits    []*waiting     // the waiting calls of all ranks in all groups
	changes  int            // how often waits has changed
	describe bool           // waiting ranks are to name their calls
	deadlock *DeadlockError // has ended all groups

	failed atomic.Bool // a group was aborted or there is a deadlock; for callers without the lock
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

// number returns the number by which errors name a rank of the group.
func (r *Rank) number(rank int) int { return r.g.numbers[r.g.world[rank]] }

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
		r.g.over[r.g.world[r.rank]].Store(&cause)
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
		r.g.aborted = &comm.AbortError{Rank: r.number(r.rank), Cause: cause.Error(), Err: cause}
		r.g.failed.Store(true)
		r.g.wake.Broadcast()
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
func (r *Rank) wait(ctx context.Context, call *comm.Call, n need) error {
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
		r.g.wake.Wait()
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
				err := &comm.EndedError{Rank: r.g.numbers[w], Cause: cause}
				r.abort(err)
				return err
			}
		}
	}
	if cause := comm.Cancelled(ctx); cause != nil {
		var late []int
		for _, w := range n.missing() {
			late = append(late, r.g.numbers[w])
		}
		err := comm.Late(cause, late)
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
		j.wake.Broadcast()
	})
}

// meet gives every rank the values of all ranks, for call. Once all have come, no rank fails.
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
	if err = agree(calls, r.number); err == nil {
		err = r.compute(calls)
	}
	r.leave(true)
	if err == nil && inPlace(call) && call.Fills(r.rank, len(values)) {
		simd.Copy(call.Dst.Data(), r.scratchFor(call))
	}
	clear(calls)
	return err
}

// inPlace reports whether the other ranks read the memory of call's Dst.
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

// mismatch returns the error that calls a and b differ. All ranks have seen it.
func (r *Rank) mismatch(calls []*comm.Call, a, b int) error {
	sites := r.leave(calls[r.rank].Site())
	party := func(i int) comm.Party {
		return comm.Party{Rank: r.number(i), Call: calls[i].String(), Site: fmt.Sprint(sites[i]), Facts: calls[i].Facts}
	}
	err := comm.Mismatch(party(a), party(b))
	r.leave(true)
	return err
}
