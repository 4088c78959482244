//go:build linux

package guardian

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// patience is how long a test waits for an event before it fails.
const patience = 30 * time.Second

// TestSignalBeforeTheStart sends the ranks a signal when only the first is there.
func TestSignalBeforeTheStart(t *testing.T) {
	t.Parallel()
	goruntime.LockOSThread() // as work does: the ranks are killed when the thread that forked them ends
	defer goruntime.UnlockOSThread()
	g := &guardian{out: newConn(io.Discard), rankOf: map[int]int{}, pids: make([]int, 2)}
	g.spec.Apps = []App{{Path: "/bin/sleep", Argv: []string{"sleep", "100"}}}
	g.spec.Ranks = make([]Rank, 2)
	g.start(0)
	g.signal(Command{Action: SignalGroups, Signal: syscall.SIGTERM})
	g.start(1)
	for r, pid := range g.pids {
		late := time.AfterFunc(patience, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.Signal() != syscall.SIGTERM {
			t.Errorf("rank %d ended with %v, %v; want SIGTERM", r, status.Signal(), err)
		}
		late.Stop()
	}
}

// TestTemporaryFolders: the guardian, which outlives a launcher that is killed, makes temporary
// folders, and only under names that are free.
func TestTemporaryFolders(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "a")
	file := filepath.Join(name, "hosts")
	for _, again := range []bool{false, true} {
		made, err := (&Spec{Temp: []string{name}, Files: []hosts.File{{Path: file, Text: "a b"}}}).makeTemp()
		if again != errors.Is(err, fs.ErrExist) || again != (len(made) == 0) {
			t.Errorf("again %v: made %v, %v", again, made, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "a b" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestTimersOfACrowd: timers are exact unless there are more than crowdedCore ranks on a core.
func TestTimersOfACrowd(t *testing.T) {
	t.Parallel()
	slack := func(ranks, cores int) (ns uintptr) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			goruntime.LockOSThread() // the thread ends with the goroutine
			relaxTimers(ranks, cores)
			ns, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_GET_TIMERSLACK, 0, 0)
		}()
		<-done
		return ns
	}
	usual := slack(1, 1)
	if got := slack(2*crowdedCore, 2); got != usual {
		t.Errorf("%d ranks on 2 cores: slack of %d ns, want the usual %d", 2*crowdedCore, got, usual)
	}
	if got, want := slack(1024, 2), uintptr(512*turn); got != want {
		t.Errorf("1024 ranks on 2 cores: slack of %d ns, want %d", got, want)
	}
}
