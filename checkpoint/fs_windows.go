package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// os.OpenFile has no such flags here: a symbolic link is followed.
const (
	noFollow = 0
	nonBlock = 0
)

// syncsFolders says that a folder cannot be synced; the file system keeps its own log.
const syncsFolders = false

// Lock locks a byte far behind the file's end, since others may not read one that is
// locked. The system releases it when the process ends.
func (osFS) Lock(name string) error {
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return &os.PathError{Op: "lock", Path: name, Err: err}
	}
	handle, err := windows.CreateFile(path, windows.GENERIC_READ|windows.GENERIC_WRITE,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil, windows.OPEN_ALWAYS, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return &os.PathError{Op: "lock", Path: name, Err: err}
	}
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	switch err := windows.LockFileEx(handle, how, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30}); {
	case err == nil:
		return nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		_ = windows.CloseHandle(handle)
		return errLocked
	default: // there are no locks
		return windows.CloseHandle(handle)
	}
}
