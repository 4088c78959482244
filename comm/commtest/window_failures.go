package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/window"
)

// windowMisuse: errors name the call and the remedy, and the window can be used further.
func windowMisuse(ctx context.Context, world *comm.Comm) error {
	n := world.Size()
	w, err := window.New[int64](ctx, world, 10)
	if err != nil {
		return err
	}
	x := make([]int64, 3)
	_, average := w.FetchAndOp(0, 0, 1, comm.Avg)
	for _, wrong := range []struct {
		err   error
		parts []string
	}{
		{w.Put(n, 0, x), []string{fmt.Sprintf("Put int64[3] of rank %d at commtest/window_failures.go:", n),
			fmt.Sprintf("give one of 0 to %d", n-1)}},
		{w.Put(-1, 0, x), []string{"there is no rank -1"}},
		{w.Put(0, 8, x), []string{"elements 8 to 11 of rank 0, which has 10; stay within Len(0)"}},
		{w.Get(0, -1, x), []string{"Get int64[3] of rank 0", "elements -1 to 2"}},
		{w.Accumulate(0, 10, x, comm.Sum), []string{"Accumulate", "elements 10 to 13"}},
		{average, []string{"FetchAndOp", "avg is no operation on one element; use Sum"}},
		{w.Unlock(0), []string{"window Unlock", "does not hold the lock of rank 0; Lock it first"}},
		{w.Lock(ctx, 0, 7), []string{"there is no mode 7"}},
		{w.Lock(ctx, n, window.Shared), []string{"there is no rank"}},
		{w.Flush(n), []string{"there is no rank"}},
	} {
		if err := want(wrong.err, nil, wrong.parts...); err != nil {
			return err
		}
	}
	if err := w.Lock(ctx, world.Rank(), window.Shared); err != nil {
		return err
	}
	if err := want(w.Lock(ctx, world.Rank(), window.Exclusive), nil, "this rank holds the lock", "Unlock it first"); err != nil {
		return err
	}
	if err := errors.Join(w.Unlock(world.Rank()), w.Put(0, 10, nil), w.Close(ctx)); err != nil {
		return err
	}
	if err := want(w.Put(0, 0, x), nil, "the window is closed"); err != nil {
		return err
	}
	if err := want(w.Fence(ctx), nil, "the window is closed"); err != nil {
		return err
	}
	c, err := dup(ctx, world)
	if err != nil {
		return err
	}
	_, err = window.New[string](ctx, c, 1)
	if err := want(err, nil, "string", "holds a pointer"); err != nil {
		return err
	}
	return stays(ctx, world, c)
}

// lockInVain: who waits for a lock learns that its context is done, or that another rank has
// aborted.
func lockInVain(ctx context.Context, world *comm.Comm) error {
	if world.Size() == 1 {
		return nil
	}
	last := world.Size() - 1
	for _, late := range []bool{true, false} {
		if err := breaking(ctx, world, func(c *comm.Comm) error {
			w, err := window.New[int64](ctx, c, 1)
			if err != nil {
				return err
			}
			if c.Rank() == last {
				if err := w.Lock(ctx, 0, window.Exclusive); err != nil {
					return err
				}
			}
			if err := w.Fence(ctx); err != nil {
				return err
			}
			if c.Rank() == last {
				if !late {
					time.Sleep(5 * time.Millisecond)
					c.Abort(errors.New("out of paper"))
				}
				return want(comm.Barrier(ctx, c), nil) // the others abort
			}
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			if !late {
				short = ctx
			}
			err = w.Lock(short, 0, []window.Mode{window.Shared, window.Exclusive}[c.Rank()%2])
			switch {
			case !late:
				return want(err, comm.ErrAborted, "Lock of rank 0 at commtest/window_failures.go:", "out of paper")
			case errors.Is(err, comm.ErrAborted): // another rank's time was over before
				return nil
			}
			return want(err, context.DeadlineExceeded, "Lock of rank 0", fmt.Sprintf("waiting for rank %d", c.WorldRank(last)))
		}); err != nil {
			return err
		}
	}
	return nil
}

// windowCounted: Stats and recordings show calls on windows.
func windowCounted(ctx context.Context, world *comm.Comm) error {
	w, err := window.New[int32](ctx, world, 4)
	if err != nil {
		return err
	}
	before := world.Stats()
	r := world.Record()
	_, err = w.FetchAndAdd(0, 3, 0)
	err = errors.Join(err, w.Put(0, 0, nil), w.Put(world.Rank(), 1, []int32{1, 2}), w.Lock(ctx, world.Rank(), window.Shared),
		w.Unlock(world.Rank()))
	events := r.Stop()
	if err != nil {
		return err
	}
	after := world.Stats()
	if k := comm.PutKind; after.Kinds[k].Calls-before.Kinds[k].Calls != 2 || after.Kinds[k].Bytes-before.Kinds[k].Bytes != 8 {
		return fmt.Errorf("after two Puts of 8 bytes in all Stats has %v, before %v", after.Kinds[k], before.Kinds[k])
	}
	var said []string
	for _, e := range events {
		said = append(said, fmt.Sprintf("%v %d %s", e.Kind, e.Bytes, e.Elem))
		if e.Peer < 0 || !strings.HasPrefix(e.Site(), "commtest/window_failures.go:") {
			return fmt.Errorf("%v has peer %d and site %s", e.Kind, e.Peer, e.Site())
		}
	}
	if want := []string{"FetchAndOp 4 int32", "Put 0 int32", "Put 8 int32", "Lock 0 "}; !slices.Equal(said, want) {
		return fmt.Errorf("recorded %q, want %q", said, want)
	}
	return w.Close(ctx)
}

// EndWithLock is a task of a test: the last rank returns, without an error, while it holds a lock
// that the others wait for. It returns what the ranks get.
func EndWithLock(ctx context.Context, world *comm.Comm) error {
	m, err := window.NewMutex(ctx, world)
	if err != nil {
		return err
	}
	ready, err := window.New[int64](ctx, world, 1) // how many ranks have left the barrier
	if err != nil {
		return err
	}
	last := world.Rank() == world.Size()-1
	if last {
		if err := m.Lock(ctx); err != nil {
			return err
		}
	}
	if err := comm.Barrier(ctx, world); err != nil {
		return err
	}
	if !last {
		if _, err := ready.FetchAndAdd(0, 0, 1); err != nil {
			return err
		}
		return m.Lock(ctx)
	}
	for { // a rank in the barrier would learn of the end there
		n, err := ready.Load(0, 0)
		if err != nil || n == int64(world.Size()-1) {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func endWithLock(t *testing.T, run Harness, n int) {
	for r, err := range run(t.Context(), n, EndWithLock) {
		ended := err != nil && errors.Is(err, comm.ErrEnded) && strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", n-1))
		switch {
		case r == n-1 && err != nil:
			t.Errorf("rank %d of %d, which ended: %v", r, n, err)
		case r < n-1 && !(ended && strings.Contains(err.Error(), "Lock of rank 0 at commtest/window_failures.go:")):
			t.Errorf("rank %d of %d: got %v, want that rank %d ended", r, n, err, n-1)
		}
	}
}

// LeaveWindowOpen is a task of a test: it makes a window, uses it and does not close it.
func LeaveWindowOpen(ctx context.Context, world *comm.Comm) error {
	w, err := window.New[int64](ctx, world, 10)
	if err != nil {
		return err
	}
	_, err = w.FetchAndAdd(0, 3, 1)
	return err
}
