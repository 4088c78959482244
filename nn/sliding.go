package nn

import (
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A sliding window covers kernel elements of a dimension, dilation apart, and moves by stride. The dimension has
// padding elements more on each side.
type sliding struct{ kernel, stride, padding, dilation int }

// cut turns dimension dim of x into two: the element of the window, and the position of the window. The elements beyond x are
// fill. size is how many positions there are; if that is less than 1, x comes back as it is.
func (w sliding) cut(x *dtensor.Tensor, dim int, fill float64) (y *dtensor.Tensor, size int) {
	size = (x.Dim(dim)+2*w.padding-w.dilation*(w.kernel-1)-1)/w.stride + 1
	if x.Dim(dim)+2*w.padding <= w.dilation*(w.kernel-1) {
		return x, 0
	}
	if w.padding > 0 {
		x = x.Pad(dim, w.padding, w.padding, fill)
	}
	mesh := x.Mesh()
	index := make([]int64, 0, w.kernel*size)
	for k := range w.kernel {
		for i := range size {
			index = append(index, int64(i*w.stride+k*w.dilation))
		}
	}
	at := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), index, len(index)), mesh.Every(layout.Replicate())...)
	shape := append([]int{}, x.Shape()[:dim]...)
	shape = append(append(shape, w.kernel, size), x.Shape()[dim+1:]...)
	return x.IndexSelect(dim, at).Reshape(shape...), size
}
