package tensor

import (
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/tensor/cpu"
)

// A CPU is the Device of this process: memory from an Allocator, kernels in Go
// and assembly. One goroutine at a time computes on it.
type CPU struct {
	cpu.Kernels
	*Memory
}

// NewCPU returns a CPU whose tensors live in memory from a; nil: anonymous
// memory of the process.
func NewCPU(a mem.Allocator) *CPU {
	if a == nil {
		a = mem.System{}
	}
	m := NewHostMemory(mem.NewPool(a, mem.Populate), nil)
	return &CPU{cpu.New(m.Scratch), m}
}
