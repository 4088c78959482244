package checkpoint

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A fileSystem is what checkpoints need of one. The operating system's is osFS;
// tests have another that crashes. What was written survives a crash after Sync,
// and what was created, renamed or removed in a folder after SyncDir.
type fileSystem interface {
	// Create makes an empty file, or empties one.
	Create(name string) (file, error)
	// Open opens a file to read. If name is a symbolic link that is an error, but
	// with follow.
	Open(name string, follow bool) (file, error)
	// Mkdir makes a folder and those above it; to make one again is no error.
	Mkdir(name string) error
	// List returns the names in a folder, sorted.
	List(dir string) ([]string, error)
	// Rename gives a file or folder another name in the same folder.
	Rename(from, to string) error
	// Remove removes a file, or a folder with all that is in it.
	Remove(name string) error
	// Lock makes a file if needed and locks it until this process ends, errLocked if
	// another process has it. A file system without locks is no error.
	Lock(name string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
}

// A file is an open file.
type file interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Size() (bytes int, err error)
	Sync() error
}

// osFS is the file system of the operating system. New files have the modes that
// the user's umask leaves.
type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (bytes int, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s: it is no file but %s", f.Name(), info.Mode())
	}
	return int(info.Size()), nil
}

func (osFS) Create(name string) (file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC|noFollow, 0o666)
	if err != nil {
		return nil, link(err)
	}
	return osFile{f}, nil
}

func (osFS) Open(name string, follow bool) (file, error) {
	flags := os.O_RDONLY | nonBlock // not to wait for the other end of a pipe
	if !follow {
		flags |= noFollow
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, link(err)
	}
	return osFile{f}, nil
}

// link says what ELOOP means where links are not followed.
func link(err error) error {
	if errors.Is(err, syscall.ELOOP) {
		return fmt.Errorf("%w: it is a symbolic link; the files of a checkpoint lie in its folder", err)
	}
	return err
}

// wantFolder says what to do about the error of making a file in a folder that does not exist.
func wantFolder(err error, name string) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("%w: make the folder %s before", err, filepath.Dir(name))
	}
	return err
}

func (osFS) Mkdir(name string) error { return os.MkdirAll(name, 0o777) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.RemoveAll(name) }

func (osFS) SyncDir(dir string) error {
	if !syncsFolders {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil // a file system that has no such thing, as some network ones
	}
	return err
}

// publish writes a file so that a crash leaves it whole or not there: under
// another name first, made durable, then renamed.
func publish(fs fileSystem, name string, write func(f file) error) error {
	f, err := fs.Create(name + temporary)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = fs.Rename(name+temporary, name)
	}
	if err != nil {
		_ = fs.Remove(name + temporary) // err is the one to tell
		return err
	}
	return fs.SyncDir(filepath.Dir(name))
}
