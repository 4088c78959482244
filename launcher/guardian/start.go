//go:build linux

package guardian

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/proc"
)

// A Process is the launcher's end of the guardian.
type Process struct {
	keeper int // the process id of the keeper
	conn   *conn
	Events chan Event // from the guardian; closed when the guardian and its keeper are gone
	Since  uint64     // the keeper's start, in clock ticks since boot; set when Events is closed
}

// Start starts the keeper, which starts the guardian, and hands the guardian the spec. files are
// the guardian's descriptors, by number. Start sets number 3, the socket.
func Start(files []uintptr, s *Spec) (*Process, error) {
	g, err := start(files, s)
	return g, exit.Remedied(err)
}

func start(files []uintptr, s *Spec) (*Process, error) {
	if self, err := os.Readlink("/proc/self"); err == nil && self != strconv.Itoa(os.Getpid()) {
		return nil, fmt.Errorf("starting the guardian process: this is process %d, and to /proc, where it looks for what the ranks start, "+
			"process %s; mount the /proc of this namespace (unshare --mount-proc)",
			os.Getpid(), self)
	}
	if err := proc.BecomeSubreaper(); err != nil {
		return nil, fmt.Errorf("prctl: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	files[socketFD] = uintptr(pair[1])
	pid, err := startProcess(files, keeper, strconv.Itoa(len(files)))
	unix.Close(pair[1])
	if err != nil {
		unix.Close(pair[0])
		if errors.Is(err, unix.ENOENT) {
			return nil, errors.New("starting the guardian process: there is no /proc/self/exe; mount /proc")
		}
		return nil, fmt.Errorf("starting the guardian process: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true)
	socket := os.NewFile(uintptr(pair[0]), "guardian")
	g := &Process{keeper: pid, conn: newConn(socket), Events: make(chan Event, 16)}
	go g.listen(socket)
	// An error means that it is gone already; listen will find out.
	_ = g.conn.send(s)
	return g, nil
}

// Send gives the guardian a command. An error means that the guardian is gone.
func (g *Process) Send(c Command) error { return g.conn.send(c) }

// listen passes on events until the guardian is gone.
func (g *Process) listen(socket *os.File) {
	defer close(g.Events)
	in := gob.NewDecoder(socket)
	for {
		var e Event
		if in.Decode(&e) != nil {
			break
		}
		g.Events <- e
		if e.Kind == AllGone {
			break
		}
	}
	if p, ok := proc.Read(g.keeper, make([]byte, 1024)); ok {
		g.Since = p.Start
	}
	_, _ = syscall.Wait4(g.keeper, nil, 0, nil)
}

// sweepTime is how long Sweep tries.
const sweepTime = 10 * time.Second

// Sweep kills the processes that a killed guardian and its keeper have left. The ranks die with
// the guardian, and the processes that they started become children of this one. It spares
// children that started before since.
func Sweep(since uint64) {
	for end := time.Now().Add(sweepTime); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
		if proc.KillChildren(since) == 0 {
			return
		}
	}
}
