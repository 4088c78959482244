//go:build linux

package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// ends makes the ends of ranks: a status below 0 is a signal; asked says that the
// rank was told to end before.
type endSpec struct {
	status int
	at     int // seconds after the start
	asked  bool
	text   string // what the rank said, and when
	said   int
}

const stillRuns = 1000

func ends(specs []endSpec) (ends []supervisor.End, started time.Time, said func(int) (string, time.Time)) {
	started = time.Unix(1e9, 0)
	for _, s := range specs {
		e := supervisor.End{Started: true, Asked: s.asked}
		if s.status != stillRuns {
			e.Ended, e.At, e.Status = true, started.Add(time.Duration(s.at)*time.Second), syscall.WaitStatus(s.status<<8)
			if s.status < 0 {
				e.Status = syscall.WaitStatus(-s.status)
			}
		}
		ends = append(ends, e)
	}
	return ends, started, func(r int) (string, time.Time) {
		return specs[r].text, started.Add(time.Duration(specs[r].said) * time.Second)
	}
}

func TestTheFirstFailureByTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		specs  []endSpec
		rank   int // -1: none
		status int
		others string
	}{
		{"nobody", []endSpec{{0, 1, false, "", 0}, {0, 2, false, "", 0}}, -1, 0, ""},
		{"one", []endSpec{{0, 1, false, "", 0}, {3, 2, false, "", 0}, {-15, 3, true, "", 0}}, 1, 3,
			"of the others, rank 2 ended with it; rank 0 had finished"},
		{"killed", []endSpec{{-9, 2, false, "", 0}}, 0, 137, ""},
		{"the earlier of two", []endSpec{{5, 4, false, "", 0}, {3, 2, false, "", 0}}, 1, 3, "of the others, rank 0 failed too"},
		{"who said so first, though it ended last", []endSpec{{1, 2, false, "after rank 1", 2}, {1, 9, false, "boom", 1}, {-9, 8, true, "", 0}},
			1, 1,
			"of the others, rank 2 ended with it; rank 0 failed too"},
		{"who said so first, though it was made to end", []endSpec{{1, 3, false, "", 0}, {143, 9, true, "boom", 1}}, 1, 1,
			"of the others, rank 0 failed too"},
		{"who said so first, and ended in its own way though asked", []endSpec{{1, 3, false, "", 0}, {2, 9, true, "panic", 1}}, 1, 2,
			"of the others, rank 0 failed too"},
		{"who was asked to end did not fail", []endSpec{{1, 3, true, "", 0}, {7, 2, false, "", 0}}, 1, 7, "of the others, rank 0 ended with it"},
		{"a time before the start is not believed", []endSpec{{1, 5, false, "liar", -100}, {7, 4, false, "", 0}}, 1, 7,
			"of the others, rank 0 failed too"},
		{"nor one after the end", []endSpec{{1, 5, false, "liar", 100}, {7, 6, false, "", 0}}, 0, 1, "of the others, rank 1 failed too"},
		{"a rank that cannot die", []endSpec{{stillRuns, 0, false, "", 0}, {7, 6, false, "", 0}}, 1, 7,
			"of the others, rank 0 did not end and had to be killed"},
		{"an error and a good end", []endSpec{{0, 5, false, "not meant", 1}, {7, 6, false, "", 0}}, 1, 7, "of the others, rank 0 had finished"},
	} {
		e, started, said := ends(c.specs)
		f, ok := first(e, started, said)
		if ok != (c.rank >= 0) {
			t.Errorf("%s: found %v", c.name, ok)
			continue
		}
		if !ok {
			continue
		}
		o := &supervisor.Outcome{Ends: e}
		for r, s := range c.specs {
			if s.status == stillRuns {
				o.Late = append(o.Late, r)
			}
		}
		if f.rank != c.rank || e[f.rank].ExitStatus() != c.status {
			t.Errorf("%s: rank %d with status %d, want rank %d with %d", c.name, f.rank, e[f.rank].ExitStatus(), c.rank, c.status)
		}
		if got := others(f.rank, o, nil); got != c.others {
			t.Errorf("%s: got %q, want %q", c.name, got, c.others)
		}
	}
}

// A rank that the kernel killed for memory since the job began is said to be, with the limit.
func TestKilledForMemory(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/cgroup", "0::/job\n")
	write("proc/meminfo", "MemTotal: 8388608 kB\n")
	write("sys/fs/cgroup/job/memory.events", "oom_kill 2\n")
	if got, want := memoryOf(root, 2), "if nobody did that"; !strings.HasPrefix(got, want) {
		t.Errorf("none was killed: %q, want %q", got, want)
	}
	if got, want := memoryOf(root, 1), "memory ran out: the machine has 8.0 GiB"; !strings.HasPrefix(got, want) {
		t.Errorf("no limit: %q, want %q", got, want)
	}
	write("sys/fs/cgroup/job/memory.max", "2147483648\n")
	if got, want := memoryOf(root, 1), "memory ran out: the control group may use 2.0 GiB, of the "; !strings.HasPrefix(got, want) {
		t.Errorf("a limit: %q, want %q", got, want)
	}
}

func TestHowARankEnded(t *testing.T) {
	for status, want := range map[syscall.WaitStatus]string{
		0:        "exit code 0",
		3 << 8:   "exit code 3",
		128 << 8: "exit code 128",
		137 << 8: "exit code 137, 128 + SIGKILL",
		255 << 8: "exit code 255",
		11:       "killed by signal 11, SIGSEGV (segmentation fault)",
		9:        "killed by signal 9, SIGKILL (killed); no",
	} {
		if got := supervisor.Describe(status, "no"); got != want {
			t.Errorf("status %#x: %q, want %q", int(status), got, want)
		}
	}
}
