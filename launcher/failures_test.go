//go:build linux

package launcher

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/launcher/proc"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
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
	s := start(t, 2, "-np", "2", "--grace", "1h", "sh", "-c",
		`testrank ready; [ $GORUN_RANK = 0 ] && sleep 100; testrank wait=`+file+`; echo last words >&2; kill -SEGV $$`)
	touch(t, file)
	s.check(139, "rank 1 on ", "killed by signal 11, SIGSEGV (segmentation fault)", "    last words\n")
}

func TestARankPanics(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 2, "-np", "2", "--grace", "1h", "testrank", "ready", "0:wait="+file, "0:panic", "sleep")
	touch(t, file)
	s.check(2, "rank 0 on ", "failed: panic: rank 0 panics (exit code 2)\n", "at the end:\n    panic: rank 0 panics\n")
}

// TestAGoRankIsSentACrash: the end of its standard error names the signal, above the
// stacks and registers.
func TestAGoRankIsSentACrash(t *testing.T) {
	t.Parallel()
	for sig, said := range map[syscall.Signal]string{
		syscall.SIGSEGV: "SIGSEGV: segmentation violation", syscall.SIGBUS: "SIGBUS: bus error",
		syscall.SIGFPE: "SIGFPE: floating-point exception", syscall.SIGILL: "SIGILL: illegal instruction",
		syscall.SIGTRAP: "SIGTRAP: trace trap", syscall.SIGSYS: "SIGSYS: bad system call", syscall.SIGSTKFLT: "SIGSTKFLT: stack fault",
		syscall.SIGABRT: "SIGABRT: abort", syscall.SIGQUIT: "SIGQUIT: quit",
	} {
		s := start(t, 1, "-np", "1", "testrank", "ready", "sleep")
		_ = syscall.Kill(s.ready[0], sig)
		s.check(2, "rank 0 on ", "failed: "+said, "(exit code 2)\n", "at the end:\n    "+said+"\n")
	}
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
		s.check(c.status, "gorun: "+supervisor.SignalName(c.sig)+": passed on; ranks have 5s to save and end")
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
	time.Sleep(2 * 200 * time.Millisecond) // signals closer than 200 ms are one
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

// TestARankThatIsStoppedWhileItEnds is continued, or it could not end.
func TestARankThatIsStoppedWhileItEnds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := start(t, 2, "-np", "2", "--grace", "1h", "testrank", "0:stop", "ready", "1:wait="+file, "1:exit=3", "sleep")
	touch(t, file)
	s.check(3, "rank 1 on ", "rank 0 ended with it")
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
	all := s.await(1 + 2 + 3*4) // a child of a child comes a little later
	if len(all) != 1+2+3*4 {
		t.Errorf("%d processes, want gorun, its guardian with a keeper, and 3 ranks with 3 children each: %v", len(all), all)
	}
	s.signal(syscall.SIGKILL)
	s.gone()
	s.check(-int(syscall.SIGKILL))
}

var killedRanks = flag.Int("killed.ranks", 48, "of how many ranks TestLauncherOfManyIsKilled is")

func TestLauncherOfManyIsKilled(t *testing.T) {
	t.Parallel()
	s := start(t, *killedRanks, "-np", fmt.Sprint(*killedRanks), "testrank", "ignore", "ready", "sleep")
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

// TestTwoAreKilled: of gorun, the guardian and its keeper one is enough to end the ranks
// and what they have started.
func TestTwoAreKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ launcher, keeper, guardian, stopped bool }{
		{launcher: true, guardian: true}, {launcher: true, guardian: true, stopped: true},
		{launcher: true, keeper: true}, {keeper: true, guardian: true},
	} {
		s := start(t, 3, "-np", "3", "testrank", "ignore", "fork", "ready", "sleep")
		keeper := s.keeper()
		if c.stopped {
			s.signal(syscall.SIGTSTP)
			waitForStates(s, "TTT")
		}
		var pids []int
		for pid, killed := range map[int]bool{s.cmd.Process.Pid: c.launcher, keeper: c.keeper, s.guardian(): c.guardian} {
			if killed {
				pids = append(pids, pid)
			}
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		s.gone()
		if !c.launcher {
			s.check(1, "gorun: the guardian process was killed, and all ranks with it")
		}
	}
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
		if p, ok := proc.Read(s.cmd.Process.Pid, make([]byte, 1024)); ok && p.State == 'T' {
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

// TestHeadlineWhileNobodyReads: who failed is said at once, and not only when standard
// output is read.
func TestHeadlineWhileNobodyReads(t *testing.T) {
	t.Parallel()
	out, blocked, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, mark: "headline-" + time.Now().String()}
	file := filepath.Join(t.TempDir(), "go")
	s.cmd = exec.Command("gorun", "-np", "2", "testrank", "0:lines=4000,100", "1:wait="+file, "1:exit=3")
	s.cmd.Env = append(os.Environ(), "GORUN_TEST_MARK="+s.mark)
	s.cmd.Stdout, s.cmd.Stderr = blocked, stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	blocked.Close()
	stderr.Close()
	waitUntilFull(t, int(out.Fd()))
	touch(t, file)
	_ = said.SetReadDeadline(time.Now().Add(patienceOfTests))
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "rank 1 on ") || !strings.Contains(line, "failed: exit code 3") {
		t.Errorf("gorun said %q, %v", line, err)
	}
	if text, err := io.ReadAll(out); len(text) < 1<<16 || err != nil { // what gorun's own pipe holds, at least
		t.Errorf("standard output has %d bytes, %v", len(text), err)
	}
	s.check(3)
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
	out, err := exec.Command("unshare", "--mount", "sh", "-c",
		`mount -t tmpfs -o noexec none "$0" && cp /bin/true "$0" && gorun -np 1 "$0/true"; echo $?`, t.TempDir()).CombinedOutput()
	if want := "/true: the file system that it lies on is mounted noexec; put it on another\n126\n"; err != nil ||
		!bytes.HasSuffix(out, []byte(want)) {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// TestNoProc: gorun says what is missing, which the kernel's error does not.
func TestNoProc(t *testing.T) {
	t.Parallel()
	testenv.NeedNamespaces(t, "--mount")
	out, err := exec.Command("unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc && gorun -np 1 testrank").CombinedOutput()
	// the race detector warns before
	if want := "gorun: there is no /proc/meminfo; mount /proc\n"; err == nil ||
		!bytes.HasSuffix(out, []byte(want)) {
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
