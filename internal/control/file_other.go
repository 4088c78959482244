//go:build !linux

package control

import (
	"errors"
	"os"
	"time"
	"unsafe"
)

// errNotLinux is the error of the functions that make or map memory that processes share.
var errNotLinux = errors.New("ranks that are processes share anonymous files, which Linux has; here ranks are goroutines of one process")

func memfd(string, int) (*os.File, error) { return nil, errNotLinux }

func checkSize(*os.File, int) error { return errNotLinux }

func mapFile(*os.File, int) (unsafe.Pointer, error) { return nil, errNotLinux }

func mapArenas(*os.File, int) (unsafe.Pointer, error) { return nil, errNotLinux }

func mapForReading(*os.File, int) (unsafe.Pointer, error) { return nil, errNotLinux }

// unmap leaves the memory of zeroes to the garbage collector.
func unmap(unsafe.Pointer, int) error { return nil }

func zeroes(bytes int) (unsafe.Pointer, error) {
	return unsafe.Pointer(unsafe.SliceData(make([]uint64, (bytes+7)/8))), nil
}

func addressLimit() uint64 { return addressBytes }

func addressSpace(uint64, int) (int, error) { return 0, errNotLinux }

var processStart = time.Now()

// Clock returns the time in nanoseconds since this process started, by a clock that nobody
// sets.
func Clock() int64 { return int64(time.Since(processStart)) }
