//go:build linux

package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/launcher"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/runtime"
)

// TestMain makes this test binary gorun, its guardian, and "learner", which trains.
func TestMain(m *testing.M) {
	testenv.Children()
	gorun := func() { os.Exit(launcher.Main(os.Args)) }
	testscript.Main(m, map[string]func(){
		"gorun":          gorun,
		"gorun-guardian": gorun,
		"learner":        func() { runtime.Main(learner) },
	})
}

// learner trains a linear model in 40 steps and prints its state. Its arguments are the folder of
// checkpoints, - for none, the steps between two of them and between two snapshots, and faults, which are
// "attempt rank step what".
func learner(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size()})
	if err != nil {
		return err
	}
	var model *nn.Linear
	var x, y *dtensor.Tensor // [24, 5] S(0), [24, 7] S(0)
	err = dtensor.Try(ctx, mesh, func() {
		model = nn.NewLinear(nn.NewInit(mesh, 1), 5, 7, false, nn.Style{})
		x = dtensor.Normal(mesh, dtensor.Key{Seed: 2}, 0, 1, []int{24, 5}, layout.Shard(0))
		y = dtensor.Normal(mesh, dtensor.Key{Seed: 3}, 0, 1, []int{24, 7}, layout.Shard(0))
		dtensor.Keep(x, y, model.Weight)
	})
	if err != nil {
		return err
	}
	r := Run{
		Program: "learner", Advice: "lower the rate",
		Loss:      func(_, _ int) *dtensor.Tensor { return model.Forward(x).Sub(y).Square().Mean(nil, false) },
		Params:    model.Params(),
		Optimizer: optim.NewAdamW(nn.Tensors(model.Params()), optim.AdamWConfig{}),
		Rate:      optim.WarmupCosine{Peak: 0.1, Total: Ticks},
		Steps:     40,
		OnStep:    func(steps int, _ float64) { mishap(ctx, world, steps) },
	}
	if dir := os.Args[1]; dir != "-" {
		r.Keep.Dir = dir
	}
	if _, err := fmt.Sscan(os.Args[2]+" "+os.Args[3], &r.Keep.Every, &r.Keep.Snapshot); err != nil {
		return err
	}
	mishap(ctx, world, 0)
	if err := r.Do(ctx, world, nil); err != nil {
		return err
	}
	sum, err := r.SHA256(ctx, world)
	if world.Rank() == 0 {
		fmt.Println("state", sum, len(r.Losses), world.Size())
	}
	return err
}

// mishap lets happen what the arguments say for this attempt, rank and step.
func mishap(ctx context.Context, world *comm.Comm, step int) {
	for _, text := range os.Args[4:] {
		var attempt, rank, at int
		var what string
		_, err := fmt.Sscan(text, &attempt, &rank, &at, &what)
		dtensor.Check(err)
		if attempt != runtime.Attempt(ctx) || rank != world.Rank() || at != step {
			continue
		}
		switch what {
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case "stop":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case "guardian":
			_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
			select {}
		case "exit":
			os.Exit(0)
		case "scale": // the job to as many ranks as there were at first
			parent := func(pid int) (parent int) {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				dtensor.Check(err)
				_, rest, _ := strings.Cut(string(stat), ") ")
				_, err = fmt.Sscanf(rest, "%c %d", new(rune), &parent)
				dtensor.Check(err)
				return parent
			}
			cmd := exec.Command("gorun", "scale", strconv.Itoa(parent(parent(os.Getppid()))), "4")
			dtensor.Check(cmd.Start())
			time.Sleep(300 * time.Millisecond)
		case "error":
			dtensor.Check(errors.New("boom"))
		case "panic":
			panic("broken")
		case "hang":
			select {}
		case "await": // that what was kept after the step before is on disk
			for saved := -1; saved != step-1; time.Sleep(time.Millisecond) {
				e, _, err := checkpoint.Latest(os.Args[1])
				dtensor.Check(err)
				saved = e.Step
			}
			time.Sleep(300 * time.Millisecond) // then the store is ready for the next
		case "damage", "damage-both": // of the last snapshot, or of both
			all, err := snapshot.Complete(job.SnapshotsOf(ctx).File)
			dtensor.Check(err)
			if what == "damage" {
				all = all[:1]
			}
			for _, s := range all {
				_, err := job.SnapshotsOf(ctx).File.WriteAt([]byte{1, 2, 3}, s.Parts[0].At+9)
				dtensor.Check(err)
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		default:
			dtensor.Check(fmt.Errorf("there is no mishap %q", what))
		}
	}
}

// learn4 runs learner under gorun, and returns gorun's exit status and what it printed.
func learn4(t *testing.T, flags string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command("gorun", append(append(strings.Fields("-np 4 "+flags), "learner"), args...)...)
	mark := fmt.Sprintf("LEARNER_JOB=%d-%d", os.Getpid(), time.Now().UnixNano())
	cmd.Env = append(os.Environ(), mark)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	late := time.AfterFunc(time.Minute, func() {
		t.Errorf("%v does not end", cmd.Args)
		_ = cmd.Process.Kill()
	})
	defer late.Stop()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the status says it
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if env, err := os.ReadFile(file); err == nil && bytes.Contains(env, []byte(mark+"\x00")) {
			t.Errorf("%v: process %s is left", cmd.Args, filepath.Base(filepath.Dir(file)))
		}
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Whatever happens to ranks, the job goes on from memory and ends with the state of one that
// nothing happened to. With a snapshot each 3 steps no more than 3 are made again.
func TestElasticJobsGoOn(t *testing.T) {
	t.Parallel()
	status, undisturbed, stderr := learn4(t, "", "-", "1", "3")
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	from := func(restart, step int) string {
		return fmt.Sprintf("restart %d, from the snapshot of step %d", restart, step)
	}
	for _, c := range []struct {
		name, flags string
		faults      []string
		says        []string
	}{
		{"a kill", "", []string{"0 2 17 kill"}, []string{"rank 2 on .*SIGKILL", from(1, 15) + "; [23] steps are made again"}},
		{"rank 0 is killed", "", []string{"0 0 4 kill"}, []string{from(1, 3) + "; [12] steps? "}},
		{"two kills at once", "", []string{"0 2 17 kill", "0 1 17 kill"}, []string{from(1, 15)}},
		{"all are killed", "", []string{"0 2 17 kill", "0 1 17 kill", "0 0 17 kill", "0 3 17 kill"},
			[]string{from(1, 15)}},
		{"a kill before the first snapshot", "", []string{"0 1 1 kill"},
			[]string{"restart 1; no snapshot is whole, so ranks without a checkpoint begin anew", "restart 1 begins anew at step 0"}},
		{"an early exit", "", []string{"0 1 20 exit"}, []string{"rank 1 ended, without an error", from(1, 18)}},
		{"an error", "", []string{"0 3 20 error"}, []string{"rank 3 on .* failed: boom", from(1, 18)}},
		{"a panic", "", []string{"0 3 20 panic"}, []string{"panic: broken", from(1, 18)}},
		{"a hang", "--hang-timeout 1s", []string{"0 2 11 hang"}, []string{"the job hangs", from(1, 9)}},
		{"a rank is stopped", "--hang-timeout 1s", []string{"0 2 11 stop"},
			[]string{"the job hangs", "restart 1, from the snapshot"}}, // it may do a few steps when it is continued
		{"the guardian is killed", "", []string{"0 2 11 guardian"}, []string{"guardian", from(1, 9)}},
		{"one after the other", "", []string{"0 1 8 kill", "1 3 15 error", "2 0 24 exit", "3 0 39 kill"},
			[]string{from(4, 36) + "; 3 steps"}},
		{"a damaged snapshot", "", []string{"0 1 17 damage"},
			[]string{"the snapshot of step 15 in memory: .*CRC-32C", "resumed at step 12 from memory"}},
		{"two damaged snapshots", "", []string{"0 1 17 damage-both"},
			[]string{"the snapshot of step 15 in memory: .*CRC-32C", "step 12 in memory",
				"restart 1 begins anew at step 0: nothing whole was kept before"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := learn4(t, "--elastic restart "+c.flags, append([]string{"-", "1", "3"}, c.faults...)...)
			if status != 0 || stdout != undisturbed {
				t.Errorf("status %d, output %q, want %q\n%s", status, stdout, undisturbed, stderr)
			}
			for _, says := range c.says {
				if !regexp.MustCompile(says).MatchString(stderr) {
					t.Errorf("it does not say %q:\n%s", says, stderr)
				}
			}
		})
	}
}

// What was kept last counts: a snapshot that is newer than the last checkpoint, or a checkpoint
// that is newer than the last sound snapshot.
func TestTheLatestOfMemoryAndDisk(t *testing.T) {
	t.Parallel()
	_, undisturbed, _ := learn4(t, "", "-", "1", "3")
	for _, c := range []struct {
		every, snapshot string
		faults          []string
		says            string
	}{
		{"14", "3", []string{"0 1 15 await", "0 2 20 kill"}, "resumed at step 18 from memory"},
		{"14", "20", []string{"0 1 15 await", "0 1 29 await", "0 2 33 kill"}, "resumed at step 28 from /"},
		{"14", "11", []string{"0 1 15 await", "0 1 29 await", "0 2 35 damage-both"}, "resumed at step 28 from /"},
	} {
		dir := filepath.Join(t.TempDir(), "checkpoints")
		status, stdout, stderr := learn4(t, "--elastic restart", append([]string{dir, c.every, c.snapshot}, c.faults...)...)
		if status != 0 || stdout != undisturbed || !strings.Contains(stderr, c.says) {
			t.Errorf("%+v: status %d, output %q, want %q and %q\n%s", c, status, stdout, undisturbed, c.says, stderr)
		}
	}
}

// A program that fails again and again in the same place is given up.
func TestElasticJobsAreGivenUp(t *testing.T) {
	t.Parallel()
	var at17, at1 []string
	for attempt := range 9 {
		at17 = append(at17, fmt.Sprint(attempt, " 2 17 error"))
		at1 = append(at1, fmt.Sprint(attempt, " 2 1 kill"))
	}
	for _, c := range []struct {
		faults []string
		status int
		says   string
	}{
		{[]string{"0 2 0 error"}, 1, "not starting the job again: a rank failed by its own word before its first step"},
		{[]string{"0 2 17 kill", "1 1 0 error"}, 1, "not starting the job again: on 3 ranks the program failed by its own word before its " +
			"first step; it ran on 4"},
		{at17, 1, "not starting the job again: 3 attempts in a row have come no further than the snapshot of step 15"},
		{at1, 137, "not starting the job again: 3 attempts in a row have failed and had saved nothing"},
	} {
		mode := "restart"
		if len(c.faults) == 2 {
			mode = "shrink"
		}
		status, _, stderr := learn4(t, "--elastic "+mode, append([]string{"-", "1", "3"}, c.faults...)...)
		if status != c.status || !strings.Contains(stderr, c.says) {
			t.Errorf("status %d, want %d and %q\n%s", status, c.status, c.says, stderr)
		}
	}
}

// A job that shrinks goes on without the ranks that died, down to as many as --min-np says, and with more
// when gorun scale asks for them. Sums that do not depend on the number of ranks give the same bits.
func TestElasticJobsShrinkAndGrow(t *testing.T) {
	t.Parallel()
	status, undisturbed, stderr := learn4(t, "--same-bits", "-", "1", "3")
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	for _, c := range []struct {
		flags  string
		faults []string
		ranks  int
		says   []string
	}{
		{"", []string{"0 2 17 kill"}, 3, []string{"starting the job again with 3 ranks, restart 1, from the snapshot of step 15"}},
		{"", []string{"0 0 17 kill", "1 2 20 error", "2 0 22 exit"}, 1, []string{"with 3 ranks", "with 2 ranks", "with 1 rank, restart 3"}},
		{"--min-np 3", []string{"0 2 17 kill", "0 1 17 kill", "1 2 20 kill"}, 3, []string{"with 3 ranks, restart 1", "again, restart 2"}},
		{"", []string{"0 3 9 kill", "1 1 12 scale", "2 3 30 kill"}, 3, []string{"with 3 ranks, restart 1", "4 ranks wanted",
			"with 4 ranks, restart 2, from the snapshot of step 1[2-9]\n", "with 3 ranks, restart 3"}},
	} {
		status, stdout, stderr := learn4(t, "--same-bits --elastic shrink "+c.flags, append([]string{"-", "1", "3"}, c.faults...)...)
		want := strings.TrimSuffix(undisturbed, "4\n") + fmt.Sprintln(c.ranks)
		if status != 0 || stdout != want {
			t.Errorf("%v: status %d, output %q, want %q\n%s", c.faults, status, stdout, want, stderr)
		}
		for _, says := range c.says {
			if !regexp.MustCompile(says).MatchString(stderr) {
				t.Errorf("%v: it does not say %q:\n%s", c.faults, says, stderr)
			}
		}
	}
}
