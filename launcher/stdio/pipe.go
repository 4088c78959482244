//go:build linux

package stdio

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/exit"
)

// Pipe makes a pipe. Its read end, from, does not block and can be polled. Its write end blocks,
// as a child expects.
func Pipe(name string) (from *os.File, end int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, NoPipe(err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		return nil, 0, NoPipe(err)
	}
	return os.NewFile(uintptr(p[0]), name), p[1], nil
}

// NoPipe is the error of a pipe that could not be opened.
func NoPipe(err error) error { return exit.Remedied(fmt.Errorf("opening a pipe: %w", err)) }
