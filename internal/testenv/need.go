package testenv

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// NeedPrograms ends the test unless all programs are in PATH.
func NeedPrograms(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Missing(t, err)
		}
	}
}

// NeedNamespaces skips the test unless unshare can make the namespaces that the flags
// name. It does so under CI=true as well: a container may forbid them.
func NeedNamespaces(t testing.TB, flags ...string) {
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

// Missing ends a test because of the error, which reports a missing program or library.
// The test is skipped with a line that tells how to install it. Under CI=true
// it fails, because CI installs everything.
func Missing(t testing.TB, err error) {
	t.Helper()
	end := t.Skipf
	if os.Getenv("CI") == "true" {
		end = t.Fatalf
	}
	end("%v; make deps installs it", err)
}
