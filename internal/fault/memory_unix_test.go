//go:build unix

package fault

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReads(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := 2 * os.Getpagesize()
	if err := f.Truncate(int64(size / 2)); err != nil {
		t.Fatal(err)
	}
	mapped, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mapped) }()
	got := make([]byte, 64)
	if !Reads(func() { copy(got, mapped) }) {
		t.Error("what the file has could not be read")
	}
	if Reads(func() { copy(got, mapped[size/2:]) }) {
		t.Error("what is beyond the file could be read")
	}
	defer func() {
		if recover() == nil {
			t.Error("a bug did not panic")
		}
	}()
	Reads(func() { *(*int)(nil) = 1 })
}
