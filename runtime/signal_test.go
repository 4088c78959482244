//go:build linux

package runtime

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// interrupt starts a command, sends it signals once n ranks have printed "ready",
// and returns its exit status (minus the signal that killed it), what came after
// "ready" on standard output, and standard error.
func interrupt(t *testing.T, n int, signals []syscall.Signal, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	in := bufio.NewScanner(pipe)
	for ready := 0; ready < n && in.Scan(); {
		if in.Text() == "ready" {
			ready++
		}
	}
	for i, s := range signals {
		if i > 0 {
			time.Sleep(300 * time.Millisecond) // else they may be taken for one
		}
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	for in.Scan() {
		out.WriteString(in.Text() + "\n")
	}
	_ = cmd.Wait()
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal()), out.String(), errs.String()
	}
	return ws.ExitStatus(), out.String(), errs.String()
}

func TestInterruptedRanksSave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal syscall.Signal
		status int
		cause  string
	}{
		{syscall.SIGINT, 130, "saved: interrupted (interrupt)\n"},
		{syscall.SIGTERM, 143, "saved: interrupted (terminated)\n"},
		{syscall.SIGHUP, 129, "saved: interrupted (hangup)\n"},
	} {
		status, out, errs := interrupt(t, 2, []syscall.Signal{c.signal}, "gorun", "-np", "2", "--grace", "1h", "rankprogram", "save")
		if status != c.status || out != c.cause+c.cause {
			t.Errorf("%v: status %d, want %d; output %q", c.signal, status, c.status, out)
		}
		if strings.Contains(errs, "rank ") {
			t.Errorf("%v: a rank complains: %s", c.signal, errs)
		}
		status, out, errs = interrupt(t, 1, []syscall.Signal{c.signal}, "rankprogram", "save")
		if status != c.status || out != c.cause || errs != "" {
			t.Errorf("%v alone: status %d, want %d; output %q; standard error %q", c.signal, status, c.status, out, errs)
		}
	}
}

// TestMPICHWaitsForRanksThatStop is of a launcher that only hands on a signal.
func TestMPICHWaitsForRanksThatStop(t *testing.T) {
	t.Parallel()
	testenv.NeedPrograms(t, "mpiexec.hydra")
	start := func(program string) (status int, stdout, stderr string) {
		return interrupt(t, 2, []syscall.Signal{syscall.SIGTERM}, "mpiexec.hydra", "-n", "2", "rankprogram", program)
	}
	if status, out, errs := start("briefly saves"); status != 0 || out != "saved\nsaved\n" {
		t.Errorf("status %d, output %q, want that both have saved; standard error %s", status, out, errs)
	}
	_, _, errs := start("briefly waits") // the ranks' status is 143, but mpiexec's now and then 0
	said := regexp.MustCompile(`(?m)^rank (0|1): the job is to stop \(terminated\), and in 1s the program has not learnt so from ` +
		`runtime\.Stopping: (it waits in Barrier at runtime/main_test\.go:\d+|its last call was .*); ask Stopping between two steps`)
	if !said.MatchString(errs) {
		t.Errorf("standard error %s, want what matches %q", errs, said)
	}
}

// stopped starts stops on 3 ranks under gorun with args, has act send a signal once all
// make steps, and checks that all have saved the same step.
func stopped(t *testing.T, status int, cause string, args []string,
	act func(gorun *os.Process, ranks map[string]int) error) (stderr string) {
	t.Helper()
	cmd := exec.Command("gorun", append(append([]string{"-np", "3", "--grace", "1h"}, args...), "rankprogram", "stops")...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	ranks, saved := map[string]int{}, []string{}
	for in := bufio.NewScanner(pipe); in.Scan(); {
		var rank string
		var pid int
		switch text := in.Text(); {
		case strings.HasPrefix(text, "saved"):
			saved = append(saved, text)
		case text == "ready":
		default:
			if _, err := fmt.Sscanf(text, "rank %s is %d", &rank, &pid); err != nil {
				t.Fatal(text, err)
			}
			if ranks[rank] = pid; len(ranks) == 3 {
				if err := act(cmd.Process, ranks); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != status || len(saved) != 3 || saved[0] != saved[1] || saved[0] != saved[2] ||
		!strings.HasSuffix(saved[0], cause) {
		t.Errorf("%v: status %d, want %d; saved %q, want all the same with %q; standard error %s", args, got, status, saved, cause, &errs)
	}
	return errs.String()
}

func TestRanksAgreeToStop(t *testing.T) {
	t.Parallel()
	send := func(sig syscall.Signal) func(*os.Process, map[string]int) error {
		return func(gorun *os.Process, _ map[string]int) error { return gorun.Signal(sig) }
	}
	stopped(t, 130, "interrupted (interrupt)", nil, send(syscall.SIGINT))
	stopped(t, 143, "interrupted (terminated)", nil, send(syscall.SIGTERM))
	// The ranks have begun after 3 s, under the race detector too.
	stopped(t, 124, "interrupted (terminated)", []string{"--timeout", "3s"}, func(*os.Process, map[string]int) error { return nil })
	for _, rank := range []string{"0", "2"} {
		errs := stopped(t, 143, "interrupted (terminated)", nil, func(_ *os.Process, ranks map[string]int) error {
			return syscall.Kill(ranks[rank], syscall.SIGTERM)
		})
		if want := "gorun: SIGTERM to rank " + rank + ": passed on to all; ranks have 1h0m0s to save and end\n"; !strings.Contains(errs, want) {
			t.Errorf("standard error %q, want %q", errs, want)
		}
	}
	stopped(t, 143, "interrupted (terminated)", nil, func(gorun *os.Process, ranks map[string]int) error { // as of a whole control group
		for _, pid := range ranks {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				return err
			}
		}
		return gorun.Signal(syscall.SIGTERM)
	})
}

// TestLeavingAlone of ranks that do not agree when to stop is an error that says what
// to do, and no hang.
func TestLeavingAlone(t *testing.T) {
	t.Parallel()
	status, _, errs := interrupt(t, 3, []syscall.Signal{syscall.SIGTERM}, "gorun", "-np", "3", "--grace", "1h", "rankprogram", "leaves")
	if status != 143 || !strings.Contains(errs, "ranks disagree: rank 0 called AllReduce sum float64[10] at runtime/main_test.go:") ||
		!strings.Contains(errs, "runtime.Stopping") {
		t.Errorf("status %d, standard error %q", status, errs)
	}
}

// TestLeavingAFailedJob of ranks that gorun ends is not taken for the user's wish: they asked nothing of Stopping.
func TestLeavingAFailedJob(t *testing.T) {
	t.Parallel()
	status, _, errs := interrupt(t, 0, nil, "gorun", "-np", "2", "--grace", "1h", "rankprogram", "differ late")
	if status != 1 || !strings.Contains(errs, "rank 0: comm: AllReduce") || strings.Contains(errs, "runtime.Stopping") {
		t.Errorf("status %d, standard error %q, want rank 0's error without advice on stopping", status, errs)
	}
}

func TestSavingCanFail(t *testing.T) {
	t.Parallel()
	status, _, errs := interrupt(t, 1, []syscall.Signal{syscall.SIGTERM}, "rankprogram", "savefail")
	if status != 1 || errs != "rank 0: disk full\n" {
		t.Errorf("status %d, standard error %q", status, errs)
	}
	status, _, errs = interrupt(t, 2, []syscall.Signal{syscall.SIGTERM}, "gorun", "-np", "2", "rankprogram", "savefail")
	if status != 143 || !strings.Contains(errs, "disk full\n") {
		t.Errorf("with gorun: status %d, standard error %q", status, errs)
	}
}

func TestInterruptReachesCollectives(t *testing.T) {
	t.Parallel()
	status, _, errs := interrupt(t, 3, []syscall.Signal{syscall.SIGINT}, "gorun", "-np", "3", "--grace", "1h", "rankprogram", "wait")
	if status != 130 || strings.Contains(errs, "rank ") {
		t.Errorf("status %d, standard error %q", status, errs)
	}
}

func TestSecondInterruptEndsAProgramAlone(t *testing.T) {
	t.Parallel()
	status, _, _ := interrupt(t, 1, []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, "rankprogram", "deaf")
	if want := -int(syscall.SIGINT); status != want {
		t.Errorf("status %d, want %d", status, want)
	}
}

// TestInterruptWhileAJobFails: who interrupts a job does not want it started again, though
// it has failed by itself just before.
func TestInterruptWhileAJobFails(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	status, _, errs := interrupt(t, 1, []syscall.Signal{syscall.SIGINT}, "gorun", "-np", "2", "--grace", "1h", "--max-restarts", "5",
		"sh", "-c", `if [ $GORUN_RANK = 1 ]; then until [ -e "$0" ]; do sleep 0.01; done; exec rankprogram saveandfail; fi
			trap "echo ready" TERM; touch "$0"; while :; do sleep 0.05; done`, ready)
	if status != 1 || !strings.Contains(errs, "gorun: not starting the job again: SIGINT has come\n") {
		t.Errorf("status %d, want 1; standard error %q", status, errs)
	}
}
