//go:build linux

// Package blockingtest is the test of a backend that package blocking makes of
// an MPI binding: its ranks are copies of the test binary, started by mpirun.
package blockingtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/mpi/blocking"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// A Backend is the package under test. Its library is Open MPI.
type Backend struct {
	Name string // the package's name
	// Open starts the library, for a launcher that started size ranks.
	Open func(size int) (*blocking.Rank, error)
}

// The test binary is its own child: with these set it is a rank.
const (
	taskVariable = "BINDING_TEST_TASK"
	sizeVariable = "BINDING_TEST_SIZE"
)

// limit is the time after which a rank ends itself, whatever its launcher does.
const limit = 60 * time.Second

// Main is the test binary's TestMain.
func (b Backend) Main(m *testing.M) {
	task := os.Getenv(taskVariable)
	if task == "" {
		os.Exit(m.Run())
	}
	time.AfterFunc(limit, func() { os.Exit(3) })
	if err := b.child(task); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is one rank.
func (b Backend) child(task string) error {
	size, err := strconv.Atoi(os.Getenv(sizeVariable))
	if err != nil {
		return err
	}
	r, err := b.Open(size)
	if err != nil {
		return err
	}
	err = tasks()[task](context.Background(), comm.NewWorld(r))
	if err := r.Close(err); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: all right\n", r.Rank(), r.Size())
	return nil
}

// tasks returns the programs of the ranks, by name.
func tasks() map[string]func(context.Context, *comm.Comm) error {
	return map[string]func(context.Context, *comm.Comm) error{
		"suite": func(ctx context.Context, world *comm.Comm) error {
			for _, c := range Cases() {
				if err := c.Run(ctx, world); err != nil {
					return fmt.Errorf("%s: %w", c.Name, err)
				}
			}
			return nil
		},
		"fail": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 0 {
				return errors.New("out of patience")
			}
			return comm.Barrier(ctx, world)
		},
		"late": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 0 {
				time.Sleep(limit)
				return nil
			}
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return comm.Barrier(short, world)
		},
		"disagree": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 0 {
				return comm.Barrier(ctx, world)
			}
			return comm.AllReduce(ctx, world, make([]float32, 3), fold.Sum)
		},
		"end": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 0 {
				return nil
			}
			return comm.Barrier(ctx, world)
		},
		"killed": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return comm.Barrier(ctx, world)
		},
	}
}

// Cases returns the cases for a backend whose calls cannot be cancelled: all but
// the failures, which end its job.
func Cases() []commtest.Case { return append(commtest.Collectives(), commtest.Groups()...) }

// Run is the test.
func (b Backend) Run(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		t.Run(fmt.Sprintf("suite n=%d", n), func(t *testing.T) {
			out, err := run(t, openMPI(), n, n, "suite")
			if err != nil || strings.Count(out, "all right") != n {
				t.Errorf("%v, output:\n%s", err, out)
			}
		})
	}
	for _, f := range []struct {
		name, task string
		launcher   launcher
		started    int // what the ranks are told of their number
		want       string
	}{
		{"a rank fails", "fail", openMPI(), 2, b.Name + ": rank 0 of 2 ends the job: out of patience"},
		{"a call takes too long", "late", openMPI(), 2, b.Name + ": rank 1 of 2 ends the job: context deadline exceeded"},
		{"ranks disagree", "disagree", openMPI(), 2,
			`ranks disagree: rank 0 called Barrier at \S+:\d+, rank 1 called AllReduce sum float32\[3\] at \S+:\d+`},
		{"a rank ends", "end", openMPI(), 2, "rank 0 ended, without an error, before it made this call"},
		{"a rank is killed", "killed", openMPI(), 2, "signal 9"},
		{"another number of ranks", "suite", openMPI(), 3, b.Name + ": Open: the launcher started 3 ranks and the library sees 2"},
		{"another library's launcher", "suite", mpich(), 2, b.Name + ": Open: the launcher started 2 ranks and the library sees 1"},
	} {
		t.Run(f.name, func(t *testing.T) {
			began := time.Now()
			out, err := run(t, f.launcher, 2, f.started, f.task)
			if err == nil || !regexp.MustCompile(f.want).MatchString(out) || time.Since(began) > limit/2 {
				t.Errorf("%v after %v, want %q, output:\n%s", err, time.Since(began), f.want, out)
			}
		})
	}
}

// Programs builds programs with the backend's tags and runs them as their users do: every
// conformance case, a short training, and one that no rank can start.
func (b Backend) Programs(t *testing.T, tags string) {
	testenv.NeedPrograms(t, openMPI()[0])
	bin := t.TempDir()
	build := exec.Command("go", "build", "-tags", tags, "-o", bin, "../../internal/conformance", "../../examples/train")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	for _, p := range []struct {
		args  []string
		fails bool
		want  string
	}{
		{[]string{"conformance", "-resize", "../../internal/conformance/testdata"}, false, " passed, 0 failed"},
		{[]string{"train", "-steps", "2", "-plot", "", "-sample", "5", "-data", "../../docs"}, false, ""},
		{[]string{"conformance", "no-such-file"}, true, b.Name + ": rank "},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
		cmd := exec.CommandContext(ctx, openMPI()[0], append(append(openMPI()[1:], "2", bin+"/"+p.args[0]), p.args[1:]...)...)
		cmd.Env = append(os.Environ(), "GORUN_MPI_LIB=none") // what is linked is used
		cmd.WaitDelay = 5 * time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		if (err != nil) != p.fails || !strings.Contains(string(out), p.want) {
			t.Errorf("%v: %v, want %q, output:\n%s", cmd, err, p.want, out)
		}
	}
}

// A launcher is a command that starts ranks, before their number.
type launcher []string

func openMPI() launcher {
	return launcher{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np"}
}

func mpich() launcher { return launcher{"mpiexec.hydra", "-n"} }

// run starts n ranks with a task.
func run(t *testing.T, l launcher, n, told int, task string) (string, error) {
	t.Helper()
	testenv.NeedPrograms(t, l[0])
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, l[0], append(l[1:], strconv.Itoa(n), exe)...)
	cmd.Env = append(os.Environ(), taskVariable+"="+task, fmt.Sprintf("%s=%d", sizeVariable, told), "GOMAXPROCS=2")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its ranks then
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}
