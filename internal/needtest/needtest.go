// Package needtest is for tests that need a part of the machine: a launcher, a
// compiler. Without it they are skipped, with a line that says what installs it;
// where CI=true all parts have to be there, and the test fails.
package needtest

import (
	"bytes"
	"os"
	"os/exec"
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

// Missing ends the test, which needs what is missing here.
func Missing(t testing.TB, what error) {
	t.Helper()
	end := t.Skipf
	if os.Getenv("CI") == "true" {
		end = t.Fatalf
	}
	end("%v; make deps installs it", what)
}
