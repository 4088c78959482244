package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/invariant"
)

// The test binary is its own child: with these set it is a rank.
const (
	rankVariable = "SHM_TEST_RANK"
	sizeVariable = "SHM_TEST_SIZE"
	taskVariable = "SHM_TEST_TASK"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(taskVariable); task != "" {
		if err := child(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is one rank in a process of its own.
func child(task string) error {
	rank, err := strconv.Atoi(os.Getenv(rankVariable))
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(os.Getenv(sizeVariable))
	if err != nil {
		return err
	}
	seg, err := control.Open(os.NewFile(3, "control"), os.NewFile(4, "arenas"), size, rank)
	if err != nil {
		return err
	}
	b, err := Open(seg, rank)
	if err != nil {
		return err
	}
	return tasks[task](context.Background(), comm.NewWorld(b))
}

var tasks = map[string]func(context.Context, *comm.Comm) error{
	"communicators":   makeMany,
	"random messages": randomMessages,
	"huge message":    commtest.HugeMessage,
	"progress":        commtest.ProgressBesideWork,
	"suite": func(ctx context.Context, world *comm.Comm) error {
		var errs []error
		for _, c := range commtest.Cases() {
			if err := c.Run(ctx, world); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
			}
		}
		return errors.Join(errs...)
	},
	// The last rank dies while the others wait for it in a large AllReduce.
	"death": func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == world.Size()-1 {
			p, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
			return p.Kill()
		}
		err := comm.AllReduce(ctx, world, make([]float32, 100_000), comm.Sum)
		var ended *comm.EndedError
		if !errors.As(err, &ended) || ended.Rank != world.Size()-1 || !strings.Contains(err.Error(), "signal: killed") {
			return fmt.Errorf("got %v, want that rank %d was killed", err, world.Size()-1)
		}
		return nil
	},
}

// processes runs a task on n ranks that are processes.
func processes(t *testing.T, n int, task string) (errs []error) {
	t.Helper()
	launcher, err := control.Create(n, control.Options{ArenaBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer launcher.Close()
	return processesOf(t, launcher, task)
}

func processesOf(t *testing.T, launcher *control.Segment, task string) (errs []error) {
	t.Helper()
	n := launcher.Ranks()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	errs = make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", taskVariable+"="+task,
			fmt.Sprintf("%s=%d", rankVariable, r), fmt.Sprintf("%s=%d", sizeVariable, n))
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &out, launcher.Files()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			cause := ""
			if err := cmd.Wait(); err != nil {
				cause = err.Error()
				errs[r] = fmt.Errorf("%w: %s", err, out.String())
			}
			launcher.Ended(r, cause)
		})
	}
	wg.Wait()
	return errs
}

func TestProcesses(t *testing.T) {
	sizes := []int{1, 2, 3, 4, 7}
	if invariant.Enabled { // slow: TestGoroutines has all sizes
		sizes = []int{3}
	}
	for _, n := range sizes {
		for r, err := range processes(t, n, "suite") {
			if err != nil {
				t.Errorf("rank %d of %d: %v", r, n, err)
			}
		}
	}
}

// TestProgressBesideWork: each rank has one processor, and computes on it.
func TestProgressBesideWork(t *testing.T) {
	for _, n := range []int{2, 4} {
		if err := errors.Join(processes(t, n, "progress")...); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

func TestDeathReachesTheOthers(t *testing.T) {
	for _, n := range []int{2, 4} {
		for r, err := range processes(t, n, "death") {
			if (err != nil) != (r == n-1) {
				t.Errorf("rank %d of %d: %v", r, n, err)
			}
		}
	}
}

// open returns n ranks of this process, each with mappings of its own.
func open(t testing.TB, n int) (*control.Segment, []*Rank) {
	t.Helper()
	launcher, err := control.Create(n, control.Options{ArenaBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { launcher.Close() })
	ranks := make([]*Rank, n)
	for r := range ranks {
		seg, err := control.Open(launcher.Files()[0], launcher.Files()[1], n, r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { seg.Close() })
		if ranks[r], err = Open(seg, r); err != nil {
			t.Fatal(err)
		}
	}
	return launcher, ranks
}

// goroutines is the commtest.Harness of ranks in this process.
func goroutines(t testing.TB) commtest.Harness { return changed(t, func(*Rank) {}) }

// changed is goroutines after a change to each rank.
func changed(t testing.TB, change func(*Rank)) commtest.Harness {
	return func(ctx context.Context, n int, f func(context.Context, *comm.Comm) error) []error {
		launcher, ranks := open(t, n)
		for _, r := range ranks {
			change(r)
		}
		errs := make([]error, n)
		var wg sync.WaitGroup
		for r, b := range ranks {
			wg.Go(func() {
				cause := ""
				if errs[r] = f(ctx, comm.NewWorld(b)); errs[r] != nil {
					cause = errs[r].Error()
				}
				launcher.Ended(r, cause)
			})
		}
		wg.Wait()
		return errs
	}
}

func TestGoroutines(t *testing.T) { commtest.TestBackend(t, goroutines(t)) }

// TestCrowd makes few ranks wait for each other as a crowd does.
func TestCrowd(t *testing.T) {
	commtest.TestBackend(t, changed(t, func(r *Rank) { r.job.spins, r.job.crowd, r.crowd = 0, 0, true }))
}

// TestSettled has the last rank carry out small calls, as in a communicator of many ranks.
func TestSettled(t *testing.T) {
	commtest.TestBackend(t, changed(t, func(r *Rank) {
		r.job.spins, r.job.crowd, r.crowd, r.job.many, r.settles = 0, 0, true, 0, true
	}))
}

// TestManyRanks has so many ranks that they sleep without yielding first, in calls of one round
// and of several.
// The rank that fails may end the communicator while others still wait in the call before.
func TestManyRanks(t *testing.T) {
	const n, calls = 200, 3
	boom := func(err error) bool {
		var ended *comm.EndedError
		return errors.As(err, &ended) && ended.Rank == n/2 && ended.Cause == "boom"
	}
	errs := goroutines(t)(t.Context(), n, func(ctx context.Context, c *comm.Comm) error {
		for i := range calls {
			x := make([]int64, 1+5000*(i%2))
			x[0] = int64(c.Rank())
			err := comm.AllReduce(ctx, c, x, comm.Sum)
			switch {
			case err != nil && i == calls-1 && c.Rank() != n/2 && boom(err):
				return nil
			case err != nil:
				return err
			case x[0] != n*(n-1)/2:
				return fmt.Errorf("sum %d of %d ranks", x[0], n)
			}
		}
		if c.Rank() == n/2 {
			return errors.New("boom")
		}
		if err := comm.Barrier(ctx, c); !boom(err) {
			return fmt.Errorf("got %v, want that rank %d ended", err, n/2)
		}
		return nil
	})
	for r, err := range errs {
		if (err != nil) != (r == n/2) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestAllocations(t *testing.T) { commtest.TestAllocations(t, goroutines(t)) }

func TestMessageAllocations(t *testing.T) { commtest.TestMessageAllocations(t, goroutines(t)) }

func BenchmarkBarrier2(b *testing.B)   { benchmark(b, 2, 0) }
func BenchmarkAllReduce2(b *testing.B) { benchmark(b, 2, 2) }

func benchmark(b *testing.B, n, count int) {
	errs := goroutines(b)(b.Context(), n, func(ctx context.Context, c *comm.Comm) error {
		x := make([]float32, count)
		for range b.N {
			if err := comm.AllReduce(ctx, c, x, comm.Max); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		b.Error(err)
	}
}

func TestUnknownKindsAreRefused(t *testing.T) {
	_, ranks := open(t, 2)
	if err := commtest.UnknownKind(t.Context(), ranks[0]); err != nil {
		t.Error(err)
	}
}
