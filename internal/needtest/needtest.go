// Package needtest is for tests that need a part of the machine: a launcher, a
// compiler. Without it they are skipped, with a line that says what installs it;
// where CI=true all parts have to be there, and the test fails.
package needtest

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// Programs ends the test unless all programs are in PATH.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Missing(t, err)
		}
	}
}

// Namespaces skips the test, whatever CI is, unless unshare can make the namespaces that
// the flags name.
func Namespaces(t testing.TB, flags ...string) {
	t.Helper()
	if out, err := exec.Command("unshare", append(flags, "true")...).CombinedOutput(); err != nil {
		t.Skipf("needs namespaces: unshare: %v: %s", err, bytes.TrimSpace(out))
	}
}

// Children is for the TestMain of a test binary that starts itself as other programs.
func Children() {
	// Under the race detector each process would sleep a second before it ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	// A run of the tests that ignores hang-ups, under nohup, tests them as well.
	if strings.HasSuffix(os.Args[0], ".test") {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}

// Missing ends the test, which needs what is missing here.
func Missing(t testing.TB, what error) {
	t.Helper()
	end := t.Skipf
	if os.Getenv("CI") == "true" {
		end = t.Fatalf
	}
	end("%v; make deps installs it", what)
}
