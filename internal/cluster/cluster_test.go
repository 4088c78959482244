package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/cachetest"
	"github.com/gorun-spmd/gorun/internal/needtest"
)

// leftovers are the programs that no job may leave behind.
var leftovers = []string{"gorun", "train", "conformance", "mpi.test", "mpirun", "orted", "prted", "mpiexec.hydra", "hydra_pmi_proxy", "srun"}

// build puts the programs and their input into dir, built without cgo.
func build(t *testing.T, dir string) {
	t.Helper()
	cachetest.Uses(t, "../../cmd/gorun", "../../examples/train", "../conformance", "../../comm/mpi")
	bin := filepath.Join(dir, "bin")
	for _, args := range [][]string{
		{"build", "-o", bin + "/", "../../cmd/gorun", "../../examples/train", "../conformance"},
		{"test", "-c", "-o", filepath.Join(bin, "mpi.test"), "../../comm/mpi"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "cases"), os.DirFS("../conformance/testdata")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "corpus.txt"), bytes.Repeat(text, 3), 0o644); err != nil {
		t.Fatal(err)
	}
}

// train is a short training run of the example in dir, with more flags.
func train(dir string, more ...string) []string {
	args := append([]string{filepath.Join(dir, "bin/train"), "-layers", "1", "-width", "32", "-heads", "2", "-context", "32", "-sample", "0", "-plot", ""}, more...)
	return append(args, filepath.Join(dir, "corpus.txt"))
}

// TestTrainOverMPI starts the example by the launchers themselves, with the binary
// that gorun starts, on this machine alone.
func TestTrainOverMPI(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and its programs are the same as without -short")
	}
	dir := t.TempDir()
	build(t, dir)
	run := func(t *testing.T, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, args[0], append(args[1:], train(dir, "-steps", "3", "-json")...)...)
		cmd.WaitDelay = 5 * time.Second
		out, err := cmd.CombinedOutput()
		got := losses.FindString(string(out))
		if err != nil || got == "" {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return got
	}
	want := run(t, filepath.Join(dir, "bin/gorun"), "-np", "4")
	for _, launcher := range [][]string{{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", "4"}, {"mpiexec.hydra", "-n", "4"}} {
		t.Run(launcher[0], func(t *testing.T) {
			needtest.Programs(t, launcher[0])
			if got := run(t, launcher...); got != want {
				t.Errorf("got %s, want %s as by gorun", got, want)
			}
		})
	}
}

var (
	losses = regexp.MustCompile(`"losses":\[([^\]]+)\]`)
	passed = regexp.MustCompile(`(?m)^(\d{3,}) passed, 0 failed$`)
)

// TestJobs runs the example, the recorded cases and the backend's suite on two
// hosts and under Slurm, with the binaries that run on one host.
func TestJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and its programs are the same as without -short")
	}
	need(t, "mpirun.openmpi", "mpiexec.hydra")
	c := up(t, 2)
	build(t, c.dir)
	c.write("hostfile", "node1 slots=2\nnode2 slots=2\n")
	short := train(c.dir, "-steps", "3", "-json")
	alone, err := c.run(c.hosts[0], patience, nil, append([]string{"gorun", "-np", "4"}, short...)...)
	want := losses.FindString(alone)
	if err != nil || want == "" {
		t.Fatalf("on one host: %v\n%s", err, alone)
	}
	same := func(t *testing.T, out string, err error, says ...string) {
		t.Helper()
		if got := losses.FindString(out); err != nil || got != want {
			t.Errorf("%v, got %s, want %s as on one host; output:\n%s", err, got, want, out)
		}
		for _, s := range says {
			if !strings.Contains(out, s) {
				t.Errorf("no %q in:\n%s", s, out)
			}
		}
		c.clean(t, c.hosts...)
	}
	for _, via := range []string{"openmpi", "mpich"} {
		t.Run("host file, "+via, func(t *testing.T) {
			out, err := c.run(c.hosts[0], patience, nil, append([]string{"gorun", "--hostfile", "hostfile", "--via", via, "-np", "4"}, short...)...)
			same(t, out, err, "gorun: starting 4 ranks on node1, node2 with mpi")
		})
		t.Run("a host is cut off, "+via, func(t *testing.T) { c.cutOff(t, via) })
		t.Run("a host lacks something, "+via, func(t *testing.T) { c.lacks(t, nil, "--hostfile", "hostfile", "--via", via) })
	}
	t.Run("a rank fails on the other host", func(t *testing.T) {
		out, err := c.run(c.hosts[0], patience, nil, "gorun", "--hostfile", "hostfile", "-np", "4", filepath.Join(c.dir, "bin/conformance"), "missing")
		if err == nil || !regexp.MustCompile(`gorun: rank [0-3] on node[12] failed: .*missing.* \(exit code 1\)`).MatchString(out) {
			t.Errorf("%v, output:\n%s", err, out)
		}
	})
	t.Run("PBS allocation", func(t *testing.T) {
		nodes := c.write("pbs", "node1\nnode1\nnode2\nnode2\n")
		out, err := c.run(c.hosts[0], patience, []string{"PBS_JOBID=17", "PBS_NODEFILE=" + nodes}, append([]string{"gorun", "-np", "4"}, short...)...)
		same(t, out, err, "gorun: starting 4 ranks on node1, node2 with mpirun")
	})
	t.Run("Slurm", func(t *testing.T) {
		c.slurm(t)
		for _, mpi := range []string{"pmi2", "pmix"} {
			t.Run(mpi, func(t *testing.T) {
				out, err := c.run(c.hosts[0], patience, nil, append([]string{"srun", "-N1", "-n4", "--mpi=" + mpi}, short...)...)
				same(t, out, err)
				out, err = c.run(c.hosts[0], patience, nil, append([]string{"srun", "-N2", "-n4", "--mpi=" + mpi}, short...)...)
				same(t, out, err)
				out, err = c.run(c.hosts[0], patience, nil, "srun", "-N1", "-n4", "--mpi="+mpi, "bin/conformance", "-resize", "cases")
				if err != nil || !passed.MatchString(out) {
					t.Errorf("recorded cases: %v\n%s", err, out)
				}
				out, err = c.run(c.hosts[0], patience, []string{"MPI_TEST_TASK=suite", "MPI_TEST_SIZE=2"}, "srun", "-N1", "-n2", "--mpi="+mpi, "bin/mpi.test")
				if err != nil || strings.Count(out, "all right") != 2 {
					t.Errorf("suite: %v\n%s", err, out)
				}
			})
		}
		t.Run("allocation", func(t *testing.T) {
			out, err := c.run(c.hosts[0], patience, nil, append([]string{"salloc", "-N2", "--ntasks-per-node=2", "gorun", "-np", "4"}, short...)...)
			same(t, out, err, "gorun: starting 4 ranks on node1, node2 with srun")
			c.lacks(t, []string{"salloc", "-N2", "--ntasks-per-node=2"})
		})
	})
}

// clean fails the test if processes of a job are left, after a moment.
func (c *cluster) clean(t *testing.T, hosts ...*host) {
	t.Helper()
	for _, h := range hosts {
		var left []string
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			if left = c.running(h, leftovers...); len(left) == 0 || time.Now().After(end) {
				break
			}
		}
		if len(left) > 0 {
			t.Errorf("left on %s: %v", h.name, left)
		}
	}
}

// lacks has jobs in a folder, and of a program, that the first host alone has.
func (c *cluster) lacks(t *testing.T, prefix []string, flags ...string) {
	const folder = "/tmp/only/here"
	program := folder + "/conformance"
	if out, err := c.run(c.hosts[0], patience, nil, "sh", "-c", "mkdir -p "+folder+" && cp bin/conformance "+folder); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--wdir", folder, filepath.Join(c.dir, "bin/conformance"), filepath.Join(c.dir, "cases")}, 1, "there is no folder " + folder + " on this host"},
		{[]string{program, "cases"}, 127, "there is no program " + program + " on this host"},
	} {
		out, err := c.run(c.hosts[0], patience, nil, slices.Concat(prefix, []string{"gorun"}, flags, []string{"-np", "4"}, test.args)...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != test.status || !regexp.MustCompile(`(?m)^gorun: rank [23] on node2 failed: `+test.says).MatchString(out) {
			t.Errorf("%v: %v, output:\n%s", test.args, err, out)
		}
		c.clean(t, c.hosts...)
	}
}

// cutOff pulls the second host's cable during a job, which must end with its name.
func (c *cluster) cutOff(t *testing.T, via string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out output
	cmd := c.command(ctx, c.hosts[0], nil, append([]string{"gorun", "--hostfile", "hostfile", "--via", via, "-np", "4"}, train(c.dir, "-minutes", "10")...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		cancel()
	}()
	c.await("training", func() bool { return strings.Contains(out.String(), "tokens to train") || ctx.Err() != nil })
	if ctx.Err() != nil {
		t.Fatalf("it ended before the cut; output:\n%s", out.String())
	}
	c.cable(2, "down")
	began := time.Now()
	err := <-ended
	took := time.Since(began)
	c.cable(2, "up")
	t.Logf("gorun ended after %v", took)
	text := out.String()
	if err == nil || took > patience || !regexp.MustCompile(`gorun: .*ranks 2-3.*`).MatchString(text) || !regexp.MustCompile(`gorun: .*node2`).MatchString(text) {
		t.Errorf("%v after %v, want an end that names ranks 2-3 on node2; output:\n%s", err, took, text)
	}
	c.clean(t, c.hosts[0])
	// The other host finds out for itself, sooner or later; the next test starts afresh.
	c.must("nsenter", "-t", fmt.Sprint(c.hosts[1].pid), "--pid", "--mount", "--", "sh", "-c", "pkill -KILL -x 'orted|hydra_pmi_proxy|train' || true")
	c.clean(t, c.hosts[1])
}

// output is what a command says while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
