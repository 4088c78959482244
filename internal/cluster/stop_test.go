//go:build linux

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

var stops = flag.Int("cluster.stops", 1, "how often the guide's program is stopped in each way")

// stopGrace is the grace period of the stopped programs.
const stopGrace = 20 * time.Second

// buildGuide builds gorun, and as guide the program in docs/guide.md that saves, into dir/bin.
func buildGuide(t *testing.T, dir string) {
	t.Helper()
	testenv.DependsOn(t, "../../runtime", "../../checkpoint", "../../optim")
	page, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```go\npackage main\n")
	text, _, ok := strings.Cut(text, "```\n")
	if !ok {
		t.Fatal("docs/guide.md has no whole program")
	}
	source, overlay := filepath.Join(dir, "guide.go"), filepath.Join(dir, "overlay.json")
	here, err := filepath.Abs("_guide/main.go") // there for the compiler only
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{here: source}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{source: "package main\n" + text, overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "bin")
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", filepath.Join(bin, "guide"), "./_guide")
	cmd.Env = append(os.Environ(), withoutCgo...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	testenv.Build(t, bin, withoutCgo, "../../cmd/gorun")
}

// processes returns the processes that run the program dir/bin/name, without gorun's guardians.
func processes(dir, name string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range all {
		exe, _ := os.Readlink(link)
		argv, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && exe == filepath.Join(dir, "bin", name) &&
			!bytes.HasPrefix(argv, []byte("gorun-guardian")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// lastStep returns the step of the newest checkpoint in dir/checkpoints; -1 if there is none.
func lastStep(dir string) int {
	last := -1
	all, _ := filepath.Glob(filepath.Join(dir, "checkpoints/step-*"))
	for _, name := range all {
		var step int
		if _, err := fmt.Sscanf(filepath.Base(name), "step-%d", &step); err == nil && !strings.HasSuffix(name, ".tmp") {
			last = max(last, step)
		}
	}
	return last
}

// A stopping starts the guide's program from dir/bin in one way.
type stopping struct {
	dir     string
	command func(ctx context.Context, args ...string) *exec.Cmd
	args    []string      // the command that starts ranks
	own     bool          // gorun starts the ranks; its exit status tells of the stop
	slurm   bool          // srun starts the ranks
	crashes int           // number of crashes in a row, see crashed
	longest time.Duration // from a stop to the job's end
}

// kinds are the ways to stop a job, with gorun's exit status.
var kinds = []struct {
	name   string
	status int
}{{"SIGTERM to a rank", 143}, {"Ctrl-C", 130}, {"SIGTERM", 143}, {"timeout", 124}}

var savedStep = regexp.MustCompile(`(?m)^saved step (\d+)$`)

// stop starts the program, stops it at a random moment, and checks that it has saved its
// last step and has ended with the right status. It returns false if the time limit came before
// the first step.
func (s *stopping) stop(t *testing.T, kind string, status int, limit time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+limit)
	defer cancel()
	args := slices.Clone(s.args)
	if s.own {
		args = append(args, "--grace", stopGrace.String())
	}
	if kind == "timeout" {
		args = append(args, "--timeout", limit.String())
	}
	cmd := s.command(ctx, append(args, filepath.Join(s.dir, "bin/guide"), "-steps", "1000000000", "-checkpoint",
		filepath.Join(s.dir, "checkpoints"))...)
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	before := lastStep(s.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	began := time.Now().Add(limit)
	if kind != "timeout" {
		for lastStep(s.dir) <= before && ctx.Err() == nil && len(ended) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(rand.N(200 * time.Millisecond))
		began = time.Now()
		target := processes(s.dir, "gorun")
		if kind == "SIGTERM to a rank" {
			target = processes(s.dir, "guide")
		}
		signal := syscall.SIGTERM
		if kind == "Ctrl-C" {
			signal = syscall.SIGINT
		}
		if len(target) == 0 && s.slurm && len(ended) > 0 && crashed(t, s.crashes, out.String()) {
			s.crashes++
			return s.stop(t, kind, status, limit)
		}
		if len(target) == 0 {
			t.Fatalf("%v: there is nothing to signal; output:\n%s", cmd.Args, out.String())
		}
		if err := syscall.Kill(target[rand.N(len(target))], signal); err != nil {
			t.Fatal(err)
		}
	}
	err := <-ended
	took, text, after := time.Since(began), out.String(), lastStep(s.dir)
	if s.slurm && crashed(t, s.crashes, text) {
		s.crashes++
		return s.stop(t, kind, status, limit)
	}
	s.crashes = 0
	saved := savedStep.FindAllStringSubmatch(text, -1)
	if kind == "timeout" && len(saved) == 0 && after == before {
		return false
	}
	if got := cmd.ProcessState.ExitCode(); got != status || len(saved) != 1 || saved[0][1] != fmt.Sprint(after) || took > stopGrace ||
		strings.Contains(text, "killed") {
		t.Errorf("%v stopped by %s: status %d, want %d, after %v, %v; checkpoints of step %d before and %d after; output:\n%s", cmd.Args, kind,
			got, status, took, err, before, after, text)
	}
	t.Logf("%s: %v", kind, took)
	s.longest = max(s.longest, took)
	return true
}

// all stops the program in the ways of kinds, as often as the flag says.
func (s *stopping) all(t *testing.T) {
	t.Helper()
	start, slowest := time.Now(), time.Duration(0)
	for n := range *stops {
		for _, k := range kinds {
			if !s.own {
				if k.name != "SIGTERM to a rank" {
					continue
				}
				k.status = 0
			}
			limit := min(2*slowest+rand.N(500*time.Millisecond), patience) // after the first steps, on a slow machine too
			for !s.stop(t, k.name, k.status, limit) {
				if limit *= 2; limit > patience {
					t.Fatal("the program makes no step")
				}
			}
			if n == 0 && k.name != "timeout" {
				slowest = max(slowest, time.Since(start))
				start = time.Now()
			}
			for end := time.Now().Add(patience); len(processes(s.dir, "guide")) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("after %s: processes %v are left", k.name, processes(s.dir, "guide"))
				}
			}
		}
	}
	t.Logf("the longest end took %v", s.longest)
}

// TestStops stops the program of the guide at random moments, on this machine alone.
func TestStops(t *testing.T) {
	dir := t.TempDir()
	buildGuide(t, dir)
	gorun := filepath.Join(dir, "bin/gorun")
	for _, way := range []struct {
		needs string
		own   bool
		args  []string
	}{
		{"sh", true, []string{gorun, "-np", "3"}},
		{"mpirun.openmpi", true, []string{gorun, "--via", "openmpi", "-np", "3"}},
		{"mpiexec.hydra", true, []string{gorun, "--via", "mpich", "-np", "3"}},
		{"mpirun.openmpi", false, []string{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", "3"}},
		{"mpiexec.hydra", false, []string{"mpiexec.hydra", "-n", "3"}},
	} {
		t.Run(strings.Join(append([]string{filepath.Base(way.args[0])}, way.args[1:]...), " "), func(t *testing.T) {
			testenv.NeedPrograms(t, way.needs)
			if err := os.RemoveAll(filepath.Join(dir, "checkpoints")); err != nil {
				t.Fatal(err)
			}
			s := &stopping{dir: dir, args: way.args, own: way.own, command: func(ctx context.Context, args ...string) *exec.Cmd {
				cmd := exec.CommandContext(ctx, args[0], args[1:]...)
				cmd.WaitDelay = 5 * time.Second
				return cmd
			}}
			s.all(t)
		})
	}
}

// stops stops the program on two hosts, by gorun and by srun alone.
func (c *cluster) stops(t *testing.T) {
	buildGuide(t, c.dir)
	for _, way := range []struct {
		own  bool
		args []string
	}{
		{true, []string{"gorun", "--hostfile", "hostfile", "--via", "openmpi", "-np", "4"}},
		{true, []string{"gorun", "--hostfile", "hostfile", "--via", "mpich", "-np", "4"}},
		{true, []string{"gorun", "--hostfile", "hostfile", "--via", "slurm", "-np", "4"}},
		{false, []string{"srun", "-N2", "-n4", "--mpi=pmix"}},
	} {
		t.Run(strings.Join(way.args, " "), func(t *testing.T) {
			if err := os.RemoveAll(filepath.Join(c.dir, "checkpoints")); err != nil {
				t.Fatal(err)
			}
			slurm := slices.Contains(way.args, "slurm") || !way.own
			s := &stopping{dir: c.dir, args: way.args, own: way.own, slurm: slurm, command: func(ctx context.Context, args ...string) *exec.Cmd {
				return c.command(ctx, c.hosts[0], nil, args...)
			}}
			s.all(t)
			c.clean(t, c.hosts...)
		})
	}
}
