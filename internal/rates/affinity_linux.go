package rates

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// affinity returns a bit for each core on which this process may run.
func affinity() ([]int64, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("rates: the cores of this process: %w", err)
	}
	own := make([]int64, len(set))
	for i, word := range set {
		own[i] = int64(word)
	}
	return own, nil
}
