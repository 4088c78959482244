package stack

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// settled waits until Acting says what it should.
func settled(t *testing.T, name string, want bool) {
	t.Helper()
	got := ""
	for range 1000 {
		if got = Acting(); (got != "") == want {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%s: Acting says %q", name, got)
}

func TestActing(t *testing.T) {
	settled(t, "nobody", false)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range []struct {
		name string
		want bool
		f    func(end chan bool)
	}{
		{"sleeps", true, func(end chan bool) {
			for len(end) == 0 {
				time.Sleep(time.Millisecond)
			}
		}},
		{"computes", true, func(end chan bool) {
			for len(end) == 0 {
			}
		}},
		{"may wait for a timer", true, func(end chan bool) { <-end }},
		{"selects", true, func(end chan bool) {
			select {
			case <-end:
			case <-time.After(time.Hour):
			}
		}},
		{"waits for a lock", false, func(chan bool) { mu.Lock(); defer mu.Unlock() }},
		{"waits for a group", false, func(chan bool) { wg.Wait() }},
		{"waits for a receiver", false, func(end chan bool) { end <- true; end <- true }},
	} {
		end, ended := make(chan bool, 1), make(chan bool)
		mu.Lock()
		wg.Add(1)
		go func() {
			defer close(ended)
			c.f(end)
		}()
		settled(t, c.name, c.want)
		if !c.want {
			<-time.After(20 * time.Millisecond) // it has begun by now: still nobody
			settled(t, c.name, c.want)
		}
		mu.Unlock()
		wg.Done()
		if c.name == "waits for a receiver" {
			<-end
			<-end
		} else {
			end <- true
		}
		<-ended
	}

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		_, _ = r.Read(make([]byte, 1))
	}()
	settled(t, "reads", true)
	_ = w.Close()
	<-ended
}

func TestActingAmongPrintedStacks(t *testing.T) {
	// A stack has the innermost frame first; a frame is a function and its file.
	print := func(state string, frames ...string) string {
		text := "goroutine 1 [" + state + "]:\n"
		for i := 0; i < len(frames); i += 2 {
			text += frames[i] + "(0x1, {0x2, ...})\n\t/src/" + frames[i+1] + ":31 +0x1a\n"
		}
		return text + "created by example.org/mine.run in goroutine 3\n\t/src/main.go:9 +0x2\n\n"
	}
	const gorun = "example.org/gorun/"
	caller := print("running", "main.f", "main.go")
	for _, c := range []struct{ stacks, want string }{ // want begins with "-" where nobody acts, and then has who is stuck
		{"", "-"},
		{print("sleep", "time.Sleep", "runtime/time.go", "main.train", "main.go"), "sleep in main.train"},
		{print("syscall, 2 minutes, locked to thread", "syscall.Syscall", "syscall/s.go", "main.(*T).read", "main.go"),
			"syscall in main.(*T).read"},
		{print("syscall", "golang.org/x/sys/unix.Syscall6", "s.go", gorun+"comm/shm.(*Rank).sleep", "wait.go", "main.main", "main.go"), "-"},
		{print("runnable", gorun+"comm.(*Comm).Do", "comm.go"), "-"},
		{print("runnable", gorun+"comm/commtest.f", "run.go"), "runnable in example.org/gorun/comm/commtest.f"},
		{print("runnable", gorun+"checkpoint.save", "save.go"), "runnable in example.org/gorun/checkpoint.save"},
		{print("select", gorun+"checkpoint.save", "save.go"), "-"},
		{print("sleep", "time.Sleep", "runtime/time.go", gorun+"runtime.watch.func1", "signal.go"), "-"},
		{print("select", gorun+"checkpoint.save", "save_test.go"), "select in example.org/gorun/checkpoint.save"},
		{print("IO wait", "net.(*conn).Read", "net/net.go", gorun+"internal/keepalive.hold", "keepalive.go"), "-"},
		{print("syscall", "os/signal.signal_recv", "runtime/sigqueue.go", "os/signal.loop", "os/signal/s.go"), "-"},
		{print("chan receive", "testing.(*T).Run", "testing.go", "main.main", "_testmain.go"), "-"},
		{print("GC worker (idle)", "runtime.gopark", "runtime/proc.go"), "-"},
		{print("sync.WaitGroup.Wait", "sync.(*WaitGroup).Wait", "sync/wg.go", "main.main", "main.go"), "-sync.WaitGroup.Wait in main.main"},
		{print("sync.WaitGroup.Wait", "sync.(*WaitGroup).Wait", "sync/wg.go", gorun+"dtensor.f", "f.go", "main.main", "main.go"), "-"},
		{print("select (no cases)", "main.main", "main.go") + print("syscall", "syscall.Syscall", "s.go", gorun+"comm/shm.f", "s.go"),
			"-select (no cases) in main.main"},
		{print("sync.WaitGroup.Wait", "sync.(*WaitGroup).Wait", "sync/wg.go", "main.main", "main.go") +
			print("IO wait", "internal/poll.runtime_pollWait", "runtime/netpoll.go", "os.(*File).Read", "os/file.go"), "IO wait in os.(*File).Read"},
	} {
		got, stuck := acting([]byte(strings.TrimRight(caller+c.stacks, "\n")), "example.org/gorun")
		if got == "" {
			got = "-" + stuck
		}
		if got != c.want {
			t.Errorf("got %q, want %q of\n%s", got, c.want, c.stacks)
		}
	}
}
