package shm

import (
	"cmp"
	goruntime "runtime"
	"time"
	"unsafe"
)

// Communicators are not closed. When the garbage collector finds one unused, its rank frees
// the staging block, and says in the region that it is gone. Once all members have said so,
// the rank that reserved the region takes it for its next communicator of as many ranks.
// A communicator split from another keeps the other in use.

const (
	// collectBytes is how much communicators may take outside the heap, where the garbage
	// collector does not see it, before a collection looks for unused ones.
	collectBytes = 32 << 20

	// maxScan is how many idle regions are searched for one that all ranks have left.
	maxScan = 16

	// patientFor is how long a rank waits for others to leave a region, after the
	// segment was full and all ranks have collected garbage.
	patientFor = 5 * time.Second

	// collectFor is how long a rank waits for its own unused staging blocks to be freed, after
	// its arena was full and it has collected garbage.
	collectFor = time.Second
)

// resources are the memory of a Rank outside Go's heap. They have no pointer to the Rank, so
// that the garbage collector can find that it is unused.
type resources struct {
	job      *job
	region   *region
	me       int
	world    []int
	reserved bool // this rank has reserved the region

	staging      unsafe.Pointer // three blocks: two halves, and the result of a Reduce
	stagingBytes int            // size of each of the three
	stillWritten bool           // a stopped rank may still store into the staging block
}

// release gives the resources back, when the Rank is unused.
func (e *resources) release() {
	e.job.seg.WhileOpen(func() {
		if e.staging != nil && !e.stillWritten {
			e.freeStaging()
		}
		j, n := e.job, e.region.size
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lost = cmp.Or(j.lost, e.unreceived())
		delete(j.open, e)
		e.region.members[e.me].gone.Store(1) // from now on another communicator may get the region
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

// hold counts bytes that a communicator takes. It collects garbage when the bytes taken since
// the last collection exceed collectBytes and the bytes held before it.
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

// stagingBlock allocates from the arena. If the arena is full it collects garbage and waits a
// while for the blocks of unused communicators.
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

// reserve returns the offset of a zeroed region for n ranks. If patient, it waits a while for
// one to become free.
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
