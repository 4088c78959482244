//go:build linux

package stdio

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/terminal"
)

// readSize is how many bytes of standard input are passed on at once.
const readSize = 64 << 10

// A Relay copies gorun's standard input to ranks. It is needed where a rank
// cannot have the descriptor itself: if the input is a terminal, because ranks are not in its
// foreground process group, and if several ranks read it.
type Relay struct {
	from *os.File
	to   []*os.File       // write ends of pipes
	of   map[int]*os.File // the same, by rank
}

// Add makes the pipe of a rank and returns its read end.
func (r *Relay) Add(rank int) (end int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, NoPipe(err)
	}
	if err := unix.SetNonblock(p[1], true); err != nil { // so that leave can interrupt a write
		return 0, NoPipe(err)
	}
	f := os.NewFile(uintptr(p[1]), "stdin")
	r.to = append(r.to, f)
	r.of[rank] = f
	return p[0], nil
}

// Leave says that a rank has ended. Run then writes no more to its pipe, which a process that
// the rank started may hold and never read.
func (r *Relay) Leave(rank int) {
	if r != nil && r.of[rank] != nil {
		_ = r.of[rank].SetWriteDeadline(time.Unix(1, 0))
	}
}

// NewRelay makes a relay that has no ranks yet.
func NewRelay() *Relay { return &Relay{from: os.Stdin, of: map[int]*os.File{}} }

// Run copies until the end of input, then closes. A rank that has closed its
// standard input or ended is left out from then on. Every rank gets every byte, so
// one that does not read holds the others back.
func (r *Relay) Run() {
	defer func() {
		for _, f := range r.to {
			f.Close()
		}
	}()
	in := foreground{r.from, terminal.IsTerminal(r.from)}
	buf := make([]byte, readSize)
	for len(r.to) > 0 {
		n, err := in.Read(buf)
		r.to = slices.DeleteFunc(r.to, func(f *os.File) bool {
			_, err := f.Write(buf[:n])
			if err != nil {
				f.Close()
			}
			return err != nil
		})
		if err != nil {
			return
		}
	}
}

// A foreground reads a terminal only while this process is in its foreground: in
// the background a read would stop gorun, although no rank may want the input.
type foreground struct {
	file     *os.File
	terminal bool
}

func (f foreground) Read(buf []byte) (int, error) {
	if f.terminal {
		f.wait()
	}
	n, err := f.file.Read(buf)
	for errors.Is(err, unix.EAGAIN) { // another process that shares it has made it non-blocking
		untilReady(f.file, unix.POLLIN)
		n, err = f.file.Read(buf)
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// wait returns once there is input and this process is in the foreground.
func (f foreground) wait() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	fd := int(f.file.Fd())
	for {
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		if err != nil {
			return
		}
		if group == unix.Getpgrp() {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(ready, -1); n > 0 || err != nil && err != unix.EINTR {
				if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group == unix.Getpgrp() {
					return
				}
			}
			continue
		}
		select {
		case <-resumed:
		case <-time.After(time.Second):
		}
	}
}
