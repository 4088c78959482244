//go:build linux

package launcher

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/launcher/proc"
)

// patienceOfTests is how long a test waits for what must happen before it fails.
const patienceOfTests = 30 * time.Second

// A session is a running gorun and everything below it, which carries a mark in
// its environment.
type session struct {
	t      *testing.T
	cmd    *exec.Cmd
	mark   string
	ready  map[int]int // rank → process id, from the "ready" lines
	output chan string // other lines of standard output
	stderr bytes.Buffer
	pumps  sync.WaitGroup
}

// start runs gorun and returns when n ranks are ready.
func start(t *testing.T, n int, args ...string) *session {
	t.Helper()
	return startIn(t, n, nil, args...)
}

// startIn is start with a change to the command first.
func startIn(t *testing.T, n int, change func(*exec.Cmd), args ...string) *session {
	t.Helper()
	s := &session{t: t, mark: fmt.Sprintf("%d-%s-%d", os.Getpid(), t.Name(), time.Now().UnixNano()), ready: map[int]int{},
		output: make(chan string, 1000)}
	s.cmd = exec.Command("gorun", args...)
	s.cmd.Env = append(os.Environ(), "GORUN_TEST_MARK="+s.mark)
	if change != nil {
		change(s.cmd)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	s.pumps.Go(func() { _, _ = io.Copy(&s.stderr, errs) })
	lines := make(chan string, 1000)
	s.pumps.Go(func() {
		defer close(lines)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 4<<20)
		for in.Scan() {
			lines <- in.Text()
		}
	})
	late := time.After(patienceOfTests)
	for len(s.ready) < n {
		select {
		case line, ok := <-lines:
			var rank, pid int
			if _, err := fmt.Sscanf(line, "ready %d %d", &rank, &pid); err == nil {
				s.ready[rank] = pid
			} else if !ok {
				t.Fatalf("gorun %v ended before %d ranks were ready; it said %q", args, n, s.end())
			} else {
				s.output <- line
			}
		case <-late:
			t.Fatalf("%d of %d ranks are ready", len(s.ready), n)
		}
	}
	s.pumps.Go(func() {
		defer close(s.output)
		for line := range lines {
			s.output <- line
		}
	})
	return s
}

// signal sends s to gorun.
func (s *session) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits for lines of standard output, in this order, perhaps with others between.
func (s *session) expect(want ...string) {
	s.t.Helper()
	late := time.After(patienceOfTests)
	for len(want) > 0 {
		select {
		case line, ok := <-s.output:
			if line == want[0] {
				want = want[1:]
			} else if !ok {
				s.t.Fatalf("the output ended without %q", want)
			}
		case <-late:
			s.t.Fatalf("no line %q", want)
		}
	}
}

// touch makes a file that ranks wait for.
func touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o666); err != nil {
		t.Fatal(err)
	}
}

// end waits for gorun and returns what it and the ranks wrote on standard error.
func (s *session) end() string {
	s.t.Helper()
	done := make(chan struct{})
	go func() { s.pumps.Wait(); _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patienceOfTests):
		s.t.Fatal("gorun does not end")
	}
	return s.stderr.String()
}

// check waits for gorun's end and compares its exit status, what it says, and that
// nothing is left.
func (s *session) check(status int, said ...string) {
	s.t.Helper()
	stderr := s.end()
	got := s.cmd.ProcessState.ExitCode()
	if ws := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		got = -int(ws.Signal())
	}
	if got != status {
		s.t.Errorf("exit status %d, want %d; standard error:\n%s", got, status, stderr)
	}
	for _, want := range said {
		if !strings.Contains(stderr, want) {
			s.t.Errorf("standard error has no %q:\n%s", want, stderr)
		}
	}
	if left := s.left(); len(left) > 0 {
		s.t.Errorf("when gorun has ended these are left: %v", left)
	}
}

// gone waits until no process of the session is left, gorun itself having been killed.
func (s *session) gone() {
	s.t.Helper()
	if left := s.await(0); len(left) > 0 {
		s.t.Fatalf("still there: %v", left)
	}
}

// await returns left when it is n processes, or when the test has waited long enough.
func (s *session) await(n int) []string {
	for end := time.Now().Add(patienceOfTests); ; time.Sleep(5 * time.Millisecond) {
		if left := s.left(); len(left) == n || time.Now().After(end) {
			return left
		}
	}
}

// left returns the processes that carry the session's mark and have a thread that is
// not dead.
func (s *session) left() []string {
	mark := []byte("GORUN_TEST_MARK=" + s.mark + "\x00")
	threads, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	seen := map[string]bool{}
	var left []string
	for _, thread := range threads {
		pid := strings.Split(thread, "/")[2]
		if seen[pid] {
			continue
		}
		env, err := os.ReadFile(thread + "/environ")
		if err != nil || !bytes.Contains(env, mark) {
			continue
		}
		p, ok := proc.ReadStat(thread+"/stat", make([]byte, 1024))
		if !ok || p.State == 'Z' || p.State == 'X' {
			continue
		}
		seen[pid] = true
		line, _ := os.ReadFile(thread + "/cmdline")
		left = append(left, fmt.Sprintf("%s %c %s", pid, p.State, bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	return left
}

// states returns the states of the ranks: R, S, T, …
func (s *session) states() string {
	var b strings.Builder
	for r := range len(s.ready) {
		p, _ := proc.Read(s.ready[r], make([]byte, 1024))
		b.WriteByte(p.State)
	}
	return b.String()
}

// guardian returns the guardian's process id.
func (s *session) guardian() int {
	p, ok := proc.Read(s.ready[0], make([]byte, 1024))
	if !ok {
		s.t.Fatal("rank 0 is gone")
	}
	return p.Parent
}

// keeper returns the process id of the guardian's keeper.
func (s *session) keeper() int {
	p, ok := proc.Read(s.guardian(), make([]byte, 1024))
	if !ok {
		s.t.Fatal("the guardian is gone")
	}
	return p.Parent
}

// kill ends what a failed test has left.
func (s *session) kill() {
	_ = s.cmd.Process.Kill()
	for _, line := range s.left() {
		var pid int
		if _, err := fmt.Sscanf(line, "%d", &pid); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// readStatus returns /proc/PID/status.
func readStatus(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return string(text)
}

// parseMask returns the signal mask after field.
func parseMask(status, field string) uint64 {
	_, rest, _ := strings.Cut(status, field)
	hex, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	mask, _ := strconv.ParseUint(hex, 16, 64)
	return mask
}
