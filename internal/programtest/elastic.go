//go:build linux

package programtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// faultySource is added to an example: each step touches a file, and the next step after a signal is
// the rank's last.
const faultySource = `package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/train"
)

func faulty(ctx context.Context, world *comm.Comm, r *train.Run, say func(string, ...any)) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	r.OnStep = func(int, float64) {
		now := time.Now()
		_ = os.Chtimes(os.Getenv("STEP_FILE"), now, now)
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGUSR1:
				dtensor.Check(errors.New("boom"))
			case syscall.SIGUSR2:
				select {}
			default:
				os.Exit(0)
			}
		default:
		}
	}
	return r.Do(ctx, world, say)
}
`

// BuildFaulty is Build with a program in which signals cause faults.
func BuildFaulty(t testing.TB) *Program {
	t.Helper()
	testenv.DependsOn(t, ".")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{t.TempDir(), filepath.Base(here)}
	testenv.Build(t, p.folder, nil, "../../cmd/gorun")
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	const call = "t.run.Do(ctx, world, say)"
	if strings.Count(string(text), call) != 1 {
		t.Fatalf("main.go does not have %s once", call)
	}
	overlay := map[string]string{}
	for name, text := range map[string]string{
		"main.go": strings.Replace(string(text), call, "faulty(ctx, world, &t.run, say)", 1), "faulty.go": faultySource,
	} {
		at := filepath.Join(p.folder, name)
		if err := os.WriteFile(at, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(here, name)] = at
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(p.folder, "overlay.json")
	if err := os.WriteFile(at, list, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", at, "-o", p.path(), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return p
}

// snapshotSteps is how many steps lie between two snapshots of SurvivesFaults.
const snapshotSteps = 5

// SurvivesFaults runs a program of BuildFaulty on 4 ranks with a number of faults at random times. A
// fault is a signal to a rank, several signals at once, an exit with 0, an error, a hang, a stop, the
// end of the guardian, or a request for another number of ranks. The runs must end with the state of
// an undisturbed run, bit for bit. No process may be left, and no more steps may be made again than
// lie between two snapshots. args must have -json.
func (p *Program) SurvivesFaults(t *testing.T, faults int, seed uint64, args ...string) {
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	args = append(args[:len(args):len(args)], "-snapshot", strconv.Itoa(snapshotSteps))
	j := p.command(4, []string{"--same-bits"}, args)
	if err := j.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &j.Stderr)
	}
	want := stateOf(t, j)
	struck, runs := 0, 0
	for began := time.Now(); struck < faults; runs++ {
		struck += p.survives(t, rand.New(rand.NewPCG(seed, uint64(runs))), want, args)
		if t.Failed() {
			t.Fatalf("run %d of seed %d", runs, seed)
		}
		if runs > 10*faults {
			t.Fatalf("%d faults in %d runs and %v: the runs are too short", struck, runs, time.Since(began))
		}
	}
	t.Logf("%d faults in %d runs", struck, runs)
}

// survives makes one run and returns how many faults struck it.
func (p *Program) survives(t *testing.T, rng *rand.Rand, want string, args []string) (struck int) {
	t.Helper()
	mode := []string{"restart", "shrink"}[rng.IntN(2)]
	j := p.command(4, []string{"--same-bits", "--hang-timeout", "1s", "--elastic", mode}, args)
	stepFile := filepath.Join(p.folder, "step")
	if err := os.WriteFile(stepFile, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	j.Env = append(j.Env, "STEP_FILE="+stepFile)
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	stalled := j.killIfStalled(stepFile, time.Minute)
	var what []string
	for range 1 + rng.IntN(2) { // three in a row before a snapshot would be the end, rightly
		for range 2000 { // until the ranks are there
			if len(p.ranks()) > 1 || p.gone(j) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		if name := p.strike(j, rng); name != "" {
			what = append(what, name)
		}
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
	}
	err := j.Wait()
	if stalled() {
		t.Errorf("%s, %v: no step for a minute\n%s", mode, what, &j.Stderr)
	}
	stderr := j.Stderr.String()
	if err != nil {
		t.Errorf("%s, %v: %v\n%s", mode, what, err, stderr)
		return 0
	}
	if got := stateOf(t, j); got != want {
		t.Errorf("%s, %v: the state is %s, and of an undisturbed run %s\n%s", mode, what, got, want, stderr)
	}
	if left := p.ranks(); len(left) > 0 {
		t.Errorf("%s, %v: %d processes are left", mode, what, len(left))
	}
	for _, lost := range regexp.MustCompile(`(\d+) steps? (is|are) made again`).FindAllStringSubmatch(stderr, -1) {
		if n, err := strconv.Atoi(lost[1]); err != nil || n > snapshotSteps+1 {
			t.Errorf("%s, %v: %s, with a snapshot each %d steps\n%s", mode, what, lost[0], snapshotSteps, stderr)
		}
	}
	return strings.Count(stderr, "starting the job again")
}

// killIfStalled kills a job whose steps have not touched a file for so long, until stalled is called, which
// reports whether it has. A busy machine makes steps slow, and a job without end makes none. Looks are counted and no
// clock is read, so that a time in which the test and the job were both stopped does not count.
func (j *Job) killIfStalled(file string, after time.Duration) (stalled func() bool) {
	ended, killed := make(chan struct{}), make(chan bool, 1)
	go func() {
		var touched time.Time
		for still := time.Duration(0); ; still += time.Second {
			select {
			case <-ended:
				killed <- false
				return
			case <-time.After(time.Second):
			}
			if at, err := os.Stat(file); err == nil && !at.ModTime().Equal(touched) {
				touched, still = at.ModTime(), 0
			}
			if still > after {
				_ = j.Process.Kill()
				killed <- true
				return
			}
		}
	}()
	return func() bool { close(ended); return <-killed }
}

// strike causes one fault in the job and returns its name; "" if the job has ended.
func (p *Program) strike(j *Job, rng *rand.Rand) string {
	ranks := p.ranks()
	if len(ranks) == 0 {
		return ""
	}
	one := ranks[rng.IntN(len(ranks))]
	kinds := []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGUSR1, syscall.SIGWINCH}
	switch kind := rng.IntN(20); {
	case kind == 0:
		_ = one.Signal(syscall.SIGSTOP)
		return "a stop"
	case kind == 1:
		_ = one.Signal(syscall.SIGUSR2)
		return "a hang"
	case kind < 4: // kill the guardian
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", one.Pid))
		_, rest, _ := strings.Cut(string(stat), ") ")
		var state rune
		var guardian int
		if _, err := fmt.Sscanf(rest, "%c %d", &state, &guardian); err != nil || guardian <= 1 {
			return ""
		}
		_ = syscall.Kill(guardian, syscall.SIGKILL)
		return "the guardian's end"
	case kind < 8:
		n := 2 + rng.IntN(4)
		_ = exec.Command(filepath.Join(p.folder, "gorun"), "scale", strconv.Itoa(j.Process.Pid), strconv.Itoa(n)).Run() // it may have ended
		return fmt.Sprint("scale to ", n)
	case kind < 11:
		for _, r := range ranks[:min(2, len(ranks))] {
			_ = r.Kill()
		}
		return "two kills"
	}
	sig := kinds[rng.IntN(len(kinds))]
	_ = one.Signal(sig)
	return sig.String()
}
