package nn

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A sliding window covers kernel elements of a dimension, dilation apart, and moves by stride. The dimension has
// padding elements more on each side.
type sliding struct{ kernel, stride, padding, dilation int }

// patches turns the positions of x, all dimensions from 2 on, into windows. The elements beyond x are fill. x [B, C, T] becomes
// [B, C, K, T'], and x [B, C, H, W] becomes [B, C, K·K, H', W']; ok is false if x is smaller than a window.
func (w sliding) patches(x *dtensor.Tensor, fill float64) (y *dtensor.Tensor, ok bool) {
	covered := w.dilation*(w.kernel-1) + 1
	elements, dims := 1, x.NDim()-2 // elements of a window
	var sizes []int
	for d := range dims {
		beyond := x.Dim(2+2*d) + 2*w.padding - covered
		if beyond < 0 {
			return nil, false
		}
		sizes, elements = append(sizes, beyond/w.stride+1), elements*w.kernel
		x = w.cut(x, 2+2*d, sizes[d], fill)
	}
	if dims == 2 { // [B, C, K, H', K, W'] → [B, C, K, K, H', W']
		x = x.Transpose(3, 4)
	}
	return x.Reshape(append([]int{x.Dim(0), x.Dim(1), elements}, sizes...)...), true
}

// cut turns dimension dim of x into two: the element of the window, and which of size windows it is.
func (w sliding) cut(x *dtensor.Tensor, dim, size int, fill float64) *dtensor.Tensor {
	if w.padding > 0 {
		x = x.Pad(dim, w.padding, w.padding, fill)
	}
	index := make([]int64, 0, w.kernel*size)
	for k := range w.kernel {
		for i := range size {
			index = append(index, int64(i*w.stride+k*w.dilation))
		}
	}
	mesh := x.Mesh()
	at := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), index, len(index)), mesh.Every(layout.Replicate())...)
	shape := slices.Concat(x.Shape()[:dim], []int{w.kernel, size}, x.Shape()[dim+1:])
	return x.IndexSelect(dim, at).Reshape(shape...)
}
