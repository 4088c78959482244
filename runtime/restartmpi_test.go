//go:build linux

package runtime

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// gorun starts a job of another launcher again as it does its own: when something was saved, as often as it may.
func TestRestartsOverMPI(t *testing.T) {
	for _, via := range []string{"openmpi", "mpich"} {
		for _, c := range []struct {
			what, restarts string
			status         int
			attempts       int
			says           []string
		}{
			{"saves", "5", 0, 3, []string{"starting the job again, restart 1 of 5", "starting the job again, restart 2 of 5"}},
			{"saves", "1", 1, 2, []string{`rank 1 on \S+ failed: boom 1`, `not starting the job again: it has failed 2 times \(--max-restarts 1\)`}},
			{"forgets", "5", 1, 1, []string{"not starting the job again: it failed within 10s of its start and had saved nothing"}},
		} {
			t.Run(via+", "+c.what+" "+c.restarts, func(t *testing.T) {
				testenv.NeedPrograms(t, "mpirun.openmpi", "mpiexec.hydra")
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var out, errs strings.Builder
				cmd := exec.CommandContext(ctx, "gorun", "--via", via, "-np", "2", "--max-restarts", c.restarts, "rankprogram", "again", c.what)
				cmd.Stdout, cmd.Stderr = &out, &errs
				var exit *exec.ExitError
				if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				want := strings.Join([]string{"attempt 0 ", "attempt 1 ", "attempt 2 "}[:c.attempts], c.what+"\n") + c.what + "\n"
				if status := cmd.ProcessState.ExitCode(); status != c.status || out.String() != want {
					t.Errorf("status %d, output %q, want %d, %q", status, out.String(), c.status, want)
				}
				for _, says := range c.says {
					if !regexp.MustCompile("(?m)^gorun: " + says).MatchString(errs.String()) {
						t.Errorf("it does not say %q", says)
					}
				}
				if t.Failed() {
					t.Log(errs.String())
				}
			})
		}
	}
}
