//go:build linux

package runtime

import (
	"bufio"
	"fmt"
	"os/exec"
	"regexp"
	"testing"
	"time"
)

// TestTopOfAProgram has rank 1 wait in a barrier for rank 0, which is at step 42.
func TestTopOfAProgram(t *testing.T) {
	topShows(t, "watched", `(?m)^0 +\d+ +runs +\d+% +\d+% +[\d.]+ .iB +42 +1 +4\.0 KiB +0 B/s$[\s\S]*`+
		`^1 +\d+ +waits for 0 +\d+% +\d+% +[\d.]+ .iB +2 +4\.0 KiB +0 B/s +Barrier +\S+s +runtime/main_test\.go:\d+$`)
}

// TestTopSeesBytesMove of a program that does nothing for it.
func TestTopSeesBytesMove(t *testing.T) {
	topShows(t, "streams", `(?m)^0 +\d+ +\S.* +\d+% +[\d.]+ .iB +\d+ +[\d.]+ .iB +[\d.]+ [KMG]iB/s`)
}

// topShows starts a program and waits until gorun top prints what matches want.
func topShows(t *testing.T, program, want string) {
	t.Helper()
	t.Parallel()
	gorun := exec.Command("gorun", "-np", "2", "rankprogram", program)
	out, err := gorun.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gorun.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gorun.Process.Kill(); _ = gorun.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	form := regexp.MustCompile(want)
	var got []byte
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		got, err = exec.Command("gorun", "top", "-once", fmt.Sprint(gorun.Process.Pid)).CombinedOutput()
		if err == nil && form.Match(got) {
			return
		}
	}
	t.Errorf("gorun top: %v:\n%s\nwant %s", err, got, want)
}
