// Package programtest lets tests start an example as a user does: it builds the example and
// gorun, and runs them as processes, which can be killed.
package programtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// A Program is an example and gorun, built.
type Program struct {
	folder, name string
}

// Build builds gorun and the program in the current folder, examples/NAME.
func Build(t testing.TB) *Program {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{t.TempDir(), filepath.Base(here)}
	testenv.Build(t, p.folder, nil, "../../cmd/gorun", ".")
	return p
}

// path returns the file of the built program.
func (p *Program) path() string { return filepath.Join(p.folder, p.name) }

// A Job is a run of the program.
type Job struct {
	*exec.Cmd
	Stdout, Stderr strings.Builder // read them when the job has ended
}

// command returns a job of n ranks, not yet started; flags are for gorun.
func (p *Program) command(n int, flags, args []string) *Job {
	all := append([]string{"-np", strconv.Itoa(n)}, flags...)
	j := &Job{Cmd: exec.Command(filepath.Join(p.folder, "gorun"), append(append(all, p.path()), args...)...)}
	j.Cmd.Stdout, j.Cmd.Stderr = &j.Stdout, &j.Stderr
	j.Env = p.environ()
	return j
}

// Run runs the program on n ranks to its end.
func (p *Program) Run(n int, args ...string) (stdout, stderr string, status int) {
	j := p.command(n, nil, args)
	_ = j.Run() // the status says it
	return j.Stdout.String(), j.Stderr.String(), j.ProcessState.ExitCode()
}

// Summary decodes the line of JSON with which a program's output ends.
func Summary(t testing.TB, stdout string, v any) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), v); err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
}

// Refuses checks that a run on n ranks ends with status 1 and an error that contains says, not
// with a panic.
func (p *Program) Refuses(t testing.TB, says string, n int, args ...string) {
	t.Helper()
	_, stderr, status := p.Run(n, args...)
	if status != 1 || !strings.Contains(stderr, says) || strings.Contains(stderr, "goroutine ") {
		t.Errorf("%v: status %d, want 1 and %q\n%s", args, status, says, stderr)
	}
}

// gone reports whether a job that was started has ended.
func (p *Program) gone(j *Job) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(j.Process.Pid) + "/stat")
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

// ranks returns the processes that run the program now.
func (p *Program) ranks() []*os.Process {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	var list []*os.Process
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != p.path() {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			if process, err := os.FindProcess(pid); err == nil {
				list = append(list, process)
			}
		}
	}
	return list
}
