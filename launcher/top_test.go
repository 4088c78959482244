package launcher

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTopTable(t *testing.T) {
	views := []rankView{
		{rank: 0, pid: 10, state: "runs", step: 7, calls: 12, bytes: 1 << 20, rate: 3 << 19, memory: 3 << 29, cpu: 0.5},
		{rank: 1, pid: 11, state: "waits for 0", call: "Barrier", at: "main.go:3", waited: 1234 * time.Millisecond, step: -1, memory: 5 << 29},
		{rank: 2, state: "ended", step: -1, calls: 3},
	}
	got := strings.Join(topTable(views), "\n")
	want := `RANK  PID  STATE        CPU  MEMORY   STEP  CALLS  BYTES    RATE       IN       FOR   AT
0     10   runs         50%  1.5 GiB  7     12     1.0 MiB  1.5 MiB/s
1     11   waits for 0  0%   2.5 GiB        0                          Barrier  1.2s  main.go:3
2          ended                            3`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for key, want := range map[byte][]int{'r': {0, 1, 2}, 'c': {0, 1, 2}, 'm': {1, 0, 2}, 'w': {1, 0, 2}} {
		sorted := slices.Clone(views)
		sortViews(sorted, key)
		var order []int
		for _, v := range sorted {
			order = append(order, v.rank)
		}
		if !slices.Equal(order, want) {
			t.Errorf("%c: %v, want %v", key, order, want)
		}
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int]string{0: "0 B", 999: "999 B", 1000: "1.0 KiB", 1536: "1.5 KiB", 10 << 10: "10 KiB", 1023 << 10: "1.0 MiB", 5 << 40: "5.0 TiB"} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d) = %s, want %s", bytes, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	own := os.Getpid()
	for _, c := range []struct {
		name    string
		running []int
		want    int
		err     string
	}{
		{"", []int{own}, own, ""},
		{"77", nil, 77, ""},
		{"", nil, 0, "no job of yours runs on this machine whose ranks gorun has started itself"},
		{"", []int{own, 1}, 0, fmt.Sprintf("several jobs run; name one:\n  %d  ", own)},
		{"x", []int{own}, 0, `"x" is not the process id of a gorun`},
		{"-1", nil, 0, "is not"},
	} {
		j, err := choose(c.name, c.running)
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q of %v: %v, want %q", c.name, c.running, err, c.err)
			}
		} else if err != nil || j.launcher != c.want {
			t.Errorf("%q of %v: %v, %v", c.name, c.running, j, err)
		}
	}
}

func TestTopOfAJob(t *testing.T) {
	t.Parallel()
	s := start(t, 3, "-np", "3", "testrank", "ready", "1:kill=19", "sleep")
	for s.states()[1] != 'T' {
		time.Sleep(time.Millisecond)
	}
	job := fmt.Sprint(s.cmd.Process.Pid)
	out, err := exec.Command("gorun", "top", job).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	if want := fmt.Sprintf("job %s: 3 ranks, gorun -np 3 testrank ready", job); len(lines) != 6 || !strings.HasPrefix(lines[0], want) {
		t.Errorf("got\n%s\nwant 5 lines, the first %q", out, want)
	}
	for r, state := range []string{"starting", "stopped", "starting"} {
		if want := fmt.Sprintf("%d     %-*d  %s", r, len(fmt.Sprint(s.ready[r])), s.ready[r], state); !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, not := range []string{fmt.Sprint(os.Getppid()), "1000000000"} {
		if out, err := exec.Command("gorun", "top", not).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("runs no job of gorun")) {
			t.Errorf("top of process %s: %v: %s", not, err, out)
		}
	}
	show := onScreen(t, "top", job)
	show.expect("\x1b[?1049h")
	show.expect("stopped")
	show.keyIn("m")
	show.keyIn("q")
	show.exit(0)
	show.expect("\x1b[?1049l")

	show = onScreen(t, "top", job)
	show.expect("stopped")
	_ = s.cmd.Process.Kill()
	s.gone()
	show.exit(0)
	show.expect("job " + job + " has ended")
}

// TestTopOfAJobWithinAJob: what a script that is a rank starts has the outer job's
// descriptors beside its own.
func TestTopOfAJobWithinAJob(t *testing.T) {
	t.Parallel()
	s := start(t, 2, "-np", "1", "sh", "-c", "gorun -np 2 testrank ready sleep; exit 3")
	guardian, _ := readProcess(s.guardian(), make([]byte, 1024))
	out, err := exec.Command("gorun", "top", "-once", fmt.Sprint(guardian.parent)).CombinedOutput()
	if want := fmt.Sprintf("job %d: 2 ranks, gorun -np 2 testrank ready", guardian.parent); err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%v: got\n%s\nwant %q", err, out, want)
	}
	if found := jobs(); !slices.Contains(found, guardian.parent) || !slices.Contains(found, s.cmd.Process.Pid) {
		t.Errorf("jobs %v, want %d and %d among them", found, s.cmd.Process.Pid, guardian.parent)
	}
}

func TestTopHelps(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("gorun", "top", "-h").Output()
	if err != nil || !strings.HasPrefix(string(out), "usage: gorun top") {
		t.Errorf("%v: %s", err, out)
	}
	for args, says := range map[string]string{
		"-x":        "gorun top: flag provided but not defined: -x\nusage: gorun top",
		"-once 1 2": "gorun top: \"2\" is one argument too many\nusage: gorun top",
	} {
		cmd := exec.Command("gorun", append([]string{"top"}, strings.Fields(args)...)...)
		said, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.HasPrefix(string(said), says) {
			t.Errorf("gorun top %s: status %d: %s", args, cmd.ProcessState.ExitCode(), said)
		}
	}
}
