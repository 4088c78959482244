package testenv

import (
	"fmt"
	"testing"
)

// A witness is a test that records how it was ended.
type witness struct {
	testing.TB
	said string
}

func (*witness) Helper() {}

func (w *witness) Skipf(format string, args ...any) {
	w.said += "skipped: " + fmt.Sprintf(format, args...)
}

func (w *witness) Fatalf(format string, args ...any) {
	w.said += "failed: " + fmt.Sprintf(format, args...)
}

func TestMissing(t *testing.T) {
	const why = `exec: "no-such-program": executable file not found in $PATH; make deps installs it`
	for _, c := range []struct{ ci, want string }{{"", "skipped: " + why}, {"true", "failed: " + why}} {
		t.Setenv("CI", c.ci)
		w := &witness{TB: t}
		NeedPrograms(w, "go", "no-such-program")
		if w.said != c.want {
			t.Errorf("CI=%q: %q, want %q", c.ci, w.said, c.want)
		}
	}
}
