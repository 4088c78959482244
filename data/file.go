package data

import (
	"fmt"
	"os"
)

// A file holds the bytes of a file, which must not be changed while it is open. If the system maps
// files, the ranks of a host share the memory.
type file struct {
	bytes []byte
	unmap func() error
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
		return file{unmap: func() error { return nil }}, nil
	}
	return mapFile(f, int(info.Size()))
}

// Close gives the file's memory back. Slices of it must not be used afterwards.
func (f *file) Close() error {
	unmap := f.unmap
	if f.bytes, f.unmap = nil, nil; unmap == nil {
		return nil
	}
	return unmap()
}
