package launcher

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A guardianProcess is the launcher's end of the guardian.
type guardianProcess struct {
	pid    int
	conn   *conn
	events chan event // closed when the guardian is gone
	since  uint64     // its start, in clock ticks since boot; set when events is closed
}

// startGuardian starts the guardian and hands it the spec. files[guardianConn] is
// filled in.
func startGuardian(files []uintptr, s *spec) (*guardianProcess, error) {
	if self, err := os.Readlink("/proc/self"); err == nil && self != strconv.Itoa(os.Getpid()) {
		return nil, fmt.Errorf("starting the guardian process: this is process %d, and to /proc, where it looks for what the ranks start, process %s; mount the /proc of this namespace (unshare --mount-proc)",
			os.Getpid(), self)
	}
	if err := becomeSubreaper(); err != nil {
		return nil, fmt.Errorf("prctl: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, remedied(fmt.Errorf("socketpair: %w", err))
	}
	files[guardianConn] = uintptr(pair[1])
	pid, err := syscall.ForkExec("/proc/self/exe", []string{guardianName}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // signals of the terminal are the launcher's
	})
	unix.Close(pair[1])
	if err != nil {
		unix.Close(pair[0])
		if errors.Is(err, unix.ENOENT) {
			return nil, errors.New("starting the guardian process: there is no /proc/self/exe; mount /proc")
		}
		return nil, remedied(fmt.Errorf("starting the guardian process: %w", err))
	}
	_ = unix.SetNonblock(pair[0], true)
	socket := os.NewFile(uintptr(pair[0]), "guardian")
	g := &guardianProcess{pid: pid, conn: newConn(socket), events: make(chan event, 16)}
	go g.listen(socket)
	// An error means that it is gone already; listen will find out.
	_ = g.conn.send(s)
	return g, nil
}

// send gives the guardian a command.
func (g *guardianProcess) send(c command) error { return g.conn.send(c) }

// listen passes on events until the guardian is gone.
func (g *guardianProcess) listen(socket *os.File) {
	defer close(g.events)
	in := gob.NewDecoder(socket)
	for {
		var e event
		if in.Decode(&e) != nil {
			break
		}
		g.events <- e
		if e.Kind == allGone {
			break
		}
	}
	if p, ok := readProcess(g.pid, make([]byte, 1024)); ok {
		g.since = p.start
	}
	_, _ = syscall.Wait4(g.pid, nil, 0, nil)
}

// sweep kills what a killed guardian has left: the ranks die with it, what they
// started becomes ours.
func (g *guardianProcess) sweep() {
	for end := time.Now().Add(giveUp); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
		if killChildren(g.since) == 0 {
			return
		}
	}
}
