package rowstore

import "io"

// Files is what stores need of a file system. Tests have one that fails.
type Files interface {
	// Create makes an empty file in a folder, which it makes if needed. The file has no name
	// then, so that it is gone when the process ends; path is what errors call it.
	Create(folder string) (f File, path string, err error)
}

// A File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
}

// osFiles is the file system of the operating system.
type osFiles struct{}
