//go:build linux

package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// disagreeing is a program.
const disagreeing = "testdata/disagree"

// disagreeingLine returns the line of the program that ends with a comment.
func disagreeingLine(t *testing.T, comment string) string {
	t.Helper()
	text, err := os.ReadFile(disagreeing + "/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(l, "// "+comment) {
			return fmt.Sprintf("disagree/main.go:%d", i+1)
		}
	}
	t.Fatalf("no line of the program ends with %q", comment)
	return ""
}

// Ranks that sum tensors of other shapes to scalars are told so, over shared memory and over MPI.
func TestRanksOfOtherTermsDisagree(t *testing.T) {
	testenv.DependsOn(t, "./"+disagreeing)
	for _, via := range []string{"", "openmpi", "mpich"} {
		t.Run("via "+via, func(t *testing.T) {
			args := []string{"-np", "2", "./" + disagreeing, "terms"}
			if via != "" {
				needLauncher(t, via)
				args = append([]string{"--via", via}, args...)
			}
			out, err := exec.Command("gorun", args...).CombinedOutput()
			if end, ok := err.(*exec.ExitError); !ok || end.ExitCode() != 1 {
				t.Errorf("%v, want exit status 1", err)
			}
			for _, want := range []string{"ranks disagree: rank 0 called AllReduce sum float32[1]", disagreeingLine(t, "of all"),
				"give tensors of the same shape and placements on all ranks"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}

// Ranks that would hang or disagree on 4096 ranks are found by gorun plan, whose error has both ranks and both lines; a
// rank in the middle that is unlike all others is, if it is told to run.
func TestProgramsThatDisagreeOnManyRanks(t *testing.T) {
	testenv.DependsOn(t, "./"+disagreeing)
	line := func(comment string) string { return disagreeingLine(t, comment) }
	for _, c := range []struct {
		flags, args []string
		want        []string
	}{
		{nil, []string{"skip", "4095"}, []string{"ranks disagree: rank 0 called AllReduce sum float32[100]", line("the others"),
			"rank 4095 called Barrier", line("the one")}},
		{[]string{"--ranks", "7"}, []string{"skip", "7"}, []string{"rank 0 called AllReduce", "rank 7 called Barrier"}},
		{nil, []string{"uneven"}, []string{"ranks disagree: rank 0 called AllGather int64[2]", line("a full shard"),
			"rank 4095 called AllGatherV", line("the rest")}},
	} {
		args := append([]string{"plan", "-np", "4096", "--machine", "none"}, c.flags...)
		out, err := exec.Command("gorun", append(append(args, "./"+disagreeing), c.args...)...).CombinedOutput()
		if end, ok := err.(*exec.ExitError); !ok || end.ExitCode() != 1 {
			t.Errorf("%v: %v, want exit status 1\n%s", c.args, err, out)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, out)
			}
		}
	}
}
