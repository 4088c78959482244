//go:build unix

package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// shared returns the folder of the programs that are built with such an environment. No other process looks at it
// until release is called.
func shared(t testing.TB, env []string) (folder string, release func()) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	folder = filepath.Join(cache, "gorun", strings.Join(append([]string{"tests"}, env...), ","))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	release, err = Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	return folder, release
}

// Lock waits until no other process has locked the folder, and locks it until release is called or the process ends.
func Lock(folder string) (release func(), err error) {
	lock, err := os.OpenFile(filepath.Join(folder, ".lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	return func() { _ = lock.Close() }, err
}
