//go:build linux

package depot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// processName is the argv[0] of a depot that is a process of its own.
const processName = "gorun-depot"

// hold is the argument of the process that stays.
const hold = "hold"

// ready is what a depot prints when it serves; else it prints an error.
const ready = "ready\n"

// The words on a tether. taken says that the tether, or the word before, has come. toEnd asks that the attempts before the
// one whose number follows be ended; the depot answers with the same word when they have ended.
const (
	taken = 't'
	toEnd = 'e'
)

// Main is the main function of such a process; ok is false if args, the command line of this
// process, is not its. A first process starts the one that stays, and ends, so that it is not a
// child of the rank; nor does it have a descriptor of the rank's, such as one by whose closing
// the launcher sees that the rank has ended.
func Main(args []string) (status int, ok bool) {
	if len(args) == 0 || filepath.Base(args[0]) != processName {
		return 0, false
	}
	run := leave
	if len(args) == 2 && args[1] == hold {
		run = stay
	}
	if err := run(); err != nil {
		fmt.Println(err)
		return 1, true
	}
	return 0, true
}

// leave starts the process that stays.
func leave() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("depot: %w; mount /proc", err)
	}
	for _, it := range open {
		if fd, err := strconv.Atoi(it.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("depot: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("depot: %w", err)
	}
	_, err = syscall.ForkExec(self, []string{processName, hold}, &syscall.ProcAttr{Dir: "/", Env: os.Environ(),
		Files: []uintptr{null.Fd(), 1, null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("depot: %s: %w", self, err)
	}
	return nil
}

// stay serves this host until gorun is gone.
func stay() error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP, unix.SIGPIPE)
	go func() {
		for range hangups { // there is nobody to hang up
		}
	}()
	c, err := ParseContract(os.Getenv(Var))
	if err != nil {
		return err
	}
	d, err := open(c.ID, c.Secret, nil)
	if errors.Is(err, errTaken) {
		return answered()
	}
	if err != nil {
		return err
	}
	defer d.close()
	tether, err := dial(c.Addresses, c.Port, c.Secret, forTether, c.Attempt)
	if err != nil {
		return fmt.Errorf("the depot for snapshots on %s cannot reach gorun: %w; a firewall between hosts may forbid it", d.info.Host, err)
	}
	defer tether.Close()
	text, err := json.Marshal(d.info)
	if err == nil {
		_, err = tether.Write(text)
	}
	if err == nil {
		_, err = io.ReadFull(tether, make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("depot: gorun does not answer: %w", err)
	}
	if err := answered(); err != nil {
		return err
	}
	obey(d, tether)
	return d.end(math.MaxInt) // the job is over
}

// answered says that this host has a depot, and leaves standard output.
func answered() error {
	if _, err := os.Stdout.WriteString(ready); err != nil {
		return err
	}
	return unix.Dup3(0, 1, 0)
}

// obey does what gorun asks until it is gone.
func obey(d *depot, tether net.Conn) {
	word := make([]byte, 1+4)
	for {
		if _, err := io.ReadFull(tether, word); err != nil {
			return
		}
		if word[0] != toEnd {
			return
		}
		if _, err := tether.Write([]byte{taken}); err != nil {
			return
		}
		if d.end(int(binary.LittleEndian.Uint32(word[1:]))) != nil {
			return
		}
		if _, err := tether.Write(word[:1]); err != nil {
			return
		}
	}
}
