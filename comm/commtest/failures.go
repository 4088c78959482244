package commtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// Failures returns the cases in which a call must fail, and the world go on.
// Backends that can only block and abort the whole job cannot pass them.
func Failures() []Case {
	return []Case{
		{"disagreement", disagreement},
		{"disagreement of counts", countsDisagree},
		{"disagreement of messages", messagesDisagree},
		{"misuse", misuse},
		{"rows refused", rowsRefused},
		{"elements that are refused", refusedElements},
		{"abort while blocked", abortWhileBlocked},
		{"abort reaches splits", abortReachesSplits},
		{"cancelled", cancelled},
		{"deadline", deadline},
		{"different groups", differentGroups},
		{"disagreement in every collective", disagreementEverywhere},
		{"abort in every collective", abortEverywhere},
		{"deadline in every collective", deadlineEverywhere},
		{"Start after an abort", startAfterAbort},
	}
}

// attempt is a call on a communicator, and what its error or the others' says.
type attempt struct {
	name string
	call func(*comm.Comm) error
}

// dup returns a copy of c to break.
func dup(ctx context.Context, c *comm.Comm) (*comm.Comm, error) { return c.Split(ctx, 0, c.Rank()) }

// want returns nil if err is an *Error that is target and says all of parts.
func want(err, target error, parts ...string) error {
	var e *comm.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("got %v, want a *comm.Error", err)
	}
	if target != nil && !errors.Is(err, target) {
		return fmt.Errorf("got %q, want one that is %q", err, target)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			return fmt.Errorf("got %q, want one that says %q", err, p)
		}
	}
	return nil
}

// stays checks that c cannot be used any more, and then that world still can.
func stays(ctx context.Context, world, c *comm.Comm) error {
	if err := want(comm.Barrier(ctx, c), nil); err != nil {
		return fmt.Errorf("a call after an error: %w", err)
	}
	n, err := total(ctx, world, 1)
	if err != nil || n != world.Size() {
		return fmt.Errorf("the world after an error in a split: %d, %w", n, err)
	}
	return nil
}

// breaking runs f on a copy of world, which f leaves broken, and checks that the
// world is not.
func breaking(ctx context.Context, world *comm.Comm, f func(c *comm.Comm) error) error {
	c, err := dup(ctx, world)
	if err != nil {
		return err
	}
	if err := f(c); err != nil {
		return err
	}
	return stays(ctx, world, c)
}

// disagreement: the last rank makes another call than the rest.
func disagreement(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		return nil
	}
	buf := make([]float32, 3)
	calls := []attempt{
		{"AllReduce sum float32[3]", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, buf, comm.Sum) }},
		{"Barrier", func(c *comm.Comm) error { return comm.Barrier(ctx, c) }},
		{"AllReduce max float32[3]", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, buf, comm.Max) }},
		{"AllReduce sum float32[2]", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, buf[:2], comm.Sum) }},
		{"AllReduce sum int32[3]", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, make([]int32, 3), comm.Sum) }},
		{"Broadcast float32[3] root 0", func(c *comm.Comm) error { return comm.Broadcast(ctx, c, buf, 0) }},
		{"Broadcast float32[3] root 1", func(c *comm.Comm) error { return comm.Broadcast(ctx, c, buf, 1) }},
		{"AllReduce sum float32[9999]", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, make([]float32, 9999), comm.Sum) }},
	}
	for _, odd := range calls[1:] {
		if err := breaking(ctx, world, func(c *comm.Comm) error {
			mine := calls[0]
			if me == n-1 {
				mine = odd
			}
			return want(mine.call(c), comm.ErrMismatch, "called "+odd.name+" at commtest/failures.go:",
				"called "+calls[0].name+" at commtest/failures.go:",
				fmt.Sprintf("rank %d", world.WorldRank(n-1)))
		}); err != nil {
			return err
		}
	}
	return nil
}

// countsDisagree: what rank 0 sends rank 1 is not what rank 1 expects.
func countsDisagree(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		return nil
	}
	for _, each := range []int{1, 3000} {
		counts := repeat(n, each)
		less := repeat(n, each)
		less[1-min(me, 1)]--
		buf, short := make([]int64, n*each), make([]int64, n*each-1)
		for _, try := range []attempt{
			{"AllToAllV", func(c *comm.Comm) error {
				if me == 1 { // expects one less of rank 0
					return comm.AllToAllV(ctx, c, short, less, buf, counts)
				}
				return comm.AllToAllV(ctx, c, make([]int64, n*each), counts, buf, counts)
			}},
			{"GatherV", func(c *comm.Comm) error {
				if me == 0 { // expects one less of rank 1
					return comm.GatherV(ctx, c, short, buf[:each], less, 0)
				}
				return comm.GatherV(ctx, c, nil, buf[:each], nil, 0)
			}},
			{"ScatterV", func(c *comm.Comm) error {
				if me == 0 {
					return comm.ScatterV(ctx, c, buf[:each], short, less, 0)
				}
				return comm.ScatterV(ctx, c, buf[:each], nil, nil, 0)
			}},
		} {
			if err := breaking(ctx, world, func(c *comm.Comm) error {
				err := try.call(c)
				if me > 1 && err == nil { // neither side: may learn of it one call later
					err = comm.Barrier(ctx, c)
				}
				return want(err, comm.ErrMismatch, try.name, "rank 0", "rank 1", "make the two counts equal")
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

func messagesDisagree(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		return nil
	}
	for _, count := range []int{2, 9000} {
		if err := breaking(ctx, world, func(c *comm.Comm) (err error) {
			switch me {
			case 0:
				err = comm.Send(ctx, c, make([]float64, count), 1)
			case 1:
				sent := fmt.Sprintf("rank %d called Send float64[%d]", c.WorldRank(0), count)
				if count == 9000 { // its sender waits, and its line is known
					sent += " at commtest/failures.go:"
				}
				err = comm.Recv(ctx, c, make([]float64, count+1), 0)
				return want(err, comm.ErrMismatch, sent,
					fmt.Sprintf("rank %d called Recv float64[%d] at commtest/failures.go:", c.WorldRank(1), count+1),
					"give Send and Recv as many elements of one type")
			}
			if err == nil {
				err = comm.Barrier(ctx, c)
			}
			return want(err, nil)
		}); err != nil {
			return err
		}
	}
	return nil
}

// misuse: a call that cannot be right is refused, and reaches the other ranks.
func misuse(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	buf := make([]float32, n*4)
	for _, try := range []attempt{
		{"len(dst) is 2 and len(src) 0; they must be equal; in place, give the buffer as both", func(c *comm.Comm) error {
			return c.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(buf[:2])})
		}},
		{"len(dst) is", func(c *comm.Comm) error { return comm.AllGather(ctx, c, buf[:n*2-1], make([]float32, 2)) }},
		{"overlap", func(c *comm.Comm) error { return comm.AllGather(ctx, c, buf[:n*2], buf[1:3]) }},
		{"overlap", func(c *comm.Comm) error { return comm.Scan(ctx, c, buf[1:3], buf[:2], comm.Sum) }},
		{"is not in the", func(c *comm.Comm) error { return comm.Broadcast(ctx, c, buf, n) }},
		{"rank -1 is", func(c *comm.Comm) error { return comm.Reduce(ctx, c, nil, buf, comm.Sum, -1) }},
		{"this rank itself", func(c *comm.Comm) error { return comm.Send(ctx, c, buf, c.Rank()) }},
		{"not defined on float32", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, buf, comm.And) }},
		{"not defined on bool", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, make([]bool, 2), comm.Sum) }},
		{"not defined on int32", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, make([]int32, 2), comm.Avg) }},
		{"no operation", func(c *comm.Comm) error { return comm.AllReduce(ctx, c, buf, comm.NoOp) }},
		{"without a Func", func(c *comm.Comm) error { return comm.AllReduceFunc(ctx, c, buf, nil) }},
		{"same multiple of", func(c *comm.Comm) error {
			return comm.AllToAll(ctx, c, buf[:n], make([]float32, n+1))
		}},
		{"entries", func(c *comm.Comm) error { return comm.AllGatherV(ctx, c, buf, nil, make([]int, n+1)) }},
		{"sum to", func(c *comm.Comm) error {
			return comm.AllGatherV(ctx, c, buf[:1], nil, make([]int, n))
		}},
		{"not negative", func(c *comm.Comm) error {
			return comm.AllGatherV(ctx, c, buf, nil, repeat(n, -1))
		}},
		{"Counts", func(c *comm.Comm) error { // three of 4 and more ranks wrap around to 1
			counts := make([]int, n)
			copy(counts, []int{math.MaxInt, math.MaxInt, 3}[:min(n, 3)])
			return comm.AllToAllV(ctx, c, buf[:1], counts, buf[1:2], counts)
		}},
		{"has an element type", func(c *comm.Comm) error { return c.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum}) }},
		{"invalid kind", func(c *comm.Comm) error { return c.Do(ctx, comm.Call{}) }},
	} {
		if err := breaking(ctx, world, func(c *comm.Comm) error {
			if me == 0 {
				return want(try.call(c), nil, try.name)
			}
			return want(comm.Barrier(ctx, c), comm.ErrAborted, try.name, "rank 0")
		}); err != nil {
			return err
		}
	}
	return nil
}

var errTest = errors.New("the test's own reason")

func abortWhileBlocked(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		world, err := dup(ctx, world)
		if err != nil {
			return err
		}
		world.Abort(errTest)
		return want(comm.Barrier(ctx, world), comm.ErrAborted, errTest.Error())
	}
	for _, count := range []int{0, 1, 5000} {
		cause, is := errTest, comm.ErrAborted
		if count == 1 { // the kind of a cause arrives too
			cause, is = fmt.Errorf("%w: %w", comm.ErrMismatch, errTest), comm.ErrMismatch
		}
		for _, block := range []func(*comm.Comm) error{
			func(c *comm.Comm) error { return comm.AllReduce(ctx, c, make([]float32, count), comm.Sum) },
			func(c *comm.Comm) error { return comm.Recv(ctx, c, make([]float32, count), n-1) },
			func(c *comm.Comm) error { _, err := c.Split(ctx, 0, 0); return err },
		} {
			if err := breaking(ctx, world, func(c *comm.Comm) error {
				if me == n-1 {
					time.Sleep(2 * time.Millisecond)
					c.Abort(cause)
					c.Abort(errors.New("a second reason"))
					block = func(c *comm.Comm) error { return comm.Barrier(ctx, c) }
				}
				err := block(c)
				if !errors.Is(err, is) {
					return fmt.Errorf("got %q, want one that is %q", err, is)
				}
				return want(err, comm.ErrAborted, errTest.Error(), fmt.Sprintf("rank %d", world.WorldRank(n-1)))
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

func abortReachesSplits(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		return nil
	}
	c, err := dup(ctx, world)
	if err != nil {
		return err
	}
	color := 0
	if me == n-1 {
		color = -1
	}
	sub, err := c.Split(ctx, color, 0)
	if err != nil {
		return err
	}
	if err := comm.Barrier(ctx, world); err != nil { // all have left the Split, which the abort would end too
		return err
	}
	switch {
	case sub == nil:
		c.Abort(errTest)
	case sub.Size() > 1 && sub.Rank() == 0:
		err = want(comm.Recv(ctx, sub, make([]byte, 1), 1), comm.ErrAborted, errTest.Error())
	case sub.Size() > 1:
		err = want(comm.Recv(ctx, sub, make([]byte, 1), 0), comm.ErrAborted, errTest.Error())
	}
	if err != nil {
		return err
	}
	return stays(ctx, world, c)
}

// cancelled: a context ends on one rank.
func cancelled(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	for _, early := range []bool{true, false} {
		if err := breaking(ctx, world, func(c *comm.Comm) error {
			switch {
			case me == 0:
				mine, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				if early || n == 1 {
					cancel(errTest)
				} else {
					time.AfterFunc(2*time.Millisecond, func() { cancel(errTest) })
				}
				return want(comm.Barrier(mine, c), errTest)
			case me == 1 && !early:
				time.Sleep(60 * time.Millisecond) // longer than any backend needs to notice
			}
			return want(comm.Barrier(ctx, c), comm.ErrAborted, errTest.Error(), "rank 0")
		}); err != nil {
			return err
		}
	}
	return nil
}

// deadline: the error names the ranks that did not come. On a busy machine others may
// not have come either when the time is up; then they get more of it.
func deadline(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	if n == 1 {
		return nil
	}
	for limit := 30 * time.Millisecond; ; limit *= 10 {
		var named error
		if err := breaking(ctx, world, func(c *comm.Comm) error {
			if me != n-1 {
				short, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				err := comm.Barrier(short, c)
				if err := want(err, nil, context.DeadlineExceeded.Error()); err != nil {
					return err
				}
				named = want(err, nil, fmt.Sprintf("waiting for rank %d, which", world.WorldRank(n-1)))
			}
			return comm.Barrier(ctx, world)
		}); err != nil {
			return err
		}
		wrong := 0
		if named != nil {
			wrong = 1
		}
		if wrong, err := total(ctx, world, wrong); err != nil || wrong == 0 || limit > time.Second {
			return errors.Join(err, named)
		}
	}
}

func differentGroups(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	return breaking(ctx, world, func(c *comm.Comm) error {
		list := []int{0}
		if me == n-1 {
			list = []int{0, 0}
		}
		_, err := c.Group(ctx, list)
		if n == 1 {
			return want(err, nil, "at most once")
		}
		return want(err, comm.ErrMismatch, "different lists")
	})
}

// startAfterAbort: the error of a started call says where it was started.
func startAfterAbort(ctx context.Context, world *comm.Comm) error {
	return breaking(ctx, world, func(c *comm.Comm) error {
		c.Abort(errTest)
		p := c.Start(ctx, comm.Call{Kind: comm.BroadcastKind, Dst: comm.Of([]int32{1})})
		return want(p.Wait(), comm.ErrAborted, "commtest/failures.go:")
	})
}
