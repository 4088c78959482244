//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slurm starts Slurm on the cluster: the controller on its first host.
func (c *cluster) slurm(t *testing.T) {
	t.Helper()
	need(t, "slurmctld", "slurmd", "srun", "munged")
	dir := filepath.Join(c.dir, "slurm")
	for _, h := range c.hosts {
		if err := os.MkdirAll(filepath.Join(dir, "spool-"+h.name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(dir, "munge.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("not a secret here ", 8)), 0o400); err != nil {
		t.Fatal(err)
	}
	c.write("slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
	c.write("slurm/slurm.conf", fmt.Sprintf(`ClusterName=test
SlurmctldHost=node1
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=%[1]s
SlurmdSpoolDir=%[1]s/spool-%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd-%%n.pid
SlurmctldLogFile=%[1]s/slurmctld.log
SlurmdLogFile=%[1]s/slurmd-%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=node[1-%[2]d] CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
`, dir, len(c.hosts)))
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, h := range c.hosts {
			log, err := os.ReadFile(dir + "/slurmd-" + h.name + ".log")
			t.Logf("what Slurm says on %s (%v):\n%s", h.name, err, log)
		}
	})
	daemon := func(h *host, args ...string) {
		t.Helper()
		if out, err := c.run(h, patience, nil, args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	daemon(c.hosts[0], "munged", "--force", "--socket="+dir+"/munge.sock", "--key-file="+key, "--pid-file="+dir+"/munged.pid",
		"--log-file="+dir+"/munged.log", "--seed-file="+dir+"/munged.seed")
	daemon(c.hosts[0], "slurmctld", "-c")
	for _, h := range c.hosts {
		daemon(h, "slurmd", "-N", h.name)
	}
	c.await("idle nodes", func() bool {
		out, _ := c.run(c.hosts[0], 10*time.Second, nil, "sinfo", "-h", "-t", "idle", "-o", "%D")
		return strings.TrimSpace(out) == fmt.Sprint(len(c.hosts))
	})
}

// initCrash matches the output of a program whose thread jumps to address 0 inside MPI_Init,
// before the program's own first line. It is a defect of Slurm 22.05 with PMIx 4.2.2 and
// Open MPI 4.1.4 under load, see docs/guide.md. A program in C that only calls MPI_Init crashes
// too.
var initCrash = regexp.MustCompile(`(?s)SIGSEGV: segmentation violation\nPC=0x0 .*signal arrived during cgo execution.*` +
	`gorun/comm/mpi\.\(\*library\)\.call\(0x[0-9a-f]+\??, 0x0\??, .*gorun/comm/mpi\.\(\*job\)\.start\(`) // 0x0 is MPI_Init_thread

func TestInitCrash(t *testing.T) {
	const said = `SIGSEGV: segmentation violation
PC=0x0 m=0 sigcode=1 addr=0x0
signal arrived during cgo execution

goroutine 5 gp=0x1a39233ec000 m=0 mp=0x9173c0 [syscall, locked to thread]:
github.com/gorun-spmd/gorun/comm/mpi.(*library).call(0x1a39233d2488, 0x0, {0x1a392330de98?, 0x4184e9?, 0x679ac0?})
	comm/mpi/library.go:195 +0x8d fp=0x1a392330de50 sp=0x1a392330de10 pc=0x630b2d
github.com/gorun-spmd/gorun/comm/mpi.(*job).start(0x1a39233a3208)
`
	if !crashed(t, 0, said) || !crashed(t, 1, said) || crashed(t, 2, said) {
		t.Error("the crash does not start the job again two times")
	}
	for _, other := range []string{
		strings.Replace(said, "PC=0x0", "PC=0x7f0012", 1),
		strings.Replace(said, "88, 0x0,", "88, 0x6,", 1), // MPI_Comm_dup
		strings.Replace(said, ".start(", ".poll(", 1),
		"panic: runtime error: invalid memory address or nil pointer dereference",
	} {
		if crashed(t, 0, other) {
			t.Errorf("the job is started again for:\n%s", other)
		}
	}
}

// crashed reports whether a job is to be started once more: because of initCrash alone, and at
// most restarts times. It logs that.
func crashed(t *testing.T, tries int, out string) bool {
	t.Helper()
	const restarts = 2
	if tries >= restarts || !initCrash.MatchString(out) {
		return false
	}
	t.Logf("a rank crashed inside MPI_Init, a defect of this Slurm with this Open MPI; the job is started again. Its output:\n%s", out)
	return true
}

// slurmJob runs a command that starts ranks by srun, as run does.
func (c *cluster) slurmJob(t *testing.T, env []string, args ...string) (out string, err error) {
	t.Helper()
	for tries := 0; ; tries++ {
		if out, err = c.run(c.hosts[0], patience, env, args...); err == nil || !crashed(t, tries, out) {
			return out, err
		}
	}
}

// cancels stops jobs that gorun hands to srun. The ways of stopping leave srun no time to end
// its ranks. It checks that neither ranks nor jobs are left.
func (c *cluster) cancels(t *testing.T) {
	const ranks = "sleeper"
	kill := func(sig syscall.Signal, names ...string) {
		for _, found := range c.running(c.hosts[0], names...) {
			_, number, _ := strings.Cut(found, " ")
			pid, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(pid, sig) // it may have ended with another
		}
	}
	const guardian = "exe" // its name in the process table
	inside := []string{"salloc", "-N2", "--ntasks-per-node=2"}
	for _, test := range []struct {
		name   string
		prefix []string
		stop   func()
	}{
		{"gorun is killed", nil, func() { kill(syscall.SIGKILL, "gorun") }},
		{"its guardian is killed", nil, func() { kill(syscall.SIGKILL, guardian) }},
		{"both are killed", nil, func() { kill(syscall.SIGKILL, "gorun", guardian) }},
		{"two times Ctrl-C", nil, func() {
			kill(syscall.SIGINT, "gorun")
			time.Sleep(300 * time.Millisecond) // else both are taken for one
			kill(syscall.SIGINT, "gorun")
		}},
		{"srun is killed", inside, func() { kill(syscall.SIGKILL, "srun") }},
		{"gorun is killed, in an allocation", inside, func() { kill(syscall.SIGKILL, "gorun") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var out output
			cmd := c.command(ctx, c.hosts[0], nil, slices.Concat(test.prefix,
				[]string{"gorun", "--via", "slurm", "--host", "node1:2,node2:2", ranks, "1000"})...)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c.await("ranks", func() bool { return len(c.running(c.hosts[0], ranks)) == 2 && len(c.running(c.hosts[1], ranks)) == 2 })
			test.stop()
			_ = cmd.Wait() // killed, mostly
			if ctx.Err() != nil {
				t.Errorf("it had not ended after %v", patience)
			}
			c.clean(t, c.hosts...)
			if t.Failed() {
				t.Fatalf("output:\n%s", out.String())
			}
			c.await("an empty queue", func() bool {
				jobs, err := c.run(c.hosts[0], 10*time.Second, nil, "squeue", "--noheader", "--states=PENDING,CONFIGURING,RUNNING")
				return err == nil && jobs == ""
			})
		})
	}
}
