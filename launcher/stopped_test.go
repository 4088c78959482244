//go:build linux

package launcher

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/launcher/proc"
)

// TestAStoppedRankDoesNotOutliveTheJob: what is stopped must be continued to end.
func TestAStoppedRankDoesNotOutliveTheJob(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 3, "-np", "3", "--grace", "1h", "testrank", "fork", "ready", "1:kill=19", "0:wait="+file, "0:exit=3", "sleep")
	waitForState(s, s.ready[1], 'T')
	touch(t, file)
	s.check(3, "rank 0 on ", "failed: exit code 3", "ranks 1-2 ended with it")
}

func TestAStoppedRankIsInterrupted(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "--grace", "1h", "testrank", "ready", "1:kill=19", "save=saved")
	waitForState(s, s.ready[1], 'T')
	s.signal(syscall.SIGINT)
	s.check(130)
}

// TestAStoppedRankThatIgnoresTermIsKilled, and its children.
func TestAStoppedRankThatIgnoresTermIsKilled(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "--grace", "0.3", "testrank", "ignore", "fork", "ready", "1:kill=19", "sleep")
	waitForState(s, s.ready[1], 'T')
	s.signal(syscall.SIGTERM)
	s.check(143, "ranks 0-1 did not end within 300ms and had to be killed")
}

// TestTheLauncherAloneIsStopped: the ranks go on, and nothing that they write is lost.
func TestTheLauncherAloneIsStopped(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 2, "-np", "2", "testrank", "ready", "wait="+file, "lines=100,50", "out=done")
	s.signal(syscall.SIGSTOP)
	waitForState(s, s.cmd.Process.Pid, 'T')
	touch(t, file)
	for _, pid := range s.ready { // both have written all and ended
		for end := time.Now().Add(patienceOfTests); ; time.Sleep(time.Millisecond) {
			if p, ok := proc.Read(pid, make([]byte, 1024)); !ok || p.State == 'Z' {
				break
			}
			if time.Now().After(end) {
				t.Fatal("a rank does not end while gorun is stopped")
			}
		}
	}
	s.signal(syscall.SIGCONT)
	s.expect("done", "done")
	s.check(0)
}

// TestTheLauncherIsKilledAfterStopping by the signal that it cannot catch.
func TestTheLauncherIsKilledAfterStopping(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "testrank", "ignore", "fork", "ready", "sleep")
	s.signal(syscall.SIGSTOP)
	waitForState(s, s.cmd.Process.Pid, 'T')
	s.signal(syscall.SIGKILL)
	s.gone()
}

// TestHangupLeavesNobody: a terminal closes on ranks that have children and ignore it.
func TestHangupLeavesNobody(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "--grace", "0.3", "testrank", "ignore", "fork", "ready", "sleep")
	s.signal(syscall.SIGHUP)
	s.check(129, "SIGHUP: passed on", "had to be killed")
}

// TestARankWithChildrenIsKilled, and its children with it.
func TestARankWithChildrenIsKilled(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "--grace", "1h", "testrank", "fork", "ready", "sleep")
	_ = syscall.Kill(s.ready[1], syscall.SIGKILL)
	s.check(137, "rank 1 on ", "SIGKILL", "rank 0 ended with it")
}

// waitForState waits until a process is in a state.
func waitForState(s *session, pid int, state byte) {
	s.t.Helper()
	for end := time.Now().Add(patienceOfTests); ; time.Sleep(time.Millisecond) {
		p, _ := proc.Read(pid, make([]byte, 1024))
		if p.State == state {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("process %d is in state %c, want %c", pid, p.State, state)
		}
	}
}
