package device

import (
	"context"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Stage copies between the memory of a device, which this process cannot touch, and memory
// that a Backend can read and write. It may be used from any goroutine.
type Stage interface {
	// Holds reports whether p is an address of the device.
	Holds(p unsafe.Pointer) bool
	// Pin prepares host memory for fast copies, if it can; Unpin ends that.
	Pin(p unsafe.Pointer, bytes int)
	Unpin(p unsafe.Pointer, bytes int)
	// Alloc hands out memory of the device.
	mem.Allocator
	// Open begins copies that come after all work that the device was given before.
	Open(lanes int) (Copies, error)
	// Enter makes the device current on the calling thread and locks the goroutine to that
	// thread, until leave is called. Libraries that take the device's addresses need it.
	Enter() (leave func())
}

// Copies are the copies of one call. Those of one lane take effect in order.
type Copies interface {
	// ToHost, FromHost and Within (from the device to itself) queue a copy on a lane. The
	// caller keeps Go's memory alive until the copy has been made.
	ToHost(lane int, dst, src unsafe.Pointer, bytes int) error
	FromHost(lane int, dst, src unsafe.Pointer, bytes int) error
	Within(lane int, dst, src unsafe.Pointer, bytes int) error
	// Fold queues a fold into dst, in device memory, as Call.Fold does it in host memory. At
	// src lie ranks sources, one after another, each as long as dst.
	Fold(lane int, op backend.Op, dst backend.Buffer, src unsafe.Pointer, ranks int) error
	// Wait returns when the work of a lane and all earlier work of the device are done.
	Wait(lane int) error
	// Close waits for the copies that Wait has not waited for.
	Close() error
}

// UseStage lets calls have buffers in the memory of stage's device, on c and on all
// communicators of its world. Such calls complete as others do: when Do returns, or the
// Pending has ended, the result is in device memory. A call runs after all work that was
// queued on the device before it.
func UseStage(c *comm.Comm, stage Stage) {
	s := &staging{stage: stage, pool: mem.NewPool(pinned{c.Memory(), stage}, nil)}
	inUse(c).Store(s)
	c.Internals().Wrap(func(b backend.Backend, world []int) backend.Backend {
		return &group{Backend: b, rank: b.Rank(), size: b.Size(), world: world, staging: s}
	})
}

// inUse returns the pointer to the staging of c's world; it holds nil before UseStage.
func inUse(c *comm.Comm) *atomic.Pointer[staging] {
	return c.Internals().Attr(key{}, func() any { return new(atomic.Pointer[staging]) }).(*atomic.Pointer[staging])
}

type key struct{}

// A group is the Backend of one communicator whose calls may have buffers in device memory.
type group struct {
	backend.Backend
	rank, size int
	world      []int // world[r] is the world number of rank r
	staging    *staging
}

// A staging is a stage with the host memory that its copies pass through.
type staging struct {
	stage  Stage
	pool   *mem.Pool
	mu     sync.Mutex   // guards pool: several communicators may have calls in progress
	direct atomic.Bool  // device addresses go to the backend, see TryDirect
	below  atomic.Int64 // see StageBelow

	windows atomic.Pointer[windows] // see TryPeers; nil: ranks do not read each other's devices
	folds   atomic.Pointer[folds]   // see TryFold; nil: devices do not fold
}

// pinned allocates memory that backends read in place, and pins it for the device.
type pinned struct {
	mem.Allocator
	stage Stage
}

func (p pinned) Alloc(bytes int) (unsafe.Pointer, error) {
	ptr, err := p.Allocator.Alloc(bytes)
	if err == nil {
		p.stage.Pin(ptr, bytes)
	}
	return ptr, err
}

func (p pinned) Free(ptr unsafe.Pointer, bytes int) {
	p.stage.Unpin(ptr, bytes)
	p.Allocator.Free(ptr, bytes)
}

// Do carries out a call. Buffers in device memory go by one of the ways in the package comment;
// other calls go to the backend as they are.
func (c *group) Do(ctx context.Context, call *backend.Call) error {
	s := c.staging
	done, err := s.betweenDevices(ctx, c, call)
	switch {
	case done || err != nil:
	case s.stateOf(call.Dst) != stateReceives && s.stateOf(call.Src) != stateReceives: // nothing is in device memory
		return c.Backend.Do(ctx, call)
	case s.direct.Load() && moves(call.Kind):
		err = s.byAddress(ctx, c, call)
	default:
		err = s.run(ctx, c, call)
	}
	if err != nil {
		c.Backend.Abort(err) // the other ranks must not wait for this one
	}
	return err
}

// Holds reports whether p is an address of the device.
func (c *group) Holds(p unsafe.Pointer) bool { return c.staging.stage.Holds(p) }

// copies calls f with copies of one lane.
func (s *staging) copies(f func(Copies) error) error {
	c, err := s.stage.Open(1)
	if err != nil {
		return err
	}
	err = f(c)
	if late := c.Close(); err == nil {
		err = late
	}
	return err
}

// StageBelow makes small calls staged: those in which every rank's buffers are below that many
// bytes. It has no effect on a backend that takes device addresses. For few bytes the other ways
// are slower, since ranks wait for each other. All ranks of the world call it, before any
// call on device memory. The largest of their numbers counts; with 0 no call is small.
func StageBelow(ctx context.Context, c *comm.Comm, bytes int) error {
	largest := []int64{int64(bytes)}
	if err := comm.AllReduce(ctx, c, largest, fold.Max); err != nil {
		return err
	}
	if s := inUse(c).Load(); s != nil {
		s.below.Store(largest[0])
	}
	return nil
}

// small reports whether a call is staged whose largest buffer on any rank has a number of bytes.
func (s *staging) small(bytes int) bool { return int64(bytes) < s.below.Load() }

// largestBuffer returns the bytes of the largest buffer that any rank has in a call. known is
// false if this rank cannot know it.
func largestBuffer(c *backend.Call, size int) (bytes int, known bool) {
	switch s := c.Kind.Shape(); {
	case s.Pattern == backend.NoPattern || s.Pairwise():
		return 0, false
	case s.Src == backend.Whole && s.Dst == backend.Parts:
		return size * c.Src.Bytes(), true
	case s.Src == backend.Parts && s.Dst == backend.Whole:
		return size * c.Dst.Bytes(), true
	case s.Dst == backend.Counted || s.Src == backend.Unused:
		return c.Dst.Bytes(), true
	}
	return c.Src.Bytes(), true
}

// betweenDevices carries out a call by windows or by folds on the devices, if all ranks can.
func (s *staging) betweenDevices(ctx context.Context, c *group, call *backend.Call) (done bool, err error) {
	if bytes, known := largestBuffer(call, c.size); known && s.small(bytes) {
		return false, nil
	}
	pattern := call.Kind.Shape().Pattern
	// The devices' kernels are for the types of tensors.
	folds := call.Op <= fold.Xor && call.DType().Valid()
	if f := s.folds.Load(); f != nil && folds && (pattern == backend.PatternReduce || pattern == backend.PatternReduceScatter) {
		return f.fold(ctx, s, c, call)
	}
	if w := s.windows.Load(); w != nil && pattern == backend.PatternMove && call.Kind != backend.SplitKind {
		return w.read(ctx, s, c, call)
	}
	return false, nil
}
