package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// closeOnExec keeps a descriptor from the processes that this one starts.
func closeOnExec(fd int) { syscall.CloseOnExec(fd) }

// threadTime and processTime return how long this thread and this process have run on processors.
func threadTime() time.Duration  { return clockTime(unix.CLOCK_THREAD_CPUTIME_ID) }
func processTime() time.Duration { return clockTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clockTime(clock int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t) // it cannot fail
	return time.Duration(t.Nano())
}

// killChildren kills what a process has started, and what that has.
func killChildren(pid int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // its thread may have ended
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				killChildren(child)
				_ = syscall.Kill(child, syscall.SIGKILL) // it may have ended
			}
		}
	}
}
