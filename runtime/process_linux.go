package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// closeOnExec keeps a descriptor from the processes that this one starts.
func closeOnExec(fd int) { syscall.CloseOnExec(fd) }

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
