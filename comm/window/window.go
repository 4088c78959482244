package window

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A Window is memory of all ranks of a communicator. Its methods may be called from any
// goroutine, except for Fence and Close, which are collectives of the communicator.
type Window[T any] struct {
	base
	size    int // bytes of an element
	lengths []int
}

// base is the part of a Window that does not depend on the type of the elements.
type base struct {
	comm    *comm.Comm
	inner   comm.Internals
	backend backend.WindowBackend
	memory  backend.WindowMemory
	remote  backend.RemoteMemory // nil: all memory is reached by its address
	addrs   []unsafe.Pointer     // of each rank's memory; nil with a remote
	dtype   comm.DType           // of the elements; invalid if they are not numbers
	one     comm.Buffer          // an element, without its memory
	head    int                  // bytes before the elements; see lock.go
	closed  atomic.Bool
	held    []atomic.Int32 // by rank: the Mode in which this rank holds its lock, 0 if it does not
}

// New makes a window with length zeroed elements on this rank. All ranks of c call it, each with
// its own length. T is any type without pointers. Where a rank asks for more memory than its
// machine has, all ranks get an error that names it, and c stays usable. Over a Go binding of MPI,
// as with the build tags gompi and empi, the error is errors.ErrUnsupported.
func New[T any](ctx context.Context, c *comm.Comm, length int) (*Window[T], error) {
	if c == nil {
		return nil, fault.Located(errors.New("window: New: the communicator is nil: this rank is in none of the groups of Split or Group; " +
			"make the call on ranks that are"))
	}
	if most := math.MaxInt / 2 / max(1, int(unsafe.Sizeof(*new(T)))); length < 0 || length > most {
		err := fault.Located(fmt.Errorf("window: New with length %d; give 0 to %d", length, most))
		c.Abort(err) // the others must not wait
		return nil, err
	}
	// Ranks compare the type of the elements, and types with pointers are refused.
	b := comm.Of(make([]T, 1))
	if err := c.Do(ctx, comm.Call{Kind: comm.BroadcastKind, Dst: b, Cause: "a window"}); err != nil {
		return nil, err
	}
	w := &Window[T]{size: int(unsafe.Sizeof(*new(T)))}
	w.comm, w.inner, w.head = c, c.Internals(), headBytes(c.Size())
	if k := reflect.TypeFor[T]().Kind(); k != reflect.Struct && k != reflect.Array {
		w.dtype = b.DType
	}
	w.one = b
	w.one.Ptr = nil
	memory, bytes, err := w.inner.OpenWindow(ctx, w.head+length*w.size)
	if err != nil {
		return nil, err
	}
	w.memory, w.backend = memory, w.inner.Backend().(backend.WindowBackend)
	w.held = make([]atomic.Int32, c.Size())
	for r, n := range bytes {
		w.lengths = append(w.lengths, (n-w.head)/w.size)
		w.addrs = append(w.addrs, memory.Address(r))
	}
	if remote, ok := memory.(backend.RemoteMemory); ok {
		w.remote, w.addrs = remote, nil
	}
	return w, comm.Barrier(ctx, c) // no rank uses memory that another has not made yet
}

// Len returns how many elements rank has.
func (w *Window[T]) Len(rank int) int {
	if rank < 0 || rank >= len(w.lengths) {
		panic(fmt.Sprintf("window: Len: rank %d of a window of %d ranks; give 0 to %d", rank, len(w.lengths), len(w.lengths)-1))
	}
	return w.lengths[rank]
}

// Local returns this rank's own memory. It may be used until Close.
func (w *Window[T]) Local() []T {
	s, _ := w.Shared(w.comm.Rank())
	return s
}

// Shared returns rank's memory, to be read and written like any slice; ok is false if this
// process cannot reach it, as over MPI. Accesses of several ranks must be ordered by Fence,
// Lock or package sync/atomic. The slice may be used until Close.
func (w *Window[T]) Shared(rank int) (s []T, ok bool) {
	if rank < 0 || rank >= len(w.lengths) || w.closed.Load() {
		return nil, false
	}
	p := w.memory.Address(rank)
	switch {
	case p == nil:
		return nil, false
	case w.lengths[rank] == 0: // no pointer past the end
		return []T{}, true
	}
	return unsafe.Slice((*T)(unsafe.Add(p, w.head)), w.lengths[rank]), true
}

// Put copies src to rank's memory, from element at on.
func (w *Window[T]) Put(rank, at int, src []T) error {
	if p, ok := w.begin(comm.PutKind, rank, at, len(src)); ok {
		copyBytes(unsafe.Slice((*byte)(p), len(src)*w.size), raw(src))
		return nil
	}
	return w.do(comm.PutKind, comm.NoOp, rank, at, len(src), comm.Of(src), func(to int) error {
		if w.remote != nil {
			return w.remote.Put(rank, to, raw(src))
		}
		copyBytes(unsafe.Slice((*byte)(unsafe.Add(w.addrs[rank], to)), len(src)*w.size), raw(src))
		return nil
	})
}

// Get fills dst from rank's memory, from element at on.
func (w *Window[T]) Get(rank, at int, dst []T) error {
	if p, ok := w.begin(comm.GetKind, rank, at, len(dst)); ok {
		copyBytes(raw(dst), unsafe.Slice((*byte)(p), len(dst)*w.size))
		return nil
	}
	return w.do(comm.GetKind, comm.NoOp, rank, at, len(dst), comm.Of(dst), func(from int) error {
		if w.remote != nil {
			return w.remote.Get(rank, from, raw(dst))
		}
		copyBytes(raw(dst), unsafe.Slice((*byte)(unsafe.Add(w.addrs[rank], from)), len(dst)*w.size))
		return nil
	})
}

// Flush returns when all that this rank has put and accumulated is in rank's memory.
func (w *Window[T]) Flush(rank int) error {
	if err := w.check("Flush", rank); err != nil {
		return err
	}
	return w.flush(rank)
}

func (w *base) flush(rank int) error {
	if w.remote == nil {
		return nil
	}
	return w.remote.Flush(rank)
}

// Fence returns when all ranks have called it. All that any of them has put and accumulated
// before has then arrived.
func (w *Window[T]) Fence(ctx context.Context) error {
	if err := w.finish("Fence"); err != nil {
		return err
	}
	return w.barrier(ctx, "window.Fence")
}

// Close frees the memory when all ranks have called it. The slices that Local and Shared have
// returned must not be used any more.
func (w *Window[T]) Close(ctx context.Context) error { return w.close(ctx, "window.Close") }

// close is Close, for a cause that errors and statistics have.
func (w *base) close(ctx context.Context, cause string) error {
	if err := w.finish("Close"); err != nil {
		return err
	}
	if err := w.barrier(ctx, cause); err != nil {
		return err
	}
	w.closed.Store(true)
	return w.memory.Close()
}

// finish flushes this rank's changes to all ranks, before a collective.
func (w *base) finish(name string) error {
	if w.closed.Load() {
		return w.fault(name, errClosed)
	}
	for r := range w.held {
		if err := w.flush(r); err != nil {
			return err
		}
	}
	return nil
}

func (w *base) barrier(ctx context.Context, cause string) error {
	return w.comm.Do(ctx, comm.Call{Kind: comm.BarrierKind, Cause: cause})
}

var errClosed = errors.New("the window is closed; make the call before Close, or make another window")

// check returns an error if the window is closed or there is no such rank.
func (w *base) check(name string, rank int) error {
	switch {
	case w.closed.Load():
		return w.fault(name, errClosed)
	case rank < 0 || rank >= len(w.held):
		return w.fault(name, w.noRank(rank))
	}
	return nil
}

func (w *base) noRank(rank int) error {
	return fmt.Errorf("there is no rank %d; give one of 0 to %d", rank, len(w.held)-1)
}

// fault wraps the error of a call that does not go through do.
func (w *base) fault(name string, err error) error {
	c := w.comm
	return &comm.Error{Call: "window " + name, Site: new(comm.Call).Site(), Comm: c.Name(), Rank: c.WorldRank(c.Rank()), Err: err}
}

// begin checks and counts a call on n elements of rank's memory from element at on, and returns their address. It is a short
// way of do; ok is false if do must be gone through: something is wrong, calls are recorded, or there is no address.
func (w *Window[T]) begin(kind comm.Kind, rank, at, n int) (p unsafe.Pointer, ok bool) {
	if w.remote != nil || w.closed.Load() || rank < 0 || rank >= len(w.addrs) || at < 0 || n == 0 || n > w.lengths[rank]-at ||
		!w.inner.Quiet(w.one) || w.backend.Touch(kind, n*w.size) != nil {
		return nil, false
	}
	w.inner.Count(kind, n*w.size)
	return unsafe.Add(w.addrs[rank], w.head+at*w.size), true
}

// do checks, counts and carries out a call on n elements of rank's memory from element at on. It
// gives f the first element's place in bytes. b is this rank's buffer.
func (w *Window[T]) do(kind comm.Kind, op comm.Op, rank, at, n int, b comm.Buffer, f func(at int) error) error {
	call := comm.Call{Kind: kind, Op: op, Root: rank, Src: b}
	return w.inner.Alone(&call, func() error {
		switch {
		case w.closed.Load():
			return errClosed
		case rank < 0 || rank >= len(w.lengths):
			return w.noRank(rank)
		case at < 0 || n > w.lengths[rank]-at:
			return fmt.Errorf("elements %d to %d of rank %d, which has %d; stay within Len(%d)", at, at+n, rank, w.lengths[rank], rank)
		}
		if err := w.backend.Touch(kind, n*w.size); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		return f(w.head + at*w.size)
	})
}

// raw returns the memory of s.
func raw[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// copyBytes copies src to dst, which may overlap, as copy does.
func copyBytes(dst, src []byte) {
	if len(dst) < 64<<10 {
		copy(dst, src)
		return
	}
	p, q := uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(unsafe.Pointer(unsafe.SliceData(src)))
	if p < q+uintptr(len(src)) && q < p+uintptr(len(dst)) {
		copy(dst, src)
		return
	}
	simd.Copy(dst, src)
}
