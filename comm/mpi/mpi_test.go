//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/invariant"
)

// child is one rank; what it returns is the exit code.
func child(task string) int {
	world, err := Open(Options{Linger: 2 * time.Second})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if want := os.Getenv("MPI_TEST_SIZE"); want != strconv.Itoa(world.Size()) {
		err = fmt.Errorf("the world has %d ranks, want %s", world.Size(), want)
	} else {
		err = tasks[task](context.Background(), world)
	}
	right := err == nil || errors.Is(err, errExpected)
	if err != nil {
		if !right {
			fmt.Printf("rank %d: %v\n", world.Rank(), err)
		}
		world.Abort(err)
	}
	if e := world.Close(err); e != nil {
		fmt.Printf("rank %d: %v\n", world.Rank(), e)
		return 1
	}
	if !right {
		return 1
	}
	fmt.Printf("rank %d of %d over %s: all right\n", world.Rank(), world.Size(), world.Library())
	return 0
}

// errExpected marks an error that a task is meant to end with.
var errExpected = errors.New("as expected")

// variant is a world with all ranks of r and other properties.
func variant(r *Rank, change func(*Rank)) (*comm.Comm, error) {
	if r.Size() == 1 {
		return comm.NewWorld(r), nil
	}
	all := make([]int, r.Size())
	for i := range all {
		all[i] = i
	}
	b, err := r.Split(context.Background(), all)
	if err != nil {
		return nil, err
	}
	change(b.(*Rank))
	return comm.NewWorld(b), nil
}

// exact are the cases whose reductions have the same bits in any order.
var exact = []string{"int8", "int32", "int64", "uint8", "bool"}

// needDebug are the failures that only the comparison of calls can find.
var needDebug = map[string]bool{"disagreement": true, "disagreement of counts": true, "disagreement of messages": true, "deadline": true,
	"disagreement in every collective": true, "deadline in every collective": true}

var tasks = map[string]func(context.Context, *Rank) error{
	"suite": func(ctx context.Context, r *Rank) error {
		checked, divided := commtest.Cases(), commtest.Collectives()
		integers := slices.DeleteFunc(commtest.Collectives(), func(c commtest.Case) bool { return !slices.Contains(exact, c.Name) })
		if len(integers) != len(exact) {
			return fmt.Errorf("%d cases of %v are there", len(integers), exact)
		}
		if r.Size() > 2 { // many ranks on few cores take long
			checked = slices.DeleteFunc(checked, func(c commtest.Case) bool { return !needDebug[c.Name] })
			integers, divided = integers[:2], divided[:3]
		}
		plain := commtest.Cases()
		if r.Size() > 4 {
			plain = slices.DeleteFunc(plain, func(c commtest.Case) bool {
				return strings.HasPrefix(c.Name, "large 70001") || strings.HasPrefix(c.Name, "large 102")
			})
		}
		for _, v := range []struct {
			name   string
			cases  []commtest.Case
			change func(*Rank)
		}{
			{"plain", plain, func(*Rank) {}},
			{"debug", checked, func(r *Rank) { r.debug = true }},
			{"unordered", integers, func(r *Rank) { r.unordered = true }},
			{"divided", divided, func(r *Rank) { r.most = 10_000 }},
		} {
			world, err := variant(r, v.change)
			if err != nil {
				return err
			}
			for _, c := range v.cases {
				if v.name == "plain" && needDebug[c.Name] {
					continue
				}
				began := time.Now()
				if err := c.Run(ctx, world); err != nil {
					return fmt.Errorf("%s, %s: %w", v.name, c.Name, err)
				}
				if r.Rank() == 0 && os.Getenv("MPI_TEST_TIMES") != "" {
					fmt.Println(v.name, c.Name, time.Since(began))
				}
			}
		}
		return unordered(ctx, r)
	},
	"by address": suiteByAddress,
	"support":    saySupport,
	// The last rank ends while the others wait for it, or for one that does.
	"end": func(ctx context.Context, r *Rank) error {
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
	},
	// Rank 0 fails; the others learn of it in their call.
	"fail": func(ctx context.Context, r *Rank) error {
		if r.Rank() == 0 {
			return errors.New("out of patience")
		}
		return comm.Barrier(ctx, comm.NewWorld(r))
	},
	// Rank 0 fails; the others are busy for longer than it waits.
	"busy": func(_ context.Context, r *Rank) error {
		if r.Rank() == 0 {
			return errors.New("out of patience")
		}
		time.Sleep(childLimit)
		return nil
	},
	// The last rank is killed in the middle of a call of the others.
	"killed": func(ctx context.Context, r *Rank) error {
		if r.Rank() == r.Size()-1 {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return comm.Barrier(ctx, comm.NewWorld(r))
	},
	// What the library refuses is an Error, and reaches the other rank.
	"truncated": func(ctx context.Context, r *Rank) error {
		world, err := variant(r, func(v *Rank) { v.debug = false })
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			if err = comm.Send(ctx, world, make([]int64, 4), 1); err == nil {
				err = comm.Barrier(ctx, world)
			}
		} else {
			err = comm.Recv(ctx, world, make([]int64, 2), 0)
		}
		var refused *Error
		switch {
		case r.Rank() == 0 && (!errors.Is(err, comm.ErrAborted) || !strings.Contains(err.Error(), "rank 1 aborted: MPI_")):
			return fmt.Errorf("rank 0 got %v", err)
		case r.Rank() == 1 && (!errors.As(err, &refused) || !strings.HasPrefix(refused.Func, "MPI_") || refused.Code == 0 || refused.Class == 0 ||
			!strings.Contains(strings.ToLower(refused.Text), "truncate")):
			return fmt.Errorf("rank 1 got %v, %+v", err, refused)
		}
		return errors.Join(errExpected, err)
	},
	// More elements than an int32 counts.
	"huge": func(ctx context.Context, r *Rank) error {
		const count = 1<<31 + 5
		buf := make([]int8, count)
		if r.Rank() == 0 {
			buf[0], buf[1<<30], buf[1<<31-1], buf[count-1] = 1, 2, 3, 4
		}
		if err := comm.Broadcast(ctx, comm.NewWorld(r), buf, 0); err != nil {
			return err
		}
		if got := [4]int8{buf[0], buf[1<<30], buf[1<<31-1], buf[count-1]}; got != [4]int8{1, 2, 3, 4} {
			return fmt.Errorf("got %v", got)
		}
		return nil
	},
	// A bug after the library was loaded.
	"bug": func(context.Context, *Rank) error {
		var nowhere *Rank
		fmt.Println(nowhere.me)
		return nil
	},
	// The steady path, counted.
	"allocations": func(ctx context.Context, r *Rank) error {
		world := comm.NewWorld(r)
		buf, all := make([]float32, 64), make([]float32, 64*r.Size())
		counts := make([]int, r.Size())
		for i := range counts {
			counts[i] = 64
		}
		big := make([]float32, 64*r.Size())
		round := func() error {
			return errors.Join(
				comm.AllReduce(ctx, world, buf, comm.Sum),
				comm.AllReduce(ctx, world, buf, comm.Max),
				comm.AllGather(ctx, world, all, buf),
				comm.AllToAllV(ctx, world, all, counts, big, counts),
				comm.ReduceScatter(ctx, world, buf, all, comm.Sum),
				comm.Broadcast(ctx, world, buf, 0),
				comm.Barrier(ctx, world),
			)
		}
		const rounds = 200
		var before, after goruntime.MemStats
		for k := range 2 * rounds {
			if k == rounds {
				goruntime.ReadMemStats(&before)
			}
			if err := round(); err != nil {
				return err
			}
		}
		goruntime.ReadMemStats(&after)
		if made := after.Mallocs - before.Mallocs; made > rounds {
			return fmt.Errorf("%d allocations in %d rounds of 7 calls, want less than one a round", made, rounds)
		}
		return nil
	},
}

// unordered lets the library reduce numbers whose sums are exact.
func unordered(ctx context.Context, r *Rank) error {
	world, err := variant(r, func(v *Rank) { v.unordered = true })
	if err != nil {
		return err
	}
	n, me := world.Size(), world.Rank()
	sum, counts := float64(n*(n+1)/2), make([]int, n)
	total := 0
	for i := range counts {
		counts[i] = i + 1
		total += i + 1
	}
	fill := func(length int) []float64 {
		x := make([]float64, length)
		for i := range x {
			x[i] = float64(me + 1)
		}
		return x
	}
	x, y, z, v := fill(5), make([]float64, 5), make([]float64, 3), make([]float64, me+1)
	avg := fill(2)
	err = errors.Join(
		comm.Reduce(ctx, world, y, x, comm.Sum, n-1),
		comm.AllReduce(ctx, world, x, comm.Sum),
		comm.AllReduce(ctx, world, avg, comm.Avg),
		comm.ReduceScatter(ctx, world, z, fill(3*n), comm.Sum),
		comm.ReduceScatterV(ctx, world, v, fill(total), counts, comm.Sum),
	)
	if me == n-1 {
		x = append(x, y...)
	}
	for i, got := range slices.Concat(x, z, v, []float64{avg[0] * float64(n), avg[1] * float64(n)}) {
		if d := got - sum; d > 1e-12*sum || d < -1e-12*sum {
			return errors.Join(err, fmt.Errorf("unordered: [%d] is %v, want %v", i, got, sum))
		}
	}
	return err
}

func TestSuite(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range []int{1, 2, 3, 4, 7} {
			t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { l.pass(t, n, "suite") })
		}
	})
}

// pass runs a task that must succeed on every rank, over the launcher's library.
func (l launcher) pass(t *testing.T, n int, task string, env ...string) {
	t.Helper()
	out, err := l.run(t, n, task, append(env, fmt.Sprintf("MPI_TEST_SIZE=%d", n))...)
	if err != nil || strings.Count(out, "all right") != n || !strings.Contains(out, "over "+l.library) {
		t.Errorf("%d ranks: %v, output:\n%s", n, err, out)
	}
	if os.Getenv("MPI_TEST_TIMES") != "" {
		t.Log(out)
	}
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

func TestAllocations(t *testing.T) {
	if invariant.Enabled {
		t.Skip("under the race detector pools lose what they hold")
	}
	eachLauncher(t, func(t *testing.T, l launcher) { l.pass(t, 2, "allocations") })
}

// A library of another launcher is noticed, since it makes each rank alone.
func TestForeignLibrary(t *testing.T) {
	if _, err := load(mpichNames[:1]); err != nil {
		needBoth(t, err)
	}
	l := launchers[0]
	if _, err := exec.LookPath(l.command[0]); err != nil {
		needBoth(t, err)
	}
	out, err := l.run(t, 2, "suite", "MPI_TEST_SIZE=2", libraryVariable+"="+mpichNames[0])
	for _, want := range []string{"started 2 ranks and MPICH", "sees 1", "name the launcher's own library in " + libraryVariable} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v, no %q in:\n%s", err, want, out)
		}
	}
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
			{"bug", []string{"invalid memory address or nil pointer dereference", "mpi_test.go:"}},
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

func TestCountsBeyondInt32(t *testing.T) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	const needed = 6 << 30 // two ranks with 2 GiB each
	if free := info.Freeram * uint64(info.Unit); free < needed || testing.Short() {
		t.Skipf("takes time and %d GiB of memory; %d MiB are free", needed>>30, free>>20)
	}
	eachLauncher(t, func(t *testing.T, l launcher) { l.pass(t, 2, "huge") })
}

// needBoth skips a test that needs both libraries, except where CI=true.
func needBoth(t *testing.T, err error) {
	t.Helper()
	const what = "needs both Open MPI and MPICH: %v; make deps installs them"
	if os.Getenv("CI") == "true" {
		t.Fatalf(what, err)
	}
	t.Skipf(what, err)
}
