package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A program is linked once for all who build it, and again when it is gone.
func TestBuild(t *testing.T) {
	hello := func() {
		t.Helper()
		folder := t.TempDir()
		Build(t, folder, []string{"GOFLAGS="}, "./testdata/hello")
		if out, err := exec.Command(filepath.Join(folder, "hello")).CombinedOutput(); err != nil || string(out) != "hello\n" {
			t.Errorf("%v: %s", err, out)
		}
	}
	hello()
	at, release := shared(t, []string{"GOFLAGS="})
	release()
	if at == "" {
		return // each test has its own
	}
	linked := func() os.FileInfo {
		t.Helper()
		info, err := os.Stat(filepath.Join(at, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := linked()
	if hello(); !os.SameFile(before, linked()) {
		t.Error("it was linked two times")
	}
	if err := os.Remove(filepath.Join(at, "hello")); err != nil {
		t.Fatal(err)
	}
	hello()
}
