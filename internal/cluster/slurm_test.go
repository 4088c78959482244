package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
