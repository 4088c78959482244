package serve_test

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-spmd/gorun/serve"
)

// A disk that is full stops Write and Update with an error that names the file, leaves nothing behind, and what was served before
// is served still; with room again both work. The limit of the size of a file stands for the disk.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "users.table")
	table := map[int64][]float32{5: {1, 2}, -9: {3, 4}}
	if err := serve.Write(path, 2, rows(table)); err != nil {
		t.Fatal(err)
	}
	live := open(t, path)
	larger := map[int64][]float32{}
	for key := range int64(5000) {
		larger[key] = []float32{float32(key), 1}
	}
	write := func() error { return serve.Write(path, 2, rows(larger)) }
	update := func() error {
		_, _, err := serve.Update(path, rows(larger))
		return err
	}
	for name, f := range map[string]func() error{"Write": write, "Update": update} {
		err := withLimit(t, 4096, f)
		if err == nil || !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), "serve: "+name+": "+path) {
			t.Errorf("%s on a full disk: %v", name, err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("%s on a full disk left %v, %v", name, files, err)
		}
		if changed, err := live.Reload(); changed || err != nil {
			t.Errorf("%s on a full disk changed what is served: %v", name, err)
		}
		if err := live.View(func(now *serve.Table) { same(t, now, table) }); err != nil {
			t.Error(err)
		}
	}
	for _, f := range []func() error{update, write} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if changed, err := live.Reload(); !changed || err != nil {
			t.Errorf("with room again: %v, %v", changed, err)
		}
		if err := live.View(func(now *serve.Table) { same(t, now, larger) }); err != nil {
			t.Error(err)
		}
	}
}

// withLimit calls f while no file can grow beyond some bytes.
func withLimit(t *testing.T, bytes uint64, f func() error) error {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	return f()
}
