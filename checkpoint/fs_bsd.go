//go:build unix && !linux

package checkpoint

import (
	"errors"

	"golang.org/x/sys/unix"
)

// tryLock takes flock(2)'s lock, which belongs to the descriptor. locked says that another
// process has it.
func tryLock(fd int) (locked bool, err error) {
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	return errors.Is(err, unix.EWOULDBLOCK), err
}
