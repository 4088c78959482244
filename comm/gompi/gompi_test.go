//go:build gompi

package gompi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// The test binary is its own child: with these set it is a rank.
const (
	taskVariable = "BINDING_TEST_TASK"
	sizeVariable = "BINDING_TEST_SIZE"
	limit        = 60 * time.Second
)

func TestMain(m *testing.M) {
	if task := os.Getenv(taskVariable); task != "" {
		time.AfterFunc(limit, func() { os.Exit(3) })
		if err := child(task); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(task string) error {
	size, err := strconv.Atoi(os.Getenv(sizeVariable))
	if err != nil {
		return err
	}
	r, err := Open(size)
	if err != nil {
		return err
	}
	err = tasks[task](context.Background(), comm.NewWorld(r))
	if err := r.Close(err); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: all right\n", r.Rank(), r.Size())
	return nil
}

var tasks = map[string]func(context.Context, *comm.Comm) error{
	"suite": func(ctx context.Context, world *comm.Comm) error {
		for _, c := range append(commtest.Collectives(), commtest.Groups()...) {
			if c.Name == "Start and Wait" { // it aborts a part of the world, which ends the job
				continue
			}
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
}

// run starts n ranks with a task.
func run(t *testing.T, n int, task string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("mpirun.openmpi"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v; install openmpi-bin", err)
		}
		t.Skipf("%v; install openmpi-bin", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", fmt.Sprint(n), exe)
	cmd.Env = append(os.Environ(), taskVariable+"="+task, fmt.Sprintf("%s=%d", sizeVariable, n), "GOMAXPROCS=2")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its ranks then
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestSuite(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			out, err := run(t, n, "suite")
			if err != nil || strings.Count(out, "all right") != n {
				t.Errorf("%v, output:\n%s", err, out)
			}
		})
	}
}

// A failure ends the job at once, with the cause.
func TestFailures(t *testing.T) {
	for task, want := range map[string]string{
		"fail": "gompi: rank 0 of 2 ends the job: out of patience",
		"late": "gompi: rank 1 of 2 ends the job: context deadline exceeded",
	} {
		t.Run(task, func(t *testing.T) {
			began := time.Now()
			out, err := run(t, 2, task)
			if err == nil || !strings.Contains(out, want) || time.Since(began) > limit/2 {
				t.Errorf("%v after %v, want %q, output:\n%s", err, time.Since(began), want, out)
			}
		})
	}
}
