// Package cpu has the kernels of package tensor for the CPU, in Go and assembly.
package cpu

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Kernels are the kernels of this process, in Go and assembly, for every element type. One
// goroutine at a time computes with them.
type Kernels struct{ kernel.Widening }

// New returns Kernels that take memory for their own use from scratch.
func New(scratch func(bytes int) mem.Ref) Kernels {
	return Kernels{kernel.Widening{Own: &own{scratch: scratch}}}
}

// SetPairwise has sums over the rows of a tensor, and those of products, made pairwise: see
// package pairwise.
func (c *Kernels) SetPairwise(on bool) { c.Own.(*own).pairwise = on }

// An own has the kernels for float32, float64, the integers and Bool, and the fast ones for
// bfloat16 that Native names.
type own struct {
	scratch  func(bytes int) mem.Ref
	pairwise bool // see SetPairwise
}

// Native reports whether the kernel of this name takes a narrow type.
func (c *own) Native(name string, dt dtype.DType) bool {
	switch name {
	case "Binary", "BinaryScalar", "CrossEntropyGrad", "MatMul":
		return dt == dtype.BFloat16
	}
	return false
}

// Scratch returns memory for a kernel's own use.
func (c *own) Scratch(bytes int) mem.Ref { return c.scratch(bytes) }

// Piece returns how many elements are widened at a time: a quarter of a megabyte of float32.
func (c *own) Piece() int { return Piece }

// Piece is how many elements of a narrow type are widened at a time.
const Piece = 1 << 16

// String returns "cpu".
func (c *Kernels) String() string { return "cpu" }

// ToHost copies bytes.
func (c *Kernels) ToHost(dst, src unsafe.Pointer, bytes int) { c.CopyBytes(dst, src, bytes) }

// FromHost copies bytes.
func (c *Kernels) FromHost(dst, src unsafe.Pointer, bytes int) { c.CopyBytes(dst, src, bytes) }

// CopyBytes copies bytes.
func (c *Kernels) CopyBytes(dst, src unsafe.Pointer, bytes int) {
	simd.Copy(sliceOf[byte](dst, bytes), sliceOf[byte](src, bytes))
}

// sliceOf returns n elements at p.
func sliceOf[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

// ParallelFrom is the number of element operations from which work is split.
const ParallelFrom = 1 << 18

// parallel calls f for consecutive parts of [0, n), on several goroutines if the
// process has several processors and n·cost element operations are worth it. The
// parts are multiples of step, except the last. f must not throw, and its results
// must not depend on how [0, n) is split.
func parallel(n, cost, step int, f func(lo, hi int)) {
	if n*cost < ParallelFrom {
		f(0, n)
		return
	}
	workers := min(runtime.GOMAXPROCS(0), ints.DivUp(n, step))
	if workers <= 1 {
		f(0, n)
		return
	}
	size := ints.RoundUp(ints.DivUp(n, workers), step)
	var wg sync.WaitGroup
	for lo := size; lo < n; lo += size {
		wg.Go(func() { f(lo, min(lo+size, n)) })
	}
	f(0, min(size, n))
	wg.Wait()
}

// float are the floating-point types that are computed with.
type float interface{ float32 | float64 }

// number are the types that are computed with.
type number interface {
	float | int8 | int16 | int32 | int64 | uint8
}
