package data

import (
	"fmt"
	"os"
)

// A file is the bytes of a file that is not changed while it is open. Ranks of a host share its
// memory where the system maps files.
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

// Close gives the file's memory back. What was read of it must not be used any more.
func (f *file) Close() error {
	unmap := f.unmap
	if f.bytes, f.unmap = nil, nil; unmap == nil {
		return nil
	}
	return unmap()
}
