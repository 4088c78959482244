package launcher

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// TestSignalBeforeTheStart sends the ranks a signal when only the first is there.
func TestSignalBeforeTheStart(t *testing.T) {
	t.Parallel()
	g := &guardian{out: newConn(io.Discard), rankOf: map[int]int{}, pids: make([]int, 2)}
	g.spec.Apps = []app{{Path: "/bin/sleep", Argv: []string{"sleep", "100"}}}
	g.spec.Ranks = make([]rank, 2)
	g.start(0)
	g.signal(command{Action: signalGroups, Signal: syscall.SIGTERM})
	g.start(1)
	for r, pid := range g.pids {
		late := time.AfterFunc(patienceOfTests, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.Signal() != syscall.SIGTERM {
			t.Errorf("rank %d ended with %v, %v; want SIGTERM", r, status.Signal(), err)
		}
		late.Stop()
	}
}

// TestTemporaryFolders are made by the guardian, which outlives a launcher that is
// killed, and only where nothing is.
func TestTemporaryFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, err := freeName(dir, "a-")
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("a name that is free is of %v, %v", left, err)
	}
	file := filepath.Join(name, "hosts")
	for _, again := range []bool{false, true} {
		made, err := (&spec{Temp: []string{name}, Files: []hosts.File{{Path: file, Text: "a b"}}}).makeTemp()
		if again != errors.Is(err, fs.ErrExist) || again != (len(made) == 0) {
			t.Errorf("again %v: made %v, %v", again, made, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "a b" {
		t.Errorf("%q, %v", text, err)
	}
}
