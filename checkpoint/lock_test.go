package checkpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// asJob is set in processes that TestOneJobAtATime starts: the root.
const asJob = "CHECKPOINT_TEST_ROOT"

// TestJob is another job: it opens the root, says what came of it, and with a root saves
// one checkpoint after the other until its input ends.
func TestJob(t *testing.T) {
	root := os.Getenv(asJob)
	if root == "" {
		t.Skip("started by TestOneJobAtATime alone")
	}
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		store, err := Open(ctx, world, root, Options{Keep: 3})
		if world.Rank() == 0 {
			fmt.Printf("opened: %v\n", err)
		}
		if err != nil {
			return nil
		}
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 2})
		if err != nil {
			return err
		}
		var state State
		state.AddTensor("w", dtensor.Zeros(m, tensor.Float32, []int{100, 10}, layout.Shard(0)))
		ended := make(chan bool)
		go func() {
			if world.Rank() == 0 {
				_, _ = io.Copy(io.Discard, os.Stdin)
			}
			close(ended)
		}()
		for step := 0; ; step++ {
			if err := errors.Join(store.Save(ctx, step, &state), store.Wait()); err != nil {
				return err
			}
			stop := []int64{0}
			select {
			case <-ended:
				stop[0] = 1
			default:
			}
			if err := comm.Broadcast(ctx, world, stop, 0); err != nil || stop[0] == 1 {
				return err
			}
			if step == 0 && world.Rank() == 0 {
				fmt.Println("saved")
			}
		}
	})
}

// An otherProcess runs TestJob.
type otherProcess struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func startJob(t *testing.T, root string) *otherProcess {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestJob$", "-test.v")
	cmd.Env = append(os.Environ(), asJob+"="+root)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &otherProcess{cmd, in, bufio.NewScanner(out)}
}

// says returns the first line that begins so.
func (j *otherProcess) says(t *testing.T, begin string) string {
	t.Helper()
	for j.out.Scan() {
		if line := j.out.Text(); strings.HasPrefix(line, begin) {
			return line
		}
	}
	t.Fatalf("the job ended before it said %q", begin)
	return ""
}

// open opens root on two ranks and returns the error.
func open(t *testing.T, root string, o Options) string {
	t.Helper()
	text := ""
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		_, err := Open(ctx, world, root, o)
		if world.Rank() == 1 {
			text = fmt.Sprint(err)
		}
		return nil
	})
	return text
}

// While one process saves in a root no other does: it is refused and told who has it.
// Once that one is gone, killed or not, another gets it at once. All that was saved is
// whole.
func TestOneJobAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	first := startJob(t, root)
	if got := first.says(t, "opened"); got != "opened: <nil>" {
		t.Fatal(got)
	}
	first.says(t, "saved")
	host, _ := os.Hostname()
	who := fmt.Sprintf("another job saves there: %s, process %d on host %s, since ", filepath.Base(os.Args[0]), first.Process.Pid, host)
	second := startJob(t, root)
	for _, got := range []string{open(t, root, Options{}), second.says(t, "opened")} {
		if !strings.Contains(got, "rank 0: "+root+": "+who) || !strings.Contains(got, "ReadOnly") {
			t.Errorf("got %q, want %q", got, who)
		}
	}
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	if got := open(t, root, Options{ReadOnly: true}); got != "<nil>" {
		t.Error(got)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	third := startJob(t, root) // may begin before the first is gone
	if got := third.says(t, "opened"); got != "opened: <nil>" {
		t.Error(got)
	}
	_ = first.Wait() // it was killed
	third.says(t, "saved")
	third.in.Close()
	if err := third.Wait(); err != nil {
		t.Error(err)
	}
	all, err := List(root)
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, e := range all {
		if err := Verify(e.Dir); err != nil {
			t.Error(err)
		}
	}
	for range 2 { // stores of one process share the lock
		if got := open(t, root, Options{}); got != "<nil>" {
			t.Error(got)
		}
	}
}

// Where the file system has no locks, the job that opened the root last has it.
func TestTheLastJobHasARootWithoutLocks(t *testing.T) {
	fs := newMemFS()
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		before, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		before.me.Process, before.me.PID = "another", 17 // as if it were another process
		var state State
		if err := errors.Join(before.own(ctx), before.Save(ctx, 1, &state), before.Wait()); err == nil {
			return errors.New("a process of another name saved")
		}
		if world.Rank() == 0 {
			if err := before.sign("root/lock"); err != nil {
				return err
			}
		}
		if err := errors.Join(before.Save(ctx, 1, &state), before.Wait()); err != nil {
			return err
		}
		after, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		if err := errors.Join(after.Save(ctx, 2, &state), after.Wait()); err != nil {
			return err
		}
		return errors.Join(before.Save(ctx, 3, &state), before.Wait())
	}, fmt.Sprintf("Save: rank 0: root: another job saves there: %s, process %d", filepath.Base(os.Args[0]), os.Getpid()))
	if all, err := list(fs, "root"); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	// The lock file is gone, as when the folder was emptied: the next save makes it again.
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err == nil && world.Rank() == 0 {
			err = fs.Remove("root/lock")
		}
		if err != nil {
			return err
		}
		return errors.Join(comm.Barrier(ctx, world), store.Save(ctx, 4, new(State)), store.Wait(), store.own(ctx))
	})
}

// A folder that may only be read is of use to resume.
func TestReadOnlyRoot(t *testing.T) {
	fs := newMemFS()
	save(t, fs, "root", settings()[0], 3, tensor.Float32, Options{})
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs, ReadOnly: true})
		if err != nil {
			return err
		}
		all := full(m, settings()[2], tensor.Float32, true)
		state, step := stateOf(all), 0
		state.AddValue("step", &step)
		if at, ok, err := store.Resume(ctx, state); err != nil || !ok || at != 3 {
			return fmt.Errorf("step %d, %v, %w", at, ok, err)
		}
		return errors.Join(store.Save(ctx, 4, state), store.Wait())
	}, "Save: rank 0: the store was opened with ReadOnly")
	if got := open(t, "root", Options{fs: unwritable{fs}}); got != "<nil>" {
		t.Error(got)
	}
	const want = "checkpoint: Open: rank 0: mkdir other: permission denied (at checkpoint/lock_test.go:"
	if got := open(t, "other", Options{fs: unwritable{fs}}); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}

// unwritable is a file system where the user may only read.
type unwritable struct{ *memFS }

func (unwritable) Mkdir(name string) error {
	return &iofs.PathError{Op: "mkdir", Path: name, Err: iofs.ErrPermission}
}

func (unwritable) Lock(name string) error {
	return &iofs.PathError{Op: "lock", Path: name, Err: iofs.ErrPermission}
}
