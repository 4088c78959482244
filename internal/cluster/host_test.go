//go:build linux

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// patience is how long anything may take before the test fails.
const patience = 90 * time.Second

// A cluster is the hosts node1, node2, …
type cluster struct {
	t     *testing.T
	dir   string // the folder that all hosts see
	hosts []*host
	wires int // the process whose network is the switch
}

// A host is known by its first process.
type host struct {
	name string
	pid  int
	cpu  string // the only one of this machine on which its processes run
}

// need ends a test that needs hosts, unless this machine can make them and has all programs.
func need(t *testing.T, programs ...string) {
	t.Helper()
	testenv.NeedNamespaces(t, "--net", "--pid", "--fork", "--mount")
	testenv.NeedPrograms(t, programs...)
}

// long skips a test with -short.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long, and its programs are the same as without -short")
	}
}

// beside is for a test of jobs on hosts of its own: it waits more than it computes, and others run beside it.
func beside(t *testing.T) {
	t.Helper()
	long(t)
	t.Parallel()
	need(t, "mpirun.openmpi", "mpiexec.hydra")
}

// up starts n hosts.
func up(t *testing.T, n int) *cluster {
	t.Helper()
	need(t, "ip", "nsenter", "setpriv", "taskset", "ssh", "ssh-keygen", "/usr/sbin/sshd")
	dir, err := os.MkdirTemp("/tmp", "gorun-cluster-") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &cluster{t: t, dir: dir}
	c.configure(n)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	c.wires = c.spawn("unshare", "--net", "sleep", "infinity")
	c.await("the switch", func() bool {
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", c.wires))
		return err == nil && ns != own
	})
	c.must("nsenter", "-t", strconv.Itoa(c.wires), "--net", "ip", "link", "add", "br0", "type", "bridge")
	c.must("nsenter", "-t", strconv.Itoa(c.wires), "--net", "ip", "link", "set", "br0", "up")
	for k := 1; k <= n; k++ {
		c.hosts = append(c.hosts, c.start(k))
	}
	for _, h := range c.hosts {
		c.await("ssh to "+h.name, func() bool {
			_, err := c.run(c.hosts[0], 5*time.Second, nil, "ssh", h.name, "true")
			return err == nil
		})
	}
	return c
}

// configure writes the files that all hosts share.
func (c *cluster) configure(n int) {
	etc := filepath.Join(c.dir, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		c.t.Fatal(err)
	}
	for _, key := range []string{"id", "hostkey"} {
		c.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(etc, key))
	}
	public, err := os.ReadFile(filepath.Join(etc, "hostkey.pub"))
	if err != nil {
		c.t.Fatal(err)
	}
	names := "127.0.0.1 localhost\n"
	for k := 1; k <= n; k++ {
		names += fmt.Sprintf("10.99.0.%d node%d\n", k, k)
	}
	c.write("etc/hosts", names)
	c.write("etc/known", "* "+string(public))
	c.write("etc/ssh_config", fmt.Sprintf("Host *\n IdentityFile %[1]s/id\n IdentitiesOnly yes\n UserKnownHostsFile %[1]s/known\n"+
		" StrictHostKeyChecking yes\n BatchMode yes\n ConnectTimeout 5\n LogLevel ERROR\n", etc))
	c.write("etc/sshd_config", fmt.Sprintf("Port 22\nHostKey %[1]s/hostkey\nPidFile none\nAuthorizedKeysFile %[1]s/id.pub\n"+
		"PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\nUseDNS no\nMaxStartups 100\n", etc))
}

// write writes a file of the common folder.
func (c *cluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// start makes host k, with one CPU, and plugs it in. With all CPUs of this machine the ranks of each host would take them for
// their own, and keep each other from running while they wait awake.
func (c *cluster) start(k int) *host {
	h := &host{name: fmt.Sprintf("node%d", k), cpu: c.cpu(k)}
	script, err := filepath.Abs("testdata/host.sh")
	if err != nil {
		c.t.Fatal(err)
	}
	parent := c.spawn("taskset", "-c", h.cpu, "unshare", "--net", "--uts", "--ipc", "--mount", "--propagation", "private",
		"--pid", "--fork", "--kill-child", "bash", script, c.dir, h.name)
	c.await(h.name, func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", parent))
		h.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	c.await(h.name+"'s start", func() bool {
		_, err := os.Stat(filepath.Join(c.dir, h.name+".up"))
		return err == nil
	})
	port := fmt.Sprintf("p%d", k)
	c.must("ip", "link", "add", "eth0", "netns", strconv.Itoa(h.pid), "type", "veth", "peer", "name", port, "netns", strconv.Itoa(c.wires))
	for _, args := range []string{"link set lo up", fmt.Sprintf("addr add 10.99.0.%d/24 dev eth0", k), "link set eth0 up"} {
		c.must("nsenter", append([]string{"-t", strconv.Itoa(h.pid), "--net", "ip"}, strings.Fields(args)...)...)
	}
	c.must("nsenter", "-t", strconv.Itoa(c.wires), "--net", "ip", "link", "set", port, "master", "br0", "up")
	return h
}

// cpu returns the number of a CPU for host k: another one for each while there are any.
func (c *cluster) cpu(k int) string {
	var usable unix.CPUSet
	if err := unix.SchedGetaffinity(0, &usable); err != nil {
		c.t.Fatal(err)
	}
	k %= usable.Count()
	for n := 0; ; n++ {
		if usable.IsSet(n) {
			if k == 0 {
				return strconv.Itoa(n)
			}
			k--
		}
	}
}

// cable pulls the cable of host k, or plugs it in again: "down" or "up".
func (c *cluster) cable(k int, state string) {
	c.t.Helper()
	c.must("nsenter", "-t", strconv.Itoa(c.wires), "--net", "ip", "link", "set", fmt.Sprintf("p%d", k), state)
}

// spawn starts a process that ends with the test's.
func (c *cluster) spawn(name string, args ...string) (pid int) {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if c.t.Failed() && said.Len() > 0 {
			c.t.Logf("%s: %s", name, said.String())
		}
	})
	return cmd.Process.Pid
}

// must runs a command on this machine.
func (c *cluster) must(name string, args ...string) {
	c.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// command is a command on a host, in the common folder.
func (c *cluster) command(ctx context.Context, h *host, env []string, args ...string) *exec.Cmd {
	all := append([]string{"-c", h.cpu, "nsenter", "-t", strconv.Itoa(h.pid), "--net", "--uts", "--ipc", "--mount", "--pid", "--",
		"setpriv", "--pdeathsig", "TERM", "sh", "-c", `cd "$0" && exec "$@"`, c.dir}, args...)
	cmd := exec.CommandContext(ctx, "taskset", all...)
	cmd.Env = append([]string{"HOME=" + c.dir, "PATH=" + filepath.Join(c.dir, "bin") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"SLURM_CONF=" + filepath.Join(c.dir, "slurm/slurm.conf"), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs a command on a host to its end and returns what it said.
func (c *cluster) run(h *host, limit time.Duration, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := c.command(ctx, h, env, args...).CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("%v had not ended after %v", args, limit)
	}
	return string(out), err
}

// await waits until happened returns true. It fails the test after patience.
func (c *cluster) await(what string, happened func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

// running returns the processes of a host whose program is one of names.
func (c *cluster) running(h *host, names ...string) (found []string) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", h.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		if ns, err := os.Readlink(p + "/ns/pid"); err != nil || ns != own {
			continue
		}
		comm, _ := os.ReadFile(p + "/comm")
		stat, _ := os.ReadFile(p + "/stat")
		if name := strings.TrimSpace(string(comm)); slices.Contains(names, name) && !bytes.Contains(stat, []byte(") Z ")) {
			found = append(found, name+" "+filepath.Base(p))
		}
	}
	return found
}
