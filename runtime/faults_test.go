//go:build linux

package runtime

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

var (
	faultCount  = flag.Int("faults", 12, "how many jobs TestRandomFaults makes fail")
	faultSeed   = flag.Uint64("faults.seed", 1, "the first job's seed; each next one has the next; 0: by the time")
	faultWithin = flag.Duration("faults.within", time.Minute, "how soon after its first fault a job has to be over")
)

// A mishap is what happens to a rank of the program "faulty" at a step.
type mishap struct {
	rank, step int
	kind       string
	number     int // a signal or an exit code
}

func (f mishap) String() string { return fmt.Sprintf("%d,%d,%s,%d", f.rank, f.step, f.kind, f.number) }

// goCrashes are the signals that end a Go program with its stacks and exit code 2.
var goCrashes = []syscall.Signal{syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS,
	syscall.SIGABRT}

// faulty makes steps, with a collective in each or a pause, until a fault of its
// arguments ends it. Every rank has a child in a session of its own.
func faulty(ctx context.Context, world *comm.Comm) error {
	child := exec.Command("sleep", "1000")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println("ready", world.Rank(), os.Getpid())
	for step := 0; !Stopping(ctx, world); step++ {
		for _, text := range os.Args[3:] {
			var f mishap
			if _, err := fmt.Sscanf(strings.ReplaceAll(text, ",", " "), "%d %d %s %d", &f.rank, &f.step, &f.kind, &f.number); err != nil {
				return err
			}
			if f.rank == world.Rank() && f.step == step {
				if err := f.happen(); err != nil {
					return err
				}
			}
		}
		if os.Args[2] == "pause" {
			time.Sleep(time.Millisecond)
		} else if err := comm.AllReduce(ctx, world, []float32{1}, comm.Sum); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// happen returns an error, or does not return; or it closes or stops something.
func (f mishap) happen() error {
	if f.kind != "stop" {
		fmt.Println("fault", time.Now().UnixNano())
	}
	switch f.kind {
	case "error":
		return fmt.Errorf("boom %d", f.rank)
	case "exit":
		os.Exit(f.number)
	case "panic":
		panic("broken")
	case "crash":
		go func() { *(*int)(nil) = 1 }()
		select {}
	case "signal", "stop":
		_ = syscall.Kill(os.Getpid(), syscall.Signal(f.number))
		for f.kind == "signal" {
			time.Sleep(time.Hour)
		}
	case "streams": // an output that nobody can write to any more
		for fd := range 3 {
			syscall.Close(fd)
		}
		os.Exit(f.number)
	case "descriptors": // all that gorun gave, and Go's own except for its poller's, without which it ends with 2
		for fd := range 256 {
			if name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); !strings.HasPrefix(name, "anon_inode:[event") {
				syscall.Close(fd)
			}
		}
		os.Exit(f.number)
	}
	return nil
}

// told is how gorun must report the fault: its exit status, and what it says.
func (f mishap) told() (status int, said []string) {
	who := fmt.Sprintf("rank %d on ", f.rank)
	switch {
	case f.kind == "error":
		return 1, []string{who, fmt.Sprintf("failed: boom %d", f.rank)}
	case f.kind == "exit" && f.number == 0: // the others' next collective fails
		return 1, []string{fmt.Sprintf("rank %d", f.rank)}
	case f.kind == "panic":
		return 2, []string{who, "panic: broken (exit code 2)", "\n    panic: broken"}
	case f.kind == "crash":
		return 2, []string{who, "panic: runtime error: invalid memory address", "(exit code 2)", "\n    panic: runtime error: invalid"}
	case f.kind == "signal" && f.number == int(syscall.SIGKILL):
		return 137, []string{who, "killed by signal 9, SIGKILL"}
	case f.kind == "signal" && f.number == int(syscall.SIGQUIT):
		return 131, []string{who, "exit code 131, 128 + SIGQUIT", "\n    SIGQUIT: quit"}
	case f.kind == "signal":
		return 2, []string{who, "exit code 2", "\n    SIG"}
	}
	return f.number, []string{who, fmt.Sprintf("exit code %d", f.number)}
}

// randomFaults returns what is to happen to the ranks of a job: a fault, or several at
// once, one of which may be that a rank is stopped. Only the next collective of another
// rank finds that one has ended with 0, so at least one rank goes on or fails by itself.
func randomFaults(random *rand.Rand, ranks int, collective bool) []mishap {
	kinds := []string{"error", "exit", "panic", "crash", "signal", "signal", "signal", "streams", "descriptors"}
	step := random.IntN(30)
	several := 1
	if random.IntN(3) == 0 {
		several = 1 + random.IntN(ranks)
	}
	var faults []mishap
	for _, rank := range random.Perm(ranks)[:several] {
		f := mishap{rank: rank, step: step, kind: kinds[random.IntN(len(kinds))], number: 1 + random.IntN(99)}
		switch f.kind {
		case "signal":
			f.number = int(append(goCrashes, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGQUIT)[random.IntN(len(goCrashes)+3)])
		case "exit":
			if collective && random.IntN(3) == 0 {
				f.number = 0
			}
		}
		if len(faults) > 0 && random.IntN(4) == 0 {
			f.kind, f.number = "stop", int(syscall.SIGSTOP)
		}
		faults = append(faults, f)
	}
	silent := func(f mishap) bool { return f.kind == "stop" || f.kind == "exit" && f.number == 0 }
	if several == ranks && !slices.ContainsFunc(faults, func(f mishap) bool { return !silent(f) }) {
		faults[0].number = 1
	}
	return faults
}

// TestRandomFaults lets ranks fail, or gorun and its guardian be ended, in random ways.
// Each time the exit status is right, the report names what happened first, nothing is
// left, and it is soon over.
func TestRandomFaults(t *testing.T) {
	testenv.Children()
	seed := *faultSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-faults %d -faults.seed %d", *faultCount, seed)
	var slowest time.Duration
	for i := range uint64(*faultCount) {
		slowest = max(slowest, randomFault(t, seed+i))
	}
	t.Logf("the slowest job was over %v after its first fault", slowest)
}

// randomFault runs the job of a seed and returns how long after its first fault it was over.
func randomFault(t *testing.T, seed uint64) time.Duration {
	random := rand.New(rand.NewPCG(seed, 0))
	ranks := []int{2, 4, 8}[random.IntN(3)]
	mode := []string{"collective", "pause"}[random.IntN(2)]
	args := []string{"-np", strconv.Itoa(ranks), "--grace", "1h", "rankprogram", "faulty", mode}
	outside := ""
	var faults []mishap
	if random.IntN(6) == 0 {
		outside = []string{"SIGINT", "SIGTERM", "SIGHUP", "guardian", "gorun", "gorun and guardian"}[random.IntN(6)]
	} else {
		faults = randomFaults(random, ranks, mode == "collective")
		for _, f := range faults {
			args = append(args, f.String())
		}
	}
	what := fmt.Sprintf("-faults 1 -faults.seed %d: gorun %s %s", seed, strings.Join(args, " "), outside)
	j := startFaulty(t, args)
	var first time.Time
	if outside != "" {
		j.awaitReady(ranks)
		first = time.Now()
		j.end(outside)
	}
	status := j.wait()
	over := time.Now()
	left := j.left()
	for len(left) > 0 && strings.HasPrefix(outside, "gorun") && time.Since(first) < 30*time.Second {
		time.Sleep(time.Millisecond)
		over, left = time.Now(), j.left()
	}
	stdout, stderr := j.stdout.String(), j.stderr.String()
	if i := strings.LastIndex(stderr, "\ngorun: "); i >= 0 { // the report is at the end
		stderr = stderr[max(0, strings.LastIndex(stderr[:i], "\ngorun: ")):]
	}
	for line := range strings.Lines(stdout) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "fault "); ok {
			n, err := strconv.ParseInt(at, 10, 64)
			if at := time.Unix(0, n); err == nil && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	if why := wrongReport(faults, outside, status, stderr); why != "" {
		t.Errorf("%s: %s; standard error:\n%s", what, why, stderr)
	}
	if len(left) > 0 {
		t.Errorf("%s: left: %v", what, left)
	}
	took := over.Sub(first)
	if first.IsZero() || took > *faultWithin {
		t.Errorf("%s: over %v after the first fault, want at most %v; standard error:\n%s", what, took, *faultWithin, stderr)
	}
	return took
}

// wrongReport says what is wrong with gorun's exit status or report, "" if nothing is. Of
// faults at once any may be the first.
func wrongReport(faults []mishap, outside string, status int, stderr string) string {
	want := []string{}
	fits := func(exit int, said ...string) bool {
		want = append(want, fmt.Sprintf("status %d with %q", exit, said))
		missing := func(text string) bool { return !strings.Contains(stderr, text) }
		return status == exit && !slices.ContainsFunc(said, missing)
	}
	ok := false
	switch outside {
	case "":
		for _, f := range faults {
			if f.kind != "stop" {
				exit, said := f.told()
				ok = fits(exit, said...) || ok
			}
		}
	case "guardian":
		ok = fits(1, "gorun: the guardian process was killed, and all ranks with it")
	case "SIGINT":
		ok = fits(130, "SIGINT: passed on")
	case "SIGTERM":
		ok = fits(143, "SIGTERM: passed on")
	case "SIGHUP":
		ok = fits(129, "SIGHUP: passed on")
	default:
		ok = fits(-int(syscall.SIGKILL))
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("exit status %d, want %s", status, strings.Join(want, " or "))
}

// A faultyJob is a gorun that runs the program "faulty", and what is below it, which has
// a mark in its environment.
type faultyJob struct {
	t              *testing.T
	cmd            *exec.Cmd
	mark           string
	stdout, stderr bytes.Buffer
	ready          chan int      // the process id of each rank that has started
	read           chan struct{} // closed at the end of standard output
	rank           int           // some rank's process id
}

var faultyJobs atomic.Int64

func startFaulty(t *testing.T, args []string) *faultyJob {
	t.Helper()
	j := &faultyJob{t: t, cmd: exec.Command("gorun", args...), ready: make(chan int, 8), read: make(chan struct{})}
	j.mark = fmt.Sprintf("FAULTY_JOB=%d-%d", os.Getpid(), faultyJobs.Add(1))
	j.cmd.Env = append(os.Environ(), j.mark)
	j.cmd.Stderr = &j.stderr
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(j.read)
		in := bufio.NewScanner(out)
		for in.Scan() {
			var rank, pid int
			if _, err := fmt.Sscanf(in.Text(), "ready %d %d", &rank, &pid); err == nil {
				j.ready <- pid
			}
			j.stdout.WriteString(in.Text() + "\n")
		}
	}()
	return j
}

// awaitReady returns when all ranks have started.
func (j *faultyJob) awaitReady(ranks int) {
	j.t.Helper()
	for range ranks {
		select {
		case j.rank = <-j.ready:
		case <-j.read:
			j.t.Fatalf("%v: the ranks do not start: %s", j.cmd.Args, j.stderr.String())
		}
	}
}

// end sends a signal to gorun, or kills processes of it.
func (j *faultyJob) end(what string) {
	j.t.Helper()
	for name, sig := range map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP} {
		if name == what {
			_ = j.cmd.Process.Signal(sig)
		}
	}
	guardian := 0
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", j.rank))
	if _, rest, ok := strings.Cut(string(status), "\nPPid:"); ok {
		_, _ = fmt.Sscan(rest, &guardian)
	}
	if guardian <= 1 {
		j.t.Fatalf("%v: rank %d has no parent", j.cmd.Args, j.rank)
	}
	if strings.HasPrefix(what, "gorun") {
		_ = j.cmd.Process.Kill()
	}
	if strings.HasSuffix(what, "guardian") {
		_ = syscall.Kill(guardian, syscall.SIGKILL)
	}
}

// wait waits for gorun's end and returns its exit status, or minus the signal that killed it.
func (j *faultyJob) wait() int {
	j.t.Helper()
	late := time.AfterFunc(time.Minute, func() {
		j.t.Errorf("%v does not end", j.cmd.Args)
		_ = j.cmd.Process.Kill()
	})
	defer late.Stop()
	<-j.read
	_ = j.cmd.Wait()
	ws := j.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return ws.ExitStatus()
}

// left returns the processes that carry the job's mark.
func (j *faultyJob) left() (left []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(dir + "/environ")
		if err == nil && bytes.Contains(env, []byte(j.mark+"\x00")) {
			line, _ := os.ReadFile(dir + "/cmdline")
			left = append(left, filepath.Base(dir)+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return left
}
