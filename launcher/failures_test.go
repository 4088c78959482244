package launcher

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/needtest"
)

// The table of failures: what happens to a job, and what gorun must make of it. With a
// grace period of an hour a test shows that nobody had to wait for it.

func TestARankExits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 2, "-np", "2", "--grace", "1h", "testrank", "ready", "1:wait="+file, "1:err=oh no", "1:exit=3", "sleep")
	touch(t, file)
	s.check(3, "rank 1 on ", "failed: exit code 3", "at the end:\n    oh no\n", "rank 0 ended with it")
}

func TestARankIsKilled(t *testing.T) {
	t.Parallel()
	s := start(t, 3, "-np", "3", "--grace", "1h", "testrank", "ready", "sleep")
	_ = syscall.Kill(s.ready[1], syscall.SIGKILL)
	s.check(137, "rank 1 on ", "killed by signal 9, SIGKILL", "ranks 0,2 ended with it")
}

func TestARankSegfaults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 2, "-np", "2", "--grace", "1h", "sh", "-c", `testrank ready; [ $GORUN_RANK = 0 ] && sleep 100; testrank wait=`+file+`; echo last words >&2; kill -SEGV $$`)
	touch(t, file)
	s.check(139, "rank 1 on ", "killed by signal 11, SIGSEGV (segmentation fault)", "    last words\n")
}

func TestARankPanics(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 2, "-np", "2", "--grace", "1h", "testrank", "ready", "0:wait="+file, "0:panic", "sleep")
	touch(t, file)
	s.check(2, "rank 0 on ", "exit code 2", "at the end:\n    panic: rank 0 panics\n")
}

func TestARankEndsEarlyWithZero(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 2, "-np", "2", "testrank", "ready", "1:exit=0", "wait="+file, "out=rank 0 went on")
	for strings.ContainsAny(s.states()[1:], "RSD") { // rank 1 is there
		time.Sleep(time.Millisecond)
	}
	touch(t, file)
	s.expect("rank 0 went on")
	s.check(0)
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sig    syscall.Signal
		status int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}} {
		s := start(t, 2, "-np", "2", "testrank", "ready", "save=saved")
		s.expect("waiting", "waiting")
		s.signal(c.sig)
		s.expect("saved", "saved")
		s.check(c.status, "gorun: "+signalName(c.sig)+": passed on; ranks have 5s to save and end")
	}
}

func TestQuitLeavesNobody(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "testrank", "ready", "fork", "sleep")
	s.signal(syscall.SIGQUIT)
	s.check(131, "SIGQUIT: passed on", "goroutine 1") // Go ranks print their stacks
}

func TestSecondInterruptKills(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "--grace", "1h", "testrank", "catch", "fork", "ready", "sleep")
	s.signal(syscall.SIGINT)
	s.expect("rank 1 got SIGINT")
	time.Sleep(2 * debounce)
	s.signal(syscall.SIGINT)
	s.check(130, "SIGINT: passed on", "killing all ranks")
}

func TestRanksThatIgnoreTermAreKilled(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 3, "-np", "3", "--grace", "0.3", "testrank", "ignore", "ready", "1:wait="+file, "1:exit=3", "sleep")
	touch(t, file)
	s.check(3, "rank 1 on ", "ranks 0,2 did not end and had to be killed")
}

func TestInterruptedRanksThatIgnoreItAreKilled(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "--grace", "300ms", "testrank", "ignore", "ready", "sleep")
	s.signal(syscall.SIGTERM)
	s.check(143, "ranks 0-1 did not end within 300ms and had to be killed")
}

func TestNoGrace(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "--grace", "0", "testrank", "ignore", "ready", "sleep")
	s.signal(syscall.SIGTERM)
	s.check(143, "SIGTERM: killed all ranks")
}

func TestLauncherIsKilled(t *testing.T) {
	t.Parallel()
	s := start(t, 3, "-np", "3", "testrank", "ignore", "fork", "ready", "sleep")
	if n := len(s.left()); n != 1+1+3*4 {
		t.Errorf("%d processes, want gorun, its guardian, and 3 ranks with 3 children each: %v", n, s.left())
	}
	s.signal(syscall.SIGKILL)
	s.gone()
	s.check(-int(syscall.SIGKILL))
}

func TestGuardianIsKilled(t *testing.T) {
	t.Parallel()
	s := start(t, 3, "-np", "3", "testrank", "ignore", "fork", "ready", "sleep")
	_ = syscall.Kill(s.guardian(), syscall.SIGKILL)
	s.check(1, "gorun: the guardian process was killed, and all ranks with it")
}

func TestLauncherIsKilledWhileStopped(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "testrank", "fork", "ready", "sleep")
	s.signal(syscall.SIGTSTP)
	waitForStates(s, "TT")
	s.signal(syscall.SIGKILL)
	s.gone()
}

func TestARankWithChildrenExits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 2, "-np", "2", "--grace", "1h", "testrank", "fork", "ready", "1:wait="+file, "1:exit=3", "sleep")
	touch(t, file)
	s.check(3, "rank 1 on ")
}

func TestChildrenDoNotOutliveAGoodEnd(t *testing.T) {
	t.Parallel()
	start(t, 2, "-np", "2", "testrank", "fork", "ready", "exit=0").check(0)
}

func TestStopAndContinue(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "testrank", "ready", "0:catch", "save=saved")
	s.expect("waiting", "waiting")
	s.signal(syscall.SIGTSTP)
	waitForStates(s, "TT")
	waitUntilStopped(s)
	s.signal(syscall.SIGCONT)
	s.expect("rank 0 got SIGTSTP")
	s.signal(syscall.SIGINT)
	s.expect("saved")
	s.check(130)
}

// waitUntilStopped waits until gorun itself, which stops after its ranks, has stopped: a
// shell does not continue it before.
func waitUntilStopped(s *session) {
	s.t.Helper()
	for end := time.Now().Add(patienceOfTests); ; time.Sleep(time.Millisecond) {
		if p, ok := readProcess(s.cmd.Process.Pid, make([]byte, 1024)); ok && p.state == 'T' {
			return
		}
		if time.Now().After(end) {
			s.t.Fatal("gorun does not stop")
		}
	}
}

func waitForStates(s *session, want string) {
	s.t.Helper()
	for end := time.Now().Add(patienceOfTests); s.states() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("states of the ranks: %s, want %s", s.states(), want)
		}
	}
}

func TestUserSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "2", "testrank", "catch", "ready", "sleep")
	s.signal(syscall.SIGUSR1)
	s.expect("rank 1 got SIGUSR1")
	s.signal(syscall.SIGUSR2)
	s.expect("rank 1 got SIGUSR2")
	s.signal(syscall.SIGKILL)
	s.gone()
}

// TestAsRoot: what others refuse is nothing special.
func TestAsRoot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("not root")
	}
	out, err := exec.Command("gorun", "-np", "2", "true").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	start(t, 0, "-np", "2", "--timeout", "0.2", "sleep", "100").check(124, "the time limit of 200ms is over")
}

func TestNohupReachesTheRanks(t *testing.T) {
	t.Parallel()
	s := startIn(t, 2, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec gorun "$@"`}, cmd.Args...)
	}, "-np", "2", "testrank", "ready", "0:sleep", "sleep")
	for _, pid := range s.ready {
		if signalSet(pid, "SigIgn:")&1 == 0 {
			t.Errorf("rank %d does not ignore SIGHUP", pid)
		}
	}
	s.signal(syscall.SIGHUP)
	s.signal(syscall.SIGTERM)
	s.check(143)
}

// TestBlockedReader has gorun's standard output and error read by nobody.
func TestBlockedReader(t *testing.T) {
	t.Parallel()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	blocked := os.NewFile(uintptr(p[1]), "blocked")
	s := &session{t: t, mark: "blocked-" + time.Now().String()}
	s.cmd = exec.Command("gorun", "-np", "2", "--grace", "100ms", "testrank", "ignore", "lines=100000,100")
	s.cmd.Env = append(os.Environ(), "GORUN_TEST_MARK="+s.mark)
	s.cmd.Stdout, s.cmd.Stderr = blocked, blocked
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	blocked.Close()
	waitUntilFull(t, p[0])
	s.signal(syscall.SIGINT)
	s.check(130)
}

// waitUntilFull waits until the pipe's reader has as much as it ever will.
func waitUntilFull(t *testing.T, fd int) {
	t.Helper()
	last, same := -1, 0
	for end := time.Now().Add(patienceOfTests); same < 20; time.Sleep(5 * time.Millisecond) {
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		if err != nil || time.Now().After(end) {
			t.Fatalf("pipe holds %d bytes, %v", n, err)
		}
		if n > 0 && n == last {
			same++
		} else {
			last, same = n, 0
		}
	}
}

func TestReaderThatGoesAway(t *testing.T) {
	t.Parallel()
	s := startIn(t, 0, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `{ gorun "$@"; echo status $? >&2; } | head -n1`}, cmd.Args...)
	}, "-np", "2", "sh", "-c", "yes")
	if got := s.end(); !strings.Contains(got, "status 141\n") || strings.Contains(got, "goroutine") {
		t.Errorf("standard error: %s", got)
	}
	s.gone()
}

// signalSet returns a mask of /proc/PID/status.
func signalSet(pid int, field string) uint64 {
	return parseMask(readStatus(pid), field)
}

// TestNoExec: the kernel says that permission is denied, as for a file without execute bits.
func TestNoExec(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("needs namespaces: unshare: %v: %s", err, bytes.TrimSpace(out))
	}
	out, err := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs -o noexec none "$0" && cp /bin/true "$0" && gorun -np 1 "$0/true"; echo $?`, t.TempDir()).CombinedOutput()
	if want := "/true: the file system that it lies on is mounted noexec; put it on another\n126\n"; err != nil || !bytes.HasSuffix(out, []byte(want)) {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// TestNoProc: gorun says what is missing, which the kernel's error does not.
func TestNoProc(t *testing.T) {
	t.Parallel()
	needtest.Namespaces(t, "--mount")
	out, err := exec.Command("unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc && gorun -np 1 testrank").CombinedOutput()
	if want := "gorun: starting the guardian process: there is no /proc/self/exe; mount /proc\n"; err == nil || !bytes.HasSuffix(out, []byte(want)) { // the race detector warns before
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// TestProcOfAnotherNamespace: there other processes have the numbers that gorun would kill.
func TestProcOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("needs namespaces: unshare: %v: %s", err, bytes.TrimSpace(out))
	}
	out, err := exec.Command("unshare", "--pid", "--fork", "gorun", "-np", "1", "testrank", "fork").CombinedOutput()
	if want := "; mount the /proc of this namespace (unshare --mount-proc)\n"; err == nil || !bytes.HasSuffix(out, []byte(want)) {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}
