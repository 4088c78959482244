//go:build unix

package checkpoint

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Flags of open(2).
const (
	noFollow = syscall.O_NOFOLLOW
	nonBlock = syscall.O_NONBLOCK
)

// syncsFolders says that a folder can be synced.
const syncsFolders = true

// Lock takes the lock of tryLock. The descriptor is left to the kernel, which closes it and
// releases the lock when the process ends, however that happens.
func (osFS) Lock(name string) error {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return link(&os.PathError{Op: "lock", Path: name, Err: err})
	}
	switch locked, err := tryLock(fd); {
	case locked:
		unix.Close(fd)
		return errLocked
	case err != nil: // ENOLCK, ENOSYS, ENOTSUP, EINVAL: there are no locks
		return unix.Close(fd)
	}
	return nil
}
