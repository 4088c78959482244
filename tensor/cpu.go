package tensor

import (
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// NewCPU returns a Device whose kernels are in Go and assembly and whose tensors live in
// memory from a; nil: anonymous memory of the process.
func NewCPU(a mem.Allocator) Device {
	if a == nil {
		a = mem.System{}
	}
	m := &Memory{kernel.Memory{Pool: mem.NewPool(a, mem.Populate), OnHost: true}}
	return &onCPU{cpu.New(m.Scratch), m}
}

type onCPU struct {
	cpu.Kernels
	*Memory
}
