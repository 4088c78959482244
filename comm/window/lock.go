package window

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
)

// The lock of a rank's memory lies before its elements, in words of 8 bytes. The first word is 1
// plus the rank that holds the lock exclusively or waits for the readers to leave, 0 if there is
// none. Then follows one word for each rank: 1 if it holds the lock Shared. So a rank that waits
// knows for which rank it waits.

// headBytes returns the bytes of a lock among n ranks, whole cache lines.
func headBytes(n int) int { return (8*(1+n) + 63) &^ 63 }

// readerAt returns the place of the word of rank r.
func readerAt(r int) int { return 8 * (1 + r) }

// A Mode is how a lock is held.
type Mode int

// The modes, MPI_LOCK_SHARED and MPI_LOCK_EXCLUSIVE.
const (
	Shared    Mode = 1 + iota // together with others that have it Shared
	Exclusive                 // alone
)

// Lock returns when this rank holds the lock of rank's memory, alone or Shared with others. The
// lock keeps out only ranks that call Lock. It belongs to the rank, not to a goroutine. Lock is
// no collective.
//
// If ctx ends first, or the rank that holds the lock has ended, the communicator is aborted.
func (w *Window[T]) Lock(ctx context.Context, rank int, mode Mode) error {
	if err := w.check("Lock", rank); err != nil {
		return err
	}
	return w.lock(ctx, rank, mode)
}

// Unlock releases the lock of rank's memory. All that this rank has put and accumulated there
// has then arrived.
func (w *Window[T]) Unlock(rank int) error {
	if err := w.check("Unlock", rank); err != nil {
		return err
	}
	return w.unlock(rank)
}

func (w *base) lock(ctx context.Context, rank int, mode Mode) error {
	if mode != Shared && mode != Exclusive {
		return w.fault("Lock", fmt.Errorf("there is no mode %d; use Shared or Exclusive", int(mode)))
	}
	if !w.held[rank].CompareAndSwap(0, int32(mode)) {
		return w.fault("Lock", fmt.Errorf("this rank holds the lock of rank %d, or waits for it; Unlock it first, and have "+
			"goroutines of one rank wait for each other by a sync.Mutex", rank))
	}
	call := comm.Call{Kind: comm.LockKind, Root: rank}
	err := w.inner.Alone(&call, func() error {
		if err := w.backend.Touch(comm.LockKind, 0); err != nil {
			return err
		}
		take := w.write
		if mode == Shared {
			take = w.read
		}
		return take(ctx, &call, rank)
	})
	if err != nil {
		w.held[rank].Store(0)
	}
	return err
}

// write takes the lock exclusively.
func (w *base) write(ctx context.Context, call *comm.Call, rank int) error {
	me := uint64(w.comm.Rank()) + 1
	for {
		was, err := w.cas(rank, 0, 8, 0, me)
		if err != nil {
			return err
		}
		if was == 0 {
			break
		}
		if err := w.await(ctx, call, func() (int, error) { return w.writer(rank) }); err != nil {
			return err
		}
	}
	return w.await(ctx, call, func() (int, error) {
		for r := range w.held {
			if was, err := w.load(rank, readerAt(r), 8); err != nil || was != 0 {
				return r, err
			}
		}
		return -1, nil
	})
}

// read takes the lock Shared.
func (w *base) read(ctx context.Context, call *comm.Call, rank int) error {
	at := readerAt(w.comm.Rank())
	for {
		if _, err := w.cas(rank, at, 8, 0, 1); err != nil {
			return err
		}
		if r, err := w.writer(rank); r < 0 || err != nil {
			return err
		}
		if _, err := w.cas(rank, at, 8, 1, 0); err != nil { // a writer goes first
			return err
		}
		if err := w.await(ctx, call, func() (int, error) { return w.writer(rank) }); err != nil {
			return err
		}
	}
}

// writer returns the rank that holds the lock exclusively, or is about to; -1 if there is none.
func (w *base) writer(rank int) (int, error) {
	was, err := w.load(rank, 0, 8)
	return int(min(was, uint64(len(w.held)))) - 1, err
}

func (w *base) await(ctx context.Context, call *comm.Call, on func() (int, error)) error {
	if rank, err := on(); rank < 0 || err != nil {
		return err
	}
	return w.backend.Await(ctx, call, on)
}

func (w *base) unlock(rank int) error {
	mode := Mode(w.held[rank].Load())
	if mode == 0 {
		return w.fault("Unlock", fmt.Errorf("this rank does not hold the lock of rank %d; Lock it first", rank))
	}
	if err := w.flush(rank); err != nil {
		return err
	}
	w.held[rank].Store(0)
	at, mine := 0, uint64(w.comm.Rank())+1
	if mode == Shared {
		at, mine = readerAt(w.comm.Rank()), 1
	}
	_, err := w.cas(rank, at, 8, mine, 0)
	return err
}
