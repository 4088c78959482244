package launcher

import (
	"io"
	"syscall"
	"testing"
	"time"
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
