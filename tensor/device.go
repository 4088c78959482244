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

// OpenerKey is the attribute of a world communicator that holds a func() Device. The first
// mesh calls it for the device of this rank's tensors.
type OpenerKey struct{}

// A Memory is the memory of one device, with scopes. A device embeds one, whose pool nobody else uses.
type Memory struct{ kernel.Memory }

func (m *Memory) memory() *Memory { return m }

// Scratch returns memory for a kernel's own use; the kernel frees it. It throws a
// *UseError if there is none.
func (m *Memory) Scratch(bytes int) mem.Ref {
	b, err := m.Pool.Alloc(bytes)
	if err != nil {
		fault.Throw(&UseError{Op: "scratch", Detail: "no memory for a kernel", Err: err})
	}
	return mem.Ref{Block: b, Gen: b.Gen()}
}

// A Scope owns the tensors that are made while it is open.
type Scope struct{ inner *mem.Scope }

// Open opens a scope inside the one that is open now, if any. The caller closes
// it, as a rule with defer.
func (m *Memory) Open() *Scope { return &Scope{m.Pool.Open()} }

// Close gives back the memory of all tensors that were made since Open and not
// kept, and closes the scopes that were opened since and are still open. To use
// such a tensor later throws a *UseError. Closing twice does nothing.
func (s *Scope) Close() { s.inner.Close() }

// Leave puts s, the innermost open scope, aside: its tensors stay, and new tensors
// belong to the scope around it. Enter, which must come before Close, makes s the
// innermost scope again.
func (s *Scope) Leave() { s.inner.Leave() }

// Enter: see Leave.
func (s *Scope) Enter() { s.inner.Enter() }

// Keep takes tensors out of s, together with all views of their memory: they
// belong to the enclosing scope from now on, or to none. It ignores nil tensors and
// those that s does not own.
func (s *Scope) Keep(ts ...*Tensor) {
	for _, t := range ts {
		if t == nil || t.block == nil {
			continue
		}
		if _, absent := t.Absent(); absent {
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
	if _, absent := t.Absent(); absent {
		return t
	}
	t.ptr("Persist")
	if t.block != nil && t.block.Unscope() {
		t.root().own()
	}
	return t
}
