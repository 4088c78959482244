package checkpoint

import (
	"errors"

	"golang.org/x/sys/unix"
)

// tryLock takes a lock of the file and not of the process, which fcntl(2) calls open
// file description locks: closing another descriptor of the same file leaves it alone.
// NFS has them too, and tells its other clients. locked says that another process has it.
func tryLock(fd int) (locked bool, err error) {
	err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES), err
}
