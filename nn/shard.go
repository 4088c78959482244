package nn

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Shard divides the parameters of a layer over one more axis of the mesh, the one that
// divides the batch: ZeRO (Rajbhandari et al., 2020), PyTorch's fully_shard. Each rank
// stores its part of every parameter; so gradients and the optimizer's state, which lie as
// parameters do, are divided too. Make optimizers after it.
//
//	for _, b := range blocks {
//		nn.Shard(b, "dp")
//	}
//	...
//	h = dtensor.Recompute(b.Forward, h)
//
// A layer gathers a parameter when it computes with it, and the sum of its gradients over
// the axis is scattered. Through dtensor.Recompute what was gathered is freed after the
// layer, gathered again for its gradient, and gradients are scattered at once: ZeRO-3. With
// b.Forward alone it is there from the first use to the end of the step: ZeRO-2, which
// gathers once.
//
// A parameter is divided along its largest dimension that no other axis divides; one that
// has none stays as it is. Shard changes the tensors in place, frees what
// they held, and communicates nothing. It
// is for the layers of this package, not for embedding tables, which have layouts of their
// own.
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
		to := slices.Clone(p.Placements())
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

// like returns a parameter as a layer computes with it beside x: of x's type, and whole on
// axes that divide x along a dimension other than the last, where only Shard divides
// parameters. It returns nil for nil.
func like(param, x *dtensor.Tensor) *dtensor.Tensor {
	if param == nil {
		return nil
	}
	to := param.Placements()
	for i, p := range x.Placements() {
		if to[i].IsShard() && p.IsShard() && !p.Shards(x.NDim()-1) {
			to = slices.Clone(to)
			to[i] = layout.Replicate()
		}
	}
	return param.Redistribute(to...).Cast(x.DType())
}
