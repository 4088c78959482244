package window

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Counter is a number that all ranks of a communicator can raise. It lies on rank 0. Its
// methods may be called from any goroutine.
type Counter struct{ w *Window[int64] }

// NewCounter makes a Counter that is 0. All ranks of c call it.
func NewCounter(ctx context.Context, c *comm.Comm) (*Counter, error) {
	length := 0
	if c.Rank() == 0 {
		length = 1
	}
	w, err := New[int64](ctx, c, length)
	if err != nil {
		return nil, err
	}
	return &Counter{w}, nil
}

// Next returns the counter and adds 1 to it. No two calls return the same number, on any ranks.
func (c *Counter) Next() (int64, error) { return c.Add(1) }

// Add adds delta to the counter, and returns its old value.
func (c *Counter) Add(delta int64) (was int64, err error) { return c.w.FetchAndAdd(0, 0, delta) }

// Load returns the counter.
func (c *Counter) Load() (int64, error) { return c.w.Load(0, 0) }

// Close frees the counter when all ranks have called it.
func (c *Counter) Close(ctx context.Context) error { return c.w.Close(ctx) }

// A Mutex is a lock that one rank of a communicator holds at a time. It belongs to the rank:
// goroutines of one rank need a sync.Mutex beside it.
type Mutex struct{ w *Window[byte] }

// NewMutex makes a Mutex that nobody holds. All ranks of c call it.
func NewMutex(ctx context.Context, c *comm.Comm) (*Mutex, error) {
	w, err := New[byte](ctx, c, 0)
	if err != nil {
		return nil, err
	}
	return &Mutex{w}, nil
}

// Lock returns when this rank holds the mutex. Its errors are those of Window.Lock.
func (m *Mutex) Lock(ctx context.Context) error { return m.w.Lock(ctx, 0, Exclusive) }

// Unlock releases the mutex.
func (m *Mutex) Unlock() error { return m.w.Unlock(0) }

// Close frees the mutex when all ranks have called it.
func (m *Mutex) Close(ctx context.Context) error { return m.w.Close(ctx) }

// Queue deals out the numbers 0 to n-1: each goes to the one rank that asks first. All ranks
// of c range over it, with the same n. At the end of its loop a rank waits until the other ranks' loops have
// ended. A rank that leaves its loop early ends the queue for all: no more numbers are dealt out.
// An error comes with the number -1, and ends the loop. The body of the loop runs at other times on each rank, and another
// number of times, so it makes no collectives: one on c ends with an error.
func Queue(ctx context.Context, c *comm.Comm, n int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		ends := []int{n, -n}
		err := comm.AllReduce(ctx, c, ends, comm.Max)
		if err == nil && ends[0] != -ends[1] {
			err = fault.Located(fmt.Errorf("window: Queue (rank %d): %w: n is %d on this rank, and of %d to %d on all; give all the same",
				c.WorldRank(c.Rank()), comm.ErrMismatch, n, -ends[1], ends[0]))
		}
		if err != nil {
			yield(-1, err)
			return
		}
		next, err := NewCounter(ctx, c)
		if err != nil {
			yield(-1, err)
			return
		}
		in := c.Internals()
		for {
			i, err := next.Next()
			if err != nil {
				yield(-1, err)
				return
			}
			if i >= int64(n) {
				break
			}
			in.Apart(errApart)
			more := yield(int(i), nil)
			in.Apart(nil)
			if !more {
				if _, err := next.Add(int64(n)); err == nil {
					_ = next.w.close(ctx, queueEnd) // an error reaches the communicator's next call too
				}
				return
			}
		}
		if err := next.w.close(ctx, queueEnd); err != nil {
			yield(-1, err)
		}
	}
}

// queueEnd is the cause of the call in which ranks wait for the end of a Queue. It is told to those whose other ranks wait in the
// body, in a collective of another communicator.
const queueEnd = "the end of window.Queue, whose body may make no collectives"

var errApart = errors.New("the body of window.Queue runs at other times on each rank, so it may make no collective; " +
	"keep its results, and make the call after the loop")
