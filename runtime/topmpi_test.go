//go:build linux

package runtime

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// mpiLaunchers start so many ranks on this host, with no variable and no process of gorun's.
func mpiLaunchers(ranks string) map[string][]string {
	return map[string][]string{
		"mpirun.openmpi": {"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", ranks},
		"mpiexec.hydra":  {"mpiexec.hydra", "-n", ranks},
	}
}

// TestTopOverMPI is of jobs that mpirun and mpiexec start, alone and for gorun: rank 1 waits in a
// barrier for rank 0, which is at step 42. The name of such a job is the process id of rank 0. Of the
// calls one is this package's, which asks for hosts.
func TestTopOverMPI(t *testing.T) {
	want := regexp.MustCompile(`^job \d+: 2 ranks, \S*rankprogram watched\n.*\n` +
		`0 +(\d+) +runs +\d+% +\d+% +[\d.]+ .iB +42 +2 +4\.0 KiB +0 B/s *\n` +
		`1 +\d+ +waits for 0 +\d+% +\d+% +[\d.]+ .iB +3 +4\.0 KiB +0 B/s +Barrier +\S+s +runtime/main_test\.go:\d+\n$`)
	all := mpiLaunchers("2")
	for _, via := range []string{"openmpi", "mpich"} {
		all["gorun, "+via] = []string{"gorun", "--via", via, "-np", "2"}
	}
	for name, launcher := range all {
		t.Run(name, func(t *testing.T) {
			testenv.NeedPrograms(t, "mpirun.openmpi", "mpiexec.hydra")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, launcher[0], append(launcher[1:], "rankprogram", "watched")...)
			cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
			cmd.WaitDelay = 10 * time.Second
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = cmd.Wait() }()
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			var got []byte
			for ctx.Err() == nil {
				first := rankZero(cmd.Process.Pid)
				got, err = exec.Command("gorun", "top", "-once", strconv.Itoa(first)).CombinedOutput()
				if m := want.FindSubmatch(got); err == nil && m != nil {
					if string(m[1]) != strconv.Itoa(first) {
						t.Errorf("rank 0 is process %d:\n%s", first, got)
					}
					return
				}
			}
			t.Errorf("gorun top: %v:\n%s\nwant %s", err, got, want)
		})
	}
}

// rankZero returns the process of rank 0 among those that a launcher has started; 0 if there is none.
func rankZero(launcher int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", launcher))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // its thread may have ended
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				continue
			}
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)) // it may have ended
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child))
			for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMI_RANK"} {
				if filepath.Base(string(bytes.Split(line, []byte{0})[0])) == "rankprogram" &&
					bytes.Contains(append([]byte{0}, env...), []byte("\x00"+name+"=0\x00")) {
					return child
				}
			}
			if found := rankZero(child); found != 0 {
				return found
			}
		}
	}
	return 0
}

// TestTraceOfAnotherLauncher is of jobs of which gorun knows nothing.
func TestTraceOfAnotherLauncher(t *testing.T) {
	for name, launcher := range mpiLaunchers("3") {
		t.Run(name, func(t *testing.T) {
			testenv.NeedPrograms(t, name)
			path := filepath.Join(t.TempDir(), "t.json")
			if said := traced(t, 0, []string{job.TraceVar + "=" + path}, append(launcher, "rankprogram", "shapes")...); said != "" {
				t.Errorf("said %q", said)
			}
			f := readTraceFile(t, path)
			want := map[string]int{"step 3": 3, "AllReduce": 6, "Broadcast": 3, "Gather": 3, "Send": 1, "Recv": 1}
			for name, n := range want {
				if f.names[name] != n {
					t.Errorf("%d of %q, want %d; all: %v", f.names[name], name, n, f.names)
				}
			}
			if len(f.ranks) != 3 || f.names["compute"] < 3 || len(f.failed) > 0 {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// Jobs of other launchers end too in which rank 1 makes no more calls and the others wait for it.
func TestHangTimeoutOverMPI(t *testing.T) {
	all := map[string][]string{
		"gorun, openmpi": {"gorun", "--via", "openmpi", "-np", "3", "--hang-timeout", "3s"},
		"gorun, mpich":   {"gorun", "--via", "mpich", "-np", "3", "--hang-timeout", "3s"},
	}
	for name, launcher := range mpiLaunchers("3") {
		all[name] = append([]string{"env", job.HangTimeoutVar + "=3s"}, launcher...)
	}
	for name, launcher := range all {
		for program, laggard := range map[string]string{"loop": `(?s)runtime\.endlessLoop`, "stopped": ""} {
			t.Run(name+", "+program, func(t *testing.T) {
				testenv.NeedPrograms(t, "mpirun.openmpi", "mpiexec.hydra")
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				setting := "--hang-timeout"
				if launcher[0] == "env" {
					setting = job.HangTimeoutVar
				}
				out, err := exec.CommandContext(ctx, launcher[0], append(launcher[1:], "rankprogram", program)...).CombinedOutput()
				if err == nil || ctx.Err() != nil {
					t.Errorf("%v, %v: want a failure within a minute", err, ctx.Err())
				}
				for _, w := range []string{
					`rank 0 on \S+: the job hangs: nothing has moved for \ds \(` + setting + `\)\n`,
					`(?m)^  0,2 +waits +Barrier +world #\d+ +runtime/hang_test.go:\d+`, `(?m)^  1 +in its own code`, laggard,
				} {
					if !regexp.MustCompile(w).Match(out) {
						t.Errorf("nothing matches %q", w)
					}
				}
				if t.Failed() {
					t.Logf("%v %s:\n%s", launcher, program, out)
				}
			})
		}
	}
}
