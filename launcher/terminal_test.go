//go:build linux

package launcher

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A screen is a terminal with gorun in its foreground.
type screen struct {
	t    *testing.T
	cmd  *exec.Cmd
	keys *os.File // the other side of the terminal
	mu   sync.Mutex
	seen strings.Builder
}

// columnsOfTests is the width of a screen.
const columnsOfTests = 80

// onScreen starts gorun on a terminal of its own.
func onScreen(t *testing.T, args ...string) *screen {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columnsOfTests}); err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, keys: keys, cmd: exec.Command("gorun", args...)}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = terminal, terminal, terminal
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); keys.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// expect waits until the screen shows text.
func (s *screen) expect(text string) {
	s.t.Helper()
	for end := time.Now().Add(patienceOfTests); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		seen := s.seen.String()
		s.mu.Unlock()
		if strings.Contains(seen, text) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the screen never shows %q, but %q", text, seen)
		}
	}
}

// keyIn presses keys.
func (s *screen) keyIn(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.keys, keys); err != nil {
		s.t.Fatal(err)
	}
}

// exit waits for gorun's end.
func (s *screen) exit(status int) {
	s.t.Helper()
	_ = s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.t.Errorf("exit status %d, want %d", got, status)
	}
}

func TestOnATerminal(t *testing.T) {
	t.Parallel()
	t.Run("typed input reaches rank 0", func(t *testing.T) {
		s := onScreen(t, "-np", "2", "sh", "-c", `read x; echo "<$GORUN_RANK:$x>"`)
		s.keyIn("hello\r")
		s.expect("<0:hello>")
		s.expect("<1:>")
		s.exit(0)
	})
	t.Run("end of input", func(t *testing.T) {
		s := onScreen(t, "-np", "2", "sh", "-c", `cat; echo "<done $GORUN_RANK>"`)
		s.expect("<done 1>")
		s.keyIn("\x04")
		s.expect("<done 0>")
		s.exit(0)
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		s := onScreen(t, "-np", "2", "testrank", "ready", "save=saved")
		s.expect("waiting\r\n")
		s.expect("ready 0")
		s.keyIn("\x03")
		s.expect("SIGINT: passed on; ranks have 5s to save and end (a second Ctrl-C kills them at once)")
		s.exit(130)
	})
	t.Run("colours and logs for people", func(t *testing.T) {
		s := onScreen(t, "--tag-output", "-np", "2", "sh", "-c", `echo $GORUN_LOG_FORMAT`)
		s.expect("\x1b[33m[1]<stdout>:\x1b[0m console")
		s.exit(0)
	})
}

// TestKilledWhileBuilding has a go command that never ends.
func TestKilledWhileBuilding(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"go": "#!/bin/sh\necho half built >$GOTMPDIR/x\nsetsid sleep 1000 &\necho $GOTMPDIR >" + dir + "/new && mv " + dir + "/new " + dir +
				"/started\nwait\n",
			"main.go": "package main\n",
		} {
			// No fork in between: a child that has the file open for writing makes it busy.
			syscall.ForkLock.RLock()
			err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755)
			syscall.ForkLock.RUnlock()
			if err != nil {
				t.Fatal(err)
			}
		}
		s := startIn(t, 0, func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
		}, "-np", "2", filepath.Join(dir, "main.go"))
		var temp []byte
		for end := time.Now().Add(patienceOfTests); temp == nil; time.Sleep(time.Millisecond) {
			temp, _ = os.ReadFile(dir + "/started")
			if time.Now().After(end) {
				t.Fatal("the build does not start")
			}
		}
		s.signal(sig)
		s.gone()
		if sig == syscall.SIGINT {
			s.check(130)
		}
		if _, err := os.Stat(strings.TrimSpace(string(temp))); !os.IsNotExist(err) {
			t.Errorf("%v: %s is left: %v", sig, temp, err)
		}
	}
}

func TestBarOnATerminal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := onScreen(t, "-np", "2", "testrank", "0:err=\\r[=>  ] 1/2\x1b[K\\0", "1:out=a line of rank 1", "wait="+file, "0:err=\\r[====] 2/2")
	s.expect("[=>  ] 1/2")
	s.expect("a line of rank 1\r\n")
	touch(t, file)
	s.expect("[====] 2/2\r\n")
	s.exit(0)
}

// TestDumbTerminal has a terminal that shows escape sequences as text.
func TestDumbTerminal(t *testing.T) {
	t.Setenv("TERM", "dumb")
	s := onScreen(t, "--tag-output", "-np", "2", "testrank", "0:err=\\r[=>  ] 1/2\\r[====] 2/2", "1:out=a line of rank 1")
	s.expect("[1]<stdout>: a line of rank 1\r\n")
	s.expect("[====] 2/2\r\n")
	s.exit(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen := s.seen.String(); strings.Contains(seen, "\x1b") {
		t.Errorf("there are escape sequences in %q", seen)
	}
}

// TestRanksLearnOfTheTerminal has gorun on a terminal of 80 columns.
func TestRanksLearnOfTheTerminal(t *testing.T) {
	t.Parallel()
	s := onScreen(t, "--tag-output", "-np", "2", "sh", "-c", `sleep 0.01; echo "<$GORUN_RANK:$GORUN_TERMINAL>"`)
	s.expect("<0:67>")
	s.exit(0)
	s = onScreen(t, "--output", t.TempDir(), "-np", "2", "sh", "-c", `[ "${GORUN_TERMINAL-none}" = none ]`)
	s.exit(0)
}
