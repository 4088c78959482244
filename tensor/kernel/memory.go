package kernel

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Memory is the memory of a device.
type Memory struct {
	Pool    *mem.Pool
	OnHost  bool    // the host reads and writes tensors where they lie
	Watcher Watcher // nil: nobody watches
}

// Stats counts the bytes in use and cached.
func (m *Memory) Stats() mem.Stats { return m.Pool.Stats() }

// Trim gives cached memory back to the pool's allocator.
func (m *Memory) Trim() { m.Pool.Trim() }

// A Watcher is told how the memory of a device is used: see package tensor/meta.
type Watcher interface {
	// Made says that the bytes at p belong to a new tensor, with elements of type dt.
	Made(p unsafe.Pointer, bytes int, dt dtype.DType)
	// Touches says that the host is about to read, and perhaps to write, elements of type dt
	// where they lie, in the function named op.
	Touches(op string, dt dtype.DType)
	// WithoutFloats reports that floats have no elements, so that the host need not compute with them.
	WithoutFloats() bool
}
