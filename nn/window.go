package nn

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Window is what slides over each dimension of positions in an Unfold, or over one of a Conv or Pool. Kernel is needed.
type Window struct {
	Kernel   int // K: the size along each dimension
	Stride   int // how far it moves; 0: 1, of a Pool Kernel
	Padding  int // zeros on each side of each dimension
	Dilation int // how far apart its elements are; 0: 1

	ceil bool // of a Pool: a last window that begins before the padding at the end may reach beyond it
}

// filled returns w with its defaults. It throws for numbers that make no window.
func (w Window) filled(op string) Window {
	w.Stride, w.Dilation = cmp.Or(w.Stride, 1), cmp.Or(w.Dilation, 1)
	if min(w.Kernel, w.Stride, w.Dilation) < 1 || w.Padding < 0 {
		fault.Throw(fmt.Errorf("nn: %s: %+v: Kernel, Stride and Dilation have to be positive, and Padding not negative", op, w))
	}
	return w
}

// count returns how many windows a dimension of size elements has; 0 if it is smaller than one.
func (w Window) count(size int) int {
	beyond := size + 2*w.Padding - w.Dilation*(w.Kernel-1) - 1
	if w.ceil {
		beyond += w.Stride - 1
	}
	if beyond < 0 {
		return 0
	}
	n := beyond/w.Stride + 1
	if w.ceil && (n-1)*w.Stride >= size+w.Padding {
		n--
	}
	return n
}

// elements returns how many elements of a dimension of size elements each of its windows has, and with padding of those around it too.
func (w Window) elements(size int, padding bool) []float32 {
	from, to := w.Padding, w.Padding+size
	if padding {
		from, to = 0, to+w.Padding
	}
	elements := make([]float32, w.count(size))
	for i := range elements {
		for k := range w.Kernel {
			if at := i*w.Stride + k*w.Dilation; from <= at && at < to {
				elements[i]++
			}
		}
	}
	return elements
}

// windows has the window of each dimension of positions, with its defaults.
type windows []Window

// windowsOf returns w for each of dims dimensions of positions, or each, which is in place of it.
func windowsOf(op string, w Window, each []Window, dims int) []Window {
	if each == nil {
		return slices.Repeat([]Window{w}, dims)
	}
	if len(each) != dims || w != (Window{}) {
		fault.Throw(fmt.Errorf("nn: %s: Each is %+v beside %+v; give %d, a Window for each dimension of positions, and no Kernel, Stride, "+
			"Padding or Dilation beside", op, each, w, dims))
	}
	return each
}

// elements returns how many elements a window has.
func (ws windows) elements() int {
	n := 1
	for _, w := range ws {
		n *= w.Kernel
	}
	return n
}

// patches turns the positions of x, all dimensions from 2 on, into windows. The elements beyond x are fill. x [B, C, T] becomes
// [B, C, K, T'], x [B, C, H, W] becomes [B, C, K·K, H', W'], and so on; ok is false if x is smaller than a window.
func (ws windows) patches(x *dtensor.Tensor, fill float64) (y *dtensor.Tensor, ok bool) {
	var sizes []int
	for d, w := range ws {
		n := w.count(x.Dim(2 + 2*d))
		if n == 0 {
			return nil, false
		}
		sizes = append(sizes, n)
		x = w.cut(x, 2+2*d, sizes[d], fill)
	}
	x = x.Permute(elementsFirst(len(ws))...)
	return x.Reshape(append([]int{x.Dim(0), x.Dim(1), ws.elements()}, sizes...)...), true
}

// elementsFirst is the order of dimensions that turns [B, C, K, H', K, W'] to [B, C, K, K, H', W'], of any number of positions.
func elementsFirst(dims int) []int {
	order := make([]int, 2+2*dims)
	order[1] = 1
	for d := range dims {
		order[2+d], order[2+dims+d] = 2+2*d, 3+2*d
	}
	return order
}

// cut turns dimension dim of x into two: the element of the window, and which of size windows it is. Windows that are the elements of
// x need no copy.
func (w Window) cut(x *dtensor.Tensor, dim, size int, fill float64) *dtensor.Tensor {
	shape := slices.Concat(x.Shape()[:dim], []int{w.Kernel, size}, x.Shape()[dim+1:])
	if w.Kernel == 1 && w.Stride == 1 && w.Padding == 0 {
		return x.Reshape(shape...)
	}
	after := max(w.Padding, (size-1)*w.Stride+w.Dilation*(w.Kernel-1)+1-w.Padding-x.Dim(dim))
	if after > 0 {
		x = x.Pad(dim, w.Padding, after, fill)
	}
	return x.IndexSelect(dim, w.positions(x.Mesh(), size)).Reshape(shape...)
}

// unpatch is the transpose of patches: it adds up the elements of windows where they were, in dimensions that become as sizes say.
// x [B, C, K, T'] becomes [B, C, T], x [B, C, K·K, H', W'] becomes [B, C, H, W], and so on.
func (ws windows) unpatch(x *dtensor.Tensor, sizes []int) *dtensor.Tensor {
	counts, shape, order := x.Shape()[3:], x.Shape()[:2], make([]int, 2+2*len(ws))
	for _, w := range ws {
		shape = append(shape, w.Kernel)
	}
	shape = append(shape, counts...)
	for to, from := range elementsFirst(len(ws)) { // [B, C, K, K, H', W'] → [B, C, K, H', K, W']
		order[from] = to
	}
	x = x.Reshape(shape...).Permute(order...)
	for d, w := range ws {
		x = w.join(x, 2+d, counts[d], sizes[d])
	}
	return x
}

// join is the transpose of cut: dimensions dim and dim+1 become one of a size.
func (w Window) join(x *dtensor.Tensor, dim, count, size int) *dtensor.Tensor {
	mesh, shape := x.Mesh(), x.Shape()
	covered := max((count-1)*w.Stride+w.Dilation*(w.Kernel-1)+1, w.Padding+size)
	sum := dtensor.Zeros(mesh, x.DType(), slices.Concat(shape[:dim], []int{covered}, shape[dim+2:]), batchOf(x)...)
	x = x.Reshape(slices.Concat(shape[:dim], []int{w.Kernel * count}, shape[dim+2:])...)
	return sum.IndexAdd(dim, w.positions(mesh, count), x).Narrow(dim, w.Padding, size)
}

// batchOf returns the placements that divide dimension 0 as x does, and no other.
func batchOf(x *dtensor.Tensor) []layout.Placement {
	places := x.Mesh().Every(layout.Replicate())
	for axis, p := range x.Placements() {
		if p.Shards(0) {
			places[axis] = p
		}
	}
	return places
}

// positions lists where the elements of size windows are: first those of all windows' first elements. It is replicated.
func (w Window) positions(mesh *dtensor.Mesh, size int) *dtensor.Tensor {
	index := make([]int64, 0, w.Kernel*size)
	for k := range w.Kernel {
		for i := range size {
			index = append(index, int64(i*w.Stride+k*w.Dilation))
		}
	}
	return everywhere(mesh, index)
}
