package backend

import (
	"context"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Backend is one rank's end of a group, as an implementer sees it. A Comm
// calls it from one goroutine at a time (Abort excepted), with calls that have
// been checked against the group's size, and never again after an error.
type Backend interface {
	// Rank and Size place this rank in the group.
	Rank() int
	Size() int

	// Do carries out one call and returns when this rank's buffers may be used
	// again. It checks that the ranks agree on call.Fingerprint (Mismatch makes
	// the error), and returns with an error soon after ctx is done (see Cancelled),
	// Abort is called on any rank or a rank that it needs ends; such an error
	// reaches every rank of the group. call and the memory it names must not be kept.
	Do(ctx context.Context, call *Call) error

	// Split makes a new group of some of this one's ranks. All ranks call it
	// together; each passes the ranks of its own new group in their new order
	// (the same list in each of them), or none to join none and get nil.
	Split(ctx context.Context, members []int) (Backend, error)

	// Abort ends the group: pending and later calls of all its ranks, and of
	// all groups split from it, fail with cause (see AbortError). Only the
	// first of all causes counts. It may be called at any time from any goroutine.
	Abort(cause error)

	// Memory is where buffers should live so that no copy is needed, nil if anywhere.
	Memory() mem.Allocator
}

// A RowBackend is a Backend that may carry out calls with DstRows and SrcRows.
type RowBackend interface {
	Backend
	SupportsRows() bool
}

// A SendRecvBackend is a Backend that carries out a Send and a Recv at once: ranks that all do so
// do not wait for each other. Otherwise it is as Do.
type SendRecvBackend interface {
	Backend
	SendRecv(ctx context.Context, send, recv *Call) error
}

// A CommonBackend is a Backend whose ranks may be goroutines of one process.
type CommonBackend interface {
	Backend
	// Common returns where the ranks of a world keep what they all have. In the exchange of a Split
	// they have one Dst, which is to be written once.
	Common() *Attrs
}

// A HostBackend is a Backend that may know that all ranks are processes of one host.
type HostBackend interface {
	Backend
	OneHost() bool
}

// A WindowBackend is a Backend on which a rank reaches memory of the others without a call of
// theirs: see package comm/window.
type WindowBackend interface {
	Backend
	// OpenWindow makes a window: bytes[r] bytes of zeroed memory on rank r, at a multiple of 8.
	// All ranks call it together, with the same list, as they call Split.
	OpenWindow(ctx context.Context, bytes []int) (WindowMemory, error)
	// Touch begins a call of a kind on a window, with a number of bytes: it notes that this rank
	// moves, and returns what has ended the group, nil if nothing has. It may be called at any
	// time from any goroutine.
	Touch(kind Kind, bytes int) error
	// Await returns when on returns -1. Until then on returns the rank for which call waits.
	// It fails as Do does. It may be called at any time from any goroutine.
	Await(ctx context.Context, call *Call, on func() (rank int, err error)) error
}

// A MessageBackend is a WindowBackend that carries messages with tags: see package comm/message. It is
// a SharedBackend or a PacketBackend. The methods of these may be called at any time from any
// goroutine; those of a SharedBackend, and Ended, take no lock that is held while Await calls on.
type MessageBackend interface {
	WindowBackend
	// Broken returns what has ended the group, nil if nothing has.
	Broken() error
	// Ended reports whether a rank has ended, and with which cause.
	Ended(rank int) (cause string, ended bool)
	// Moved notes that a part of a message has come, although the program may see nothing of it yet:
	// ranks that wait for the rest do not hang.
	Moved()
}

// A SharedBackend is a MessageBackend whose ranks share memory.
type SharedBackend interface {
	MessageBackend
	// Export returns a number by which the other ranks find this rank's memory; ok is false if they
	// cannot reach it. Import returns where this process has what rank has exported, nil if that is
	// nowhere.
	Export(p unsafe.Pointer, bytes int) (at uint64, ok bool)
	Import(rank int, at uint64, bytes int) unsafe.Pointer
}

// A PacketBackend is a MessageBackend whose ranks send each other packets.
type PacketBackend interface {
	MessageBackend
	// OpenPackets begins to take packets, which have no more than most bytes. All ranks call it together.
	OpenPackets(ctx context.Context, most int) (Packets, error)
}

// Packets are packets between the ranks of a group, apart from its calls.
type Packets interface {
	// Send sends a copy of head and data, one after the other; ok is false if too much is on its way.
	Send(to int, head, data []byte) (ok bool, err error)
	// Recv calls read with each packet that has come. Those of one rank come in their order.
	Recv(read func(from int, packet []byte)) error
	// Close ends them. All ranks call it together, when all packets were received.
	Close() error
}

// WindowMemory is one rank's view of the memory of a window. Its methods may be called from any
// goroutine. If Address returns nil for any rank it is a RemoteMemory.
type WindowMemory interface {
	// Address returns where this process has the memory of a rank, nil if it cannot reach it.
	Address(rank int) unsafe.Pointer
	// Close takes the memory back. All ranks call it together, after a Barrier.
	Close() error
}

// RemoteMemory is WindowMemory that is reached through a library. Places are in bytes from the
// start of a rank's memory. What is atomic is so among calls with the same operation on elements
// of the same type at one place.
type RemoteMemory interface {
	WindowMemory
	// Put returns when src may be changed, Get when dst has come.
	Put(rank, at int, src []byte) error
	Get(rank, at int, dst []byte) error
	// Load and CompareAndSwap are atomic, on size bytes, 4 or 8. The latter returns what was there.
	Load(rank, at, size int) (uint64, error)
	CompareAndSwap(rank, at, size int, old, new uint64) (was uint64, err error)
	// Accumulate folds each element of src into the one at its place; FetchAndOp does so
	// with the one element of src and returns in old what was there. ok is false, on all
	// ranks, if the library cannot: CompareAndSwap can.
	Accumulate(rank, at int, op Op, src Buffer) (ok bool, err error)
	FetchAndOp(rank, at int, op Op, src, old Buffer) (ok bool, err error)
	// Flush returns when all that this rank has done to a rank's memory is there.
	Flush(rank int) error
}

// A LeavingBackend is a Backend that knows of messages which nobody receives.
type LeavingBackend interface {
	Backend
	// Leave says that this rank's program has ended well. Its error is an UnreceivedError of a message of Send to this rank, or of
	// one of this rank to a rank that has left. Only the world's is called, once.
	Leave() error
}

// A DeviceBackend is a Backend that may pass on addresses of a device, whose memory
// the process cannot touch.
type DeviceBackend interface {
	Backend
	// DeviceSupport returns why it cannot, "" if it should be able to.
	DeviceSupport() string
	// DoDevice is Do for calls that move elements without computing, Split and Barrier
	// excepted, whose buffers may lie in the device's memory. copy begins to copy between
	// two buffers of this rank, of equal length, which ends after DoDevice.
	DoDevice(ctx context.Context, call *Call, copy func(dst, src Buffer) error) error
}

// A DeviceHolder is a Backend, made by Wrap, that takes buffers in memory of a device.
type DeviceHolder interface {
	Backend
	// Holds reports whether p is an address of the device.
	Holds(p unsafe.Pointer) bool
}

// A NumberlessBackend is a Backend that takes addresses without elements, and moves nothing there: see package
// comm/standin.
type NumberlessBackend interface {
	Backend
	// Numberless reports whether p is an address without elements.
	Numberless(p unsafe.Pointer) bool
}
