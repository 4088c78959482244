package kernel

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// Windows are the kernels of what slides over positions. A device may lack them: see tensor.HasWindows. They take Float32 and
// Float64.
type Windows interface {
	Conv(c Conv)       // Y from X and W
	ConvInput(c Conv)  // X from Y and W: the transpose of Conv
	ConvWeight(c Conv) // W from X and Y: the gradient of Conv by W
	Pool(p Pool)
	PoolGrad(p PoolGrad)
}

// Positions are the dimensions of positions that there are at most.
const Positions = 3

// A Window is what slides over one dimension of Size positions, of which it takes Count. Position p of the result has elements
// p·Stride - Padding + k·Dilation, k < Kernel; those that are not within Size are zeros.
type Window struct{ Size, Count, Kernel, Stride, Padding, Dilation int }

// Span returns how many elements the windows cover, the first of them being number -Padding.
func (w Window) Span() int { return (w.Count-1)*w.Stride + (w.Kernel-1)*w.Dilation + 1 }

// A Conv has the operands of a convolution, contiguous: X [Batch, Groups·In, …] of the windows' Sizes, W [Groups·Out, In, …] of their
// Kernels, and Y [Batch, Groups·Out, …] of their Counts. Dimensions that there are not have windows of 1.
//
//	Y[b, g·Out+o, p] = Σ over c and k: W[g·Out+o, c, k] · X[b, g·In+c, p·Stride-Padding+k·Dilation]
type Conv struct {
	DType                  dtype.DType
	Batch, Groups, In, Out int
	Windows                [Positions]Window
	X, W, Y                unsafe.Pointer
}

// Sizes returns the numbers of positions of x and of y and of elements of a window.
func (c *Conv) Sizes() (x, y, kernel int) {
	x, y, kernel = 1, 1, 1
	for _, w := range c.Windows {
		x, y, kernel = x*w.Size, y*w.Count, kernel*w.Kernel
	}
	return x, y, kernel
}

// Spans are the windows of a Pool along one dimension of Size positions: window i has those from From[i] to To[i], excluded, that are
// Step apart. It may have none. A mean is over Over[i] elements.
type Spans struct {
	Size           int
	From, To, Over []int
	Step           int
}

// A Pool has the operands of a pooling, contiguous: X [Planes, …] of the Sizes, and Y [Planes, …] of the numbers of windows. Dimensions
// that there are not have one window of one position.
//
//	Y[c, p] = the largest element of the window of X[c], NaN being larger than all and -Inf the largest of none
//	Y[c, p] = the sum of the window of X[c], by the product of its Over, if it is a Mean
type Pool struct {
	DType  dtype.DType
	Mean   bool
	Planes int
	Spans  [Positions]Spans
	X, Y   unsafe.Pointer
}

// A PoolGrad is the gradient of a Pool: DX gets, for each window, DY at the first of the elements that equal Y, or DY by the product of
// Over at all of them.
type PoolGrad struct {
	Pool
	DX, DY unsafe.Pointer
}
