package rates

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// cpuWords is how many words of bits a CPUSet has: it counts up to 1024 cores.
const cpuWords = 1024 / 64

// affinity returns a bit for each core on which this process may run.
func affinity() ([]int64, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("rates: the cores of this process: %w", err)
	}
	own := make([]int64, cpuWords)
	for cpu := range 64 * len(own) {
		if set.IsSet(cpu) {
			own[cpu/64] |= 1 << (cpu % 64)
		}
	}
	return own, nil
}
