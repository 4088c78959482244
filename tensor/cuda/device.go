package cuda

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A Device is one GPU, as one rank uses it. One goroutine at a time computes on it; a
// Stage may copy at the same time.
type Device struct {
	*tensor.Memory
	kernel.Widening
	drv      *Driver
	ordinal  int
	rank     int
	desc     Description
	ctx      uintptr
	stream   uintptr
	sync     bool
	held     atomic.Int64 // bytes of device memory that this rank has allocated
	grids    int          // the most blocks of a launch
	modules  modules
	call     launch // the launch in progress, here so that it is not allocated anew each time
	recent   recent
	ring     ring
	blas     *blas
	tail     unsafe.Pointer // the table of normals, once used
	memories memoryMap
}

var _ tensor.Device = (*Device)(nil)

// kernels are the kernels of a Device for float32, float64, the integers and Bool, and those
// for bfloat16 that Native names.
type kernels struct{ *Device }

// Native reports whether the kernel of this name takes a narrow type.
func (g kernels) Native(name string, dt tensor.DType) bool {
	switch name {
	case "Unary", "UnaryGrad", "Binary", "BinaryLoop", "BinaryScalar", "Axpy", "Reduce", "MatMul", "Softmax", "SoftmaxGrad",
		"Norm", "NormGrad", "TopK", "CrossEntropyStats", "CrossEntropyGrad", "SGD", "Adam", "AdagradRows", "SumSquares":
		return dt == tensor.BFloat16
	}
	return false
}

// Scratch returns memory for a kernel's own use.
func (g *Device) Scratch(bytes int) mem.Ref { return g.Memory.Scratch(bytes) }

// Piece returns how many elements are widened at a time.
func (g kernels) Piece() int { return 1 << 24 }

// Open returns device number i of those that CUDA_VISIBLE_DEVICES leaves, for the
// tensors of rank.
func (d *Driver) Open(i, rank int) (*Device, error) {
	if i < 0 || i >= d.count {
		return nil, fmt.Errorf("cuda: there is no device %d: %s offers %d; see CUDA_VISIBLE_DEVICES", i, d.name, d.count)
	}
	desc, err := d.Describe(i)
	if err != nil {
		return nil, err
	}
	if err := d.fits(i, desc); err != nil {
		return nil, err
	}
	dev, err := d.device(i)
	if err != nil {
		return nil, err
	}
	g := &Device{drv: d, ordinal: i, rank: rank, desc: desc, grids: 16 * max(desc.Processors, 1), sync: os.Getenv("GORUN_CUDA_SYNC") == "1"}
	pool := mem.NewPool(allocator{g}, nil)
	if os.Getenv("GORUN_CUDA_POOL") == "0" {
		pool.Direct()
	}
	g.Memory = &tensor.Memory{Memory: kernel.Memory{Pool: pool}}
	g.call.d, g.Widening = g, kernel.Widening{Own: kernels{g}}
	if code := d.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&g.ctx)), dev); code != success {
		return nil, g.failure(cuDevicePrimaryCtxRetain, code)
	}
	defer g.enter()()
	if code := d.call(cuStreamCreate, uintptr(unsafe.Pointer(&g.stream)), streamNonBlocking); code != success {
		return nil, g.failure(cuStreamCreate, code)
	}
	if err := g.index(); err != nil {
		return nil, err
	}
	if err := g.openRing(); err != nil {
		return nil, err
	}
	g.blas, err = openBlas(blasNames(), g.stream)
	return g, err
}

// streamNonBlocking is CU_STREAM_NON_BLOCKING: the stream does not wait for the
// default one, which others may use.
const streamNonBlocking = 1

// String returns "cuda:0".
func (g *Device) String() string { return fmt.Sprintf("cuda:%d", g.ordinal) }

// Description returns what the device says of itself.
func (g *Device) Description() Description { return g.desc }

// Products says what computes matrix products: the name of a cuBLAS library, or
// "own kernel".
func (g *Device) Products() string {
	if g.blas == nil {
		return "own kernel"
	}
	return g.blas.name
}

// enter makes the device's context current and locks the goroutine to its thread, until
// the function that it returns is called.
func (g *Device) enter() func() {
	runtime.LockOSThread()
	g.drv.call(cuCtxSetCurrent, g.ctx)
	return runtime.UnlockOSThread
}

// failure describes a code of this device.
func (g *Device) failure(f function, code int32) *Error {
	e := g.drv.failure(code, symbols()[f])
	e.Rank, e.Device = g.rank, fmt.Sprintf("%v (%s)", g, g.desc.Name)
	e.Kernels = g.recent.list()
	if g.sync {
		e.Kernels = e.Kernels[:min(1, len(e.Kernels))]
	}
	return e
}

// do makes a call in the device's context and throws an *Error if it fails.
//
//go:uintptrescapes
func (g *Device) do(f function, args ...uintptr) {
	runtime.LockOSThread()
	g.drv.call(cuCtxSetCurrent, g.ctx)
	code := g.drv.call(f, args...)
	runtime.UnlockOSThread()
	if code != success {
		fault.Throw(g.failure(f, code))
	}
}

// Sync waits for all queued work. It throws an *Error if a kernel failed.
func (g *Device) Sync() { g.do(cuStreamSynchronize, g.stream) }

// ToHost copies bytes to the host after all queued work, and waits.
func (g *Device) ToHost(dst, src unsafe.Pointer, bytes int) {
	if bytes > 0 {
		g.do(cuMemcpyDtoHAsync, uintptr(dst), uintptr(src), uintptr(bytes), g.stream)
		g.Sync()
		runtime.KeepAlive(dst)
	}
}

// FromHost copies bytes to the device after all queued work.
func (g *Device) FromHost(dst, src unsafe.Pointer, bytes int) {
	switch {
	case bytes <= 0:
	case bytes <= ringBytes/4:
		p := g.ringSpace(bytes)
		copy(unsafe.Slice((*byte)(p), bytes), unsafe.Slice((*byte)(src), bytes))
		g.do(cuMemcpyHtoDAsync, uintptr(dst), uintptr(p), uintptr(bytes), g.stream)
	default:
		g.do(cuMemcpyHtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), g.stream)
		g.Sync() // the caller may change the source afterwards
		runtime.KeepAlive(src)
	}
}

// CopyBytes copies bytes within the device.
func (g *Device) CopyBytes(dst, src unsafe.Pointer, bytes int) {
	if bytes > 0 {
		g.do(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), g.stream)
	}
}

// clear sets bytes to zero.
func (g *Device) clear(dst unsafe.Pointer, bytes int) {
	if bytes > 0 {
		g.do(cuMemsetD8Async, uintptr(dst), 0, uintptr(bytes), g.stream)
	}
}

// A ring is pinned memory in which the sources of small copies to the device wait, so that
// FromHost need not.
type ring struct {
	base unsafe.Pointer
	used int
}

const ringBytes = 1 << 20

func (g *Device) openRing() (err error) {
	g.ring.base, err = g.pinned(ringBytes)
	return err
}

// ringSpace returns bytes of the ring. When the ring is full it waits for all copies from
// it and starts again.
func (g *Device) ringSpace(bytes int) unsafe.Pointer {
	if g.ring.used+bytes > ringBytes {
		g.Sync()
		g.ring.used = 0
	}
	p := unsafe.Add(g.ring.base, g.ring.used)
	g.ring.used += ints.RoundUp(bytes, 64)
	return p
}

// read copies a few bytes from the device and waits for them.
func (g *Device) read(src unsafe.Pointer, dst unsafe.Pointer, bytes int) {
	p := g.ringSpace(bytes)
	g.do(cuMemcpyDtoHAsync, uintptr(p), uintptr(src), uintptr(bytes), g.stream)
	g.Sync()
	copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(p), bytes))
}

// pinned returns memory of the host that the device copies at full speed. It is
// never given back: a device has a few such pieces.
func (g *Device) pinned(bytes int) (unsafe.Pointer, error) {
	defer g.enter()()
	var p unsafe.Pointer
	if code := g.drv.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), 0); code != success {
		return nil, fmt.Errorf("%d bytes of pinned memory: %w", bytes, g.failure(cuMemHostAlloc, code))
	}
	return p, nil
}

// An allocator is a device's memory as a pool sees it.
type allocator struct{ g *Device }

// Alloc returns memory of the device.
func (a allocator) Alloc(bytes int) (unsafe.Pointer, error) {
	g := a.g
	defer g.enter()()
	var p unsafe.Pointer
	switch code := g.drv.call(cuMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes)); code {
	case success:
		g.held.Add(int64(bytes))
		g.memories.add(p, bytes)
		return p, nil
	case outOfMemory:
		var free, total uint64
		g.drv.call(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
		mine := int(g.held.Load())
		return nil, &MemoryError{Rank: g.rank, Device: fmt.Sprintf("%v (%s)", g, g.desc.Name), Bytes: bytes, Mine: mine,
			Others: max(0, int(total)-int(free)-mine), Free: int(free), Total: int(total)}
	default:
		return nil, g.failure(cuMemAlloc, code)
	}
}

// Free gives memory back after all queued work.
func (a allocator) Free(p unsafe.Pointer, bytes int) {
	g := a.g
	defer g.enter()()
	g.drv.call(cuStreamSynchronize, g.stream)
	g.memories.remove(p) // once freed, another goroutine may be given the address
	g.drv.call(cuMemFree, uintptr(p))
	g.held.Add(-int64(bytes))
}

var _ mem.Allocator = allocator{}
