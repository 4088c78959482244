//go:build linux

package runtime

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/job"
)

// A traceEvent is one line of a trace; times are in microseconds.
type traceEvent struct {
	PH, Name     string
	PID, TID, ID int
	TS, Dur      float64
	Args         struct {
		Failed                     bool
		Bytes, Count, Rank         int
		Comm, DType, Op, At, Cause string
	}
}

// traceFile is what the tests look for in a trace.
type traceFile struct {
	ranks  map[int]int // events by rank
	names  map[string]int
	slices []traceEvent
	arrows map[string][][2]int // by the names of the calls, "Send>Recv": from which rank to which
	failed []string
}

func readTraceFile(t *testing.T, path string) traceFile {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ TraceEvents []traceEvent }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	f := traceFile{ranks: map[int]int{}, names: map[string]int{}, arrows: map[string][][2]int{}}
	starts := map[int]traceEvent{}
	for _, e := range file.TraceEvents {
		switch e.PH {
		case "X":
			f.ranks[e.PID]++
			f.names[e.Name]++
			f.slices = append(f.slices, e)
			if e.Args.Failed {
				f.failed = append(f.failed, e.Args.Cause)
			}
			if e.Args.At != "" && !strings.HasPrefix(e.Args.At, "runtime/") {
				t.Errorf("a call is at %q", e.Args.At)
			}
		case "s":
			starts[e.ID] = e
		case "f":
			start, ok := starts[e.ID]
			if !ok {
				t.Errorf("arrow %d ends and has not started", e.ID)
			}
			delete(starts, e.ID)
			names := f.around(start) + ">" + f.around(e)
			f.arrows[names] = append(f.arrows[names], [2]int{start.PID, e.PID})
		}
	}
	if len(starts) > 0 {
		t.Errorf("%d more arrows start than end", len(starts))
	}
	return f
}

// around is the name of the call that one end of an arrow is in, by what is read so far.
func (f *traceFile) around(end traceEvent) string {
	for _, e := range slices.Backward(f.slices) {
		if e.PID == end.PID && e.TID == end.TID && e.TS <= end.TS {
			return e.Name
		}
	}
	return "nothing"
}

// traced runs a command and returns what it wrote to standard error.
func traced(t *testing.T, status int, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("%v: exit status %d, want %d: %s", args, got, status, errs.String())
	}
	return errs.String()
}

func TestTraceOfAJob(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.json")
	said := traced(t, 0, nil, "gorun", "-np", "3", "--trace", path, "rankprogram", "sum")
	if want := path + " has 3 events of 3 ranks; "; !strings.Contains(said, want) {
		t.Errorf("gorun said %q, want %q", said, want)
	}
	if f := readTraceFile(t, path); len(f.ranks) != 3 || f.names["AllReduce"] != 3 || f.names["compute"] < 3 {
		t.Errorf("got %+v", f)
	}
}

// TestTraceOfAFailedJob: what there is of a rank that was killed is kept, and what the
// others were waiting in.
func TestTraceOfAFailedJob(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.json")
	traced(t, 137, nil, "gorun", "-np", "3", "--trace", path, "rankprogram", "tracekill")
	f := readTraceFile(t, path)
	if len(f.ranks) != 3 || f.names["AllReduce"] != 3 || f.names["step 8"] != 3 || f.names["Barrier"] == 0 || len(f.failed) == 0 {
		t.Errorf("got %+v", f)
	}
}

func TestTraceOfAJobThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	traced(t, 0, nil, "gorun", "-np", "2", "--max-restarts", "2", "--trace", dir+"/t.json", "rankprogram", "again", "saves")
	for _, name := range []string{"t.json", "t.1.json", "t.2.json"} {
		if f := readTraceFile(t, filepath.Join(dir, name)); len(f.ranks) != 2 || f.names["Barrier"] < 2 {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

// TestTraceWithoutGorun is what ranks do under another launcher.
func TestTraceWithoutGorun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.json")
	if said := traced(t, 0, []string{job.TraceVar + "=" + path}, "rankprogram", "sum"); said != "" {
		t.Errorf("it said %q", said)
	}
	if f := readTraceFile(t, path); len(f.ranks) != 1 || f.names["AllReduce"] != 1 {
		t.Errorf("got %+v", f)
	}
	traced(t, 1, []string{job.TraceVar + "=" + path}, "rankprogram", "fail")
	if f := readTraceFile(t, path+".rank0"); len(f.ranks) != 1 {
		t.Errorf("of a rank that failed: got %+v", f)
	}
	said := traced(t, 1, []string{job.TraceVar + "=/nowhere/t.json"}, "rankprogram", "fail") // before it can fail
	if want := "rank 0: runtime: GORUN_TRACE: open /nowhere/t.json: no such file or directory; name a file in a folder " +
		"that is there and can be written to\n"; said != want {
		t.Errorf("it said %q, want %q", said, want)
	}
}

func TestTraceThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	said := traced(t, 1, nil, "gorun", "-np", "2", "--trace", "/nowhere/t.json", "rankprogram", "sum")
	if want := "gorun: --trace /nowhere/t.json: no such file or directory\n"; said != want {
		t.Errorf("gorun said %q, want %q", said, want)
	}
	said = traced(t, 1, nil, "gorun", "-np", "2", "--trace", "/dev/full", "rankprogram", "sum")
	if want := "gorun: --trace: write /dev/full: no space left on device\n"; !strings.Contains(said, want) {
		t.Errorf("gorun said %q, want %q", said, want)
	}
	path := filepath.Join(t.TempDir(), "t.json")
	said = traced(t, 0, nil, "gorun", "-np", "2", "--trace", path, "true")
	if want := "gorun: --trace: no rank has kept one; programs do that use package runtime\n"; !strings.Contains(said, want) {
		t.Errorf("gorun said %q, want %q", said, want)
	}
}
