//go:build !linux

package rates

import "runtime"

// affinity returns a bit for each core of the machine: processes are bound to none.
func affinity() ([]int64, error) {
	own := make([]int64, (runtime.NumCPU()+63)/64)
	for cpu := range runtime.NumCPU() {
		own[cpu/64] |= 1 << (cpu % 64)
	}
	return own, nil
}
