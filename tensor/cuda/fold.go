package cuda

import (
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Alloc returns memory of the device.
func (s *Stage) Alloc(bytes int) (unsafe.Pointer, error) { return allocator{s.g}.Alloc(bytes) }

// Free gives it back.
func (s *Stage) Free(p unsafe.Pointer, bytes int) { allocator{s.g}.Free(p, bytes) }

// A folder launches the kernel fold, one at a time.
type folder struct {
	mu     sync.Mutex
	kernel uintptr // 0 until it is used
	call   launch
}

// Fold queues on lane i the fold of src [ranks, n] over the ranks to dst [n]. op is
// numbered as in package comm.
func (c *Copies) Fold(i int, op uint8, dt tensor.DType, dst, src unsafe.Pointer, n, ranks int) (err error) {
	s, g, stream := c.s, c.s.g, c.lanes[i].stream
	f := &s.folder
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kernel == 0 {
		if f.kernel, err = g.find("fold"); err != nil {
			return err
		}
	}
	g.recent.add("fold")
	f.call.size = 0
	f.call.dt(dt).i32(int(op)).i64(n).i32(ranks).ptr(dst, src)
	defer g.enter()()
	c.lanes[i].busy = true
	blocks := min(ints.DivUp(n, threads), g.grids)
	if err := s.check(cuLaunchKernel, f.kernel, uintptr(blocks), 1, 1, threads, 1, 1, 0, stream, 0, f.call.arguments()); err != nil ||
		!g.sync {
		return err
	}
	return c.Wait(i)
}
