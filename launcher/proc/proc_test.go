//go:build linux

package proc

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// patience is how long a test waits for an event before it fails.
const patience = 30 * time.Second

func TestParseStat(t *testing.T) {
	const tail = " 7 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 100"
	for stat, want := range map[string]Process{
		"12 (a) S 7" + tail:           {12, 7, 'S', 12345, 11},
		"12 (a b) R 7" + tail:         {12, 7, 'R', 12345, 11},
		"12 (x) Z 1 (y) T 7" + tail:   {12, 7, 'T', 12345, 11},
		"12 (ends with )) S 7" + tail: {12, 7, 'S', 12345, 11},
	} {
		if got, ok := parseStat([]byte(stat)); !ok || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", stat, got, ok, want)
		}
	}
	for _, stat := range []string{"", "12", "12 (a) S 7", "x (a) S 7" + tail, "12 (a) S x" + tail} {
		if p, ok := parseStat([]byte(stat)); ok {
			t.Errorf("%q was read as %+v", stat, p)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	own, _ := os.ReadFile("/proc/self/stat")
	f.Add(own)
	f.Add([]byte("1 ())"))
	f.Fuzz(func(_ *testing.T, stat []byte) { parseStat(stat) })
}

func TestChildren(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	own, ok := Read(cmd.Process.Pid, make([]byte, 1024))
	if !ok || own.Parent != os.Getpid() {
		t.Fatalf("the child reads as %+v, %v", own, ok)
	}
	isOurs := func(p Process) bool { return p.PID == cmd.Process.Pid }
	if !slices.ContainsFunc(Children(own.Start), isOurs) {
		t.Error("the child is not found")
	}
	if slices.ContainsFunc(Children(own.Start+1), isOurs) {
		t.Error("the child is found although it is older than asked for")
	}
}

func TestBusy(t *testing.T) {
	sleeping, spinning := exec.Command("sleep", "100"), exec.Command("sh", "-c", "while :; do :; done")
	for _, cmd := range []*exec.Cmd{sleeping, spinning} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }()
		defer func() { _ = cmd.Process.Kill() }()
	}
	for slow := time.Now().Add(patience); !Busy([]int{sleeping.Process.Pid, spinning.Process.Pid}); {
		if time.Now().After(slow) {
			t.Fatal("a process that computes is not Busy")
		}
	}
	for slow := time.Now().Add(patience); Busy([]int{sleeping.Process.Pid}); {
		if time.Now().After(slow) {
			t.Fatal("a process that sleeps is Busy")
		}
	}
}
