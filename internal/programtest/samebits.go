package programtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

var sameBitsFull = flag.Bool("samebits.full", false, "with same bits run programs for 200 steps, in every way")

// A Way is one way to run a program.
type Way struct {
	Ranks    int
	Launcher []string // a command that takes the number of ranks and the program; nil: gorun
	Env      []string
	Args     []string
	Steps    int  // 0: 6, or 200 in the full test
	Killed   bool // the run is killed, and resumed on one rank less
	Full     bool // only in the full test
}

// goroutines stands for a launcher: the ranks are goroutines of one process.
const goroutines = "goroutines"

// Ways returns the ways to run a program that has -dp and -tp.
func Ways() []Way {
	list := []Way{
		{Ranks: 2}, {Ranks: 3}, {Ranks: 4, Args: []string{"-dp", "2"}},
		{Ranks: 64, Launcher: []string{goroutines}, Args: []string{"-dp", "4"}, Steps: 2},
		{Ranks: 2, Env: []string{"GODEBUG=cpu.avx512f=off"}}, {Ranks: 2, Env: []string{"GODEBUG=cpu.avx2=off"}}, // AVX2, and plain Go
		{Ranks: 4, Killed: true, Steps: 40}, {Ranks: 4, Killed: true, Full: true},
		{Ranks: 3, Launcher: []string{goroutines}, Full: true}, {Ranks: 2, Env: []string{"GODEBUG=cpu.avx512vl=off"}, Full: true},
	}
	for _, n := range []int{4, 5, 6, 7, 8} {
		list = append(list, Way{Ranks: n, Full: true})
	}
	for _, dp := range []int{2, 3, 6} {
		list = append(list, Way{Ranks: 6, Args: []string{"-dp", strconv.Itoa(dp)}, Full: true})
	}
	for _, dp := range []int{1, 4} {
		list = append(list, Way{Ranks: 4, Args: []string{"-dp", strconv.Itoa(dp)}, Full: true})
	}
	for i, launcher := range [][]string{
		{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np"}, {"mpirun.openmpi5", "--oversubscribe", "--allow-run-as-root", "-np"},
		{"mpiexec.hydra", "-n"},
	} {
		list = append(list, Way{Ranks: 3, Launcher: launcher, Full: i == 1})
	}
	return list
}

// HasTheSameBits runs the program with same bits in some ways and checks that it prints the
// state_sha256 that it prints on one rank. args must have -json, and not -steps.
func (p *Program) HasTheSameBits(t *testing.T, ways []Way, args ...string) {
	want := map[int]string{} // by steps
	for _, w := range ways {
		if w.Full && !*sameBitsFull {
			continue
		}
		if w.Steps == 0 {
			if w.Steps = 6; *sameBitsFull {
				w.Steps = 200
			}
		}
		if want[w.Steps] == "" {
			want[w.Steps] = p.state(t, Way{Ranks: 1, Steps: w.Steps}, args)
		}
		t.Run(w.String(), func(t *testing.T) {
			if got := p.state(t, w, args); got != want[w.Steps] {
				t.Errorf("state_sha256 %s, on one rank %s", got, want[w.Steps])
			}
		})
	}
}

// String describes the way.
func (w Way) String() string {
	words := []string{strconv.Itoa(w.Ranks)}
	if len(w.Launcher) > 0 {
		words = append(words, w.Launcher[0])
	}
	if words = append(append(words, w.Env...), w.Args...); w.Killed {
		words = append(words, "killed")
	}
	return strings.Join(words, " ")
}

// state runs the program in a way and returns its stateOf.
func (p *Program) state(t *testing.T, w Way, args []string) string {
	t.Helper()
	args = append(append(args[:len(args):len(args)], "-steps", strconv.Itoa(w.Steps)), w.Args...)
	j := p.command(w.Ranks, []string{"--same-bits"}, args)
	switch {
	case w.Killed:
		dir := filepath.Join(t.TempDir(), "checkpoints")
		j = p.startedAt(t, dir, w.Steps*9/20, rand.New(rand.NewPCG(1, 1)), w.Ranks, []string{"--same-bits"}, args)
		_ = j.Process.Kill() // it may have ended just now
		if j.Wait() == nil {
			t.Log("it ended before it was killed")
		}
		j = p.command(w.Ranks-1, []string{"--same-bits"}, append(args, "-checkpoint", dir, "-resume"))
	case len(w.Launcher) > 0 && w.Launcher[0] == goroutines:
		j.Cmd = exec.Command(p.path(), args...)
		j.Env = append(p.environ(), "GORUN_SAME_BITS=1", fmt.Sprint("GORUN_GOROUTINES=", w.Ranks))
	case len(w.Launcher) > 0:
		testenv.NeedPrograms(t, w.Launcher[0])
		if w.Launcher[0] == "mpirun.openmpi5" { // it is of another Debian, and runs in a mount namespace
			testenv.NeedNamespaces(t, "--mount")
		}
		all := slices.Concat(w.Launcher[1:], []string{strconv.Itoa(w.Ranks), p.path()}, args)
		j.Cmd = exec.Command(w.Launcher[0], all...)
		j.Env = append(p.environ(), "GORUN_SAME_BITS=1")
	}
	j.Env = append(j.Env, w.Env...)
	j.Cmd.Stdout, j.Cmd.Stderr = &j.Stdout, &j.Stderr
	if err := j.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", j.Args, err, &j.Stderr)
	}
	return stateOf(t, j)
}

// stateOf returns the digest of weights and optimizer in the JSON that a run has printed.
func stateOf(t *testing.T, j *Job) string {
	t.Helper()
	var s struct {
		State string `json:"state_sha256"`
	}
	Summary(t, j.Stdout.String(), &s)
	if len(s.State) != 64 {
		t.Fatalf("state_sha256 is %q", s.State)
	}
	return s.State
}

// environ returns the environment of a run.
func (p *Program) environ() []string {
	return append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(p.folder, "cache"))
}
