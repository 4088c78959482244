package tensor

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Device holds tensors and computes with them. Users pass one to New and its
// kin and call Open on it; the kernels are for this package, which has checked
// shapes and types before it calls one.
//
// A kernel takes addresses in the device's memory and sizes in elements. Its
// destination never overlaps its sources unless it says so. Kernels called from
// one goroutine take effect in order; a device may run them later than the call.
type Device interface {
	// String names the device: "cpu", "cuda:0".
	String() string
	// Open opens a scope: see Scope.
	Open() *Scope
	// Stats counts the memory of the device.
	Stats() mem.Stats
	// ToHost, FromHost and CopyBytes copy bytes from the device to the process,
	// to the device, and within it. They return when the copy is complete.
	ToHost(dst, src unsafe.Pointer, bytes int)
	FromHost(dst, src unsafe.Pointer, bytes int)
	CopyBytes(dst, src unsafe.Pointer, bytes int)

	Elementwise
	MatrixKernels
	RowKernels
	IndexKernels
	TableKernels
	LossKernels
	OptimizerKernels
	memory() *Memory
}

// The attributes of a world communicator that have to do with the device of a
// rank's tensors: the device itself, and a func() Device that opens one when the
// first mesh is made, unless there is one.
const (
	DeviceKey = "tensor.Device"
	OpenerKey = "tensor.Device opener"
)

// A Memory is the pool of one device with its scopes. A device embeds one.
type Memory struct{ pool *mem.Pool }

// NewMemory returns a Memory over a. populate is called once for each new block
// above 1 MiB; nil says that the process cannot touch the memory.
func NewMemory(a mem.Allocator, populate func(p unsafe.Pointer, bytes int)) *Memory {
	return &Memory{pool: mem.NewPool(a, populate)}
}

// Direct has each tensor be an allocation of its own, of just its bytes, given back at
// once: for tools that look at accesses. It is called before the first tensor is made.
func (m *Memory) Direct() { m.pool.Direct() }

func (m *Memory) memory() *Memory { return m }

// Stats counts the bytes in use and cached.
func (m *Memory) Stats() mem.Stats { return m.pool.Stats() }

// Trim gives cached memory back to where it came from.
func (m *Memory) Trim() { m.pool.Trim() }

// Scratch returns memory for a kernel's own use; the kernel frees it. It throws a
// *UseError if there is none.
func (m *Memory) Scratch(bytes int) mem.Ref {
	b, err := m.pool.Alloc(bytes)
	if err != nil {
		fault.Throw(&UseError{Op: "scratch", Detail: "no memory for a kernel", Err: err})
	}
	return mem.Ref{Block: b, Gen: b.Gen()}
}

// A Scope owns the tensors that are made while it is open.
type Scope struct{ inner *mem.Scope }

// Open opens a scope inside the one that is open now, if any. The caller closes
// it, as a rule with defer.
func (m *Memory) Open() *Scope { return &Scope{m.pool.Open()} }

// Close gives back the memory of all tensors that were made since Open and not
// kept, and closes the scopes that were opened since and are still open. To use
// such a tensor later throws a *UseError. Closing twice does nothing.
func (s *Scope) Close() { s.inner.Close() }

// Keep takes tensors out of s, together with all views of their memory: they
// belong to the enclosing scope from now on, or to none. A nil tensor and one
// that s does not own are left alone.
func (s *Scope) Keep(ts ...*Tensor) {
	for _, t := range ts {
		if t == nil || t.block == nil {
			continue
		}
		t.ptr("Keep")
		if s.inner.Keep(t.block) {
			t.root().own()
		}
	}
}

// Persist takes t out of every scope: its memory lives as long as t or a view of
// it is reachable. It returns t.
func (t *Tensor) Persist() *Tensor {
	t.ptr("Persist")
	if t.block != nil && t.block.Unscope() {
		t.root().own()
	}
	return t
}

// throwNoMemory throws a *UseError for an allocation that failed.
func throwNoMemory(op string, t *Tensor, err error) {
	fault.Throw(&UseError{Op: op, Detail: t.brief() + " on " + t.dev.String(), Err: err})
}
