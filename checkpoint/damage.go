package checkpoint

import (
	"errors"
	"slices"
	"syscall"
)

// A damageError says that a checkpoint is not as it was written, so that another may
// have to do. An error of this process alone, such as a missing permission, is no damage.
type damageError struct{ error }

func (e *damageError) Unwrap() error { return e.error }

func isDamage(err error) bool {
	_, ok := errors.AsType[*damageError](err)
	return ok
}

// asDamage makes a damageError of an error of reading a checkpoint, if it is one: what
// this package finds wrong, and of the system's errors those of a file that is not
// there, is no file or cannot be read.
func asDamage(err error) error {
	if err == nil || isDamage(err) {
		return err
	}
	no, ok := errors.AsType[syscall.Errno](err)
	if ok && !slices.Contains([]syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.EIO}, no) {
		return err
	}
	return &damageError{err}
}
