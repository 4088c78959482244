//go:build linux && !nolibs

package mpi

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary is its own child: with this set it is a rank.
const taskVariable = "MPI_TEST_TASK"

// A rank ends itself after this long, whatever its launcher does.
const childLimit = 100 * time.Second

func TestMain(m *testing.M) {
	if task := os.Getenv(taskVariable); task != "" {
		time.AfterFunc(childLimit, func() {
			fmt.Fprintln(os.Stderr, "the rank has taken", childLimit)
			os.Exit(3)
		})
		os.Exit(child(task))
	}
	os.Exit(m.Run())
}

// launcher starts ranks over one MPI library.
type launcher struct {
	name    string
	command []string // before the number of ranks
	library string   // what a rank's library calls itself
	install string
}

var launchers = []launcher{
	{"openmpi", []string{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np"}, "Open MPI", "openmpi-bin"},
	{"mpich", []string{"mpiexec.hydra", "-n"}, "MPICH", "mpich"},
}

// eachLauncher runs test over each library that is installed. A missing one is
// skipped, except where CI=true.
func eachLauncher(t *testing.T, test func(t *testing.T, l launcher)) {
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			if _, err := exec.LookPath(l.command[0]); err != nil {
				const what = "%s is not installed: %v; install the package %s"
				if os.Getenv("CI") == "true" {
					t.Fatalf(what, l.library, err, l.install)
				}
				t.Skipf(what, l.library, err, l.install)
			}
			test(t, l)
		})
	}
}

// run starts n ranks of this binary with a task and returns what they and the
// launcher said, and how the launcher ended.
func (l launcher) run(t *testing.T, n int, task string, env ...string) (output string, err error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), childLimit+10*time.Second)
	defer cancel()
	args := append(append([]string(nil), l.command[1:]...), fmt.Sprint(n), exe)
	cmd := exec.CommandContext(ctx, l.command[0], args...)
	cmd.Env = append(os.Environ(), taskVariable+"="+task, "GOMAXPROCS=2", "OMPI_MCA_rmaps_base_oversubscribe=1", "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // a launcher that is killed leaves its ranks
	cmd.WaitDelay = 5 * time.Second
	var out lockedBuilder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // gone already, at best
		t.Fatalf("%s did not end in time; its output:\n%s", l.command[0], out.String())
	}
	return out.String(), err
}

// lockedBuilder is a strings.Builder for two writers.
type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
