package main

import (
	"context"
	"errors"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

// A memory is the place of the buffers.
type memory struct {
	floats func(n int) ([]float32, error) // n zeros
	wait   func()                         // returns when the device has done all that it was given
	device bool                           // this process cannot touch it
}

// open returns the memory that the flags ask for; done frees it.
func open(ctx context.Context, c *comm.Comm, device string, heap bool) (m memory, done func(), err error) {
	defer fault.Catch(&err)
	if device == "cpu" {
		return hostMemory(c, heap), func() {}, nil
	}
	if heap {
		return m, nil, errors.New("give -heap or -device, not both")
	}
	if err := runtime.UseDevice(ctx, device); err != nil {
		return m, nil, err
	}
	mesh, err := dtensor.NewMesh(c, dtensor.Axis{Name: "all", Size: c.Size()})
	if err != nil {
		return m, nil, err
	}
	dev := mesh.Device()
	gpu, ok := dev.(interface{ Sync() })
	if !ok { // "auto" has found none
		return hostMemory(c, false), func() {}, nil
	}
	m.device, m.wait = true, gpu.Sync
	m.floats = func(n int) (s []float32, err error) {
		defer fault.Catch(&err)
		return unsafe.Slice((*float32)(tensor.Zeros(dev, tensor.Float32, n).Ptr()), n), nil
	}
	return m, dev.Open().Close, nil // until then the scope keeps the tensors
}

// hostMemory is memory of this process: that of tensors, or Go's own.
func hostMemory(c *comm.Comm, heap bool) memory {
	m := memory{wait: func() {}}
	m.floats = func(n int) ([]float32, error) {
		if heap {
			return make([]float32, n), nil
		}
		p, err := c.Memory().Alloc(4 * n)
		if err != nil {
			return nil, err
		}
		mem.Populate(p, 4*n)
		s := unsafe.Slice((*float32)(p), n)
		clear(s)
		return s, nil
	}
	return m
}
