package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// DependsOn is for a test that has the go command build the packages. Go test keeps the
// results of tests and cannot know what such a test depends on. DependsOn reads the
// folders of the packages and of all that they import. Go test records this, and runs
// the test again when a file in one of these folders changes.
func DependsOn(t testing.TB, packages ...string) {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", "--"},
		packages...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", packages, err)
	}
	for dir := range strings.Lines(string(out)) {
		if dir = strings.TrimSpace(dir); dir == "" {
			continue
		}
		if _, err := os.ReadDir(dir); err != nil {
			t.Fatal(err)
		}
	}
}
