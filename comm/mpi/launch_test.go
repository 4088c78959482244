//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
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
	testenv.Children()
	os.Exit(m.Run())
}

// tasks are what ranks do.
var tasks = map[string]func(context.Context, *Rank) error{
	"suite":         suite,
	"levels":        onLevels,
	"windows":       windows,
	"messages":      messages,
	"mailbox open":  mailboxLeftOpen,
	"sendrecv":      sendRecv,
	"sendrecv end":  endsBeforeSendRecv,
	"window open":   windowLeftOpen,
	"window end":    endsWithALock,
	"communicators": communicators,
	"turns":         turns,
	"by address":    suiteByAddress,
	"support":       saySupport,
	"yields":        sayYields,
	"end":           lastEnds,
	"unreceived":    unreceived,
	"end late":      lastListensLate,
	"fail":          firstFails,
	"busy":          firstFailsOthersBusy,
	"killed":        lastIsKilled,
	"truncated":     truncated,
	"camps":         camps,
	"unknown kind":  unknownKind,
	"bug":           bug,
	"huge":          huge,
	"allocations":   allocations,
	"wrong":         wrong,
	"slow":          slow,
}

// child is one rank; what it returns is the exit code.
func child(task string) int {
	o := Options{Linger: 2 * time.Second}
	if launch, _ := Detect(os.LookupEnv); task == "checking differs" {
		o.Unchecked = launch.Rank == 1
	}
	world, err := Open(o)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if want := os.Getenv("MPI_TEST_SIZE"); want != strconv.Itoa(world.Size()) {
		err = fmt.Errorf("the world has %d ranks, want %s", world.Size(), want)
	} else {
		err = tasks[task](context.Background(), world)
	}
	right := err == nil || errors.Is(err, errExpected)
	if err != nil {
		if !right {
			fmt.Printf("rank %d: %v\n", world.Rank(), err)
		}
		world.Abort(err)
	}
	if e := world.Close(err); e != nil {
		fmt.Printf("rank %d: %v\n", world.Rank(), e)
		return 1
	}
	if !right {
		return 1
	}
	fmt.Printf("rank %d of %d over %s: all right\n", world.Rank(), world.Size(), world.Library())
	return 0
}

// errExpected marks an error that a task is meant to end with.
var errExpected = errors.New("as expected")

// launcher starts ranks over one MPI library.
type launcher struct {
	name    string
	command []string // before the number of ranks
	library string   // what a rank's library calls itself
}

var launchers = []launcher{
	{"openmpi", []string{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np"}, "Open MPI"},
	{"openmpi5", []string{"mpirun.openmpi5", "--oversubscribe", "--allow-run-as-root", "-np"}, "Open MPI v5."},
	{"mpich", []string{"mpiexec.hydra", "-n"}, "MPICH"},
}

// eachLauncher runs test over each library that is installed, and under the race detector over one: this
// package is the same over all.
func eachLauncher(t *testing.T, test func(t *testing.T, l launcher)) {
	for _, l := range testenv.Fewer(launchers, 0) {
		t.Run(l.name, func(t *testing.T) {
			l.need(t)
			test(t, l)
		})
	}
}

// need ends the test unless the launcher is there.
func (l launcher) need(t *testing.T) {
	t.Helper()
	testenv.NeedPrograms(t, l.command[0])
	if l.name == "openmpi5" { // of another Debian, in a mount namespace
		testenv.NeedNamespaces(t, "--mount")
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
	cmd.Env = append(os.Environ(), taskVariable+"="+task, "GOMAXPROCS=2", "OMPI_MCA_rmaps_base_oversubscribe=1",
		"PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe")
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

// pass runs a task that must succeed on every rank, over the launcher's library.
func (l launcher) pass(t *testing.T, n int, task string, env ...string) {
	t.Helper()
	out, err := l.run(t, n, task, append(env, fmt.Sprintf("MPI_TEST_SIZE=%d", n))...)
	if err != nil || strings.Count(out, "all right") != n || !strings.Contains(out, "over "+l.library) {
		t.Errorf("%d ranks: %v, output:\n%s", n, err, out)
	}
	if os.Getenv("MPI_TEST_TIMES") != "" {
		t.Log(out)
	}
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

// TestSrunWithoutPlugin has no srun, but its variables: nothing tells the library of the
// other ranks.
func TestSrunWithoutPlugin(t *testing.T) {
	libraries := map[string]string{"openmpi": openMPINames[0], "mpich": mpichNames[0]}
	remedies := map[string]string{"openmpi": "use srun --mpi=pmix ", "mpich": "use srun --mpi=pmi2 "}
	eachLauncher(t, func(t *testing.T, l launcher) {
		alone := launcher{command: []string{"sh", "-c", `exec "$1"`}}
		out, err := alone.run(t, 2, "suite", libraryVariable+"="+libraries[l.name], "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2")
		if err == nil || !strings.Contains(out, "srun started 2 ranks without a plugin") || !strings.Contains(out, remedies[l.name]) {
			t.Errorf("%v, output:\n%s", err, out)
		}
	})
}
