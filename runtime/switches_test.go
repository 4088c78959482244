package runtime

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

// A variable that docs/environment.md says is 0 or 1 is one of switches, and gets a warning for anything else; others are not.
func TestSwitchesAreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	page, _, _ = bytes.Cut(page, []byte("## For tests"))
	found := 0
	for _, m := range regexp.MustCompile("(?m)^\\| `(GORUN_\\w+)` \\| ([^|]+) \\|").FindAllStringSubmatch(string(page), -1) {
		name, isSwitch := m[1], strings.Trim(m[2], "`01, ") == ""
		t.Setenv(name, "true")
		var out bytes.Buffer
		r := new(rank)
		r.log = newLogger(&out, r, func(string) string { return "" })
		r.checkSwitches()
		if warned := strings.Contains(out.String(), name+"=true has no effect; give 0 or 1"); warned != isSwitch {
			t.Errorf("%s, of the values %s: %q", name, m[2], &out)
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
