package tensor

import (
	"runtime"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// New returns a tensor of unspecified contents. It throws a *ShapeError if a
// size is negative or there are more than MaxDims.
func New(dev Device, dt DType, shape ...int) *Tensor { return alloc("New", dev, dt, shape) }

// NewLike is New with the device, type and shape of x.
func NewLike(x *Tensor) *Tensor { return allocLike("NewLike", x) }

// Zeros returns a tensor of zeros (false for Bool).
func Zeros(dev Device, dt DType, shape ...int) *Tensor {
	t := alloc("Zeros", dev, dt, shape)
	dev.Fill(dt, t.addr, t.numel, 0)
	return t
}

// ZerosLike returns zeros of x's device, type and shape.
func ZerosLike(x *Tensor) *Tensor { return Zeros(x.dev, x.dtype, x.Shape()...) }

// Full returns a tensor whose elements are all v, rounded to dt. Without sizes it is a
// scalar.
func Full(dev Device, dt DType, v float64, shape ...int) *Tensor {
	t := alloc("Full", dev, dt, shape)
	dev.Fill(dt, t.addr, t.numel, v)
	return t
}

// Arange returns [start, start+1, …], n elements.
func Arange(dev Device, dt DType, start, n int) *Tensor {
	t := alloc("Arange", dev, dt, []int{n})
	dev.Iota(dt, t.addr, n, start)
	return t
}

// Fill sets every element of t to v, rounded to its type.
func Fill(t *Tensor, v float64) { t.dev.Fill(t.dtype, t.change("Fill"), t.numel, v) }

// FromSlice returns a tensor with a copy of data. It throws a *ShapeError if the
// sizes do not multiply to len(data).
func FromSlice[T Elem](dev Device, data []T, shape ...int) *Tensor {
	const op = "FromSlice"
	n := ints.Product(shape)
	if n != len(data) {
		throwShape(op, "%d elements for shape %v, which has %d", len(data), append([]int(nil), shape...), n)
	}
	t := alloc(op, dev, dtype.Of[T](), shape)
	if n > 0 {
		dev.FromHost(t.addr, unsafe.Pointer(&data[0]), t.Bytes())
	}
	return t
}

// Data returns the elements where they lie: writing to the slice writes to t. It is valid while t is
// reachable and its scope is open. It throws a *TypeError if T is not t's type, and a *UseError if t
// is not on the CPU.
func Data[T Elem](t *Tensor) []T { return data[T](t, "Data") }

// data is Data on behalf of op.
func data[T Elem](t *Tensor, op string) []T {
	if want := dtype.Of[T](); t.dtype != want {
		throwType(op, "%v does not hold %v; name its type, or Cast it before", t.brief(), want)
	}
	if !OnHost(t.dev) {
		throwUse(op, "%v is on %v; use ToSlice, which copies", t.brief(), t.dev)
	}
	if watcher := t.dev.memory().Watcher; watcher != nil {
		watcher.Touches(op, t.dtype)
	}
	return unsafe.Slice((*T)(t.ptr(op)), t.numel)
}

// ToSlice returns a copy of the elements in Go's memory. It throws as Data does,
// except that t may be on any device.
func ToSlice[T Elem](t *Tensor) []T {
	const op = "ToSlice"
	if want := dtype.Of[T](); t.dtype != want {
		throwType(op, "%v does not hold %v; name its type, or Cast it before", t.brief(), want)
	}
	s := make([]T, t.numel)
	if watcher := t.dev.memory().Watcher; watcher != nil {
		watcher.Touches(op, t.dtype)
	}
	if t.numel > 0 {
		t.dev.ToHost(unsafe.Pointer(&s[0]), t.ptr(op), t.Bytes())
		runtime.KeepAlive(t)
	}
	return s
}

// Item returns the only element of t. It throws a *ShapeError if t has more or none.
func (t *Tensor) Item() float64 {
	if t.numel != 1 {
		throwShape("Item", "%v has %d elements, not one", t.brief(), t.numel)
	}
	return ToSlice[float64](Cast(t, Float64))[0]
}

// Clone returns a copy of x with memory of its own.
func Clone(x *Tensor) *Tensor {
	const op = "Clone"
	t := allocLike(op, x)
	x.dev.CopyBytes(t.addr, x.ptr(op), x.Bytes())
	runtime.KeepAlive(x)
	return t
}

// Copy sets the elements of dst to those of src, which has the same shape and
// type and may be on another device.
func Copy(dst, src *Tensor) {
	const op = "Copy"
	wantSameShape(op, dst, src)
	if dst.dtype != src.dtype {
		throwType(op, "%v into %v: element types differ; Cast first", src.brief(), dst.brief())
	}
	d, s, n := dst.change(op), src.ptr(op), src.Bytes()
	if n == 0 {
		return
	}
	if dst.dev == src.dev {
		dst.dev.CopyBytes(d, s, n)
	} else {
		host := make([]byte, n)
		src.dev.ToHost(unsafe.Pointer(&host[0]), s, n)
		dst.dev.FromHost(d, unsafe.Pointer(&host[0]), n)
	}
	keepAlive(src, dst)
}

// Cast returns x with elements converted to dt, x itself if dt is its type. Floats round to nearest
// even, and truncate towards zero if dt is an integer type; Bool is x != 0. A number that dt cannot
// hold becomes unspecified.
func Cast(x *Tensor, dt DType) *Tensor {
	const op = "Cast"
	if x.dtype == dt {
		return x
	}
	t := alloc(op, x.dev, dt, x.Shape())
	x.dev.Cast(dt, t.addr, x.dtype, x.ptr(op), x.numel)
	runtime.KeepAlive(x)
	return t
}

// CastTo is Cast into dst, of the same shape.
func CastTo(dst, x *Tensor) {
	const op = "CastTo"
	wantSameShape(op, dst, x)
	if dst.dtype == x.dtype {
		Copy(dst, x)
		return
	}
	wantSameDevice(op, dst, x)
	x.dev.Cast(dst.dtype, dst.change(op), x.dtype, x.ptr(op), x.numel)
	runtime.KeepAlive(x)
}
