package job

import (
	"strings"
	"testing"
)

// lookup serves "NAME=value" strings as os.LookupEnv does.
func lookup(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range env {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

func TestRoundTrip(t *testing.T) {
	for _, want := range []Job{
		{Rank: 0, Size: 1, LocalRank: 0, LocalSize: 1, ID: "a"},
		{Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, ID: "x-1", Attempt: 2, ControlFD: 3, ArenaFD: 4, Columns: 80, TraceFD: 8},
		{Rank: MaxSize - 1, Size: MaxSize, LocalRank: 7, LocalSize: 8, ID: "=,;\n", Attempt: 1<<31 - 1},
	} {
		got, err := Decode(lookup(Encode(want)))
		if err != nil || got != want {
			t.Errorf("Decode(Encode(%+v)) = %+v, %v", want, got, err)
		}
	}
}

func TestNoVariablesIsAWorldOfOne(t *testing.T) {
	got, err := Decode(lookup([]string{"PATH=/bin", "GORUN_LOG=debug", AttemptVar + "=1"}))
	if err != nil || got != Alone() {
		t.Errorf("got %+v, %v, want %+v", got, err, Alone())
	}
}

func TestNamesAreWhatEncodeWrites(t *testing.T) {
	env := Encode(Job{Size: 1, LocalSize: 1, ID: "a", ControlFD: 3, ArenaFD: 4, Columns: 80, TraceFD: 9, SnapshotFD: 10})
	names := Names()
	if len(env) != len(names) {
		t.Fatalf("Encode writes %d variables, Names has %d", len(env), len(names))
	}
	for i, kv := range env {
		if !strings.HasPrefix(kv, names[i]+"=") {
			t.Errorf("variable %d is %q, want %s", i, kv, names[i])
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := Encode(Job{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 2, ID: "a", ControlFD: 3, ArenaFD: 4})
	for _, c := range []struct{ name, value, want string }{
		{sizeVar, "", "GORUN_SIZE is not set"},
		{sizeVar, "0", "GORUN_SIZE=0 is not between 1 and 1048576"},
		{sizeVar, "1048577", "GORUN_SIZE=1048577 is not between"},
		{sizeVar, "four", `GORUN_SIZE="four" is not a number`},
		{sizeVar, "+4", `GORUN_SIZE="+4" is not a number`},
		{sizeVar, "99999999999999999999", "is not a number"},
		{sizeVar, "1", "GORUN_RANK=1 is not between 0 and 0"},
		{rankVar, "4", "GORUN_RANK=4 is not between 0 and 3"},
		{rankVar, "-1", "GORUN_RANK=-1 is not between"},
		{localRankVar, "2", "GORUN_LOCAL_RANK=2 is not between 0 and 1"},
		{localSizeVar, "5", "GORUN_LOCAL_SIZE=5 is more than GORUN_SIZE=4"},
		{jobVar, "", "GORUN_JOB is not set"},
		{attemptVar, "-1", "GORUN_ATTEMPT=-1"},
		{controlVar, "2", "GORUN_CONTROL_FD=2 is not between 3 and"},
		{arenaVar, "x", `GORUN_ARENA_FD="x" is not a number`},
		{terminalVar, "0", "GORUN_TERMINAL=0 is not between 1 and 65535"},
		{traceVar, "1", "GORUN_TRACE_FD=1 is not between 3 and"},
	} {
		env := append([]string{c.name + "=" + c.value}, good...)
		if _, err := Decode(lookup(env)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: got %v, want an error with %q", c.name, c.value, err, c.want)
		}
	}
}

func TestHalfAContractIsRefused(t *testing.T) {
	good := Encode(Job{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 2, ID: "a", ControlFD: 3, ArenaFD: 4})
	for i, kv := range good {
		env := append(append([]string{}, good[:i]...), good[i+1:]...)
		if _, err := Decode(lookup(env)); err == nil {
			t.Errorf("a contract without %s was accepted", kv)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("1", "4", "0", "2", "a", "0", "3", "4", "80", "9", "10")
	f.Add("0", "1", "0", "1", "", "x", "-1", "", "", "", "")
	f.Fuzz(func(t *testing.T, rank, size, localRank, localSize, id, attempt, control, arena, terminal, trace, snapshot string) {
		values := []string{rank, size, localRank, localSize, id, attempt, control, arena, terminal, trace, snapshot}
		var env []string
		for i, name := range Names() {
			env = append(env, name+"="+values[i])
		}
		j, err := Decode(lookup(env))
		if err != nil {
			return
		}
		if j.Rank < 0 || j.Rank >= j.Size || j.LocalRank < 0 || j.LocalRank >= j.LocalSize || j.LocalSize > j.Size {
			t.Errorf("accepted %+v", j)
		}
		if again, err := Decode(lookup(Encode(j))); err != nil || again != j {
			t.Errorf("%+v does not survive a round trip: %+v, %v", j, again, err)
		}
	})
}
