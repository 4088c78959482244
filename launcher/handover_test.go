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

	"github.com/gorun-spmd/gorun/internal/needtest"
	"github.com/gorun-spmd/gorun/launcher/hosts"
)

// needLauncher ends the test unless the launcher of via is installed.
func needLauncher(t *testing.T, via string) {
	t.Helper()
	if _, err := thisFinder().choose(via, hosts.Auto); err != nil {
		needtest.Missing(t, err)
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
			s.check(3, "gorun: the job failed: mpi", "exit code 3")
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
	s.check(137, "gorun: no last word from rank 1 on h; rank 0 on h failed with it: terminated; mpirun")
}

// TestHandoverEndsWhatGoesOn has a rank that tells of its failure, and ends without MPI,
// which mpiexec.hydra takes for nothing.
func TestHandoverEndsWhatGoesOn(t *testing.T) {
	const script = `[ $R = 0 ] || { printf '\036%s - 1 3 "h" "gave up"\n' $GORUN_WORD >&2; exit 3; }; exec sleep 1000`
	s, _ := startOver(t, 0, "mpich", "PMI_RANK", script, "--grace", "1")
	s.check(3, "gorun: rank 1 on h failed: gave up (exit code 3); mpiexec.hydra lets the others go on, which were ended")
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
			s, temp := startOver(t, 2, l.via, l.rank, "[ $R = 1 ] || { touch $UCX_POSIX_DIR/segment && echo $UCX_POSIX_DIR; }; echo ready $R $$; exec sleep 1000")
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

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		version string
		want    hosts.Launcher
		ok      bool
	}{
		{"mpirun (Open MPI) 4.1.4\n\nReport bugs to", hosts.OpenMPI4, true},
		{"mpirun (Open MPI) 5.0.7\n", hosts.OpenMPI5, true},
		{"mpirun (Open MPI) 10.0.0\n", hosts.OpenMPI5, true},
		{"prterun (PRRTE) 3.0.8\n", hosts.OpenMPI5, true},
		{"HYDRA build details:\n    Version:  4.0.2\n", hosts.Hydra, true},
		{"Intel(R) MPI Library for Linux\n", 0, false},
		{"", 0, false},
	} {
		if got, ok := kindOf(c.version); got != c.want || ok != c.ok {
			t.Errorf("%q: got %v %v, want %v %v", c.version, got, ok, c.want, c.ok)
		}
	}
}

// TestChooseLauncher is of machines that differ in what is installed, name:version each.
func TestChooseLauncher(t *testing.T) {
	const ompi, hydra = "mpirun (Open MPI) 4.1.4", "HYDRA build details:"
	for _, c := range []struct {
		installed map[string]string
		via       string
		system    hosts.Format
		want      string // the program; "": none
	}{
		{map[string]string{"mpirun": ompi, "mpiexec.hydra": hydra}, "", hosts.Auto, "mpirun"},
		{map[string]string{"mpirun": ompi, "mpiexec.hydra": hydra}, "mpich", hosts.Auto, "mpiexec.hydra"},
		{map[string]string{"mpirun": hydra}, "", hosts.Auto, "mpirun"},
		{map[string]string{"mpirun": hydra}, "openmpi", hosts.Auto, ""},
		{map[string]string{"mpirun": hydra, "mpirun.openmpi": ompi}, "openmpi", hosts.Auto, "mpirun.openmpi"},
		{map[string]string{"mpirun": ompi, "srun": ""}, "", hosts.Slurm, "srun"},
		{map[string]string{"mpirun": ompi, "srun": ""}, "", hosts.PBS, "mpirun"},
		{map[string]string{"mpirun": ompi}, "", hosts.Slurm, "mpirun"},
		{map[string]string{"srun": ""}, "", hosts.Auto, ""},
		{map[string]string{"srun": ""}, "slurm", hosts.Auto, "srun"},
		{nil, "", hosts.Auto, ""},
	} {
		f := finder{func(name string) (string, error) {
			if _, ok := c.installed[name]; !ok {
				return "", errors.New("not there")
			}
			return "/bin/" + name, nil
		}, func(path string) string { return c.installed[filepath.Base(path)] }}
		found, err := f.choose(c.via, c.system)
		got := found.program
		if err == nil && got == "" {
			got = found.kind.String()
		}
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v, --via %q in %v: got %q and %v, want %q", c.installed, c.via, c.system, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "apt-get install ") {
			t.Errorf("%v names no package", err)
		}
	}
}

func TestOnlyHere(t *testing.T) {
	for _, c := range []struct {
		list string
		want bool
	}{
		{"localhost", true}, {"127.0.0.1", true}, {"node1", true}, {"node1.example.org", true}, {"localhost,node1:3", true},
		{"node2", false}, {"node1,node2", false}, {"node11", false}, {"root@localhost", false},
	} {
		list, err := hosts.ParseList(c.list)
		if err != nil {
			t.Fatal(err)
		}
		for _, self := range []string{"node1", "node1.example.org"} {
			l := hostList{hosts: list}
			if got := l.onlyHere(self); got != c.want {
				t.Errorf("%s on %s: got %v, want %v", c.list, self, got, c.want)
			}
		}
	}
}

// TestSlurmMPI is of sites that differ in their defaults, and in what is installed.
func TestSlurmMPI(t *testing.T) {
	const list = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n"
	for _, c := range []struct {
		name, set, config, list string
		openMPI                 bool
		want                    string
	}{
		{"the site's default", "", "MpiDefault              = pmix\n", list, true, ""},
		{"the user's own", "pmi2", "MpiDefault = none\n", list, true, ""},
		{"Open MPI", "", "ClusterName = c\nMpiDefault              = none\n", list, true, "pmix"},
		{"MPICH", "", "MpiDefault = none\n", list, false, "pmi2"},
		{"no pmix", "", "MpiDefault = none\n", "none pmi2\n", true, "pmi2"},
		{"nothing", "", "MpiDefault = none\n", "none\n", true, ""},
		{"no Slurm", "", "", "", true, ""},
	} {
		f := finder{func(name string) (string, error) {
			if name != "mpirun" || !c.openMPI {
				return "", errors.New("not there")
			}
			return name, nil
		}, func(string) string { return "mpirun (Open MPI) 4.1.4" }}
		env := func(string) (string, bool) { return c.set, c.set != "" }
		ask := func(name string, _ ...string) string {
			return map[string]string{"scontrol": c.config, "srun": c.list}[name]
		}
		if got := f.slurmMPI(env, ask); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
