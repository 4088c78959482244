//go:build linux && !nolibs

package mpi

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// windowMemory is one of the library's windows. Between its first call and its last each rank
// is in one epoch for all ranks, MPI_Win_lock_all; that lock is shared and excludes nobody.
type windowMemory struct {
	r     *Rank
	win   uintptr
	base  uintptr
	cells [3]uint64 // operands and result of the call in progress; the job's lock guards them
}

// windowVariable names the variable that says which of its components Open MPI has windows of.
const windowVariable = "OMPI_MCA_osc"

// chooseWindows keeps Open MPI from using components that are wrong, unless the user has chosen:
// of version 4.1.4 ucx adds up nonsense, and rdma crashes in MPI_Compare_and_swap of 4 bytes; of
// 5.0.7 ucx fails to make a window where there is no network for it. It is called before MPI starts.
func (l *library) chooseWindows() error {
	if _, ok := os.LookupEnv(windowVariable); ok || l.abi != &openMPI {
		return nil
	}
	components := "^ucx"
	if strings.HasPrefix(l.version, "Open MPI v4.") {
		components = "sm,pt2pt"
	}
	return os.Setenv(windowVariable, components)
}

// windowLine is what the memory of a rank is a multiple of: the library may put that of the
// ranks one after another.
const windowLine = 64

// OpenWindow makes a window of the library's, which waits for the other ranks in it.
func (r *Rank) OpenWindow(ctx context.Context, bytes []int) (backend.WindowMemory, error) {
	if err := r.news(); err != nil {
		return nil, err
	}
	if err := r.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer r.endTurn()
	w, j := &windowMemory{r: r}, r.job
	mine := ints.RoundUp(bytes[r.me], windowLine)
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.lib
	if err := l.call(winAllocate, uintptr(mine), 1, l.handles[infoNull], r.comm, pointer(&w.base), pointer(&w.win)); err != nil {
		return nil, err
	}
	if err := l.call(winSetErrhandler, w.win, l.handles[errorsReturn]); err != nil {
		return nil, err
	}
	clear(unsafe.Slice((*byte)(w.Address(r.me)), mine))
	if err := l.call(winLockAll, 0, w.win); err != nil {
		return nil, err
	}
	j.windows = append(j.windows, w)
	if !j.serving {
		j.serving = true
		go j.serveWindows()
	}
	return w, l.call(winSync, w.win)
}

// servingInterval is how long an access of another host may wait for this rank, if it makes no
// calls meanwhile.
const servingInterval = time.Millisecond

// serveWindows lets the library move data while the program makes no calls, until no window is
// open.
func (j *job) serveWindows() {
	for {
		time.Sleep(servingInterval)
		if !j.mu.TryLock() { // who holds it is in the library
			continue
		}
		if len(j.windows) == 0 || j.closed {
			j.serving = false
			j.mu.Unlock()
			return
		}
		j.poll()
		j.mu.Unlock()
	}
}

// Address returns this rank's memory; that of the others is the library's to reach.
func (w *windowMemory) Address(rank int) unsafe.Pointer {
	if rank != w.r.me {
		return nil
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&w.base)) // of the library, not of Go
}

// Close frees the window, which waits for the other ranks.
func (w *windowMemory) Close() error {
	if err := w.r.takeTurn(context.Background()); err != nil {
		return err
	}
	defer w.r.endTurn()
	w.r.job.mu.Lock()
	defer w.r.job.mu.Unlock()
	return w.free()
}

// free is Close; the job's lock is held.
func (w *windowMemory) free() error {
	j := w.r.job
	j.windows = slices.DeleteFunc(j.windows, func(o *windowMemory) bool { return o == w })
	if err := j.lib.call(winUnlockAll, w.win); err != nil {
		return err
	}
	return j.lib.call(winFree, pointer(&w.win))
}

// freeWindows frees those that the program has left open, when all ranks have ended: some
// libraries do not end with them. All ranks do so in one order, that of the groups' numbers. The
// job's lock is held.
func (j *job) freeWindows() error {
	left := slices.Clone(j.windows)
	slices.SortStableFunc(left, func(a, b *windowMemory) int { return cmp.Compare(a.r.id, b.r.id) })
	for _, w := range left {
		if err := w.free(); err != nil {
			return err
		}
	}
	return nil
}

// call makes calls of the library on the window.
func (w *windowMemory) call(calls func(l *library) error) error {
	j := w.r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return fmt.Errorf("the library has ended; close windows before the program ends")
	}
	err := calls(j.lib)
	if err != nil {
		w.r.abort(err)
	}
	return err
}

// Put makes Puts of at most r.most bytes.
func (w *windowMemory) Put(rank, at int, src []byte) error { return w.move(put, rank, at, src) }

// Get makes Gets of at most r.most bytes.
func (w *windowMemory) Get(rank, at int, dst []byte) error { return w.move(get, rank, at, dst) }

func (w *windowMemory) move(f function, rank, at int, b []byte) error {
	return w.call(func(l *library) error {
		dt := l.handles[typeByte]
		for lo := 0; lo < len(b); lo += w.r.most {
			n := uintptr(min(w.r.most, len(b)-lo))
			if err := l.call(f, pointer(&b[lo]), n, dt, uintptr(rank), uintptr(at+lo), n, dt, w.win); err != nil {
				return err
			}
		}
		return l.call(winFlushLocal, uintptr(rank), w.win)
	})
}

// integerOf returns the type of integers of 4 or 8 bytes.
func integerOf(size int) constant {
	if size == 4 {
		return typeInt32
	}
	return typeInt64
}

// Load is MPI_Fetch_and_op by MPI_NO_OP.
func (w *windowMemory) Load(rank, at, size int) (v uint64, err error) {
	err = w.call(func(l *library) error {
		w.cells[2] = 0
		if err := l.call(fetchAndOp, pointer(&w.cells[0]), pointer(&w.cells[2]), l.handles[integerOf(size)], uintptr(rank), uintptr(at),
			l.handles[opNone], w.win); err != nil {
			return err
		}
		if err := l.call(winFlush, uintptr(rank), w.win); err != nil {
			return err
		}
		v = w.cells[2]
		return nil
	})
	return v, err
}

// CompareAndSwap is the library's.
func (w *windowMemory) CompareAndSwap(rank, at, size int, old, value uint64) (was uint64, err error) {
	err = w.call(func(l *library) error {
		w.cells = [3]uint64{value, old, 0}
		if err := l.call(compareAndSwap, pointer(&w.cells[0]), pointer(&w.cells[1]), pointer(&w.cells[2]), l.handles[integerOf(size)],
			uintptr(rank), uintptr(at), w.win); err != nil {
			return err
		}
		if err := l.call(winFlush, uintptr(rank), w.win); err != nil {
			return err
		}
		was = w.cells[2]
		return nil
	})
	return was, err
}

// windowOp returns the library's operation that is op on elements of type d in a window; ok is
// false where it is not known to be the same.
func windowOp(op backend.Op, d backend.DType) (c constant, ok bool) {
	switch d {
	case dtype.Int32, dtype.Uint32, dtype.Int64, dtype.Uint64, dtype.Float32, dtype.Float64:
		return opSum, op == fold.Sum
	}
	return 0, false
}

// Accumulate is the library's, where that has the operation.
func (w *windowMemory) Accumulate(rank, at int, op backend.Op, src backend.Buffer) (ok bool, err error) {
	c, ok := windowOp(op, src.DType)
	if !ok {
		return false, nil
	}
	return true, w.call(func(l *library) error {
		dt, size := l.handles[typeOf(src.DType)], src.DType.Size()
		step := max(1, w.r.most/size)
		for lo := 0; lo < src.Count; lo += step {
			part := src.Slice(lo, min(lo+step, src.Count))
			n := uintptr(part.Count)
			if err := l.call(accumulate, uintptr(part.Ptr), n, dt, uintptr(rank), uintptr(at+lo*size), n, dt, l.handles[c], w.win); err != nil {
				return err
			}
		}
		return l.call(winFlushLocal, uintptr(rank), w.win)
	})
}

// FetchAndOp is the library's, where that has the operation.
func (w *windowMemory) FetchAndOp(rank, at int, op backend.Op, src, old backend.Buffer) (ok bool, err error) {
	c, ok := windowOp(op, src.DType)
	if !ok {
		return false, nil
	}
	return true, w.call(func(l *library) error {
		if err := l.call(fetchAndOp, uintptr(src.Ptr), uintptr(old.Ptr), l.handles[typeOf(src.DType)], uintptr(rank), uintptr(at),
			l.handles[c], w.win); err != nil {
			return err
		}
		return l.call(winFlush, uintptr(rank), w.win)
	})
}

// Flush completes this rank's calls on rank's memory, and sees what others have done to its own.
func (w *windowMemory) Flush(rank int) error {
	return w.call(func(l *library) error {
		if err := l.call(winFlush, uintptr(rank), w.win); err != nil {
			return err
		}
		return l.call(winSync, w.win)
	})
}

// Touch returns what has ended the communicator.
func (r *Rank) Touch(backend.Kind, int) error { return r.Broken() }

// Await looks at memory until it is as it should be.
func (r *Rank) Await(ctx context.Context, call *backend.Call, on func() (rank int, err error)) error {
	p := pause{patience: restless, yielded: r.job.yields}
	var a awaiting
	defer func() { a.end(r, call, p.waited) }()
	for {
		rank, err := on()
		if rank < 0 || err != nil {
			return err
		}
		if err := r.Broken(); err != nil {
			return err
		}
		if err := r.hasEnded(rank, on); err != nil {
			return err
		}
		if cause := backend.Cancelled(ctx); cause != nil {
			err := fmt.Errorf("%w while waiting for rank %d; look there for what is slow or stuck", cause, r.world[rank])
			r.Abort(err)
			return err
		}
		p.wait(call)
		if p.waited >= recordAfter {
			a.look(r, call, rank, p.waited)
		}
	}
}

// hasEnded ends the group if a rank that is waited for has ended, and returns that.
func (r *Rank) hasEnded(rank int, on func() (int, error)) error {
	j, w := r.job, r.world[rank]
	j.mu.Lock()
	e := j.ended[w]
	over := e != nil && e.over && time.Since(e.seen) >= endedGrace
	j.mu.Unlock()
	if !over {
		return nil
	}
	if again, err := on(); err != nil || again != rank { // it has let go before
		return err
	}
	err := &backend.EndedError{Rank: w, Cause: e.cause}
	r.Abort(err)
	return err
}
