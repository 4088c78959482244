package window_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/comm/window"
)

// Ranks that hold locks and wait for each other's are found, in a circle and with a collective.
func TestRanksThatWaitForEachOthersLocks(t *testing.T) {
	for _, collective := range []bool{false, true} {
		for r, err := range commtest.Ranks(t.Context(), 3, func(ctx context.Context, world *comm.Comm) error {
			w, err := window.New[int](ctx, world, 1)
			if err != nil {
				return err
			}
			me := world.Rank()
			if err := errors.Join(w.Lock(ctx, me, window.Exclusive), w.Fence(ctx)); err != nil {
				return err
			}
			if collective && me == 2 {
				return w.Fence(ctx)
			}
			return w.Lock(ctx, (me+1)%3, window.Shared)
		}) {
			var circle *mem.DeadlockError
			if !errors.As(err, &circle) || len(circle.Waits) != 3 || !strings.Contains(err.Error(), "Lock of rank 1 at window/window_test.go:") {
				t.Errorf("collective %v: rank %d: got %v", collective, r, err)
			}
		}
	}
}

// A rank whose other goroutine is about to unlock is not stuck.
func TestALockThatAnotherGoroutineGivesBack(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := window.NewMutex(ctx, world)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			if err := m.Lock(ctx); err != nil {
				return err
			}
		}
		if err := comm.Barrier(ctx, world); err != nil {
			return err
		}
		if world.Rank() == 1 {
			return errors.Join(m.Lock(ctx), m.Unlock(), comm.Barrier(ctx, world))
		}
		unlocked := make(chan error)
		go func() {
			n := 0
			for range 1_000_000_000 { // it acts
				n++
			}
			unlocked <- m.Unlock()
		}()
		return errors.Join(comm.Barrier(ctx, world), <-unlocked)
	})
}

func TestCallsAllocateNothing(t *testing.T) {
	world := comm.NewWorld(mem.Open(1)[0])
	w, err := window.New[int64](t.Context(), world, 4)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]int64, 4)
	if n := testing.AllocsPerRun(100, func() {
		_, fetched := w.FetchAndAdd(0, 1, 2)
		_, swapped := w.CompareAndSwap(0, 1, 2, 3)
		err = errors.Join(w.Put(0, 0, x), w.Get(0, 0, x), w.Accumulate(0, 0, x, comm.Sum), fetched, swapped)
	}); n > 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := window.New[int64](t.Context(), nil, 1); err == nil || !strings.Contains(err.Error(), "the communicator is nil") ||
		!strings.Contains(err.Error(), "(at window/window_test.go:") {
		t.Errorf("%v", err)
	}
	for _, length := range []int{-1, 1 << 60} {
		for _, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, c *comm.Comm) error {
			_, err := window.New[int64](ctx, c, length)
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), "window: New with length") {
				t.Errorf("%d: %v", length, err)
			}
		}
	}
}

// A collective in the body of a Queue is refused, also where the bodies of all ranks would meet in it.
func TestCollectiveInQueue(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		errs := make([]error, ranks)
		commtest.Run(t, ranks, func(ctx context.Context, world *comm.Comm) error {
			for i, err := range window.Queue(ctx, world, 1) {
				if err == nil {
					err = comm.AllReduce(ctx, world, []int{i}, comm.Sum)
				}
				errs[world.Rank()] = err
				break
			}
			if errs[world.Rank()] == nil { // this rank got no number
				errs[world.Rank()] = comm.Barrier(ctx, world)
			}
			return nil
		})
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "AllReduce sum int64[1]") ||
				!strings.Contains(err.Error(), "the body of window.Queue runs at other times on each rank") {
				t.Errorf("rank %d of %d: %v", rank, ranks, err)
			}
		}
	}
}
