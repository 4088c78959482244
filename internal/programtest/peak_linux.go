package programtest

import (
	"os"
	"syscall"
)

// peakOf returns the most bytes that a process had in memory, or one that it waited for.
func peakOf(state *os.ProcessState) int {
	return int(state.SysUsage().(*syscall.Rusage).Maxrss) << 10
}
