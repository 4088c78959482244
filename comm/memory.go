package comm

import (
	"bytes"
	"fmt"
	"math"
	"os"
)

// machineMemory returns how much memory the machine has, its swap included, as the text of
// /proc/meminfo says; where there is none it returns the most.
func machineMemory(meminfo []byte) int {
	sum := 0
	for line := range bytes.Lines(meminfo) {
		var name string
		var kib int
		if _, err := fmt.Sscan(string(line), &name, &kib); err == nil && (name == "MemTotal:" || name == "SwapTotal:") {
			sum += kib << 10
		}
	}
	if sum == 0 {
		return math.MaxInt
	}
	return sum
}

// beyond reports whether n bytes are more than this machine has.
func beyond(n int) bool {
	const little = 1 << 30 // no system call for what any machine has
	if n <= little {
		return false
	}
	meminfo, _ := os.ReadFile("/proc/meminfo")
	return n > machineMemory(meminfo)
}
