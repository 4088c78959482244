//go:build linux

package keepalive

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// roleVar makes a process of this test another one.
const roleVar = "KEEPALIVE_TEST_ROLE"

var testSecret = Secret{1, 31: 2}

func notLost(t *testing.T) func(string) {
	return func(host string) { t.Errorf("%s counts as lost", host) }
}

func listen(t *testing.T, lost func(string)) *Listener {
	t.Helper()
	l, err := Listen(MinLimit, testSecret, lost)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.tcp.Close() })
	return l
}

// A process that is stopped for longer than the limit is not lost, nor is one that is killed.
func TestStoppedIsNotLost(t *testing.T) {
	if port := os.Getenv(roleVar); port != "" {
		var n int
		if _, err := fmt.Sscan(port, &n); err != nil {
			t.Fatal(err)
		}
		err := Dial([]string{"192.0.2.1", "127.0.0.1"}, n, MinLimit, testSecret, "b", "a", notLost(t))
		fmt.Println("dialed", err)
		time.Sleep(time.Hour)
	}
	t.Parallel()
	l := listen(t, notLost(t))
	cmd := exec.Command(os.Args[0], "-test.run", "^TestStoppedIsNotLost$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", roleVar, l.Port()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "dialed <nil>\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(MinLimit + time.Second)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	time.Sleep(100 * time.Millisecond)
}

// When packets do not arrive any more, both ends are told within the limit.
func TestCutOff(t *testing.T) {
	if os.Getenv(roleVar) == "" {
		testenv.NeedNamespaces(t, "--net")
		testenv.NeedPrograms(t, "ip")
		t.Parallel()
		cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run", "^TestCutOff$")
		cmd.Env = append(os.Environ(), roleVar+"=cut")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	wire := func(state string) {
		t.Helper()
		if out, err := exec.Command("ip", "link", "set", "lo", state).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	wire("up")
	heard := make(chan string, 2)
	tell := func(host string) { heard <- host }
	l := listen(t, tell)
	if err := Dial([]string{"127.0.0.1"}, l.Port(), MinLimit, testSecret, "b", "a", tell); err != nil {
		t.Fatal(err)
	}
	wire("down")
	began, got := time.Now(), map[string]bool{}
	for len(got) < 2 {
		select {
		case host := <-heard:
			got[host] = true
		case <-time.After(10 * time.Second):
			t.Fatalf("only %v after %v", got, time.Since(began))
		}
	}
	if took := time.Since(began); !got["a"] || !got["b"] || took > MinLimit {
		t.Errorf("%v after %v, want a and b within %v", got, took, MinLimit)
	}
}

// An address at which something else listens, or nothing, is not taken.
func TestStrangers(t *testing.T) {
	t.Parallel()
	l := listen(t, notLost(t))
	other := testSecret
	other[0]++
	if err := Dial([]string{"127.0.0.1"}, l.Port(), MinLimit, other, "b", "a", notLost(t)); err == nil {
		t.Error("another job's secret was taken")
	}
	other = testSecret
	other[31]++
	if err := Dial([]string{"127.0.0.1"}, l.Port(), MinLimit, other, "b", "a", notLost(t)); err == nil {
		t.Error("another job's answer was taken")
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp.Close()
	if err := Dial([]string{"127.0.0.1"}, tcp.Addr().(*net.TCPAddr).Port, MinLimit, testSecret, "b", "a", notLost(t)); err == nil {
		t.Error("a connection to nobody")
	}
	if err := Dial(nil, 1, MinLimit, testSecret, "b", "a", notLost(t)); err == nil {
		t.Error("a connection without an address")
	}
}
