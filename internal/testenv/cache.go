package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// DependsOn is for a test that builds the packages with the go command. Go test caches the
// results of tests and cannot know that such a test depends on these packages. DependsOn reads
// their folders and those of all packages that they import. Go test records this, and runs
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
