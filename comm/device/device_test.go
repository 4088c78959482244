package device_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/device"
)

// far is a device that knows its memory by the addresses. Buffers in it must be staged.
type far struct {
	memory  []float32
	open    atomic.Int32 // copies under way that were not closed
	entered atomic.Int32 // calls of Enter that were not left
	copied  atomic.Int32 // between it and the host
	queued  []func()     // what it was given to do
	before  func()       // does what was queued when copies were opened; nil: nothing
	folds   atomic.Int32 // folds that it was given to do

	mu       sync.Mutex
	used     int   // bytes at the end of its memory that were handed out
	allocErr error // Alloc fails
	foldErr  error // Fold fails
	miscount bool  // what it folds is wrong
}

func (f *far) Holds(p unsafe.Pointer) bool {
	at := uintptr(p) - uintptr(unsafe.Pointer(&f.memory[0]))
	return at < uintptr(4*len(f.memory))
}

func (f *far) Alloc(bytes int) (unsafe.Pointer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.allocErr != nil {
		return nil, f.allocErr
	}
	f.used += (bytes + 63) / 64 * 64
	return unsafe.Pointer(&f.memory[len(f.memory)-f.used/4]), nil
}

func (f *far) Free(_ unsafe.Pointer, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used -= (bytes + 63) / 64 * 64
}

func (f *far) Pin(unsafe.Pointer, int)   {}
func (f *far) Unpin(unsafe.Pointer, int) {}
func (f *far) Open(lanes int) (device.Copies, error) {
	f.open.Add(1)
	if queued, before := f.queued, f.before; len(queued) > 0 {
		f.queued = nil
		f.before = sync.OnceFunc(func() {
			if before != nil {
				before()
			}
			for _, do := range queued {
				do()
			}
		})
	}
	return &farCopies{f: f, before: f.before, later: make([][]func(), lanes)}, nil
}
func (f *far) Enter() (leave func()) {
	f.entered.Add(1)
	return func() { f.entered.Add(-1) }
}

// farCopies makes its copies when somebody waits for them.
type farCopies struct {
	f      *far
	before func() // what comes first
	later  [][]func()
}

func (c *farCopies) queue(lane int, dst, src unsafe.Pointer, bytes int) error {
	c.later[lane] = append(c.later[lane], func() { copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes)) })
	return nil
}

func (c *farCopies) ToHost(lane int, dst, src unsafe.Pointer, bytes int) error {
	if !c.f.Holds(src) || c.f.Holds(dst) {
		return fmt.Errorf("ToHost from %p to %p", src, dst)
	}
	c.f.copied.Add(1)
	return c.queue(lane, dst, src, bytes)
}

func (c *farCopies) FromHost(lane int, dst, src unsafe.Pointer, bytes int) error {
	if c.f.Holds(src) || !c.f.Holds(dst) {
		return fmt.Errorf("FromHost from %p to %p", src, dst)
	}
	c.f.copied.Add(1)
	return c.queue(lane, dst, src, bytes)
}

func (c *farCopies) Within(lane int, dst, src unsafe.Pointer, bytes int) error {
	if !c.f.Holds(src) || !c.f.Holds(dst) {
		return fmt.Errorf("Within from %p to %p", src, dst)
	}
	return c.queue(lane, dst, src, bytes)
}

func (c *farCopies) Fold(lane int, op comm.Op, dst comm.Buffer, src unsafe.Pointer, ranks int) error {
	return c.fold(lane, op, dst, src, ranks, c.f.Holds(dst.Ptr))
}

// fold is Fold into memory of the device or of the host.
func (c *farCopies) fold(lane int, op comm.Op, dst comm.Buffer, src unsafe.Pointer, ranks int, ours bool) error {
	bytes := dst.Bytes()
	if c.f.foldErr != nil {
		return c.f.foldErr
	}
	if !ours || !c.f.Holds(src) || !c.f.Holds(unsafe.Add(src, ranks*bytes-1)) {
		return fmt.Errorf("Fold of %d ranks from %p to %p", ranks, src, dst.Ptr)
	}
	c.f.folds.Add(1)
	c.later[lane] = append(c.later[lane], func() {
		var srcs []unsafe.Pointer
		for r := range ranks {
			srcs = append(srcs, unsafe.Add(src, r*bytes))
		}
		call := comm.Call{Kind: comm.AllReduceKind, Op: op, Dst: dst}
		call.Fold([]unsafe.Pointer{dst.Ptr}, srcs, dst.Count)
		if c.f.miscount {
			dst.Data()[bytes-1]++
		}
	})
	return nil
}

func (c *farCopies) Wait(lane int) error {
	if c.before != nil {
		c.before()
	}
	for _, f := range c.later[lane] {
		f()
	}
	c.later[lane] = nil
	return nil
}

func (c *farCopies) Close() error {
	for lane := range c.later {
		_ = c.Wait(lane)
	}
	c.f.open.Add(-1)
	return nil
}

// TestStagedCalls compares calls on device memory, of one part and of several, with
// the same calls on memory of the host.
func TestStagedCalls(t *testing.T) {
	for _, n := range []int{1, 5, 3_300_001} { // the last in four parts
		commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
			f := &far{memory: make([]float32, 4*n+4)}
			device.UseStage(world, f)
			me := world.Rank()
			fill := func(s []float32) []float32 {
				v := me * 13
				for i := range s {
					s[i] = float32(v)
					if v += 7; v >= 1001 {
						v -= 1001
					}
				}
				return s
			}
			check := func(what string, call comm.Call, dst, src int) error {
				near := [2][]float32{make([]float32, dst), fill(make([]float32, src))}
				there := [2][]float32{f.memory[:dst], fill(f.memory[2*n+2 : 2*n+2+src])}
				clear(there[0])
				if call.Kind == comm.BroadcastKind || call.Kind == comm.AllReduceKind && src == 0 {
					fill(near[0])
					fill(there[0])
				}
				for _, b := range [][2][]float32{near, there} {
					call.Dst, call.Src = comm.Of(b[0]), comm.Of(b[1])
					switch {
					case call.Kind == comm.AllReduceKind && src == 0:
						call.Src = call.Dst
					case src == 0:
						call.Src = comm.Buffer{}
					case dst == 0:
						call.Dst = comm.Buffer{}
					}
					if err := world.Do(ctx, call); err != nil {
						return fmt.Errorf("%s: %w", what, err)
					}
				}
				if !slices.Equal(near[0], there[0]) {
					return fmt.Errorf("%s of %d elements: device and host differ", what, n)
				}
				if f.open.Load() != 0 {
					return fmt.Errorf("%s: copies were not closed", what)
				}
				return nil
			}
			root := func(its, others int) int {
				if me == 1 {
					return its
				}
				return others
			}
			for _, c := range []struct {
				what     string
				call     comm.Call
				dst, src int
			}{
				{"all-reduce", comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum}, n, n},
				{"all-reduce in place", comm.Call{Kind: comm.AllReduceKind, Op: comm.Max}, n, 0},
				{"reduce", comm.Call{Kind: comm.ReduceKind, Op: comm.Sum, Root: 1}, root(n, 0), n},
				{"reduce to one of two given dsts", comm.Call{Kind: comm.ReduceKind, Op: comm.Sum, Root: 1}, n, n},
				{"scan", comm.Call{Kind: comm.ScanKind, Op: comm.Sum}, n, n},
				{"exscan", comm.Call{Kind: comm.ExscanKind, Op: comm.Sum}, n, n},
				{"all-gather", comm.Call{Kind: comm.AllGatherKind}, 2 * n, n},
				{"gather", comm.Call{Kind: comm.GatherKind, Root: 1}, root(2*n, 0), n},
				{"scatter", comm.Call{Kind: comm.ScatterKind, Root: 1}, n, root(2*n, 0)},
				{"reduce-scatter", comm.Call{Kind: comm.ReduceScatterKind, Op: comm.Sum}, n, 2 * n},
				{"all-to-all", comm.Call{Kind: comm.AllToAllKind}, 2 * n, 2 * n},
				{"broadcast", comm.Call{Kind: comm.BroadcastKind, Root: 1}, n, 0},
				{"all-gather-v", comm.Call{Kind: comm.AllGatherVKind, DstCounts: []int{n, 1}}, n + 1, root(1, n)},
				{"reduce-scatter-v", comm.Call{Kind: comm.ReduceScatterVKind, Op: comm.Sum, SrcCounts: []int{n, 1}}, root(1, n), n + 1},
				{"all-to-all-v", comm.Call{Kind: comm.AllToAllVKind, DstCounts: [][]int{{n, 1}, {1, 0}}[me],
					SrcCounts: [][]int{{n, 1}, {1, 0}}[me]}, root(1, n+1), root(1, n+1)},
			} {
				span := []string{"all-reduce in place", "all-gather", "all-gather-v", "reduce-scatter", "reduce-scatter-v", "broadcast"}
				if n > 5 && !slices.Contains(span, c.what) {
					continue // the others are span the same way
				}
				if err := check(c.what, c.call, c.dst, c.src); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
