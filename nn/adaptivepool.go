package nn

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An AdaptivePool brings signals, images or volumes of any size to one size, by the mean or the largest element of windows, as
// torch.nn.AdaptiveAvgPool1d to 3d and AdaptiveMaxPool1d to 3d do. Of n positions the window of the i-th of m results
// has those from ⌊i·n/m⌋ to ⌈(i+1)·n/m⌉-1. Batches and channels may be sharded, S(0) and S(1).
type AdaptivePool struct {
	sizes []int
	mean  bool
}

// NewAdaptiveAvgPool makes an AdaptivePool of means, with a size for each dimension of positions; 0 leaves a dimension as it is.
func NewAdaptiveAvgPool(sizes ...int) *AdaptivePool {
	return newAdaptivePool("NewAdaptiveAvgPool", sizes, true)
}

// NewAdaptiveMaxPool makes an AdaptivePool of the largest elements, with a size for each dimension of positions; 0 leaves a dimension
// as it is.
func NewAdaptiveMaxPool(sizes ...int) *AdaptivePool {
	return newAdaptivePool("NewAdaptiveMaxPool", sizes, false)
}

func newAdaptivePool(op string, sizes []int, mean bool) *AdaptivePool {
	if len(sizes) == 0 || slices.Min(sizes) < 0 {
		fault.Throw(fmt.Errorf("nn: %s: the sizes are %v; give one for each dimension of positions, at least 1, or 0 to leave it", op, sizes))
	}
	return &AdaptivePool{slices.Clone(sizes), mean}
}

// Forward returns x [B, C, …] with the sizes of the pool in the dimensions from 2 on, in x's type. The gradient of a maximum goes to
// the first of the elements that equal it, and NaN is larger than all.
func (p *AdaptivePool) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	if x.NDim() != 2+len(p.sizes) || slices.Contains(x.Shape()[2:], 0) {
		fault.Throw(fmt.Errorf("nn: AdaptivePool.Forward: %v: it wants [batch, channels] and %s of positions",
			x.Layout(), ints.Counted(len(p.sizes), "dimension")))
	}
	if len(p.sizes) <= kernel.Positions && fusible(x, nil) {
		wide := widened(x)
		return pooled(wide, p.mean, p.spans(x), func() *dtensor.Tensor { return p.composed(wide) }).Cast(x.DType())
	}
	return p.composed(x)
}

// spans returns the windows over x, as kernels take them.
func (p *AdaptivePool) spans(x *dtensor.Tensor) []kernel.Spans {
	var spans []kernel.Spans
	for d, size := range p.sizes {
		n := x.Dim(2 + d)
		s := kernel.Spans{Size: n, Step: 1}
		if size == 0 {
			size = n
		}
		for i := range size {
			from, to := i*n/size, ints.DivUp((i+1)*n, size)
			s.From, s.To, s.Over = append(s.From, from), append(s.To, to), append(s.Over, to-from)
		}
		spans = append(spans, s)
	}
	return spans
}

// composed is Forward by operators.
func (p *AdaptivePool) composed(x *dtensor.Tensor) *dtensor.Tensor {
	y := widened(x)
	for d := len(p.sizes) - 1; d >= 0; d-- { // the last first, so that of equal elements the first is found
		if size := p.sizes[d]; size > 0 {
			y = p.along(y, 2+d, size)
		}
	}
	return y.Cast(x.DType())
}

// along brings dimension dim of x to size.
func (p *AdaptivePool) along(x *dtensor.Tensor, dim, size int) *dtensor.Tensor {
	n := x.Dim(dim)
	window := func(i int) (from, to int) { return i * n / size, ints.DivUp((i+1)*n, size) }
	most := 0
	for i := range size {
		from, to := window(i)
		most = max(most, to-from)
	}
	at, weights := make([]int64, size*most), make([]float32, size*most)
	for i := range size {
		from, to := window(i)
		for k := range most { // a shorter window has its last element again, which counts nothing
			at[i*most+k] = int64(min(from+k, to-1))
			if from+k < to {
				weights[i*most+k] = 1 / float32(to-from)
			}
		}
	}
	shape := slices.Concat(x.Shape()[:dim], []int{size, most}, x.Shape()[dim+1:])
	y := x.IndexSelect(dim, everywhere(x.Mesh(), at)).Reshape(shape...)
	if !p.mean {
		return y.Gather(dim+1, y.Detach().Argmax(dim+1, true)).Squeeze(dim + 1)
	}
	broadcast := slices.Repeat([]int{1}, len(shape))
	broadcast[dim], broadcast[dim+1] = size, most
	return y.Mul(everywhere(x.Mesh(), weights).Cast(x.DType()).Reshape(broadcast...)).Sum([]int{dim + 1}, false)
}

// Params lists nothing.
func (p *AdaptivePool) Params() Params { return Func(nil).Params() }
