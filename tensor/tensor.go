package tensor

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A Tensor is a dense row-major array on one device. The zero Tensor is not
// usable; make one with New and its kin. Element (i0, i1, …) is at byte
// ((i0·d1 + i1)·d2 + …)·DType().Size().
type Tensor struct {
	addr  unsafe.Pointer
	block *mem.Block // nil: memory that is not the pool's; of NewAbsent: one that is gone
	base  *Tensor    // the tensor whose clean-up frees the block; nil: this one
	dev   Device
	gen   uint64 // of block, when it was allocated
	numel int    // the product of the sizes
	dtype DType
	ndim  uint8
	made  uint32 // how many changes of the memory have been made; of a view base counts
	dims  [kernel.MaxDims]int
}

// Shape returns the sizes. The caller must not modify them.
func (t *Tensor) Shape() []int { return t.dims[:t.ndim:t.ndim] }

// Dim returns the size of dimension d; a negative d counts from the end.
func (t *Tensor) Dim(d int) int { return t.dims[t.axis("Dim", d)] }

// NDim returns the number of dimensions.
func (t *Tensor) NDim() int { return int(t.ndim) }

// DType returns the element type.
func (t *Tensor) DType() DType { return t.dtype }

// Device returns where the elements are.
func (t *Tensor) Device() Device { return t.dev }

// Numel returns the number of elements.
func (t *Tensor) Numel() int { return t.numel }

// Bytes returns the size of the elements in bytes.
func (t *Tensor) Bytes() int { return t.numel * t.dtype.Size() }

// Ptr returns the address of the first element, for collectives and kernels. It does not keep t alive:
// use runtime.KeepAlive(t) after the last access.
func (t *Tensor) Ptr() unsafe.Pointer { return t.ptr("Ptr") }

// ptr is Ptr on behalf of op.
func (t *Tensor) ptr(op string) unsafe.Pointer {
	if !t.alive() {
		t.throwGone(op)
	}
	return t.addr
}

// keepAlive is runtime.KeepAlive for several tensors: their memory is not given back before
// this call.
//
//go:noinline
func keepAlive(...*Tensor) {}

// change is ptr for a function that changes the elements.
func (t *Tensor) change(op string) unsafe.Pointer {
	t.root().made++
	return t.ptr(op)
}

// Changes returns how often functions of this package have changed the memory of t, by t or by a view of it: as with
// PyTorch's version of a tensor, two equal numbers mean that no such function was called between. What a program
// writes through Data or Ptr is not counted, nor are PutRows and ScaleRowsTo, by which lookups add rows and keep them short.
func (t *Tensor) Changes() uint32 { return t.root().made }

// addrOf is t.ptr for a tensor that may be nil.
func addrOf(op string, t *Tensor) unsafe.Pointer {
	if t == nil {
		return nil
	}
	return t.ptr(op)
}

// alive reports whether the memory of t is still its own.
func (t *Tensor) alive() bool { return t.block == nil || t.block.Gen() == t.gen }

// newTensor returns a tensor without memory.
func newTensor(op string, dev Device, dt DType, shape []int) *Tensor {
	t := &Tensor{dev: dev, dtype: dt, ndim: uint8(len(shape)), numel: 1}
	if len(shape) > kernel.MaxDims {
		throwShape(op, "%d dimensions: at most %d are supported", len(shape), kernel.MaxDims)
	}
	if !dt.Valid() {
		throwType(op, "no element type given")
	}
	copy(t.dims[:], shape)
	for _, n := range t.dims[:len(shape)] {
		if n < 0 || n > 0 && t.numel > math.MaxInt/8/n {
			throwShape(op, "%v: sizes must not be negative and must fit the memory", slices.Clone(t.Shape()))
		}
		t.numel *= n
	}
	return t
}

// alloc returns a tensor with memory, contents unspecified.
func alloc(op string, dev Device, dt DType, shape []int) *Tensor {
	t := newTensor(op, dev, dt, shape)
	m := dev.memory()
	b, err := m.Pool.Alloc(t.Bytes())
	if err != nil {
		fault.Throw(&UseError{Op: op, Detail: t.brief() + " on " + t.dev.String(), Err: err})
	}
	t.addr, t.block, t.gen = b.Ptr(), b, b.Gen()
	if !b.Scoped() {
		t.own()
	}
	if m.Watcher != nil {
		m.Watcher.Made(t.addr, t.Bytes(), dt)
	}
	return t
}

// allocLike returns a tensor of x's shape, contents unspecified.
func allocLike(op string, x *Tensor) *Tensor { return alloc(op, x.dev, x.dtype, x.Shape()) }

// own frees the block of t when t is no longer reachable.
func (t *Tensor) own() {
	runtime.AddCleanup(t, mem.Ref.Free, mem.Ref{Block: t.block, Gen: t.gen})
}

// root returns the tensor with whose last reference the memory is freed.
func (t *Tensor) root() *Tensor {
	if t.base != nil {
		return t.base
	}
	return t
}

// view returns a tensor over a part of t's memory.
func (t *Tensor) view(op string, offset int, shape []int) *Tensor {
	v := newTensor(op, t.dev, t.dtype, shape)
	v.addr = unsafe.Add(t.ptr(op), offset*t.dtype.Size())
	v.block, v.gen, v.base = t.block, t.gen, t.root()
	return v
}

// Free gives the memory of t and of its views back to the pool at once; to use
// any of them later throws. Freeing twice does nothing.
func (t *Tensor) Free() {
	if t.block != nil {
		t.block.Free(t.gen)
	}
}

// axis normalises a dimension number, which may count from the end.
func (t *Tensor) axis(op string, d int) int {
	if d < -int(t.ndim) || d >= int(t.ndim) {
		throwShape(op, "%v: dimension %d is out of range [%d, %d)", t.brief(), d, -int(t.ndim), t.ndim)
	}
	if d < 0 {
		d += int(t.ndim)
	}
	return d
}

// brief is the type and shape of t, for messages: float32[2 3].
func (t *Tensor) brief() string { return fmt.Sprintf("%v%v", t.dtype, t.Shape()) }

// String returns type, shape and the first few elements.
func (t *Tensor) String() string {
	if !t.alive() {
		if why, ok := t.Absent(); ok {
			return t.brief() + " (" + why + ")"
		}
		return t.brief() + " (freed)"
	}
	const most = 8
	n := min(t.numel, most)
	host := make([]byte, n*t.dtype.Size()+8)
	if n > 0 {
		t.dev.ToHost(unsafe.Pointer(&host[0]), t.addr, n*t.dtype.Size())
		runtime.KeepAlive(t)
	}
	var s strings.Builder
	s.WriteString(t.brief() + "{")
	for i := range n {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(formatElem(t.dtype, unsafe.Pointer(&host[i*t.dtype.Size()])))
	}
	if t.numel > most {
		s.WriteString(" …")
	}
	return s.String() + "}"
}

// formatElem prints one element on the host.
func formatElem(dt DType, p unsafe.Pointer) string {
	switch dt {
	case Float32:
		return fmt.Sprint(*(*float32)(p))
	case Float64:
		return fmt.Sprint(*(*float64)(p))
	case Float16:
		return fmt.Sprint((*(*dtype.F16)(p)).Float32())
	case BFloat16:
		return fmt.Sprint((*(*dtype.BF16)(p)).Float32())
	case Int8:
		return fmt.Sprint(*(*int8)(p))
	case Int16:
		return fmt.Sprint(*(*int16)(p))
	case Int32:
		return fmt.Sprint(*(*int32)(p))
	case Int64:
		return fmt.Sprint(*(*int64)(p))
	case Uint8:
		return fmt.Sprint(*(*uint8)(p))
	default:
		return fmt.Sprint(*(*bool)(p))
	}
}

// sameShape reports whether a and b have the same sizes.
func sameShape(a, b *Tensor) bool {
	if a.ndim != b.ndim || a.numel != b.numel {
		return false
	}
	for d, n := range a.dims[:a.ndim] {
		if b.dims[d] != n {
			return false
		}
	}
	return true
}
