package tensor

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A Device holds tensors and computes with them. Users pass one to New and its
// kin and call Open on it; the kernels are for this package.
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

	kernel.Kernels
	memory() *Memory
}

// DeviceKey is the attribute of a world communicator that holds the Device of a rank's
// tensors.
type DeviceKey struct{}

// OpenerKey is the attribute that holds a func() Device, which opens one when the first
// mesh is made, unless there is one.
type OpenerKey struct{}

// A Memory is the pool of one device with its scopes. A device embeds one.
type Memory struct {
	pool   *mem.Pool
	onHost bool    // the host reads and writes tensors where they lie
	watch  Watcher // nil: nobody
}

// NewMemory returns a Memory over pool, which is nobody else's, that the host cannot touch.
func NewMemory(pool *mem.Pool) *Memory { return &Memory{pool: pool} }

// NewHostMemory returns a Memory over pool, which is nobody else's, in which the host reads and
// writes tensors where they lie. watch is told of the tensors; nil: nobody is.
func NewHostMemory(pool *mem.Pool, watch Watcher) *Memory {
	return &Memory{pool: pool, onHost: true, watch: watch}
}

// A Watcher is told what becomes of the memory of a device: see package tensor/meta.
type Watcher interface {
	// Made says that the bytes at p are a new tensor's from now on, with elements of type dt.
	Made(p unsafe.Pointer, bytes int, dt DType)
	// Touches says that the host is about to read, and perhaps to write, elements of type dt
	// where they lie, in the function named op.
	Touches(op string, dt DType)
}

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

// Leave puts s, the innermost open scope, aside: its tensors stay, and those that are made
// from now on belong to the scope around it. Enter makes it the innermost one again, inside
// the one that is open then; Close comes after that.
func (s *Scope) Leave() { s.inner.Leave() }

// Enter: see Leave.
func (s *Scope) Enter() { s.inner.Enter() }

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
