//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// lastEnds: the last rank ends while the others wait for it, or for one that does.
func lastEnds(ctx context.Context, r *Rank) error {
	n := r.Size()
	world, err := variant(r, func(v *Rank) { v.debug = os.Getenv("GORUN_DEBUG") == "1" })
	if err != nil {
		return err
	}
	half, err := world.Split(ctx, world.Rank()%2, 0)
	if err != nil || world.Rank() == n-1 {
		return err
	}
	on := world
	if half.Size() > 1 && world.Rank()%2 == (n-1)%2 {
		on = half
	}
	err = comm.Barrier(ctx, on)
	if !errors.Is(err, comm.ErrEnded) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", n-1)) {
		return fmt.Errorf("got %v, want that rank %d ended", err, n-1)
	}
	return errors.Join(errExpected, err)
}

// firstFails: rank 0 fails; the others learn of it in their call.
func firstFails(ctx context.Context, r *Rank) error {
	if r.Rank() == 0 {
		return errors.New("out of patience")
	}
	return comm.Barrier(ctx, comm.NewWorld(r))
}

// firstFailsOthersBusy: rank 0 fails; the others are busy for longer than it waits.
func firstFailsOthersBusy(_ context.Context, r *Rank) error {
	if r.Rank() == 0 {
		return errors.New("out of patience")
	}
	time.Sleep(childLimit)
	return nil
}

// lastIsKilled: the last rank is killed in the middle of a call of the others.
func lastIsKilled(ctx context.Context, r *Rank) error {
	if r.Rank() == r.Size()-1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return comm.Barrier(ctx, comm.NewWorld(r))
}

// truncated: what the library refuses is an Error, and reaches the other rank.
func truncated(ctx context.Context, r *Rank) error {
	var last error
	for _, call := range []func(world *comm.Comm) error{
		func(world *comm.Comm) error {
			if r.Rank() == 0 {
				return comm.Send(ctx, world, make([]int64, 4), 1)
			}
			return comm.Recv(ctx, world, make([]int64, 2), 0)
		},
		// Over Open MPI some of these go in one message and some in two.
		func(world *comm.Comm) error { return comm.Broadcast(ctx, world, make([]int64, 4-2*r.Rank()), 0) },
		func(world *comm.Comm) error {
			return comm.Broadcast(ctx, world, make([]float32, 1500-600*r.Rank()), 0)
		},
		func(world *comm.Comm) error {
			return comm.Broadcast(ctx, world, make([]float32, 1500-300*r.Rank()), 0)
		},
		func(world *comm.Comm) error {
			return comm.Broadcast(ctx, world, make([]float32, 3000-2000*r.Rank()), 0)
		},
	} {
		world, err := variant(r, func(v *Rank) { v.debug = false })
		if err != nil {
			return err
		}
		if err = call(world); err == nil && r.Rank() == 0 {
			err = comm.Barrier(ctx, world)
		}
		var refused *Error
		switch {
		case r.Rank() == 0 && (!errors.Is(err, comm.ErrAborted) || !strings.Contains(err.Error(), "rank 1 aborted: MPI_")):
			return fmt.Errorf("rank 0 got %v", err)
		case r.Rank() == 1 && (!errors.As(err, &refused) || !strings.HasPrefix(refused.Func, "MPI_") || refused.Code == 0 || refused.Class == 0 ||
			!strings.Contains(strings.ToLower(refused.Text), "truncate")):
			return fmt.Errorf("rank 1 got %v, %+v", err, refused)
		}
		last = err
	}
	return errors.Join(errExpected, last)
}

// bug: a bug after the library was loaded. One rank has it: launchers mix the traces of
// two, in the middle of lines.
func bug(ctx context.Context, r *Rank) error {
	if r.Rank() == 0 {
		return comm.Barrier(ctx, comm.NewWorld(r))
	}
	var nowhere *Rank
	fmt.Println(nowhere.me)
	return nil
}

func TestARankEnds(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range []int{2, 3, 7} {
			for _, debug := range []string{"0", "1"} {
				t.Run(fmt.Sprintf("n=%d debug=%s", n, debug), func(t *testing.T) { l.pass(t, n, "end", "GORUN_DEBUG="+debug) })
			}
		}
	})
}

// A failing rank ends the job, with its own words and not with a hang.
func TestFailures(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, test := range []struct {
			task string
			want []string
		}{
			{"fail", []string{"rank 0: out of patience", "rank 0 aborted: out of patience"}},
			{"busy", []string{"rank 0: out of patience"}},
			{"killed", nil},
			{"bug", []string{"invalid memory address or nil pointer dereference", "failure_test.go:"}},
		} {
			t.Run(test.task, func(t *testing.T) {
				began := time.Now()
				out, err := l.run(t, 2, test.task, "MPI_TEST_SIZE=2")
				if err == nil {
					t.Errorf("the launcher ended well")
				}
				for _, want := range test.want {
					if !strings.Contains(out, want) {
						t.Errorf("no %q", want)
					}
				}
				if took := time.Since(began); took > childLimit/2 {
					t.Errorf("it took %v", took)
				}
				if t.Failed() {
					t.Logf("%v, output:\n%s", err, out)
				}
			})
		}
	})
}

func TestErrors(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) { l.pass(t, 2, "truncated") })
}
