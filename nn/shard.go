package nn

import (
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Shard divides the parameters of a layer over one more axis of the mesh, the one that
// divides the batch: ZeRO (Rajbhandari et al., 2020), PyTorch's fully_shard. Each rank
// stores its part of every parameter. Gradients and the optimizer's state have the layout
// of the parameters, so they are divided too. Make optimizers after Shard.
//
//	for _, b := range blocks {
//		nn.Shard(b, "dp")
//	}
//	...
//	h = dtensor.Recompute(b.Forward, h)
//
// A layer all-gathers a parameter to compute with it, and its gradients are
// reduce-scattered over the axis. Through dtensor.Recompute the gathered parameter is freed
// after the layer and gathered again for the gradient, and gradients are scattered at
// once: ZeRO-3. With b.Forward alone a parameter is gathered once, at its first use, and
// it and its whole gradient stay until the end of the step, when one reduce-scatter
// divides the gradients: ZeRO-1, with parameters divided between steps. Through
// dtensor.ScatterGradients gradients are scattered as they arise: ZeRO-2.
//
// A parameter is divided along its largest dimension that no other axis divides; one
// without such a dimension stays as it is. Shard changes the tensors in place, frees their
// old memory, and communicates nothing. It is for the layers of this package, not for
// embedding tables, which have layouts of their own.
func Shard(layer Layer, axis string) {
	for _, p := range layer.Params() {
		i, ok := p.Mesh().Axis(axis)
		if !ok {
			throwNoAxis(p.Mesh(), axis)
		}
		dim := largest(p)
		if dim < 0 || p.Placements()[i].IsShard() {
			continue
		}
		to := p.Placements()
		to[i] = layout.Shard(dim)
		part := p.Redistribute(to...)
		own, err := dtensor.FromLocal(p.Mesh(), tensor.Clone(part.Local()), p.Shape(), to...) // not a view of the whole
		dtensor.Check(err)
		dtensor.Keep(own)
		whole := p.Local()
		*p = *own
		whole.Free()
	}
}

// largest returns the largest dimension of p that no axis divides, -1 if there is none.
func largest(p *dtensor.Tensor) int {
	dim := -1
	for d, size := range p.Shape() {
		free := true
		for i, a := range p.Mesh().Axes() {
			free = free && (a.Size == 1 || !p.Placements()[i].Shards(d))
		}
		if free && (dim < 0 || size > p.Dim(dim)) {
			dim = d
		}
	}
	return dim
}

// like returns a parameter as a layer needs it to compute with x: in x's type, and gathered
// over the axes that divide x along a dimension other than the last, which divide a
// parameter only through Shard. What is gathered, and the gradient that is scattered, has the
// smaller of the two types. It returns nil for nil.
func like(param, x *dtensor.Tensor) *dtensor.Tensor {
	if param == nil {
		return nil
	}
	to := param.Placements()
	for i, p := range x.Placements() {
		if to[i].IsShard() && p.IsShard() && !p.Shards(x.NDim()-1) {
			to[i] = layout.Replicate()
		}
	}
	if x.DType().Size() < param.DType().Size() {
		return param.Cast(x.DType()).Redistribute(to...)
	}
	return param.Redistribute(to...).Cast(x.DType())
}
