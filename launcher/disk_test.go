//go:build linux

package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fullDisk returns a folder for --output in which the file of one rank has no room.
func fullDisk(t *testing.T, file string) string {
	t.Helper()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(dir, file)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDiskFull: the job goes on, what other ranks write is kept, and gorun fails.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := fullDisk(t, "rank.1")
	s := start(t, 0, "-np", "3", "--output", dir, "testrank", "lines=3000,100")
	s.check(1, "gorun: "+dir+"/rank.1: no space left on device; what the ranks write there is lost from here on")
	for _, name := range []string{"rank.0", "rank.2"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		want := strings.Repeat(strings.Repeat(name[5:], 100)+"\n", 3000)
		if err != nil || string(text) != want {
			t.Errorf("%s has %d bytes, %v, want %d", name, len(text), err, len(want))
		}
	}
}

// TestDiskFullAndARankFails: the rank's exit status comes first.
func TestDiskFullAndARankFails(t *testing.T) {
	t.Parallel()
	dir := fullDisk(t, "rank.0")
	wrote := filepath.Join(t.TempDir(), "wrote")
	s := start(t, 0, "-np", "2", "--grace", "1h", "--output", dir, "testrank", "lines=10,10", "0:touch="+wrote, "1:wait="+wrote, "1:exit=3",
		"sleep")
	s.check(3, "no space left on device", "rank 1 on ", "failed: exit code 3")
}

func TestStandardOutputIsFull(t *testing.T) {
	t.Parallel()
	s := startIn(t, 0, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec gorun "$@" >/dev/full`}, cmd.Args...)
	}, "-np", "2", "testrank", "lines=3000,100", "err=done")
	s.check(1, "gorun: standard output: no space left on device", "done\n")
}

func TestOutputThatCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	touch(t, file)
	start(t, 0, "-np", "2", "--output", file, "true").check(1, "gorun: --output: ", file, "not a directory")
}

// TestPagesOnAFullDisk: what gorun itself prints is not lost in silence either.
func TestPagesOnAFullDisk(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	for _, page := range []string{"-h", "--version", "help hosts", "doctor -json", "--dry-run true"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer full.Close()
			cmd := exec.Command("gorun", strings.Fields(page)...)
			var stderr strings.Builder
			cmd.Stdout, cmd.Stderr = full, &stderr
			_ = cmd.Run()
			if status := cmd.ProcessState.ExitCode(); status != 1 ||
				!strings.Contains(stderr.String(), "gorun: standard output: no space left on device") {
				t.Errorf("exit status %d, %q", status, stderr.String())
			}
		})
	}
}
