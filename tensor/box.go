package tensor

import (
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CopyBox copies a box of the given sizes from src, where its first element is at
// srcOff, to dst, where it is at dstOff:
//
//	for i in sizes: dst[dstOff+i] = src[srcOff+i]
//
// dst and src have one element type, one device and len(sizes) dimensions each; the
// box lies within both. The two boxes may be the same but not overlap otherwise.
func CopyBox(dst *Tensor, dstOff []int, src *Tensor, srcOff, sizes []int) {
	const op = "CopyBox"
	if dst.dtype != src.dtype {
		throwType(op, "%v into %v: element types differ; Cast first", src.brief(), dst.brief())
	}
	wantSameDevice(op, dst, src)
	d := within(op, "destination", dst, dstOff, sizes)
	s := within(op, "source", src, srcOff, sizes)
	copyBox(dst, dst.Shape(), d, src, src.Shape(), s, sizes)
}

// ClearBox sets a box of t, which begins at off, to 0.
func ClearBox(t *Tensor, off, sizes []int) {
	const op = "ClearBox"
	at := within(op, "destination", t, off, sizes)
	l := boxLoop(sizes, t.Shape(), t.Shape())
	if l.Numel() == 0 {
		return
	}
	none := Zeros(t.dev, t.dtype, 1)
	l.B = [kernel.MaxDims]int{}
	t.dev.CopyLoop(t.dtype.Size(), offset(t, op, at), none.addr, l)
	none.Free()
	t.change(op)
}

// PackBox copies the box of src at off to consecutive elements of the 1-D tensor
// flat, from element at on, in row-major order.
func PackBox(flat *Tensor, at int, src *Tensor, off, sizes []int) {
	const op = "PackBox"
	s := within(op, "source", src, off, sizes)
	wantFlat(op, flat, src, at, sizes)
	copyBox(flat, sizes, at, src, src.Shape(), s, sizes)
}

// UnpackBox copies consecutive elements of the 1-D tensor flat, from element at
// on, to the box of dst at off: the inverse of PackBox.
func UnpackBox(dst *Tensor, off []int, flat *Tensor, at int, sizes []int) {
	const op = "UnpackBox"
	d := within(op, "destination", dst, off, sizes)
	wantFlat(op, flat, dst, at, sizes)
	copyBox(dst, dst.Shape(), d, flat, sizes, at, sizes)
}

// copyBox copies a box between arrays of the given shapes, from one element on.
func copyBox(dst *Tensor, dstShape []int, d int, src *Tensor, srcShape []int, s int, sizes []int) {
	const op = "CopyBox"
	l := boxLoop(sizes, dstShape, srcShape)
	if l.Numel() > 0 {
		dst.dev.CopyLoop(dst.dtype.Size(), offset(dst, op, d), offset(src, op, s), l)
	}
	keepAlive(src, dst)
}

// within throws unless the box lies in t, and returns the offset of its first element.
func within(op, name string, t *Tensor, off, sizes []int) int {
	if len(off) != t.NDim() || len(sizes) != t.NDim() {
		throwShape(op, "%s %v: %d offsets and %d sizes for %d dimensions", name, t.brief(), len(off), len(sizes), t.ndim)
	}
	first := 0
	for i, n := range t.Shape() {
		if off[i] < 0 || sizes[i] < 0 || off[i]+sizes[i] > n {
			throwShape(op, "%s %v: a box of %v at %v is not within it", name, t.brief(), slices.Clone(sizes), slices.Clone(off))
		}
		first = first*n + off[i]
	}
	return first
}

func wantFlat(op string, flat, t *Tensor, at int, sizes []int) {
	wantSameType(op, flat, t)
	n := ints.Product(sizes)
	if flat.ndim != 1 || at < 0 || at+n > flat.numel {
		throwShape(op, "%d elements from %d on are not within the flat tensor %v", n, at, flat.brief())
	}
}

// offset returns the address of element i of t.
func offset(t *Tensor, op string, i int) unsafe.Pointer {
	return unsafe.Add(t.ptr(op), i*t.dtype.Size())
}

// boxLoop returns the loop of a copy of a box between two contiguous arrays.
func boxLoop(sizes, dstShape, srcShape []int) kernel.Loop {
	var dst, src [kernel.MaxDims]int
	d, s := 1, 1
	for i := len(sizes) - 1; i >= 0; i-- {
		dst[i], src[i] = d, s
		d, s = d*dstShape[i], s*srcShape[i]
	}
	return merge(sizes, dst[:len(sizes)], src[:len(sizes)])
}

// rowsLoop is the loop of a copy of n rows of length elements, whose starts are
// dst and src elements apart.
func rowsLoop(n, length, dst, src int) kernel.Loop {
	return merge([]int{n, length}, []int{dst, 1}, []int{src, 1})
}

// strided is the loop of a copy to a contiguous array of the given shape from one
// with the given distances.
func strided(shape, src []int) kernel.Loop {
	var dst [kernel.MaxDims]int
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		dst[i] = n
		n *= shape[i]
	}
	return merge(shape, dst[:len(shape)], src)
}

// merge returns a loop over shape with distances a and b, without dimensions of
// size 1 and with neighbours joined where both can be walked as one.
func merge(shape, a, b []int) (l kernel.Loop) {
	for i, n := range shape {
		if n == 1 {
			continue
		}
		if p := l.N - 1; p >= 0 && l.A[p] == a[i]*n && l.B[p] == b[i]*n {
			l.Size[p], l.A[p], l.B[p] = l.Size[p]*n, a[i], b[i]
			continue
		}
		l.Size[l.N], l.A[l.N], l.B[l.N] = n, a[i], b[i]
		l.N++
	}
	if l.N == 0 {
		l.N, l.Size[0], l.A[0], l.B[0] = 1, 1, 1, 1
	}
	return l
}
