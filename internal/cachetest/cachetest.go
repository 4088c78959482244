// Package cachetest is for tests that have the go command build programs. Of these
// go test does not know, and would show an old result when only they have changed.
package cachetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Uses has go test run this test again whenever a file changes beside the sources of
// the packages, or of those that they import: it looks at their folders, and go test
// takes note of what a test looks at within the module.
func Uses(t testing.TB, packages ...string) {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", "--"}, packages...)...).Output()
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
