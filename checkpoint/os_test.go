//go:build unix

package checkpoint

import (
	iofs "io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
)

// On the real file system: saving, pruning, resuming, and the modes that the
// user's umask leaves.
func TestOperatingSystem(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	root := filepath.Join(t.TempDir(), "a", "b")
	for step := 1; step <= 3; step++ {
		save(t, osFS{}, root, settings()[6], step, tensor.Float32, Options{Keep: 2})
	}
	all, err := List(root)
	if err != nil || len(all) != 2 || all[0].Step != 2 || all[1].Step != 3 {
		t.Fatalf("%v %v", all, err)
	}
	e, ok, err := Latest(root)
	if err != nil || !ok || e.Dir != filepath.Join(root, "step-000003") {
		t.Fatalf("%v %v %v", e, ok, err)
	}
	if err := Verify(e.Dir); err != nil {
		t.Error(err)
	}
	resume(t, osFS{}, root, settings()[3], 3, tensor.Float64)
	err = filepath.WalkDir(root, func(path string, d iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o640)
		if d.IsDir() {
			want = 0o750
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// mkfifo makes a pipe with a name.
func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }
