package nn

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// ForwardWithIndex is Forward of a Pool of maxima that also returns where they are: of each its number among the positions of x, in
// row-major order, as torch.nn.MaxPool2d does with return_indices. MaxUnpool takes it. It throws for a Pool of means.
//
//	x [B, C, H, W]   →   y [B, C, H', W']   index [B, C, H', W'] int64   and so with 1 and 3 dimensions of positions
func (p *Pool) ForwardWithIndex(x *dtensor.Tensor) (y, index *dtensor.Tensor) {
	if p.mean {
		fault.Throw(fmt.Errorf("nn: Pool.ForwardWithIndex: it is a pool of means, which are at no position; make one by NewMaxPool2d"))
	}
	patches := p.patches("Pool.ForwardWithIndex", x)
	element := patches.Detach().Argmax(2, true)
	y = patches.Gather(2, element).Squeeze(2)
	element = element.Squeeze(2)
	mesh, stride := x.Mesh(), 1
	scalar := func(v int) *dtensor.Tensor { return everywhere(mesh, []int64{int64(v)}).Squeeze(0) }
	for d := len(p.windows) - 1; d >= 0; d-- {
		w, size, windows := p.windows[d], x.Dim(2+d), y.Dim(2+d)
		starts := make([]int64, windows)
		for i := range starts {
			starts[i] = int64(i*w.Stride - w.Padding)
		}
		shape := slices.Repeat([]int{1}, len(p.windows)-d)
		shape[0] = windows
		along := element.Remainder(scalar(w.Kernel)).Scale(float64(w.Dilation)).Add(everywhere(mesh, starts).Reshape(shape...))
		along = along.Clamp(0, float64(size-1)).Scale(float64(stride)) // it is beyond where all of a window is -∞
		if index == nil {
			index = along
		} else {
			index = index.Add(along)
		}
		element, stride = element.FloorDivide(scalar(w.Kernel)), stride*size
	}
	return y, index
}

// MaxUnpool puts the elements of x where index says, among positions of these sizes that are else 0, as torch.nn.MaxUnpool1d to 3d
// do with an output_size. index is that of Pool.ForwardWithIndex, and sizes are those of what was pooled:
//
//	y, index := pool.ForwardWithIndex(x)                   // [B, C, H, W] → [B, C, H', W']
//	z := nn.MaxUnpool(y, index, x.Dim(2), x.Dim(3))        // [B, C, H, W]
//
// Of windows that overlap an element of x may be there more than once: it is put once, and each has the gradient. Batches and
// channels may be sharded, S(0) and S(1). It throws for shapes that differ, and a *tensor.IndexError for an index out of range.
func MaxUnpool(x, index *dtensor.Tensor, sizes ...int) *dtensor.Tensor {
	const op = "MaxUnpool"
	if x.NDim() != 2+len(sizes) || len(sizes) == 0 || slices.Min(sizes) < 0 || !slices.Equal(x.Shape(), index.Shape()) ||
		index.DType() != tensor.Int64 {
		fault.Throw(fmt.Errorf("nn: %s: x %v, index %v and the sizes %v; give x [batch, channels, …], an int64 index of its shape from "+
			"Pool.ForwardWithIndex, and a size for each dimension of positions", op, x, index, sizes))
	}
	defer x.Mesh().Span(op).End()
	rows, at := x.Flatten(2, -1), index.Flatten(2, -1)
	zeros := dtensor.Zeros(x.Mesh(), x.DType(), []int{x.Dim(0), x.Dim(1), ints.Product(sizes)}, batchOf(x)...)
	y := dtensor.Record(op, zeros.Scatter(2, at, rows.Detach()), []*dtensor.Tensor{rows}, func(gy *dtensor.Tensor) []dtensor.Grad {
		return []dtensor.Grad{dtensor.Dense(gy.Gather(2, at))}
	})
	return y.Reshape(append(x.Shape()[:2], sizes...)...)
}
