//go:build linux

package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

var allFaults = flag.Bool("cluster.faults", false, "all faults under all launchers")

// nameWithin is how long after a fault the ranks may take to name it.
const nameWithin = 5 * time.Second

// A fault is what goes wrong in testdata/faulty, and what must be said of it.
type fault struct {
	name  string
	says  []string // regular expressions; HOST stands for the host of rank 1
	often bool     // part of the short test
}

// Deaths are said by the ranks that are left, hangs by rank 0. What can name a line does.
var (
	ended = `rank [02] on \S+: rank 1 ended: its process on HOST `
	last  = `.*; its last call was Barrier, call \d+ of world`
	died  = []string{ended + `has ended` + last + `, in step 2`}
	// Its parent may have taken the way of its end away.
	killed  = []string{ended + `(was killed by SIGKILL|has ended)` + last}
	circles = []string{`rank 0 on \S+: the job hangs: rank \d waits for rank \d waits for rank \d`, `(?m)^ +0.*faulty/main\.go:\d+`,
		`(?m)^ +1 .*faulty/main\.go:\d+`, `the goroutines of rank \d`}
	faults = []fault{
		{"mismatch", []string{`ranks disagree: .*rank [02] called AllReduce sum float32\[4\] at faulty/main.go:\d+`,
			`ranks disagree: .*rank 1 called Broadcast float32\[4\] root 0 at faulty/main.go:\d+`}, true},
		{"returns", []string{`rank [02]: comm: AllReduce sum float32\[4\] at faulty/main.go:\d+ ` +
			`.*rank 1 ended, without an error, before it made this call`}, true},
		{"exit 0", died, false},
		{"exit 3", died, true},
		{"killed", killed, true},
		{"killed, others compute", killed, false},
		{"circle of collectives", circles, true},
		{"circle of receives", []string{`ranks disagree: ` +
			`(rank \d called Recv float32\[4\] at faulty/main.go:\d+ and waits for rank \d, ){3}`}, false},
		{"circle of sends", []string{`ranks disagree: ` +
			`(rank \d called Send float32\[1048576\] at faulty/main.go:\d+ and waits for rank \d, ){3}`}, false},
		{"receive and collective", circles, false},
		{"circle of messages", append(slices.Clone(circles), `message\.Recv float32\[4\] from rank 2, tag 7`), false},
		{"message and collective", circles, false},
	}
)

// TestFaults has the program fail in each way under launchers that know nothing of gorun, without
// any variable of gorun's, and sees the fault named in time.
func TestFaults(t *testing.T) {
	long(t)
	dir := t.TempDir()
	program := buildFaulty(t, dir)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, launcher := range [][]string{
		{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", "3"},
		{"mpirun.openmpi5", "--oversubscribe", "--allow-run-as-root", "-np", "3"},
		{"mpiexec.hydra", "-n", "3"},
	} {
		for _, f := range faults {
			if !f.often && !*allFaults {
				continue
			}
			t.Run(launcher[0]+"/"+f.name, func(t *testing.T) {
				testenv.NeedPrograms(t, launcher[0])
				tries := 1
				if launcher[0] == "mpiexec.hydra" && strings.HasPrefix(f.says[0], ended) {
					tries = 3 // it kills the rest of the job within a millisecond
				}
				for n := 1; ; n++ {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					cmd := exec.CommandContext(ctx, launcher[0], append(slices.Clone(launcher[1:]), program, f.name)...)
					cmd.WaitDelay = 5 * time.Second
					wrong := f.try(t, cmd, regexp.QuoteMeta(host))
					cancel()
					if wrong == "" {
						break
					}
					if n == tries {
						t.Fatal(wrong)
					}
					t.Log(wrong)
				}
			})
		}
	}
}

// buildFaulty builds the program into dir/bin.
func buildFaulty(t *testing.T, dir string) (program string) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o777); err != nil {
		t.Fatal(err)
	}
	testenv.Build(t, bin, withoutCgo, "./testdata/faulty")
	return filepath.Join(bin, "faulty")
}

// try runs a command that makes the fault, and returns what is wrong with what is said; "" if nothing
// is. host matches the host of rank 1.
func (f fault) try(t *testing.T, cmd *exec.Cmd, host string) (wrong string) {
	t.Helper()
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	left := func() (says []string) {
		text := out.String()
		for _, s := range f.says {
			if !regexp.MustCompile(strings.ReplaceAll(s, "HOST", host)).MatchString(text) {
				says = append(says, s)
			}
		}
		return says
	}
	var began time.Time
	for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if began.IsZero() && strings.Contains(out.String(), "now\n") {
			began = time.Now()
		}
		if len(left()) == 0 || len(ended) > 0 || time.Now().After(limit) {
			break
		}
	}
	took := time.Since(began)
	select { // the launcher ends the ranks, or the ranks themselves
	case err := <-ended:
		if err == nil && f.name != "exit 0" { // launchers may take that for a good end
			wrong = "exit status 0; "
		}
	case <-time.After(patience / 2):
		_ = cmd.Process.Signal(syscall.SIGTERM)
		wrong = fmt.Sprintf("%v had not ended; ", cmd.Args)
		<-ended
	}
	if more := left(); len(more) > 0 || began.IsZero() || took > nameWithin {
		wrong += fmt.Sprintf("named after %v, want at most %v; not said: %q", took, nameWithin, more)
	}
	if wrong != "" {
		return wrong + "; output:\n" + out.String()
	}
	t.Logf("named after %v", took.Round(10*time.Millisecond))
	return ""
}

// faults makes faults under srun, on one host and on two.
func (c *cluster) faults(t *testing.T) {
	program := buildFaulty(t, c.dir)
	for _, mpi := range []string{"pmi2", "pmix"} {
		for hosts := 1; hosts <= len(c.hosts); hosts++ {
			for _, f := range faults {
				short := mpi == "pmix" && hosts == 2 && (f.name == "killed" || f.name == "circle of collectives")
				if !short && !*allFaults {
					continue
				}
				t.Run(fmt.Sprintf("%s on %d hosts with %s", f.name, hosts, mpi), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					srun := []string{"srun", fmt.Sprintf("-N%d", hosts), "-n3", "--mpi=" + mpi, program, f.name}
					if wrong := f.try(t, c.command(ctx, c.hosts[0], nil, srun...), `node\d`); wrong != "" {
						t.Error(wrong)
					}
					c.clean(t, c.hosts...)
				})
			}
		}
	}
}
