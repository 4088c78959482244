package commtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// disagreementEverywhere: in every collective the last rank has another kind,
// count, element type, root or operation than the rest.
func disagreementEverywhere(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		return nil
	}
	own := everyCall[int32](world, 5, 0, comm.Sum)
	for k, call := range own {
		odd := []comm.Call{own[(k+1)%len(own)]}
		if call.Kind != comm.BarrierKind {
			odd = append(odd, everyCall[int32](world, 4, 0, comm.Sum)[k], everyCall[uint8](world, 5, 0, comm.Sum)[k])
		}
		if call.Kind.Rooted() {
			odd = append(odd, everyCall[int32](world, 5, 1, comm.Sum)[k])
		}
		if call.Kind.Reduces() {
			odd = append(odd, everyCall[int32](world, 5, 0, comm.Max)[k])
		}
		for _, other := range odd {
			if err := breaking(ctx, world, func(c *comm.Comm) error {
				mine := call
				if me == n-1 {
					mine = other
				}
				err := c.Do(ctx, mine)
				if err == nil { // neither side of a wrong count: learns of it one call later
					err = comm.Barrier(ctx, c)
				}
				return ran(want(err, comm.ErrMismatch, fmt.Sprintf("rank %d", world.WorldRank(n-1)), call.Kind.String(), other.Kind.String()),
					"%v, and on the last rank %v", &call, &other)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// everywhere has all ranks of world but the last make every collective at once,
// blocking and started, each on a communicator of its own. It returns the
// communicators; the others wait for what check says of their errors.
func everywhere(ctx, each context.Context, world *comm.Comm) (copies []*comm.Comm, wait func(check func(error) error) error, err error) {
	calls := everyCall[int32](world, 700, 0, comm.Sum)
	started := everyCall[int32](world, 700, 0, comm.Sum) // with buffers of their own
	for range 2 * len(calls) {
		c, err := dup(ctx, world)
		if err != nil {
			return nil, nil, err
		}
		copies = append(copies, c)
	}
	if world.Rank() == world.Size()-1 {
		return copies, func(func(error) error) error { return nil }, nil
	}
	errs := make([]error, len(copies))
	var all sync.WaitGroup
	for k, c := range copies {
		all.Go(func() {
			if k%2 == 0 {
				errs[k] = c.Do(each, calls[k/2])
			} else {
				errs[k] = c.Start(each, started[k/2]).Wait()
			}
			if errs[k] == nil { // it did not need the last rank
				errs[k] = comm.Barrier(each, c)
			}
		})
	}
	return copies, func(check func(error) error) error {
		all.Wait()
		for k, err := range errs {
			if err := check(err); err != nil {
				return fmt.Errorf("%v, started %v: %w", &calls[k/2], k%2 == 1, err)
			}
		}
		return nil
	}, nil
}

// abortEverywhere: the last rank aborts while the others are in every collective.
func abortEverywhere(ctx context.Context, world *comm.Comm) error {
	n := world.Size()
	if n == 1 {
		return nil
	}
	copies, wait, err := everywhere(ctx, ctx, world)
	if err != nil {
		return err
	}
	if world.Rank() == n-1 {
		time.Sleep(2 * time.Millisecond)
		for _, c := range copies {
			c.Abort(errTest)
		}
	}
	if err := wait(func(err error) error {
		return want(err, comm.ErrAborted, errTest.Error(), fmt.Sprintf("rank %d", world.WorldRank(n-1)))
	}); err != nil {
		return err
	}
	return stays(ctx, world, copies[0])
}

// deadlineEverywhere: the last rank does not come to any collective in time.
func deadlineEverywhere(ctx context.Context, world *comm.Comm) error {
	n := world.Size()
	if n == 1 {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	copies, wait, err := everywhere(ctx, short, world)
	if err != nil {
		return err
	}
	if err := wait(func(err error) error { return want(err, nil, context.DeadlineExceeded.Error()) }); err != nil {
		return err
	}
	if err := comm.Barrier(ctx, world); err != nil {
		return err
	}
	return stays(ctx, world, copies[0])
}

// endEverywhere: the last rank returns while the others are in every collective.
func endEverywhere(t *testing.T, run Harness, n int) {
	if n == 1 {
		return
	}
	errs := run(t.Context(), n, func(ctx context.Context, world *comm.Comm) error {
		_, wait, err := everywhere(ctx, ctx, world)
		if err != nil {
			return err
		}
		return wait(func(err error) error {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", n-1)) {
				return fmt.Errorf("got %v, want that rank %d ended", err, n-1)
			}
			return nil
		})
	})
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
	}
}
