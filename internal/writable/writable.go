// Package writable tries files before hours of work whose result they are to get.
package writable

import (
	"os"
	"syscall"
)

// Check returns an error if the file path cannot be written. It changes nothing: it removes what it has made. A pipe that nobody
// reads is an error too.
func Check(path string) error {
	_, missing := os.Lstat(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil || missing == nil {
		return err
	}
	return os.Remove(path)
}
