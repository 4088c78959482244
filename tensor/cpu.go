package tensor

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A CPU is the Device of this process: memory from an Allocator, kernels in Go
// and assembly. One goroutine at a time computes on it.
type CPU struct{ *Memory }

// NewCPU returns a CPU whose tensors live in memory from a; nil: anonymous
// memory of the process.
func NewCPU(a mem.Allocator) *CPU {
	if a == nil {
		a = mem.System{}
	}
	return &CPU{NewMemory(a, mem.Populate)}
}

// String returns "cpu".
func (c *CPU) String() string { return "cpu" }

// ToHost copies bytes.
func (c *CPU) ToHost(dst, src unsafe.Pointer, bytes int) { c.CopyBytes(dst, src, bytes) }

// FromHost copies bytes.
func (c *CPU) FromHost(dst, src unsafe.Pointer, bytes int) { c.CopyBytes(dst, src, bytes) }

// CopyBytes copies bytes.
func (c *CPU) CopyBytes(dst, src unsafe.Pointer, bytes int) {
	simd.Copy(sliceOf[byte](dst, bytes), sliceOf[byte](src, bytes))
}

// sliceOf returns n elements at p.
func sliceOf[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

// parallelFrom is the number of element operations from which work is split.
const parallelFrom = 1 << 18

// parallel calls f for consecutive parts of [0, n), on several goroutines if the
// process has several processors and n·cost element operations are worth it. The
// parts are multiples of step, except the last. f must not throw, and its results
// must not depend on how [0, n) is split.
func parallel(n, cost, step int, f func(lo, hi int)) {
	if n*cost < parallelFrom {
		f(0, n)
		return
	}
	workers := min(runtime.GOMAXPROCS(0), (n+step-1)/step)
	if workers <= 1 {
		f(0, n)
		return
	}
	size := ((n+workers-1)/workers + step - 1) / step * step
	var wg sync.WaitGroup
	for lo := size; lo < n; lo += size {
		wg.Go(func() { f(lo, min(lo+size, n)) })
	}
	f(0, min(size, n))
	wg.Wait()
}
