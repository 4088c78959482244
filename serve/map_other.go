//go:build !unix

package serve

import (
	"io"
	"os"
	"unsafe"
)

// mapFile reads a file into memory: this system does not map it.
func mapFile(f *os.File, size int) ([]byte, error) {
	b := make([]uint64, (size+7)/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), size) // aligned for numbers
	_, err := io.ReadFull(f, memory)
	return memory, err
}

func unmapFile([]byte) {}

// syncDir does nothing: this system cannot make a directory durable.
func syncDir(string) error { return nil }
