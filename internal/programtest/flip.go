package programtest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
)

// A Flip is a bit of a parameter that is flipped on one rank as a step begins; see examples/train.
type Flip struct {
	Ranks   int
	Flags   []string // for gorun
	Args    []string
	Every   int // steps between two lines of digests
	Step    int
	Rank    int
	Param   string
	Element int // of what the rank holds

	Found int   // the step in which it is found
	Index []int // of the element in the whole parameter
}

// FindsFlips runs the program with digests, and again with a flip. It checks that the second run ends by an error that names the
// step, tensor, element and rank, and that gorun diff of the digests of both names the same.
func (p *Program) FindsFlips(t *testing.T, flips []Flip, args ...string) {
	for _, f := range flips {
		t.Run(fmt.Sprint(f.Ranks, f.Flags, f.Args, f.Param), func(t *testing.T) {
			run := func(file string, env ...string) *Job {
				j := p.command(f.Ranks, append(f.Flags[:len(f.Flags):len(f.Flags)], "--digest", file, "--digest-every", strconv.Itoa(f.Every)),
					slices.Concat(args, []string{"-steps", strconv.Itoa(f.Found + 2)}, f.Args))
				// Replicas are compared by the time too, which would find a flip before the digests do.
				j.Env = append(append(j.Env, "GORUN_CHECK=0"), env...)
				_ = j.Run() // the status says it
				return j
			}
			dir := t.TempDir()
			good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
			if j := run(good); j.ProcessState.ExitCode() != 0 {
				t.Fatalf("without a flip: %s", &j.Stderr)
			}
			j := run(bad, fmt.Sprintf("GORUN_TEST_FLIP=%d:%d:%s:%d", f.Step, f.Rank, f.Param, f.Element))
			if j.ProcessState.ExitCode() != 1 {
				t.Fatalf("status %d\n%s", j.ProcessState.ExitCode(), &j.Stderr)
			}
			for _, word := range []string{fmt.Sprint("step ", f.Found, ":"), fmt.Sprintf("tensor %q", "model."+f.Param),
				fmt.Sprint("element ", f.Index), fmt.Sprint("on rank ", f.Rank)} {
				if !strings.Contains(j.Stderr.String(), word) {
					t.Errorf("the error does not say %q:\n%s", word, &j.Stderr)
				}
			}
			out, err := exec.Command(filepath.Join(p.folder, "gorun"), "diff", "-json", good, bad).Output()
			var d checkpoint.Difference
			if wrong := json.Unmarshal(out, &d); wrong != nil {
				t.Fatalf("gorun diff: %v, %v: %s", err, wrong, out)
			}
			b := d.FaultB
			if d.Step != f.Found || d.FaultA != nil || b == nil || b.Tensor != "model."+f.Param || !slices.Equal(b.Index, f.Index) ||
				!slices.Contains(b.Ranks, f.Rank) {
				t.Errorf("gorun diff: %s", out)
			}
		})
	}
}
