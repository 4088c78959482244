//go:build linux

package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// leftovers are the programs that no job may leave behind.
var leftovers = []string{"gorun", "train", "conformance", "leaver", "mpi.test", "mpirun", "orted", "prted",
	"mpiexec.hydra", "hydra_pmi_proxy", "srun", "sleeper"}

// withoutCgo is the environment in which the programs are built: they run on hosts that have no C library of this one.
var withoutCgo = []string{"CGO_ENABLED=0"}

// build puts the programs and their input into dir, built without cgo.
func build(t *testing.T, dir string) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o777); err != nil {
		t.Fatal(err)
	}
	testenv.Build(t, bin, withoutCgo, "../../cmd/gorun", "../../examples/train", "../conformance", "./testdata/leaver")
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "sleeper"), sleep, 0o755); err != nil { // a name that nothing else has
		t.Fatal(err)
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

// buildSuite puts the suite of the backend into dir, built without cgo.
func buildSuite(t *testing.T, dir string) {
	t.Helper()
	testenv.DependsOn(t, "../../comm/mpi")
	cmd := exec.Command("go", "test", "-vet=off", "-c", "-o", filepath.Join(dir, "bin/mpi.test"), "../../comm/mpi")
	cmd.Env = append(os.Environ(), withoutCgo...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// train is a short training run of the example in dir, with more flags.
func train(dir string, more ...string) []string {
	args := append([]string{filepath.Join(dir, "bin/train"), "-layers", "1", "-width", "32", "-heads", "2", "-context", "32",
		"-sample", "0", "-plot", ""}, more...)
	return append(args, filepath.Join(dir, "corpus.txt"))
}

// TestTrainOverMPI starts the example by mpirun and mpiexec without gorun, with the same binary,
// on this machine alone.
func TestTrainOverMPI(t *testing.T) {
	long(t)
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
	for _, launcher := range [][]string{
		{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", "4"},
		{"mpiexec.hydra", "-n", "4"},
	} {
		t.Run(launcher[0], func(t *testing.T) {
			testenv.NeedPrograms(t, launcher[0])
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

// two starts two hosts with all programs and a host file. It returns the command of a short training run, and a
// function that compares what another start of it says with what it says on one host.
func two(t *testing.T) (c *cluster, short []string, same func(t *testing.T, out string, err error, says ...string)) {
	t.Helper()
	c = up(t, 2)
	build(t, c.dir)
	c.write("hostfile", "node1 slots=2\nnode2 slots=2\n")
	short = train(c.dir, "-steps", "3", "-json")
	alone, err := c.run(c.hosts[0], patience, nil, append([]string{"gorun", "-np", "4"}, short...)...)
	want := losses.FindString(alone)
	if err != nil || want == "" {
		t.Fatalf("on one host: %v\n%s", err, alone)
	}
	return c, short, func(t *testing.T, out string, err error, says ...string) {
		t.Helper()
		if got := losses.FindString(out); err != nil || got != want {
			t.Errorf("%v, got %s, want %s as on one host; output:\n%s", err, got, want, out)
		}
		if strings.Contains(out, "leaving without the MPI library") {
			t.Errorf("the library had not ended; output:\n%s", out)
		}
		for _, s := range says {
			if !strings.Contains(out, s) {
				t.Errorf("no %q in:\n%s", s, out)
			}
		}
		c.clean(t, c.hosts...)
	}
}

// TestJobs runs the example on two hosts, with the binaries that run on one host.
func TestJobs(t *testing.T) {
	beside(t)
	c, short, same := two(t)
	for _, via := range []string{"openmpi", "mpich"} {
		t.Run("host file, "+via, func(t *testing.T) {
			out, err := c.run(c.hosts[0], patience, nil, append([]string{"gorun", "--hostfile", "hostfile", "--via", via, "-np", "4"}, short...)...)
			same(t, out, err, "gorun: starting 4 ranks on node1, node2 with mpi")
		})
		t.Run("a host is cut off, "+via, func(t *testing.T) {
			gorun := []string{"gorun", "--hostfile", "hostfile", "--via", via, "-np", "4"}
			c.cutOff(t, 15*time.Second, nil, gorun, `gorun: .*ranks 2-3`, `gorun: .*node2`)
		})
		t.Run("a rank is killed, "+via, func(t *testing.T) { c.killed(t, via) })
		t.Run("a rank leaves, "+via, func(t *testing.T) { c.leaves(t, nil, "--hostfile", "hostfile", "--via", via) })
		t.Run("a host lacks something, "+via, func(t *testing.T) { c.lacks(t, nil, "--hostfile", "hostfile", "--via", via) })
	}
	for _, launcher := range [][]string{
		{"mpirun.openmpi", "--host", "node1:2,node2:2", "-np", "4"},
		{"mpiexec.hydra", "-hosts", "node1:2,node2:2", "-n", "4"},
	} {
		t.Run("a host is cut off, "+launcher[0], func(t *testing.T) {
			c.cutOff(t, 8*time.Second, []string{"GORUN_HOST_TIMEOUT=8s"}, launcher, `rank [01]: runtime: node2 does not answer`)
		})
	}
	t.Run("a rank exits, mpich", func(t *testing.T) {
		out, err := c.run(c.hosts[0], patience, nil, "gorun", "--hostfile", "hostfile", "--via", "mpich", "-np", "4",
			"sh", "-c", "[ $PMI_RANK != 3 ] || exit 3; exec sleeper 1000")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 ||
			!strings.Contains(out, "gorun: rank 3 on node2 failed: it ended without saying why (exit code 3)") {
			t.Errorf("%v, output:\n%s", err, out)
		}
		c.clean(t, c.hosts...)
	})
	t.Run("a rank fails on the other host", func(t *testing.T) {
		out, err := c.run(c.hosts[0], patience, nil, "gorun", "--hostfile", "hostfile", "-np", "4",
			filepath.Join(c.dir, "bin/conformance"), "missing")
		if err == nil || !regexp.MustCompile(`gorun: rank [0-3] on node[12] failed: .*missing.* \(exit code 1\)`).MatchString(out) {
			t.Errorf("%v, output:\n%s", err, out)
		}
	})
	t.Run("PBS allocation", func(t *testing.T) {
		nodes := c.write("pbs", "node1\nnode1\nnode2\nnode2\n")
		out, err := c.run(c.hosts[0], patience, []string{"PBS_JOBID=17", "PBS_NODEFILE=" + nodes},
			append([]string{"gorun", "-np", "4"}, short...)...)
		same(t, out, err, "gorun: starting 4 ranks on node1, node2 with mpirun")
	})
}

// TestSlurm runs the example, the recorded cases and the backend's suite under Slurm on two hosts, with the binaries
// that run on one host.
func TestSlurm(t *testing.T) {
	beside(t)
	c, short, same := two(t)
	buildSuite(t, c.dir)
	c.slurm(t)
	for _, mpi := range []string{"pmi2", "pmix"} {
		t.Run(mpi, func(t *testing.T) {
			out, err := c.slurmJob(t, nil, append([]string{"srun", "-N1", "-n4", "--mpi=" + mpi}, short...)...)
			same(t, out, err)
			out, err = c.slurmJob(t, nil, append([]string{"srun", "-N2", "-n4", "--mpi=" + mpi}, short...)...)
			same(t, out, err)
			out, err = c.slurmJob(t, nil, "srun", "-N1", "-n4", "--mpi="+mpi, "bin/conformance", "-resize", "cases")
			if err != nil || !passed.MatchString(out) {
				t.Errorf("recorded cases: %v\n%s", err, out)
			}
			out, err = c.slurmJob(t, []string{"MPI_TEST_TASK=suite", "MPI_TEST_SIZE=2"},
				"srun", "-N1", "-n2", "--mpi="+mpi, "bin/mpi.test")
			if err != nil || strings.Count(out, "all right") != 2 {
				t.Errorf("suite: %v\n%s", err, out)
			}
		})
	}
	t.Run("stops", func(t *testing.T) { c.stops(t) })
	t.Run("allocation", func(t *testing.T) {
		out, err := c.slurmJob(t, nil, append([]string{"salloc", "-N2", "--ntasks-per-node=2", "gorun", "-np", "4"}, short...)...)
		same(t, out, err, "gorun: starting 4 ranks on node1, node2 with srun")
		c.lacks(t, []string{"salloc", "-N2", "--ntasks-per-node=2"})
		c.leaves(t, []string{"salloc", "-N2", "--ntasks-per-node=2"})
	})
	t.Run("cancelled", func(t *testing.T) { c.cancels(t) })
	t.Run("faults", func(t *testing.T) { c.faults(t) })
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

// lacks runs a job in a folder, and a job of a program, that only the first host has.
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
		{[]string{"--wdir", folder, filepath.Join(c.dir, "bin/conformance"), filepath.Join(c.dir, "cases")}, 1,
			"there is no folder " + folder + " on this host"},
		{[]string{program, "cases"}, 127, "there is no program " + program + " on this host"},
	} {
		out, err := c.run(c.hosts[0], patience, nil, slices.Concat(prefix, []string{"gorun"}, flags, []string{"-np", "4"}, test.args)...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != test.status ||
			!regexp.MustCompile(`(?m)^gorun: rank [23] on node2 failed: `+test.says).MatchString(out) {
			t.Errorf("%v: %v, output:\n%s", test.args, err, out)
		}
		c.clean(t, c.hosts...)
	}
}

// leaves runs a job whose rank 1 calls os.Exit(0) while the others wait for it. It must end soon after that.
func (c *cluster) leaves(t *testing.T, prefix []string, flags ...string) {
	dir, err := os.MkdirTemp(c.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "left")
	out, err := c.run(c.hosts[0], patience, nil, slices.Concat(prefix, []string{"gorun"}, flags, []string{"-np", "4", "bin/leaver", left})...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() == 0 || !regexp.MustCompile(`(?m)^gorun: .*rank 1 on node1`).MatchString(out) {
		t.Errorf("%v, output:\n%s", err, out)
	}
	info, err := os.Stat(left)
	if err != nil {
		t.Fatalf("%v; output:\n%s", err, out)
	}
	if took := time.Since(info.ModTime()); took > 10*time.Second {
		t.Errorf("it took %v; output:\n%s", took, out)
	}
	c.clean(t, c.hosts...)
}

// killed kills a rank of the second host. The job must end with an error that names the rank.
func (c *cluster) killed(t *testing.T, via string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out output
	cmd := c.command(ctx, c.hosts[0], nil, append([]string{"gorun", "--hostfile", "hostfile", "--via", via, "-np", "4"},
		train(c.dir, "-minutes", "10")...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.await("training", func() bool { return strings.Contains(out.String(), "tokens to train") || ctx.Err() != nil })
	ranks := c.running(c.hosts[1], "train")
	if len(ranks) != 2 {
		t.Fatalf("%v on node2, want two ranks; output:\n%s", ranks, out.String())
	}
	pid, err := strconv.Atoi(strings.TrimPrefix(ranks[0], "train "))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	err = cmd.Wait()
	if !errors.As(err, &exit) || exit.ExitCode() != 137 ||
		!regexp.MustCompile(`gorun: rank [23] on node2 failed: it was killed by SIGKILL; .*: see dmesg there \(exit code 137\)`).
			MatchString(out.String()) {
		t.Errorf("%v, output:\n%s", err, out.String())
	}
	c.clean(t, c.hosts...)
}

// cutOff pulls the second host's cable during a job that command starts. The ranks of both hosts
// must end within limit, while the cable is out, and so must the command if it is gorun. The
// output must match each of says.
func (c *cluster) cutOff(t *testing.T, limit time.Duration, env, command []string, says ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out output
	cmd := c.command(ctx, c.hosts[0], env, append(command, train(c.dir, "-minutes", "10")...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan time.Time, 1)
	go func() {
		_ = cmd.Wait() // the test looks at ProcessState
		ended <- time.Now()
	}()
	c.await("a step", func() bool { return strings.Contains(out.String(), "\nstep ") || len(ended) > 0 })
	if len(ended) > 0 {
		t.Fatalf("it ended before the cut; output:\n%s", out.String())
	}
	c.cable(2, "down")
	began := time.Now()
	c.await("the ranks' end", func() bool { return len(c.running(c.hosts[0], "train"))+len(c.running(c.hosts[1], "train")) == 0 })
	took := time.Since(began)
	if command[0] == "gorun" {
		took = max(took, (<-ended).Sub(began))
		if cmd.ProcessState.Success() {
			t.Error("exit status 0")
		}
	}
	c.cable(2, "up")
	cancel() // other launchers may wait for the lost host
	text := out.String()
	t.Logf("the end came after %v", took)
	if took > limit {
		t.Errorf("the end came after %v, want at most %v; output:\n%s", took, limit, text)
	}
	for _, s := range says {
		if !regexp.MustCompile(s).MatchString(text) {
			t.Errorf("no %s in:\n%s", s, text)
		}
	}
	c.clean(t, c.hosts...)
}

// output collects the output of a command, and can be read while the command runs.
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
