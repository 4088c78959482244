package commtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
	"github.com/gorun-spmd/gorun/internal/fault"
)

func TestRunSumsRanks(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		Run(t, n, func(ctx context.Context, world *comm.Comm) error {
			x := []float32{float32(world.Rank()), 1}
			if err := comm.AllReduce(ctx, world, x, comm.Sum); err != nil {
				return err
			}
			if want := float32(n * (n - 1) / 2); x[0] != want || x[1] != float32(n) {
				return fmt.Errorf("got %v, want [%v %v]", x, want, n)
			}
			return nil
		})
	}
}

func TestRanksReportsWhoEnded(t *testing.T) {
	errs := Ranks(t.Context(), 3, func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == 1 {
			return nil
		}
		return comm.Barrier(ctx, world)
	})
	for _, r := range []int{0, 2} {
		if !errors.Is(errs[r], comm.ErrEnded) && !errors.Is(errs[r], comm.ErrAborted) || !strings.Contains(errs[r].Error(), "rank 1 ended") {
			t.Errorf("rank %d: got %v, want that rank 1 ended", r, errs[r])
		}
	}
	if errs[1] != nil {
		t.Errorf("rank 1: %v", errs[1])
	}
}

func TestAFatalRankIsNotWaitedFor(t *testing.T) {
	errs := Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == 1 {
			runtime.Goexit() // what t.Fatal does
		}
		return comm.Barrier(ctx, world)
	})
	if errs[1] != nil || !errors.Is(errs[0], comm.ErrEnded) || !strings.Contains(errs[0].Error(), "did not return") {
		t.Errorf("got %v", errs)
	}
}

func TestMismatchNamesBothCalls(t *testing.T) {
	errs := Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == 1 {
			return comm.Barrier(ctx, world)
		}
		return comm.AllReduce(ctx, world, make([]float32, 3), comm.Max)
	})
	for r, err := range errs {
		if !errors.Is(err, comm.ErrMismatch) || strings.Count(err.Error(), "run_test.go") != 3 ||
			!strings.Contains(err.Error(), "rank 0 called AllReduce max float32[3] at") ||
			!strings.Contains(err.Error(), "rank 1 called Barrier at") {
			t.Errorf("rank %d: got %v", r, err)
		}
	}
}

// A recorder is a test whose failures are looked at.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// fails runs f and checks that the test then fails, once and with a text that matches.
func fails(t *testing.T, n int, want string, f func(ctx context.Context, world *comm.Comm) error) {
	t.Helper()
	r := &recorder{TB: t}
	start := time.Now()
	Run(r, n, f)
	if len(r.errors) != 1 || !regexp.MustCompile(want).MatchString(r.errors[0]) {
		t.Errorf("got %q, want one that matches %q", r.errors, want)
	}
	t.Logf("after %v: %q", time.Since(start), r.errors)
}

func TestAThrownErrorFailsTheTest(t *testing.T) {
	fails(t, 3, `^rank 1 of 3: shapes differ \(at commtest/run_test\.go:\d+\)$`, func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == 1 {
			fault.Throw(errors.New("shapes differ"))
		}
		return comm.Barrier(ctx, world)
	})
}

func TestRanksThatWaitForEachOtherFailTheTest(t *testing.T) {
	split := func(ctx context.Context, world *comm.Comm) (first, second *comm.Comm, err error) {
		a, err := world.Split(ctx, 0, world.Rank())
		if world.Rank() == 1 {
			return a, world, err
		}
		return world, a, err
	}
	found := make(chan struct{})
	for name, c := range map[string]struct {
		ranks int
		want  string
		f     func(ctx context.Context, world *comm.Comm) error
	}{
		"two Sends": {2, `^2 ranks: ranks wait for each other: 0 waits for 1 waits for 0, ` +
			`rank 0 called Send float32\[4\] at commtest/run_test\.go:\d+ and waits for rank 1, ` +
			`rank 1 called Send float32\[4\] at commtest/run_test\.go:\d+ and waits for rank 0; .* use SendRecv`,
			func(ctx context.Context, world *comm.Comm) error {
				return comm.Send(ctx, world, make([]float32, 4), 1-world.Rank())
			}},
		"two sends of a mailbox": {2, `^2 ranks: ranks wait for each other: 0 waits for 1 waits for 0, ` +
			`rank 0 called message\.Send float32\[9000\] to rank 1, tag 2 at commtest/run_test\.go:\d+ and waits for rank 1, ` +
			`rank 1 called .* and waits for rank 0; .* use SendRecv`,
			func(ctx context.Context, world *comm.Comm) error {
				m, err := message.New(ctx, world)
				return errors.Join(err, message.Send(ctx, m, make([]float32, 9000), 1-world.Rank(), 2))
			}},
		"a receive of a mailbox and a collective": {2, `0 waits for 1 waits for 0, ` +
			`rank 0 called message\.Recv int64\[1\] from rank 1, any tag at .* and waits for rank 1, rank 1 called Barrier at `,
			func(ctx context.Context, world *comm.Comm) error {
				m, err := message.New(ctx, world)
				if world.Rank() == 1 {
					return errors.Join(err, comm.Barrier(ctx, world))
				}
				_, late := message.Recv(ctx, m, make([]int64, 1), 1, message.AnyTag)
				return errors.Join(err, late)
			}},
		"receives of any rank with another tag": {3, `0 waits for 1 waits for 0, rank 0 called message\.Recv int64\[1\] from any rank, tag 6 at `,
			ReceiveAnother},
		"a receive with another tag": {2, `rank 1 called message\.Recv int64\[1\] from rank 0, tag 8 at .* and waits for rank 0, ` +
			`while 1 message has come that it does not take: int64\[1\] from rank 0, tag 7; make the calls`, ReceiveAnotherTag},
		"a message to itself that it does not receive": {1, `the only rank waits for itself`, ReceiveAnother},
		"three Sends": {3, `0 waits for 1 waits for 2 waits for 0, .* use SendRecv`,
			func(ctx context.Context, world *comm.Comm) error {
				return comm.Send(ctx, world, make([]float32, 1<<20), (world.Rank()+1)%3)
			}},
		"a Recv that nobody sends": {3, `0 waits for 2 waits for 0, rank 0 called Recv int64\[1\] at .* and waits for rank 2, ` +
			`rank 1 called Barrier at .* and waits for rank 0, rank 2 called Barrier at .* and waits for rank 0; `,
			func(ctx context.Context, world *comm.Comm) error {
				if world.Rank() == 0 {
					return comm.Recv(ctx, world, make([]int64, 1), 2)
				}
				return comm.Barrier(ctx, world)
			}},
		"another rank in no call": {3, `0 waits for 1 waits for 0, .*, rank 2 is in no call; `,
			func(ctx context.Context, world *comm.Comm) error {
				if world.Rank() == 2 {
					<-found
					return nil
				}
				err := comm.Send(ctx, world, make([]float32, 4), 1-world.Rank())
				if world.Rank() == 0 {
					close(found)
				}
				return err
			}},
		"two communicators in different orders": {2, `0 waits for 1 waits for 0, rank 0 called Barrier at .*, rank 1 called Barrier at `,
			func(ctx context.Context, world *comm.Comm) error {
				first, second, err := split(ctx, world)
				return errors.Join(err, comm.Barrier(ctx, first), comm.Barrier(ctx, second))
			}},
		"asynchronous calls in different orders": {2,
			`rank 0 called AllReduce sum float32\[1\] at .*, rank 1 called AllReduce sum float32\[1\] at `,
			func(ctx context.Context, world *comm.Comm) error {
				first, second, err := split(ctx, world)
				for _, c := range []*comm.Comm{first, second} {
					x := comm.Of([]float32{1})
					err = errors.Join(err, c.Start(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: x, Src: x}).Wait())
				}
				return err
			}},
	} {
		t.Run(name, func(t *testing.T) { fails(t, c.ranks, c.want, c.f) })
	}
}

// TestRanksThatMayGoOn: nobody is in vain while a goroutine, a deadline or another rank may
// still end a wait.
func TestRanksThatMayGoOn(t *testing.T) {
	const long = time.Second
	t.Run("a goroutine has yet to send", func(t *testing.T) {
		Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
			a, err := world.Split(ctx, 0, world.Rank())
			if err != nil {
				return err
			}
			if world.Rank() == 1 {
				return errors.Join(comm.Barrier(ctx, a), comm.Barrier(ctx, world))
			}
			sent := make(chan error, 1)
			go func() {
				time.Sleep(long)
				sent <- comm.Barrier(ctx, a)
			}()
			err = comm.Barrier(ctx, world)
			return errors.Join(err, <-sent)
		})
	})
	t.Run("a rank sleeps", func(t *testing.T) {
		Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 2 {
				time.Sleep(long)
			}
			return comm.Barrier(ctx, world)
		})
	})
	t.Run("a deadline ends a call", func(t *testing.T) {
		for r, err := range Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			ctx, cancel := context.WithTimeout(ctx, long)
			defer cancel()
			return comm.Send(ctx, world, make([]float32, 4), 1-world.Rank())
		}) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, comm.ErrAborted) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}
