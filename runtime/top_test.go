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
	t.Parallel()
	gorun := exec.Command("gorun", "-np", "2", "rankprogram", "watched")
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
	want := regexp.MustCompile(`(?m)^0 +\d+ +runs +\d+% +[\d.]+ .iB +42 +1 +4\.0 KiB +0 B/s$[\s\S]*` +
		`^1 +\d+ +waits for 0 +\d+% +[\d.]+ .iB +2 +4\.0 KiB +0 B/s +Barrier +\S+s +runtime/main_test\.go:\d+$`)
	var got []byte
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		got, err = exec.Command("gorun", "top", "-once", fmt.Sprint(gorun.Process.Pid)).CombinedOutput()
		if err == nil && want.Match(got) {
			return
		}
	}
	t.Errorf("gorun top: %v:\n%s\nwant %s", err, got, want)
}
