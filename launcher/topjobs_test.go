//go:build linux

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

	"github.com/gorun-spmd/gorun/launcher/proc"
	"github.com/gorun-spmd/gorun/launcher/top"
)

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
	keeper, _ := proc.Read(s.keeper(), make([]byte, 1024))
	out, err := exec.Command("gorun", "top", "-once", fmt.Sprint(keeper.Parent)).CombinedOutput()
	if want := fmt.Sprintf("job %d: 2 ranks, gorun -np 2 testrank ready", keeper.Parent); err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%v: got\n%s\nwant %q", err, out, want)
	}
	if found := top.Jobs(); !slices.Contains(found, keeper.Parent) || !slices.Contains(found, s.cmd.Process.Pid) {
		t.Errorf("jobs %v, want %d and %d among them", found, s.cmd.Process.Pid, keeper.Parent)
	}
}

// TestElasticJobs: gorun scale does not ask for a name because a job runs that cannot be scaled.
func TestElasticJobs(t *testing.T) {
	t.Parallel()
	fixed := start(t, 1, "-np", "1", "testrank", "ready", "sleep")
	elastic := start(t, 1, "-np", "1", "--elastic", "restart", "testrank", "ready", "sleep")
	found := top.ElasticJobs()
	if !slices.Contains(found, elastic.cmd.Process.Pid) || slices.Contains(found, fixed.cmd.Process.Pid) {
		t.Errorf("elastic jobs %v, want %d and not %d", found, elastic.cmd.Process.Pid, fixed.cmd.Process.Pid)
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
