package loss

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
)

// LinearCrossEntropy returns CrossEntropy(hidden·weightᵀ, targets) and holds no more logits
// than its workspace takes: it computes them in blocks of up to 2048 positions, and these in tiles of classes. The
// forward pass computes the gradients of hidden and weight too, tile by tile; the backward pass scales them by
// the gradient of the loss. Nothing is approximated.
//
//	hidden [..., H]   weight [C, H]   targets [...]   →   []
//
//	hidden  weight  targets  result  communication                      gradients of hidden, weight
//	R       R       R        R       none                               R, R
//	R       S(0)    R        R       1 a block, 4 numbers a position    P(sum), S(0)   (with same bits R, S(0))
//	S(d)    R       S(d)     R       1 of 2 numbers and a status        S(d), P(sum)   (with same bits as the second)
//
// with d any dimension but the last. Operands in other layouts are redistributed first,
// to one of these rows for each axis of the mesh: the second if weight shards its classes
// over it, else the third if hidden shards d over it, else the first. Beside the two
// gradients, the loss holds its Options.Workspace at most.
//
// A block has fewer positions if the workspace then holds the logits of all of its classes, but not fewer than
// 64 on a CPU and 512 on a GPU. Where it does not hold them, the logits of some tiles are computed twice: for the
// statistics and for the gradients. With same bits a CPU computes tiles of positions with all classes instead.
//
// Hidden and weight are both float32, float64 or bfloat16. Of bfloat16 the loss, the logits and
// all that is computed from them are float32. The gradient of the logits is rounded before the
// products that give the gradients of hidden and weight. These are added up in float32
// and rounded once, except that a gradient of the weight whose float32 form takes more
// than an eighth of the workspace is rounded once for each block. Both are rounded again
// when they are scaled by the gradient of the loss, but with same bits that of hidden only then.
//
// Options are those of CrossEntropy with targets that are classes. Reduction
// None needs a gradient for each position, which the forward pass does not know: it
// is computed as hidden.Linear(weight) and CrossEntropy with all logits, which for
// bfloat16 are rounded.
func LinearCrossEntropy(hidden, weight, targets *dtensor.Tensor, o Options) *dtensor.Tensor {
	return linearCrossEntropy(hidden, weight, targets, o, limitsOf(hidden.Mesh().Device(), o.workspace()))
}

func linearCrossEntropy(hidden, weight, targets *dtensor.Tensor, o Options, most limits) *dtensor.Tensor {
	defer hidden.Mesh().Span("LinearCrossEntropy").End()
	const op = "LinearCrossEntropy"
	o.validate(op)
	p := linearShardingOf(op, hidden, weight, targets, &o)
	if o.Reduction == None {
		return linearNone(hidden, weight, targets, o)
	}
	tiles := tensor.OnHost(p.mesh.Device()) && p.mesh.SameBits()
	if p.mesh.SameBits() {
		var leaf int
		var nodes [][]int
		hidden, weight, leaf, nodes = sameOperands(hidden, weight, tiles && o.byLeaves())
		p = linearShardingOf(op, hidden, weight, targets, &o)
		p.leaf, p.nodes = leaf, nodes
	}
	inputs := []*dtensor.Tensor{hidden, weight}
	j := &job{sharding: p.sharding, o: o, out: layoutOf(p.sharding, o.Reduction)}
	h, w := hidden.Redistribute(p.hidden...), weight.Redistribute(p.weight...)
	y := targets.Redistribute(p.targets...)
	if !p.mesh.Inside() {
		return p.mesh.Wrap(op, tensor.Zeros(p.mesh.Device(), p.wide), nil, false, nil, j.out.places...)
	}
	p.bindLinear(h, w)
	j.y = y.Local()
	j.weigh()
	t := &tiled{job: j, hidden: h.Local().Reshape(p.outer, hidden.Shape()[hidden.NDim()-1]), weight: w.Local(), most: most}
	t.wantHidden, t.wantWeight = dtensor.Tracked(hidden), dtensor.Tracked(weight)
	var local *tensor.Tensor
	if tiles {
		local = dtype.Pick(p.dtype, fused[float32], fused[float64])(t)
	} else {
		local = dtype.Pick(p.dtype, blocks[float32], blocks[float64])(t)
	}
	out := p.mesh.Wrap(op, local, nil, false, nil, j.out.places...)
	return dtensor.RecordComposed(op, out, inputs, func(gy *dtensor.Tensor) []dtensor.Grad {
		g := gy.Item() / j.denom
		if j.denom == 0 {
			g = 0 // all positions are ignored
		}
		grads := make([]dtensor.Grad, 2)
		if t.wantHidden {
			dHidden := t.dHidden
			if p.leaf > 0 && p.classGroup != nil { // nodes are scaled once they are added up
				dHidden = p.mesh.AddNodes(p.classGroup, dHidden, p.nodes, p.cause.hidden, h.Local().Shape()...)
			}
			tensor.ScaleTo(dHidden, g)
			dHidden = tensor.Cast(dHidden, p.dtype).Reshape(h.Local().Shape()...)
			grads[0] = dtensor.Dense(p.mesh.Wrap(op, dHidden, nil, false, hidden.Shape(), p.dHidden...))
		}
		if t.wantWeight {
			tensor.ScaleTo(t.dWeight, g)
			grads[1] = dtensor.Dense(p.mesh.Wrap(op, t.dWeight, nil, false, weight.Shape(), p.dWeight...))
		}
		return grads
	}, func() *dtensor.Tensor {
		rows := hidden.Reshape(targets.Numel(), hidden.Dim(-1))
		return composed(rows.Linear(weight, nil), targets.Reshape(targets.Numel()), o, false)
	})
}

// sameOperands brings the operands to the layouts that they need with same bits: each rank adds up
// all classes and positions, or, if the statistics are made leaf by leaf, the classes of which it
// has nodes: ranks that divide the positions divide the classes instead. leaf and nodes are as in a sharding.
func sameOperands(hidden, weight *dtensor.Tensor, leaves bool) (h, w *dtensor.Tensor, leaf int, nodes [][]int) {
	m := hidden.Mesh()
	whole := m.Every(layout.Replicate())
	places := slices.Clone(whole)
	if leaves {
		leaf = leafOf(weight.Dim(0))
		divided := slices.Clone(whole)
		for axis, p := range weight.Placements() {
			switch d, sharded := hidden.Placements()[axis].Dim(); {
			case p.Shards(0):
				places[axis], divided[axis] = p, p
			case sharded && d < hidden.NDim()-1:
				divided[axis] = layout.Shard(0)
			}
		}
		axes := weight.Layout().Axes()
		if divided, nodes = layout.CutAtLeaves(axes, divided, 0, weight.Dim(0), leaf); len(nodes) > 1 {
			places = divided
		} else {
			places, nodes = layout.CutAtLeaves(axes, places, 0, weight.Dim(0), leaf)
		}
	}
	return hidden.Redistribute(whole...), weight.Redistribute(places...), leaf, nodes
}

// linearNone is the loss of each position.
func linearNone(hidden, weight, targets *dtensor.Tensor, o Options) *dtensor.Tensor {
	h := hidden.Dim(-1)
	n := targets.Numel()
	logits := hidden.Reshape(n, h).Linear(weight, nil)
	return CrossEntropy(logits, targets.Reshape(n), o).Reshape(targets.Shape()...)
}

// A linearSharding is a sharding of logits that are the product hidden·weightᵀ.
type linearSharding struct {
	*sharding
	hidden, weight   []layout.Placement // what they are brought to
	dHidden, dWeight []layout.Placement // of their gradients
}

// linearShardingOf returns the sharding for the operands. It throws if they do not fit.
func linearShardingOf(op string, hidden, weight, targets *dtensor.Tensor, o *Options) *linearSharding {
	hs, ws := hidden.Shape(), weight.Shape()
	dt := hidden.DType()
	switch {
	case len(hs) < 1 || len(ws) != 2 || ws[1] != hs[len(hs)-1]:
		refuse(op, fmt.Sprintf("hidden %v and weight %v; give [..., H] and [C, H]", hidden, weight))
	case dt == weight.DType() && dt != tensor.Float32 && dt != tensor.Float64 && dt != tensor.BFloat16:
		refuse(op, fmt.Sprintf("hidden %v and weight %v are %v; Cast both to float32, or to bfloat16", hidden, weight, dt))
	case weight.DType() != dt:
		refuse(op, fmt.Sprintf("hidden %v and weight %v are not both float32, both float64 or both bfloat16; Cast one of them", hidden, weight))
	case weight.Mesh() != hidden.Mesh():
		refuse(op, fmt.Sprintf("weight is on mesh %v and hidden on another, %v; move one of them", weight.Mesh(), hidden.Mesh()))
	case targets.DType().Float():
		refuse(op, "targets are not classes; use CrossEntropy for probabilities")
	}
	mesh := hidden.Mesh()
	n := len(mesh.Axes())
	p := &linearSharding{
		sharding: &sharding{op: op, mesh: mesh, classes: ws[0], dim: 1, dtype: dt, wide: dt.Wide(), inner: 1,
			facts: hidden.Facts()*31 ^ weight.Facts(),
			shape: slices.Clone(hs[:len(hs)-1]), targets: make([]layout.Placement, n),
			cause: causes{op + ": classes", op + ": positions", op + ": gradient of hidden"}},
		hidden: make([]layout.Placement, n), weight: make([]layout.Placement, n),
		dHidden: make([]layout.Placement, n), dWeight: make([]layout.Placement, n),
	}
	for axis, h := range hidden.Placements() {
		if d, sharded := h.Dim(); sharded && d < len(p.shape) && !weight.Placements()[axis].Shards(0) {
			p.hidden[axis] = h
		}
	}
	layout.Refit(p.hidden, hidden.Placements())
	for axis, a := range mesh.Axes() {
		w, h := weight.Placements()[axis], p.hidden[axis]
		switch {
		case w.Shards(0):
			p.weight[axis], p.dWeight[axis] = w, w
			if a.Size > 1 {
				if !mesh.SameBits() {
					p.dHidden[axis] = layout.Partial(layout.Sum)
				}
				p.classAxes = append(p.classAxes, a.Name)
			}
		case h.IsShard():
			p.dHidden[axis], p.targets[axis] = h, h
			if a.Size > 1 {
				p.dWeight[axis] = layout.Partial(layout.Sum)
				p.batchAxes = append(p.batchAxes, a.Name)
			}
		}
	}
	p.checkOperands(hidden, targets, false, o)
	return p
}

// bindLinear sets the local fields from operands in the layouts of p.
func (p *linearSharding) bindLinear(hidden, weight *dtensor.Tensor) {
	local := hidden.Local().Shape()
	offset, _ := hidden.Offset()
	rows, _ := weight.Offset()
	p.local, p.offset = slices.Clone(local[:len(local)-1]), slices.Clone(offset[:len(offset)-1])
	p.outer, p.n, p.lo = 1, weight.Local().Dim(0), rows[0]
	for _, size := range p.local {
		p.outer *= size
	}
	p.join()
}
