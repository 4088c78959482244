package comm

import (
	"context"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/mem"
)

// A Stage brings what lies in the memory of a device, which this process cannot
// touch, to memory that a Backend can, and back. It may be used from any goroutine.
type Stage interface {
	// Holds reports whether p is an address of the device.
	Holds(p unsafe.Pointer) bool
	// Pin prepares host memory for fast copies, if it can; Unpin ends that.
	Pin(p unsafe.Pointer, bytes int)
	Unpin(p unsafe.Pointer, bytes int)
	// Alloc hands out memory of the device.
	mem.Allocator
	// Open begins copies that see all that the device was given to do before.
	Open(lanes int) (Copies, error)
	// Enter makes the device that of the calling thread, which stays the goroutine's
	// until leave is called: for libraries that are handed its addresses.
	Enter() (leave func())
}

// Copies are those of one call. What one lane does takes effect in order.
type Copies interface {
	// ToHost, FromHost and Within, from the device to itself, queue a copy on a lane:
	// Go's memory must be kept alive until it has been made.
	ToHost(lane int, dst, src unsafe.Pointer, bytes int) error
	FromHost(lane int, dst, src unsafe.Pointer, bytes int) error
	Within(lane int, dst, src unsafe.Pointer, bytes int) error
	// Fold queues what Call.Fold does, of the elements of dst, to which those at src
	// are folded, in memory of the device too: of each rank as many, one rank's after
	// the other's.
	Fold(lane int, op Op, dst Buffer, src unsafe.Pointer, ranks int) error
	// Wait returns when a lane has done all, and the device what it was given before.
	Wait(lane int) error
	// Close waits for the copies that nobody has waited for.
	Close() error
}

// UseStage has the buffers of calls that s holds staged, on c and on all
// communicators of its world. Calls on device memory complete as others do: when Do
// returns, or the Pending has ended, the result is in device memory. A call sees
// what the device was given to do before it.
func (c *Comm) UseStage(s Stage) {
	c.shared.staging.Store(&staging{stage: s, pool: mem.NewPool(pinned{c.memory, s}, nil)})
}

// staging is a stage with the host memory it copies through.
type staging struct {
	stage  Stage
	pool   *mem.Pool
	mu     sync.Mutex   // of the pool: several communicators may have calls under way
	direct atomic.Bool  // device addresses go to the backend, see TryDirect
	below  atomic.Int64 // see StageBelow

	windows atomic.Pointer[windows] // memory of devices that all ranks read, see TryPeers; nil: none
	folds   atomic.Pointer[folds]   // where devices fold reductions, see TryFold; nil: nowhere
}

// pinned hands out memory that backends read in place, pinned for the device.
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

// carry hands a call to the backend; if its buffers lie in device memory by way of the
// host, or to a backend that takes their addresses.
func (c *Comm) carry(ctx context.Context, call *Call) error {
	s := c.shared.staging.Load()
	if s == nil {
		return c.backend.Do(ctx, call)
	}
	done, err := s.among(ctx, c, call)
	if err != nil {
		c.backend.Abort(err) // the ranks must not wait for this one
	}
	if done || err != nil {
		return err
	}
	if !(call.Dst.Count > 0 && s.stage.Holds(call.Dst.Ptr)) && !(call.Src.Count > 0 && s.stage.Holds(call.Src.Ptr)) {
		return c.backend.Do(ctx, call)
	}
	run := s.run
	if s.direct.Load() && call.Kind.moves() {
		run = s.hand
	}
	if err := run(ctx, c, call); err != nil {
		// The ranks must not wait for this one, whose part was not done.
		c.backend.Abort(err)
		return err
	}
	return nil
}

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

// StageBelow has the calls of this world in which no rank has a buffer of so many bytes
// staged, except those whose addresses the backend takes: for few bytes the ways among
// devices, with their waits for each other, take longer. All ranks of the world call it,
// before any call on device memory; the largest number counts, 0 of all has none staged.
func (c *Comm) StageBelow(ctx context.Context, bytes int) error {
	largest := []int64{int64(bytes)}
	if err := AllReduce(ctx, c, largest, Max); err != nil {
		return err
	}
	if s := c.shared.staging.Load(); s != nil {
		s.below.Store(largest[0])
	}
	return nil
}

// small reports whether a call with a largest buffer of so many bytes is staged.
func (s *staging) small(bytes int) bool { return int64(bytes) < s.below.Load() }

// most returns the bytes of the largest buffer that a rank has in a call, by what all
// ranks that mean the same call know of it; known is false if they do not.
func (c *Call) most(size int) (bytes int, known bool) {
	switch c.Kind {
	case GatherVKind, ScatterVKind, AllToAllVKind:
		return 0, false
	case AllGatherVKind, BroadcastKind:
		return c.Dst.Bytes(), true
	case ScatterKind, ReduceScatterKind:
		return size * c.Dst.Bytes(), true
	case AllGatherKind, GatherKind:
		return size * c.Src.Bytes(), true
	}
	return c.Src.Bytes(), true
}

// among carries out a call among the devices, if the ranks find that they can.
func (s *staging) among(ctx context.Context, c *Comm, call *Call) (done bool, err error) {
	if bytes, known := call.most(c.size); known && s.small(bytes) {
		return false, nil
	}
	if f := s.folds.Load(); f != nil && call.Kind.Reduces() && call.Op != Custom {
		return f.fold(ctx, s, c, call)
	}
	if w := s.windows.Load(); w != nil && call.Kind.moves() && !call.Kind.PointToPoint() {
		return w.read(ctx, s, c, call)
	}
	return false, nil
}
