package data

import (
	"fmt"
	"os"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// A file holds the bytes of a file, which must not be changed while it is open. If the system maps
// files, the ranks of a host share the memory.
type file struct {
	path  string
	bytes []byte
	unmap func() error // nil once it is closed
}

func openFile(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return file{}, err
	case !info.Mode().IsRegular():
		return file{}, fmt.Errorf("%s is no regular file", path)
	case info.Size() == 0:
		return file{path: path, unmap: func() error { return nil }}, nil
	}
	mapped, err := mapFile(f, int(info.Size()))
	mapped.path = path
	return mapped, err
}

// want throws unless the file is open and has record i of n.
func (f *file) want(i, n int) {
	switch {
	case f.unmap == nil:
		fault.Throw(fmt.Errorf("data: At: %s is closed; read it before Close", f.path))
	case i < 0 || i >= n:
		fault.Throw(fmt.Errorf("data: At: %s has no record %d, but %d, counted from 0; stay below Len", f.path, i, n))
	}
}

// Close gives the file's memory back. Slices of it must not be used afterwards.
func (f *file) Close() error {
	unmap := f.unmap
	if f.bytes, f.unmap = nil, nil; unmap == nil {
		return nil
	}
	return unmap()
}
