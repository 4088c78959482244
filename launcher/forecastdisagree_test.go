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

// Ranks that would hang or disagree on 4096 ranks are found by gorun plan, whose error has both ranks and both lines; a
// rank in the middle that is unlike all others is, if it is told to run.
func TestProgramsThatDisagreeOnManyRanks(t *testing.T) {
	const program = "testdata/disagree"
	testenv.DependsOn(t, "./"+program)
	text, err := os.ReadFile(program + "/main.go")
	if err != nil {
		t.Fatal(err)
	}
	line := func(comment string) string { // of the program, that ends with it
		for i, l := range strings.Split(string(text), "\n") {
			if strings.HasSuffix(l, "// "+comment) {
				return fmt.Sprintf("disagree/main.go:%d", i+1)
			}
		}
		t.Fatalf("no line of the program ends with %q", comment)
		return ""
	}
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
		out, err := exec.Command("gorun", append(append(args, "./"+program), c.args...)...).CombinedOutput()
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
