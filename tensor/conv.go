package tensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// HasWindows reports whether a device has the kernels of Conv and its kin, which take Float32 and Float64.
func HasWindows(dev Device) bool {
	_, ok := dev.(kernel.Windows)
	return ok
}

// Conv returns the cross-correlation of x and w, of groups of channels that do not mix. windows has the window of each dimension of
// positions, up to 3; its Size is that of x, and its Count that of the result.
//
//	x [B, groups·I, Size, …]   w [groups·O, I, Kernel, …]   →   y [B, groups·O, Count, …]
func Conv(x, w *Tensor, groups int, windows []kernel.Window) *Tensor {
	const op = "Conv"
	c, ok := convOf(x.dims[0], groups, x.dims[1], w.dims[0], windows)
	if !ok || !slices.Equal(x.Shape(), c.xShape()) || !slices.Equal(w.Shape(), c.wShape()) {
		throwShape(op, "x %v, w %v, %d groups and windows %+v do not fit", x.brief(), w.brief(), groups, windows)
	}
	wantSameType(op, x, w)
	y := alloc(op, x.dev, x.dtype, c.yShape())
	c.compute(op, x.dev, x.dtype, x, w, y, kernel.Windows.Conv)
	return y
}

// ConvInput is the transpose of Conv in x, and the gradient by it: it adds each element of y times w to the windows of x.
func ConvInput(y, w *Tensor, groups int, windows []kernel.Window) *Tensor {
	const op = "ConvInput"
	c, ok := convOf(y.dims[0], groups, w.dims[1]*groups, w.dims[0], windows)
	if !ok || !slices.Equal(y.Shape(), c.yShape()) || !slices.Equal(w.Shape(), c.wShape()) {
		throwShape(op, "y %v, w %v, %d groups and windows %+v do not fit", y.brief(), w.brief(), groups, windows)
	}
	wantSameType(op, y, w)
	x := alloc(op, y.dev, y.dtype, c.xShape())
	c.compute(op, y.dev, y.dtype, x, w, y, kernel.Windows.ConvInput)
	return x
}

// ConvWeight is the transpose of Conv in w, and the gradient by it: the sum of the products of y and the elements of the windows of x.
func ConvWeight(x, y *Tensor, groups int, windows []kernel.Window) *Tensor {
	const op = "ConvWeight"
	c, ok := convOf(x.dims[0], groups, x.dims[1], y.dims[1], windows)
	if !ok || !slices.Equal(x.Shape(), c.xShape()) || !slices.Equal(y.Shape(), c.yShape()) {
		throwShape(op, "x %v, y %v, %d groups and windows %+v do not fit", x.brief(), y.brief(), groups, windows)
	}
	wantSameType(op, x, y)
	w := alloc(op, x.dev, x.dtype, c.wShape())
	c.compute(op, x.dev, x.dtype, x, w, y, kernel.Windows.ConvWeight)
	return w
}

// A convolution is a kernel.Conv of dims dimensions of positions, the last ones of its windows.
type convolution struct {
	kernel.Conv
	dims int
}

// convOf returns the sizes of a convolution; ok is false if they do not fit.
func convOf(batch, groups, in, out int, windows []kernel.Window) (c convolution, ok bool) {
	if groups < 1 || in%groups != 0 || out%groups != 0 || len(windows) > kernel.Positions {
		return c, false
	}
	c = convolution{kernel.Conv{Batch: batch, Groups: groups, In: in / groups, Out: out / groups}, len(windows)}
	for d := range c.Windows {
		c.Windows[d] = kernel.Window{Size: 1, Count: 1, Kernel: 1, Stride: 1, Dilation: 1}
	}
	copy(c.Windows[kernel.Positions-len(windows):], windows)
	for _, w := range windows {
		if min(w.Kernel, w.Stride, w.Dilation) < 1 || min(w.Padding, w.Size, w.Count) < 0 {
			return c, false
		}
	}
	return c, true
}

// xShape, wShape and yShape are the shapes of the operands.
func (c *convolution) xShape() []int {
	return c.shape(c.Batch, c.Groups*c.In, func(w kernel.Window) int { return w.Size })
}
func (c *convolution) wShape() []int {
	return c.shape(c.Groups*c.Out, c.In, func(w kernel.Window) int { return w.Kernel })
}
func (c *convolution) yShape() []int {
	return c.shape(c.Batch, c.Groups*c.Out, func(w kernel.Window) int { return w.Count })
}

func (c *convolution) shape(first, second int, of func(kernel.Window) int) []int {
	shape := []int{first, second}
	for _, w := range c.Windows[kernel.Positions-c.dims:] {
		shape = append(shape, of(w))
	}
	return shape
}

// compute calls a kernel.
func (c *convolution) compute(op string, dev Device, dt DType, x, w, y *Tensor, f func(kernel.Windows, kernel.Conv)) {
	c.DType, c.X, c.W, c.Y = dt, x.ptr(op), w.ptr(op), y.ptr(op)
	f(windowsOf(op, dev), c.Conv)
	keepAlive(x, w, y)
}
