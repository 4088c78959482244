//go:build linux

package launcher

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// needLauncher ends the test unless the launcher of via is installed.
func needLauncher(t *testing.T, via string) {
	t.Helper()
	out, err := exec.Command("gorun", "--via", via, "--dry-run", "true").CombinedOutput()
	if err != nil {
		testenv.Missing(t, errors.New(string(out)))
	}
}

// over are the launchers that run real jobs here, each with the variable by which
// a rank learns its number.
var over = []struct{ via, rank string }{{"openmpi", "OMPI_COMM_WORLD_RANK"}, {"mpich", "PMI_RANK"}}

// linger ends a rank's script. MPICH's mpiexec is killed by SIGPIPE, on its own as
// under gorun, if a rank ends before it has been handed its standard input.
const linger = "sleep 0.5"

// startOver starts two ranks of a shell script through via, with a temporary
// folder of their own. In the script $R is the rank.
func startOver(t *testing.T, ready int, via, rank, script string, flags ...string) (s *session, temp string) {
	t.Helper()
	needLauncher(t, via)
	temp = t.TempDir()
	args := append([]string{"--via", via, "-np", "2"}, flags...)
	args = append(args, "sh", "-c", "R=$"+rank+"; "+script)
	return startIn(t, ready, func(c *exec.Cmd) { c.Env = append(c.Env, "TMPDIR="+temp) }, args...), temp
}

// clean checks that neither gorun nor the launcher has left a file.
func clean(t *testing.T, temp string) {
	t.Helper()
	if left, _ := filepath.Glob(temp + "/*"); len(left) > 0 {
		t.Errorf("left in the temporary folder: %v", left)
	}
}

func TestHandoverRuns(t *testing.T) {
	for _, l := range over {
		t.Run(l.via, func(t *testing.T) {
			s, temp := startOver(t, 0, l.via, l.rank, "echo rank $R has $A; "+linger, "-x", "A=a b")
			var lines []string
			for line := range s.output {
				lines = append(lines, line)
			}
			slices.Sort(lines)
			if want := []string{"rank 0 has a b", "rank 1 has a b"}; !slices.Equal(lines, want) {
				t.Errorf("got %q, want %q", lines, want)
			}
			s.check(0)
			clean(t, temp)
		})
	}
}

// TestHandoverOutput has the ranks' output in a folder that is not there yet.
func TestHandoverOutput(t *testing.T) {
	for _, l := range over {
		t.Run(l.via, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "made/for/it")
			s, _ := startOver(t, 0, l.via, l.rank, "echo said; "+linger, "--output", dir, "--report-bindings")
			s.check(0, "gorun: any rank may run on any CPU: mpi")
			said := 0
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if text, _ := os.ReadFile(path); string(text) == "said\n" {
					said++
				}
				return err
			})
			if err != nil || said != 2 {
				t.Errorf("%d files have the output of a rank, error %v", said, err)
			}
		})
	}
}

func TestHandoverFails(t *testing.T) {
	for _, l := range over {
		t.Run(l.via, func(t *testing.T) {
			s, temp := startOver(t, 0, l.via, l.rank, linger+"; test $R = 0 || exit 3")
			s.check(3, "failed: ", "mpi", "exit code 3")
			clean(t, temp)
		})
	}
}

// TestHandoverNamesTheSilent has a rank killed, which cannot tell, and another ended
// by mpirun for it, which does, in the words of package runtime.
func TestHandoverNamesTheSilent(t *testing.T) {
	const script = `say() { printf '\036%s %s %d %d "h" "%s"\n' $GORUN_WORD $1 $R $2 "$3" >&2; }
say + 0
[ $R = 0 ] || { sleep 0.5; kill -9 $$; }
trap 'say "~" 1 terminated; exit 1' TERM
sleep 1000 & wait`
	s, _ := startOver(t, 0, "openmpi", "OMPI_COMM_WORLD_RANK", script)
	s.check(137, "gorun: rank 1 on h failed: it was killed by SIGKILL; if nobody did that, memory ran out: see dmesg there "+
		"(exit code 137); mpirun")
}

// TestHandoverEndsWhatGoesOn has a rank that tells of its failure, and ends without MPI,
// which mpiexec.hydra takes for nothing.
func TestHandoverEndsWhatGoesOn(t *testing.T) {
	const script = `[ $R = 0 ] || { printf '\036%s - 1 3 "h" "gave up"\n' $GORUN_WORD >&2; exit 3; }; exec sleep 1000`
	s, _ := startOver(t, 0, "mpich", "PMI_RANK", script, "--grace", "1")
	s.check(3, "gorun: rank 1 on h failed: gave up (exit code 3); mpiexec.hydra lets the others go on, which were ended")
}

// TestHandoverLingers has a rank start what holds its output when all have ended.
func TestHandoverLingers(t *testing.T) {
	const script = `[ $R = 0 ] || setsid sleep 12 & printf '\036%s - %d 0 "h" ""\n' $GORUN_WORD $R >&2; sleep 0.5`
	for _, l := range over {
		t.Run(l.via, func(t *testing.T) {
			t.Parallel()
			s, _ := startOver(t, 0, l.via, l.rank, script)
			s.check(0, "gorun: all ranks have ended well, and mpi", " goes on: something that they have started holds their output")
		})
	}
}

func TestHandoverSignals(t *testing.T) {
	for _, l := range over {
		for _, c := range []struct {
			name   string
			signal syscall.Signal
			status int
		}{{"INT", syscall.SIGINT, 130}, {"TERM", syscall.SIGTERM, 143}, {"QUIT", syscall.SIGQUIT, 131}} {
			t.Run(l.via+c.name, func(t *testing.T) {
				s, temp := startOver(t, 2, l.via, l.rank, "echo ready $R $$; exec sleep 1000")
				s.signal(c.signal)
				s.check(c.status, "gorun: SIG"+c.name+": passed on")
				clean(t, temp)
			})
		}
	}
}

// TestHandoverStops stops ranks that are in sessions of their own.
func TestHandoverStops(t *testing.T) {
	for _, l := range over {
		t.Run(l.via, func(t *testing.T) {
			s, _ := startOver(t, 2, l.via, l.rank, "echo ready $R $$; exec sleep 1000")
			s.signal(syscall.SIGTSTP)
			waitForStates(s, "TT")
			waitUntilStopped(s)
			s.signal(syscall.SIGCONT)
			waitForStates(s, "SS")
			s.signal(syscall.SIGKILL)
			s.gone()
		})
	}
}

// TestHandoverKills is of ranks that ignore what asks them to end.
func TestHandoverKills(t *testing.T) {
	for _, l := range over {
		t.Run(l.via, func(t *testing.T) {
			s, temp := startOver(t, 2, l.via, l.rank, "trap '' INT TERM; echo ready $R $$; while :; do sleep 1000; done", "--grace", "0.5")
			s.signal(syscall.SIGTERM)
			s.check(143, "did not end within 500ms and had to be killed")
			clean(t, temp)
		})
	}
}

func TestHandoverTimeout(t *testing.T) {
	for _, l := range over {
		t.Run(l.via, func(t *testing.T) {
			s, temp := startOver(t, 0, l.via, l.rank, "trap '' INT TERM; while :; do sleep 1000; done", "--grace", "0.5", "--timeout", "1")
			s.check(124, "gorun: the time limit of 1s is over")
			clean(t, temp)
		})
	}
}

// TestHandoverLauncherIsKilled has files where ranks share memory.
func TestHandoverLauncherIsKilled(t *testing.T) {
	for _, l := range over {
		t.Run(l.via, func(t *testing.T) {
			s, temp := startOver(t, 2, l.via, l.rank,
				"[ $R = 1 ] || { touch $UCX_POSIX_DIR/segment && echo $UCX_POSIX_DIR; }; echo ready $R $$; exec sleep 1000")
			shared := <-s.output
			if _, err := os.Stat(shared + "/segment"); err != nil {
				t.Error(err)
			}
			s.signal(syscall.SIGKILL)
			s.end()
			s.gone()
			clean(t, temp)
			if _, err := os.Stat(shared); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left: %v", shared, err)
			}
		})
	}
}

// TestHandoverGivesTheGracePeriod has ranks that tell that they started, as package
// runtime does, and take longer to save than mpirun leaves them after SIGTERM.
func TestHandoverGivesTheGracePeriod(t *testing.T) {
	// The word and "ready" come by different streams: the pause lets gorun read the word first.
	const script = `save() { sleep 2.5; echo saved; exit 0; }
trap save ALRM TERM
printf '\036%s + %d 0 "h" ""\n' $GORUN_WORD $R >&2
sleep 1
echo ready $R $$
while :; do sleep 0.05; done`
	for _, l := range over {
		for _, c := range []struct {
			signal syscall.Signal
			status int
			flags  []string
		}{{syscall.SIGINT, 130, nil}, {0, 124, []string{"--timeout", "3"}}} {
			t.Run(l.via+strings.Join(c.flags, " "), func(t *testing.T) {
				t.Parallel()
				s, _ := startOver(t, 2, l.via, l.rank, script, append(c.flags, "--grace", "1h")...)
				if c.signal != 0 {
					s.signal(c.signal)
				}
				s.expect("saved", "saved")
				s.check(c.status, "ranks have 1h0m0s to save and end")
			})
		}
	}
}
