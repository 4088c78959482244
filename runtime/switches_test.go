package runtime

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/job"
)

// A variable that docs/environment.md says is 0 or 1 is one of switches, and gets a warning for anything else; others are not.
func TestSwitchesAreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	page, _, _ = bytes.Cut(page, []byte("## For tests"))
	found, removed := 0, append(job.Names(), job.TraceVar, job.ProfileVar) // by newRank, before
	for _, m := range regexp.MustCompile("(?m)^\\| `(GORUN_\\w+)` \\| ([^|]+) \\|").FindAllStringSubmatch(string(page), -1) {
		name, isSwitch := m[1], strings.Trim(m[2], "`01, ") == ""
		t.Setenv(name, "true")
		var out bytes.Buffer
		r := new(rank)
		r.log = newLogger(&out, r, func(string) string { return "" })
		r.checkVariables()
		if warned := strings.Contains(out.String(), name+"=true has no effect; give 0 or 1"); warned != isSwitch {
			t.Errorf("%s, of the values %s: %q", name, m[2], &out)
		}
		if strings.Contains(out.String(), name+" has no effect: gorun has no variable of this name") && !slices.Contains(removed, name) {
			t.Errorf("%s: %q", name, &out)
		}
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
		if isSwitch {
			found++
		}
	}
	if found != len(switches) {
		t.Errorf("the page has %d switches, this package %d", found, len(switches))
	}
}

// A variable that gorun does not know, such as a misspelt one, gets a warning; those of tests do not.
func TestMisspeltVariable(t *testing.T) {
	for _, name := range []string{"GORUN_SAMEBITS", "GORUN_TEST_ANY", "GORUN_FAKE_ANY", "MY_GORUN_ANY"} {
		t.Setenv(name, "1")
		var out bytes.Buffer
		r := new(rank)
		r.log = newLogger(&out, r, func(string) string { return "" })
		r.checkVariables()
		said := name + " has no effect: gorun has no variable of this name; see docs/environment.md"
		if warned := strings.Contains(out.String(), said); warned != (name == "GORUN_SAMEBITS") {
			t.Errorf("%s: %q", name, &out)
		}
	}
}
