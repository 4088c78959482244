package stack

import (
	"bytes"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// Acting returns a goroutine of this process that may do something even if no other goroutine
// does and no call on a communicator ends, such as "sleep in main.train". It returns "" if there
// is none, and leaves out the caller's own goroutine.
//
// A goroutine that runs, sleeps, reads, or waits in a system call may act. One that waits
// to receive from a channel may too, since a timer may send there. One that waits for a lock, a
// sync.WaitGroup or the receiver of its send cannot: only another goroutine ends that wait. Nor
// can one that is in a call on a communicator, or that belongs to this module's runtime.
func Acting() string {
	acting, _ := look()
	return acting
}

// Stuck returns what a goroutine of the program waits for, such as "sync.WaitGroup.Wait in main.train", if none may act: they
// wait for each other, and only a call on a communicator that ends can change that. It returns "" if one may act, or if all
// that wait are in libraries of this module, as in such a call.
func Stuck() string {
	if acting, stuck := look(); acting == "" {
		return stuck
	}
	return ""
}

// look is acting on the stacks of this process.
func look() (acts, stuck string) {
	stacks := Goroutines()
	if len(stacks) == mostBytes {
		return "more goroutines than can be looked at", ""
	}
	return acting(stacks, path.Dir(path.Dir(reflect.TypeFor[home]().PkgPath())))
}

// mostBytes is the most text that Goroutines returns.
const mostBytes = 16 << 20

// Goroutines returns the stacks of all goroutines as text, the caller's first.
func Goroutines() []byte {
	buf := make([]byte, 64<<10)
	n := runtime.Stack(buf, true)
	for n == len(buf) && n < mostBytes {
		buf = make([]byte, 2*n)
		n = runtime.Stack(buf, true)
	}
	return buf[:n]
}

// acting is Acting on stacks as runtime.Stack prints them. stuck is a goroutine of the program that cannot act, if none that
// may was found before.
func acting(stacks []byte, module string) (acting, stuck string) {
	for i, text := range bytes.Split(stacks, []byte("\n\n")) {
		if i == 0 || bytes.Contains(text, []byte("\n"+module+"/internal/keepalive.")) { // the caller; it reads and makes no calls
			continue
		}
		_, rest, _ := bytes.Cut(text, []byte(" ["))
		head, rest, _ := bytes.Cut(rest, []byte("]:\n"))
		state, _, _ := strings.Cut(string(head), ",") // "chan receive, 2 minutes"
		frame, ok := innermost(rest)
		switch {
		case !ok:
		case acts(state, frame, module):
			return state + " in " + frame.Function, ""
		case !library(frame, module, "") && !strings.HasPrefix(frame.Function, "os/signal.") && !strings.HasPrefix(frame.Function, "testing."):
			stuck = state + " in " + frame.Function
		}
	}
	return "", stuck
}

// acts reports whether a goroutine in a state may act. f is its frame by innermost.
func acts(state string, f runtime.Frame, module string) bool {
	switch state {
	case "chan send", "chan send (nil chan)", "chan receive (nil chan)", "select (no cases)", "semacquire", "coroutine",
		"sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock", "sync.WaitGroup.Wait", "sync.Cond.Wait":
		return false
	case "chan receive", "select":
		return !library(f, module, "") && !strings.HasPrefix(f.Function, "testing.")
	}
	for _, idle := range []string{"comm.", "comm/", "runtime."} {
		if library(f, module, idle) {
			return false
		}
	}
	return !strings.HasPrefix(f.Function, "os/signal.")
}

// innermost returns the innermost frame of a printed stack outside the packages through which
// goroutines wait (see waits); ok is false if there is none.
func innermost(stack []byte) (f runtime.Frame, ok bool) {
	lines := bytes.Split(stack, []byte("\n"))
	for i := 0; i+1 < len(lines); i++ {
		file, isFile := bytes.CutPrefix(lines[i+1], []byte("\t"))
		if !isFile || bytes.HasPrefix(lines[i], []byte("created by ")) {
			continue
		}
		name := string(lines[i][:max(0, bytes.LastIndexByte(lines[i], '('))])
		if waits(name) {
			continue
		}
		at, _, _ := bytes.Cut(file, []byte(" ")) // "/src/main.go:31 +0x1a"
		return runtime.Frame{Function: name, File: string(at[:max(0, bytes.LastIndexByte(at, ':'))])}, true
	}
	return f, false
}

// waits reports whether a function belongs to a package through which goroutines wait.
func waits(function string) bool {
	for _, p := range []string{"runtime.", "internal/", "sync.", "sync/atomic.", "syscall.", "golang.org/x/sys/unix.", "time.",
		"github.com/ebitengine/purego."} {
		if strings.HasPrefix(function, p) {
			return true
		}
	}
	return false
}
