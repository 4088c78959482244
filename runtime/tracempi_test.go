//go:build linux

package runtime

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// eachMPI runs test over each MPI library whose launcher gorun finds, and under the race detector over one: ranks do
// the same over both, and wait by looking all the time.
func eachMPI(t *testing.T, test func(t *testing.T, via string)) {
	for _, via := range testenv.Fewer([]string{"openmpi", "mpich"}, 0) {
		t.Run(via, func(t *testing.T) {
			t.Parallel()
			if said, err := exec.Command("gorun", "--via", via, "--dry-run", "-np", "1", "true").CombinedOutput(); err != nil {
				testenv.Missing(t, errors.New(phrase.FirstLine(string(said))))
			}
			test(t, via)
		})
	}
}

// anotherClock is before the command of a rank whose clock is a day ahead of the
// others', as a host's that started earlier; nothing where that is not allowed.
func anotherClock(t *testing.T) []string {
	clock := []string{"unshare", "--time", "--monotonic", "86400", "--fork", "--kill-child"}
	if out, err := exec.Command(clock[0], append(clock[1:], "true")...).CombinedOutput(); err != nil {
		t.Logf("all ranks have the same clock: unshare: %v: %s", err, out)
		return nil
	}
	return clock
}

// TestTraceOverMPI is of ranks that MPI's launchers start, each with its own clock as if
// on a host of its own, and that put the trace together themselves.
func TestTraceOverMPI(t *testing.T) {
	t.Parallel()
	clock := anotherClock(t)
	eachMPI(t, func(t *testing.T, via string) {
		path := filepath.Join(t.TempDir(), "t.json")
		args := []string{"gorun", "--via", via, "--trace", path, "-np", "1", "rankprogram", "shapes", ":", "-np", "1"}
		said := traced(t, 0, nil, append(append(args, clock...), "rankprogram", "shapes", ":", "-np", "1", "rankprogram", "shapes")...)
		if want := "gorun: the trace is in " + path + "; "; !strings.Contains(said, want) {
			t.Errorf("gorun said %q, want %q", said, want)
		}
		f := readTraceFile(t, path)

		want := map[string]int{"step 3": 3, "AllReduce": 6, "Broadcast": 3, "Gather": 3, "Send": 1, "Recv": 1}
		for name, n := range want {
			if f.names[name] != n {
				t.Errorf("%d of %q, want %d; all: %v", f.names[name], name, n, f.names)
			}
		}
		if len(f.ranks) != 3 || f.names["compute"] < 3 || len(f.failed) > 0 {
			t.Errorf("got %+v", f)
		}
		var sums []traceEvent
		for _, e := range f.slices {
			switch {
			case e.Name == "AllReduce" && e.Args.Cause == "MatMul":
				sums = append(sums, e)
				if a := e.Args; a.Bytes != 24 || a.Count != 6 || a.DType != "float32" || a.Op != "sum" || a.Comm != "world" || a.At == "" {
					t.Errorf("got %+v", e)
				}
			case e.Name == "Broadcast":
				if e.Args.Bytes != 16 || e.Args.Rank != 2 {
					t.Errorf("got %+v", e)
				}
			}
		}
		if len(sums) != 3 {
			t.Fatalf("%d calls for MatMul, want 3", len(sums))
		}
		// By one clock nobody has the sum before all have begun. A clock is asked within a
		// second, however slow the machine is; not made one they would be a day apart.
		const second = 1e6
		for _, a := range sums {
			for _, b := range sums {
				if a.TS+a.Dur < b.TS-second {
					t.Errorf("rank %d has the sum at %g µs, rank %d begins at %g µs", a.PID, a.TS+a.Dur, b.PID, b.TS)
				}
			}
		}
		// Who is last in an AllReduce, and whether it is so by more than the clocks' error,
		// is left to chance.
		for names, want := range map[string][][2]int{
			"Broadcast>Broadcast": {{2, 0}, {2, 1}}, "Gather>Gather": {{0, 2}, {1, 2}}, "Send>Recv": {{0, 2}},
		} {
			got := f.arrows[names]
			slices.SortFunc(got, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
			if !slices.Equal(got, want) {
				t.Errorf("arrows %s: got %v, want %v; all: %v", names, got, want, f.arrows)
			}
		}
	})
}

func TestTraceOverMPIOfAnotherProgram(t *testing.T) {
	t.Parallel()
	eachMPI(t, func(t *testing.T, via string) {
		path := filepath.Join(t.TempDir(), "t.json")
		said := traced(t, 0, nil, "gorun", "--via", via, "-np", "2", "--trace", path, "sleep", "0.5")
		if want := "gorun: --trace: no rank has kept one; "; !strings.Contains(said, want) {
			t.Errorf("gorun said %q, want %q", said, want)
		}
	})
}

// TestTraceOverMPIOfAFailedJob: all ranks leave their own parts, the one that fails and
// those that wait for it or do something else.
func TestTraceOverMPIOfAFailedJob(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fail", "panic", "fail while others are busy"} {
		t.Run(how, func(t *testing.T) {
			eachMPI(t, func(t *testing.T, via string) {
				path := filepath.Join(t.TempDir(), "t.json")
				cmd := exec.Command("gorun", "--via", via, "-np", "2", "--trace", path, "rankprogram", "tracefail", how)
				out, err := cmd.CombinedOutput()
				for _, want := range []string{"boom", path + ".rankR\n"} {
					if err == nil || !strings.Contains(string(out), want) {
						t.Errorf("%v, gorun said %q, want %q", err, out, want)
					}
				}
				for _, rank := range []string{"0", "1"} {
					if f := readTraceFile(t, path+".rank"+rank); len(f.ranks) != 1 || f.names["AllReduce"] != 1 {
						t.Errorf("of rank %s: got %+v", rank, f)
					}
				}
			})
		})
	}
}
