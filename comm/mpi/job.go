//go:build linux && !nolibs

package mpi

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
)

// job is this process' part in the whole: what its communicators share.
type job struct {
	lib        *library
	rank, size int
	linger     time.Duration
	lost       func(*backend.EndedError, int) // see Options
	finished   func()                         // see Options
	stacks     func()                         // see Options
	segment    *control.Segment               // what the ranks of this machine know of each other; nil if calls are not compared
	reports    bool                           // rank 0 has another segment: this rank sends it reports
	answering  sync.Mutex                     // held while a question is answered, see answer
	spins      int                            // looks before a waiting rank yields
	yields     bool                           // the library does, at each look
	lengths    bool                           // a message's tag holds its length, see length.go
	checks     checking                       // of calls
	thread     chan func()                    // runs on the thread that started the library
	control    uintptr                        // the communicator of control messages
	hosts      []uint64                       // of the ranks of the world

	alarm  atomic.Uint32 // counts what could concern a waiting call
	polled atomic.Int64  // when control messages were last looked for, by ticks

	mu        sync.Mutex // held during every MPI call; guards what follows
	inbox     inbox
	outbox    []*outbound
	leaving   request                        // of the barrier in which the ranks end
	groups    map[uint64]*group              // that are not freed, by id
	dead      map[uint64]*backend.AbortError // by group, known here or not yet
	ended     map[int]*ending                // by world number
	windows   []*windowMemory                // that are not freed, in the order in which they were made
	packets   []*packets                     // that are not closed
	serving   bool                           // serveWindows runs
	kept      []any                          // memory of requests that were given up
	closed    bool                           // the library has ended
	probes    uint64                         // numbers given to them
	questions map[uint64]*wait               // probes that a rank may answer, by their numbers
	reported  control.Report                 // the last report to rank 0
	made      uintptr                        // the communicator that an MPI call makes or frees
	asking    map[uint64]bool                // groups that want the turn or have it, by their ids, see takeTurn
	turn      *group                         // the group that has the turn, or is promised it; nil: none
	cells     [3]int32                       // other results of MPI calls
	status    status                         // of a message
	attribute *int32                         // of the world
}

// ending is what is known of a rank that has called Close.
type ending struct {
	over  bool              // all of the following has come
	died  bool              // without a Close
	cause string            // "" if it ended without an error
	stuck bool              // it has given up requests
	calls map[uint64]uint64 // collectives that it began, by group
	sent  uint64            // messages of Send to this rank
	seen  time.Time
}

// request is one of MPI's, in memory that does not move.
type request struct {
	handle  uintptr
	flag    int32
	receive bool // of a message: can be taken back
	done    bool
	told    bool // who wants to know of its end has been told
}

// test asks whether a request has ended; the job's lock is held.
func (j *job) test(q *request) error {
	err := j.lib.call(test, uintptr(unsafe.Pointer(&q.handle)), uintptr(unsafe.Pointer(&q.flag)), j.lib.statusIgnore)
	q.done = q.flag != 0 || err != nil
	return err
}

// drop gives up the requests that have not ended. Receives are taken back;
// what others name stays in memory. The job's lock is held.
func (j *job) drop(reqs []request, keep ...any) {
	left := false
	for i := range reqs {
		q := &reqs[i]
		if q.done || q.handle == j.lib.handles[requestNull] {
			continue
		}
		if q.receive {
			j.takeBack(q, j.lib.statusIgnore)
		}
		left = left || !q.done
	}
	if left {
		j.kept = append(j.kept, keep...)
	}
}

// join makes r's group known to aborts. The job's lock is not held.
func (j *job) join(r *Rank) *Rank {
	goruntime.AddCleanup(r, func(g *group) { g.unused.Store(true) }, r.group)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.groups[r.id] = r.group
	if e := j.dead[r.id]; e != nil { // the others were faster
		r.aborted.Store(e)
	}
	return r
}
