//go:build linux && !nolibs

package mpi

import (
	"context"
	"maps"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/mpi/exchange"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// Communicators are not closed: the program lets go of them, each rank at a time of its
// own. The library's are freed by all of their ranks together, since MPI_Comm_free is
// a collective: when reclaimEvery more have been split from one communicator, its ranks
// look which of them nobody uses any more. MPICH has 2048 for a process.
const reclaimEvery = 64

// collectFor is how long a rank waits for the garbage collector's findings.
const collectFor = time.Second

// A group is what the job knows of a communicator. It does not know its Rank, so that
// one that the program has let go of can go.
type group struct {
	id       uint64 // the same on all its ranks, and on no other group's
	comm     uintptr
	weight   int64         // 0 summed over all ranks, and of no part of them
	calls    atomic.Uint64 // collectives begun
	messages atomic.Int64  // Sends begun less Recvs
	aborted  atomic.Pointer[backend.AbortError]
	unused   atomic.Bool // its Rank is gone
	due      int         // how many children there may be before reclaim looks for unused ones

	// Guarded by the job's lock:
	children []*group                  // of each Split, this rank's group, nil if it is in none; without those that were freed
	begun    map[messageKey]uint64     // Sends and Recvs begun, by the other side
	stuck    *stuck                    // the call that takes long, nil if none does
	asked    []sendKey                 // which Sends of this rank others ask for
	told     map[sendKey]exchange.Text // of other ranks' Sends, by who sent
}

// newGroup is the group of rank me of size.
func newGroup(id uint64, handle uintptr, me, size int) *group {
	g := &group{id: id, comm: handle, due: reclaimEvery}
	if me > 0 {
		g.weight = scatter(me)
		return g
	}
	for r := 1; r < size; r++ {
		g.weight -= scatter(r)
	}
	return g
}

// scatter is a number for n that has nothing to do with those for others.
func scatter(n int) int64 { return int64(ints.Mix(uint64(n) * 0x9e3779b97f4a7c15)) }

// residue is a number whose sum over all ranks is 0 if none of them uses the group nor
// one split from it, and nothing of theirs is on its way: all ranks have made as many
// collectives, and received what was sent. A message that nobody has received could
// else arrive in the next communicator to which the library gives the same number. The
// job's lock is held.
func (g *group) residue() (sum int64) {
	const used = 1 << 40
	switch {
	case g == nil:
		return 0
	case !g.unused.Load() || g.aborted.Load() != nil:
		return used
	}
	for _, child := range g.children {
		sum += child.residue()
	}
	return sum + g.messages.Load() + int64(g.calls.Load())*g.weight
}

// reclaim frees what was split from r and is not used any more. All ranks call it.
func (r *Rank) reclaim(ctx context.Context) error {
	if len(r.children) < r.due {
		return nil
	}
	collect()
	left := make([]int64, len(r.children))
	r.job.mu.Lock()
	for i, g := range r.children {
		left[i] = g.residue()
	}
	r.job.mu.Unlock()
	call := backend.Call{Kind: backend.AllReduceKind, Op: fold.Sum, Dst: backend.Of(left), Src: backend.Of(left)}
	if err := r.Do(ctx, &call); err != nil {
		return err
	}
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	kept := r.children[:0]
	for i, g := range r.children {
		if left[i] != 0 {
			kept = append(kept, g)
		} else if err := r.job.free(g); err != nil {
			r.abort(err)
			return err
		}
	}
	clear(r.children[len(kept):])
	r.children, r.due = kept, len(kept)+reclaimEvery
	return nil
}

// turnEvery is how long ranks that were not promised the turn wait before they vote again.
const turnEvery = 100 * time.Microsecond

// takeTurn returns when r has the turn on all of its ranks, to make or free what the library makes and frees by calls
// that wait in it for all ranks: communicators and windows. All ranks call it, and then endTurn.
//
// If two ranks were in such calls of two groups, each would wait for the other. So the ranks of a group vote first, by
// an AllReduce, which does not wait in the library. The group has the turn if all ranks promise it. A rank promises
// the turn to one group at a time, and until the vote has ended. Of the groups that have asked it, it chooses the one
// with the lowest id. Once all ranks of that group have asked, no other is promised the turn there, so one of its
// next votes succeeds.
func (r *Rank) takeTurn(ctx context.Context) error {
	j := r.job
	for {
		promise := []bool{j.promises(r.group)}
		buf := backend.Of(promise)
		call := backend.Call{Kind: backend.AllReduceKind, Op: fold.And, Dst: buf, Src: buf, Cause: "whose turn it is"}
		err := r.Do(ctx, &call)
		if err == nil && promise[0] {
			return nil
		}
		if err != nil {
			r.endTurn()
			return err
		}
		j.mu.Lock()
		j.retract(r.group)
		j.mu.Unlock()
		time.Sleep(turnEvery)
	}
}

// promises reports whether this rank promises a group the turn.
func (j *job) promises(g *group) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asking[g.id] = true
	if j.turn == nil && g.id == slices.Min(slices.Collect(maps.Keys(j.asking))) {
		j.turn = g
	}
	return j.turn == g
}

// retract takes the turn, or the promise of it, from a group if it has it. The job's lock is held.
func (j *job) retract(g *group) {
	if j.turn == g {
		j.turn = nil
	}
}

// endTurn ends r's turn on this rank, and its wish for one.
func (r *Rank) endTurn() {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	r.job.retract(r.group)
	delete(r.job.asking, r.id)
}

// free frees a group, if there is one, and what was split from it. The job's lock is held.
func (j *job) free(g *group) error {
	if g == nil {
		return nil
	}
	for _, child := range g.children {
		if err := j.free(child); err != nil {
			return err
		}
	}
	delete(j.groups, g.id)
	j.made = g.comm
	return j.lib.call(commFree, pointer(&j.made))
}

// collect returns when the garbage collector has found what was unused.
func collect() {
	told := make(chan struct{})
	last := new([2]uint64)
	goruntime.AddCleanup(last, func(told chan struct{}) { close(told) }, told)
	goruntime.GC()
	select {
	case <-told:
	case <-time.After(collectFor):
	}
}
