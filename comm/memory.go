package comm

import "github.com/gorun-spmd/gorun/internal/mem"

// beyond reports whether n bytes are more than this machine, or the control group of this
// process, has with all swap.
func beyond(n int) bool {
	const little = 1 << 30 // no system call for what any machine has
	if n <= little {
		return false
	}
	m, err := mem.ReadMachine("")
	return err == nil && n > m.Limit+m.Swap
}
