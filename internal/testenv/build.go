package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build puts the programs of packages, which are given by their folders, into a folder. Env is added to the environment
// of the go command. A program is linked once for all tests, also those of other packages, until its sources change:
// linking takes longer than what most tests do with it. The test runs again when a source changes, see DependsOn.
func Build(t testing.TB, folder string, env []string, packages ...string) {
	t.Helper()
	DependsOn(t, packages...)
	at, release := shared(t, env)
	defer release()
	if at == "" {
		at = folder
	}
	build := exec.Command("go", append([]string{"build", "-o", at + string(filepath.Separator)}, packages...)...)
	// What the go command has linked it moves, and what lies on another disk it copies: a copy that is cut off would stay.
	build.Env = append(append(os.Environ(), "GOTMPDIR="+at), env...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	if at == folder {
		return
	}
	var programs []string
	for _, dir := range packages {
		full, err := filepath.Abs(dir)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, filepath.Join(at, filepath.Base(full)))
	}
	// By another process: a child that is forked while this one writes a file cannot be kept from having it open for a
	// moment, and a file that somebody writes cannot be run.
	if out, err := exec.Command("cp", append(programs, folder)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
