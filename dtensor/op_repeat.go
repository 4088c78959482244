package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Flip returns x with the elements along some dimensions in the opposite order. Its gradient is dy flipped. The layouts are
// those of IndexSelect.
func (x *Tensor) Flip(dims ...int) *Tensor {
	defer x.spec.mesh.Span("Flip").End()
	if x.NDim() == 0 {
		return x.lift().Flip(dims...).Reshape()
	}
	if len(dims) == 0 {
		return x
	}
	m, out := x.spec.mesh, x.Detach()
	x.dims("Flip", dims) // refuses a dimension that is named twice, which would be as it was
	for _, d := range dims {
		d = x.dim("Flip", d)
		if out.stays(d) {
			out = out.rowwise("Flip", d, func(x *tensor.Tensor, d int) *tensor.Tensor { return tensor.Flip(x, d) })
			continue
		}
		back := make([]int64, x.spec.shape[d])
		for i := range back {
			back[i] = int64(len(back) - 1 - i)
		}
		out = out.IndexSelect(d, m.constant("Flip", tensor.FromSlice(m.eng.dev, back, len(back))))
	}
	if x.tracked() {
		out.recordTwice("Flip", func(gy *Tensor) { x.accumulate(gy.Flip(dims...)) })
	}
	return out
}

// stays reports whether each rank has all of what it has of x along dimension d: the others are divided, and nothing is Partial.
func (x *Tensor) stays(d int) bool {
	return !slices.ContainsFunc(x.spec.placements, func(p layout.Placement) bool { return p.Shards(d) || !p.IsShard() && !p.IsReplicate() })
}

// Repeat returns x repeated times[d] times along dimension d, one copy after the other, as torch.Tensor.repeat and numpy.tile. There may be
// more numbers than dimensions: x then has dimensions of size 1 before its own. The layouts and gradients are those of Expand
// and Reshape.
func (x *Tensor) Repeat(times ...int) *Tensor {
	lead := len(times) - x.NDim()
	if lead < 0 || slices.ContainsFunc(times, func(n int) bool { return n < 0 }) {
		refuse("Repeat", fmt.Sprintf("the numbers of times are %v", slices.Clone(times)),
			"give one for each dim, or more, and none that is negative", operand("input", x))
	}
	x = x.Reshape(append(slices.Repeat([]int{1}, lead), x.spec.shape...)...)
	for d, n := range times {
		x = x.repeat(d, d, n)
	}
	return x
}

// RepeatInterleave returns x with each element along dimension dim repeated times times, side by side.
func (x *Tensor) RepeatInterleave(times, dim int) *Tensor {
	x = x.lift()
	dim = x.dim("RepeatInterleave", dim)
	if times < 0 {
		refuse("RepeatInterleave", fmt.Sprintf("the number of times is %d", times), "give one that is not negative", operand("input", x))
	}
	return x.repeat(dim, dim+1, times)
}

// repeat returns x with n copies along dimension d: of all of it for at = d, of each element for at = d+1.
func (x *Tensor) repeat(d, at, n int) *Tensor {
	if n == 1 {
		return x
	}
	shape, joined := slices.Insert(slices.Clone(x.spec.shape), at, n), slices.Clone(x.spec.shape)
	joined[d] *= n
	return x.Unsqueeze(at).Expand(shape...).Reshape(joined...)
}
