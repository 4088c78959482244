package shm

import (
	goruntime "runtime"
	"time"
	"unsafe"
)

// Communicators are not closed: the program lets go of them. What one takes
// outside Go's heap is taken back when the garbage collector finds that: its
// staging block at once, its region when all members have said that they are
// gone, by the rank that reserved it, for the next communicator of as many ranks.
// A communicator split from it counts as a use of it.

const (
	// collectBytes is what communicators may take, outside the heap and so unseen
	// by the garbage collector, before it is asked to look for some that are unused.
	collectBytes = 32 << 20

	// maxScan is how many idle regions are examined for one that all ranks have left.
	maxScan = 16

	// patientFor is how long a rank waits for others to leave a region, when the
	// segment is full and all have looked for unused communicators.
	patientFor = 5 * time.Second

	// collectFor is how long a rank waits for staging blocks of its own, when its
	// arena is full and it has looked for unused communicators.
	collectFor = time.Second
)

// resources are what a Rank holds outside Go's heap. They have no pointer to the Rank, so
// that the garbage collector can find that it is unused.
type resources struct {
	job      *job
	region   *region
	me       int
	reserved bool // the region, by this rank

	staging      unsafe.Pointer // two halves, and the result of a Reduce
	stagingBytes int            // of each of the three
	stillWritten bool           // a rank that was stopped may still store into it
}

// release gives the resources back, when the Rank is unused.
func (e *resources) release() {
	e.job.seg.WhileOpen(func() {
		if e.staging != nil && !e.stillWritten {
			e.freeStaging()
		}
		e.region.members[e.me].gone.Store(1) // last: from now on another communicator may get the region
		j, n := e.job, e.region.size
		j.mu.Lock()
		defer j.mu.Unlock()
		j.held -= regionBytes(n)
		if e.reserved {
			j.idle[n] = append(j.idle[n], e.region)
		}
	})
}

func (e *resources) freeStaging() {
	bytes := 3 * e.stagingBytes
	e.job.arena.Free(e.staging, bytes)
	e.staging, e.stagingBytes = nil, 0
	e.job.mu.Lock()
	defer e.job.mu.Unlock()
	e.job.held -= bytes
}

// hold counts bytes that a communicator takes, and asks for a collection when
// those since the last one are many, and more than there were before.
func (j *job) hold(bytes int) {
	j.mu.Lock()
	j.held += bytes
	j.fresh += bytes
	due := j.fresh > max(collectBytes, j.held-j.fresh)
	if due {
		j.fresh = 0
	}
	j.mu.Unlock()
	if due {
		goruntime.GC()
	}
}

// stagingBlock allocates; if there is no room it waits a while for communicators
// that are no longer used.
func (j *job) stagingBlock(bytes int) (unsafe.Pointer, error) {
	p, err := j.arena.Alloc(bytes)
	if err == nil {
		return p, nil
	}
	goruntime.GC()
	for end := time.Now().Add(collectFor); err != nil && time.Now().Before(end); p, err = j.arena.Alloc(bytes) {
		time.Sleep(time.Millisecond)
	}
	return p, err
}

// reserve returns the offset of a zeroed region for n ranks. patient says that it
// waits a while for one.
func (j *job) reserve(n int, patient bool) (offset uint64, err error) {
	for end := time.Now().Add(patientFor); ; time.Sleep(time.Millisecond) {
		if offset, ok := j.reuse(n); ok {
			return offset, nil
		}
		offset, err := j.seg.NewRegion(regionBytes(n))
		if err == nil || !patient || time.Now().After(end) {
			return offset, err
		}
	}
}

// reuse looks for a region that all have left.
func (j *job) reuse(n int) (offset uint64, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for range min(maxScan, len(j.idle[n])) {
		g := j.idle[n][0]
		j.idle[n] = j.idle[n][1:]
		if g.abandoned() {
			g.renew()
			return g.offset, true
		}
		j.idle[n] = append(j.idle[n], g)
	}
	return 0, false
}

// abandoned reports whether no rank touches the region again.
func (g *region) abandoned() bool {
	for _, m := range g.members {
		if m.gone.Load() == 0 {
			return false
		}
	}
	return true
}

// renew clears the region for another communicator. Areas that ranks read only after a
// slot or a cell says so keep their contents.
func (g *region) renew() {
	life := g.head.life + 1
	clear(unsafe.Slice((*byte)(g.base), g.at.counts))
	g.head.life = life
}
