//go:build linux && !nolibs

package mpi

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// napClosing is how long Close sleeps between looks at the other ranks.
const napClosing = time.Millisecond

// Close ends this rank's part in the job: it tells the others, whose calls
// that still need this rank fail with an EndedError of cause, waits until all
// have called Close and ends the library. cause is nil for a rank that ends
// well. If any rank ends with a cause, Close waits Options.Linger for those
// still at work and then ends them with MPI_Abort, which does not return.
// ErrFinalize says that only the library has not ended, a backend.UnreceivedError that all is over, but that
// this rank has not received all that was sent to it.
// Only the world's Close is called, once, after all of its calls have returned.
func (r *Rank) Close(cause error) error {
	j := r.job
	j.mu.Lock()
	j.giveUpPackets()
	j.setState(cause)
	j.announceEnd(cause)
	j.mu.Unlock()
	failed := cause != nil
	var since time.Time
	for round := 0; ; round++ {
		j.mu.Lock()
		j.poll()
		waiting, stuck := len(j.outbox), len(j.kept) > 0
		for w := range j.size {
			if w == j.rank {
				continue
			}
			if e := j.ended[w]; e == nil || !e.over {
				waiting++
			} else {
				stuck = stuck || e.stuck
				failed = failed || e.cause != ""
			}
		}
		j.mu.Unlock()
		if waiting == 0 {
			if !failed && !stuck {
				if err := j.allKnow(); err != nil {
					return wrap(err)
				}
				j.mu.Lock()
				lost := j.unreceived()
				j.mu.Unlock()
				if lost == nil && j.finished != nil {
					j.finished()
				}
				return cmp.Or(lost, j.end(false))
			}
			return j.end(stuck)
		}
		if failed && since.IsZero() {
			since = time.Now()
		}
		if failed && time.Since(since) > j.linger {
			return j.onThread(func() error {
				return j.lib.call(abortAll, j.lib.handles[commWorld], 1)
			})
		}
		napEnding(round)
	}
}

// napEnding lets others run between two looks of a rank that ends: the first ones come at once.
func napEnding(round int) {
	if round > 100 {
		time.Sleep(napClosing)
	} else {
		yield()
	}
}

// Failure reads what other ranks have said of their ends, and returns the first failure
// among them, nil if there is none: for a rank that makes no calls, which would tell.
// It may be called from any goroutine.
func (r *Rank) Failure() error {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.poll()
	}
	if e := r.dead(); e != nil {
		return e
	}
	for w, e := range j.ended {
		if e.over && e.cause != "" {
			return &backend.EndedError{Rank: w, Cause: e.cause}
		}
	}
	return nil
}

// allKnow waits until every rank knows the ends of all. Without it a rank could leave while the
// library still holds the message of its end, and its receiver would wait for ever: under Slurm's
// PMIx the MPI_Finalize of Open MPI 4.1 waits for nobody. A rank that is killed here would hold up
// the others for ever too, so each waits no longer than Options.Linger.
func (j *job) allKnow() error {
	j.mu.Lock()
	err := j.lib.call(ibarrier, j.control, pointer(&j.leaving.handle))
	j.mu.Unlock()
	since := time.Now()
	for round := 0; err == nil && !j.leaving.done && time.Since(since) < j.linger; round++ {
		j.mu.Lock()
		j.poll()
		err = j.test(&j.leaving)
		j.mu.Unlock()
		napEnding(round)
	}
	return err
}

// How long the library may take to end. Over a link that loses packets Open MPI has taken 4 s to free
// windows, and mpirun calls a job failed whose ranks leave without MPI_Finalize. With calls given up before
// a library most likely never ends.
const (
	finalizing      = 10 * time.Second
	finalizingMPICH = 4 * time.Second
	finalizingStuck = 2 * time.Second
)

// end ends the library, when all ranks are there. The library may never return: it may
// wait for requests that ranks have given up.
func (j *job) end(stuck bool) error {
	finish := j.finalize
	if fd, err := strconv.Atoi(os.Getenv(pmiVariable)); err == nil && !stuck && j.lib.hangs && j.severalHosts() {
		finish = func() error { return j.leave(fd) }
	}
	done := make(chan error, 1)
	go func() { done <- finish() }()
	limit := finalizing
	switch {
	case stuck:
		limit = finalizingStuck
	case j.lib.abi == &mpich:
		limit = finalizingMPICH
	}
	select {
	case err := <-done:
		return wrap(err)
	case <-time.After(limit):
	}
	if stuck {
		return fmt.Errorf("mpi: Close: %s has not ended in %v, with calls given up before; exit without it", j.lib.version, limit)
	}
	return wrap(fmt.Errorf("%w: %s, after %v", ErrFinalize, j.lib.version, limit))
}

// finalize ends the library.
func (j *job) finalize() error {
	return j.onThread(func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.drop(unsafe.Slice(&j.inbox.request, 1), &j.inbox)
		if err := j.freeWindows(); err != nil {
			return err
		}
		j.closed = true
		return j.lib.call(finalize)
	})
}

// leave has the launcher know that this rank has ended, without the library's end, see hangsOverUCX.
func (j *job) leave(fd int) error {
	if err := j.onThread(func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.freeWindows()
	}); err != nil {
		return err
	}
	err := leaveByPMI(fd, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.poll()
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFinalize, err)
	}
	return nil
}

// severalHosts reports whether the ranks of the world are not all on one host.
func (j *job) severalHosts() bool {
	return slices.ContainsFunc(j.hosts, func(host uint64) bool { return host != j.hosts[0] })
}

// wrap names Close in an error; nil stays nil.
func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("mpi: Close: %w", err)
	}
	return nil
}

// pointer is the address of p for a call; p does not move.
func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
