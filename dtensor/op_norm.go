package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// The norms work on whole rows: the last dimensions of x, those that weight
// and bias have.
//
//	x                                weight, bias   result
//	R                                R              R
//	S(i), i not normalised           R              S(i)
//	S(i), i normalised               R              a shard of another dimension, by an all-to-all, or R
//	P, MaskP                         R              R, after a reduction
//
// Weight and bias are brought to R. Their gradients, sums over the rows, are
// P(sum) on the axes that shard rows; with SameBits P(nodes), or R where rows are cut at leaves, or the rows are gathered.

// LayerNorm normalises the last dimensions of x, as many as weight has:
//
//	y = (x - mean)·rstd·weight + bias   rstd = 1/√(variance + eps)
//
// weight may be nil, ones for the last dimension, and bias nil. With h = (x - mean)·rstd and g = dy·weight the gradients are
//
//	dx = rstd·(g - mean(g) - h·mean(g·h))   dweight = Σ dy·h   dbias = Σ dy
//
// It throws a *LayoutError if the sizes of weight or bias are not x's last.
func (x *Tensor) LayerNorm(weight, bias *Tensor, eps float64) *Tensor {
	return norm("LayerNorm", x, x.orOnes(weight), bias,
		func(x, weight, bias *tensor.Tensor) (y, stats *tensor.Tensor) {
			return tensor.LayerNorm(x, weight, bias, weight.NDim(), eps)
		},
		func(gy, x, weight, stats *tensor.Tensor) (gx, gw, gb *tensor.Tensor) {
			return tensor.LayerNormGrad(gy, x, weight, stats, weight.NDim(), true, bias != nil)
		},
		func(x *Tensor, dims []int) *Tensor {
			centred := x.Sub(x.Mean(dims, true))
			return centred.Mul(centred.Square().Mean(dims, true).AddScalar(eps).Rsqrt())
		})
}

// RMSNorm scales the last dimensions of x, as many as weight has, by their
// root mean square:
//
//	y = x·rstd·weight   rstd = 1/√(mean of x² + eps)
//
// weight may be nil, ones for the last dimension. With h = x·rstd and g = dy·weight the gradients are
//
//	dx = rstd·(g - h·mean(g·h))   dweight = Σ dy·h
//
// It throws a *LayoutError if the sizes of weight are not x's last.
func (x *Tensor) RMSNorm(weight *Tensor, eps float64) *Tensor {
	return norm("RMSNorm", x, x.orOnes(weight), nil,
		func(x, weight, _ *tensor.Tensor) (y, stats *tensor.Tensor) {
			return tensor.RMSNorm(x, weight, weight.NDim(), eps)
		},
		func(gy, x, weight, stats *tensor.Tensor) (gx, gw, gb *tensor.Tensor) {
			gx, gw = tensor.RMSNormGrad(gy, x, weight, stats, weight.NDim(), true)
			return gx, gw, nil
		},
		func(x *Tensor, dims []int) *Tensor { return x.Mul(x.Square().Mean(dims, true).AddScalar(eps).Rsqrt()) })
}

// orOnes returns the weight of a norm, or ones for the last dimension of x if it is nil.
func (x *Tensor) orOnes(weight *Tensor) *Tensor {
	if weight != nil || x.NDim() == 0 {
		return weight
	}
	return Full(x.Mesh(), x.DType(), 1, []int{x.Dim(-1)}, x.Mesh().Every(layout.Replicate())...)
}

// norm normalises the rows of x by f, whose gradient is grad. bias may be nil. composed is f without weight and bias, over
// dims, of operators that can be differentiated twice.
func norm(op string, x, weight, bias *Tensor, f func(x, weight, bias *tensor.Tensor) (y, stats *tensor.Tensor),
	grad func(gy, x, weight, stats *tensor.Tensor) (gx, gw, gb *tensor.Tensor), composed func(x *Tensor, dims []int) *Tensor) *Tensor {
	defer x.spec.mesh.Span(op).End()
	m := sameMesh(op, x, weight)
	sameType(op, x, weight)
	if bias != nil {
		sameMesh(op, x, bias)
		sameType(op, x, bias)
	}
	checkNorm(op, x, weight, bias)
	var nodes [][]int
	var along axisSet
	if weight.NDim() == 1 && x.NDim() > 1 {
		nodes, along = x.rowNodes()
	}
	if m.eng.same && nodes == nil && anyShard(x.spec) && Tracked(weight, bias) { // their gradients are sums over all rows
		rows := x.Redistribute(m.Every(layout.Replicate())...)
		return norm(op, rows, weight, bias, f, grad, composed).Redistribute(x.Placements()...)
	}
	n := weight.NDim()
	key := keyOf(op, x)
	key.attr[0] = n
	r := m.rule(key, func() (*layout.Rule, error) { return layout.Rowwise(op, lastDims(n), x.spec.shape) }, x)
	in, w := x.to(r.in[0], op), weight.to(weight.spec.replicated(), op)
	var b *Tensor
	if bias != nil {
		b = bias.to(bias.spec.replicated(), op)
	}
	out := &Tensor{spec: r.out[0]}
	var stats *tensor.Tensor
	if m.outside() {
		out.local = m.empty(r.out[0], x.DType()).local
	} else {
		var local *tensor.Tensor
		if b != nil {
			local = b.local
		}
		out.local, stats = f(in.local, w.local, local)
	}
	out.made(op, in, w, b)
	if Tracked(x, weight, bias) {
		pass := &normPass{op: op, in: in, w: w, b: b, stats: stats, nodes: nodes, along: along, grad: grad}
		out.recordComposed(op, func(gy *Tensor) {
			pass.back(gy.to(out.spec, op+"Grad")) // in the layout of the result, so that one pass over the rows does it all
		}, func() *Tensor {
			y := composed(in.widen(), lastDims(n)).Mul(w.widen())
			if b != nil {
				y = y.Add(b.widen())
			}
			return y.Cast(in.DType())
		})
	}
	return out
}

// A normPass is what the gradient of a norm needs of its forward pass.
type normPass struct {
	op       string
	in, w, b *Tensor // x, weight and bias in the layouts that they were brought to; b is nil without a bias
	stats    *tensor.Tensor
	nodes    [][]int // see rowNodes
	along    axisSet
	grad     func(gy, x, weight, stats *tensor.Tensor) (gx, gw, gb *tensor.Tensor)
}

// back hands x, weight and bias their gradients; gy lies as the result.
func (p *normPass) back(gy *Tensor) {
	m := p.in.spec.mesh
	gx, gw, gb := wrap(p.in.spec, gy.local), p.w.emptyGrad(p.in.spec), (*Tensor)(nil)
	if p.b != nil {
		gb = p.b.emptyGrad(p.in.spec)
	}
	if !m.outside() {
		dy, x, weight, dt := gy.local, p.in.local, p.w.local, p.in.DType()
		if p.nodes != nil { // which are rounded once they are added up
			dy, x, weight = tensor.Cast(dy, dt.Wide()), tensor.Cast(x, dt.Wide()), tensor.Cast(weight, dt.Wide())
		}
		if p.nodes == nil || layout.OneEach(p.nodes) {
			dx, dw, db := p.grad(dy, x, weight, p.stats)
			gx.local, gw.local = tensor.Cast(dx, dt), dw
			if gb != nil {
				gb.local = db
			}
		} else {
			dx, sums := gradOfNodes(m.groupOf(p.along), m, p.nodes, dy, x, weight, p.stats, p.grad, p.op+"Grad")
			gx.local, gw = tensor.Cast(dx, dt), wrap(p.w.spec, sums[0])
			if gb != nil {
				gb = wrap(p.b.spec, sums[1])
			}
		}
	}
	p.in.accumulate(gx)
	p.w.accumulate(gw)
	if p.b != nil {
		p.b.accumulate(gb)
	}
}

// gradOfNodes calls grad for the rows of each node that this rank has. sums are the gradients of the weight and of the bias,
// over the rows of all ranks.
func gradOfNodes(g *comm.Comm, m *Mesh, leaves [][]int, dy, x, weight, stats *tensor.Tensor,
	grad func(gy, x, weight, stats *tensor.Tensor) (gx, gw, gb *tensor.Tensor), cause string) (dx *tensor.Tensor, sums [2]*tensor.Tensor) {
	mine := leaves[g.Rank()]
	dx = tensor.NewLike(x)
	var nodes [2]*tensor.Tensor
	of := func(t *tensor.Tensor, at, n int) *tensor.Tensor { // the rows of some leaves
		rows := t.Dim(0) / max(ints.Sum(mine), 1)
		return tensor.Narrow(t, 0, at*rows, n*rows)
	}
	calls, at := mine, 0
	if len(mine) == 0 {
		calls = []int{0} // of no rows, which says what the gradients are
	}
	for k, n := range calls {
		gx, gw, gb := grad(of(dy, at, n), of(x, at, n), weight, of(stats, at, n))
		tensor.Copy(of(dx, at, n), gx)
		for i, its := range []*tensor.Tensor{gw, gb} {
			if its == nil {
				continue
			}
			if nodes[i] == nil {
				nodes[i] = tensor.New(m.eng.dev, its.DType(), len(mine), its.Numel())
			}
			if n > 0 {
				tensor.Copy(tensor.Narrow(nodes[i], 0, k, 1), its.Reshape(1, its.Numel()))
			}
		}
		at += n
	}
	for i, its := range nodes {
		if its != nil {
			sums[i] = m.AddNodes(g, its, leaves, cause, weight.Shape()...)
		}
	}
	return dx, sums
}

// checkNorm throws unless weight and bias have the last sizes of x.
func checkNorm(op string, x, weight, bias *Tensor) {
	rest := x.NDim() - weight.NDim()
	if rest >= 0 && slices.Equal(x.spec.shape[rest:], weight.spec.shape) && (bias == nil || slices.Equal(bias.spec.shape, weight.spec.shape)) {
		return
	}
	operands := []Operand{operand("x", x), operand("weight", weight)}
	if bias != nil {
		operands = append(operands, operand("bias", bias))
	}
	refuse(op, fmt.Sprintf("the weight %v does not have the last sizes of x %v, or the bias not those of the weight", weight.Shape(),
		x.Shape()),
		fmt.Sprintf("give both the shape %v, or that of more of the last dims", x.Shape()[max(0, x.NDim()-1):]), operands...)
}

// emptyGrad returns a tensor for the gradient of w, a weight of rows that are
// divided as s, whose data is still to come.
func (w *Tensor) emptyGrad(s *spec) *Tensor {
	p, part := make([]layout.Placement, len(s.placements)), layout.Partial(layout.Sum)
	if s.mesh.eng.same {
		part = layout.Partial(layout.Nodes)
	}
	for axis, its := range s.placements {
		if its.IsShard() {
			p[axis] = part
		}
	}
	return wrap(w.spec.with("norm", p), w.local).of(s.facts())
}

// lastDims returns -n, … -1.
func lastDims(n int) []int {
	dims := make([]int, n)
	for i := range dims {
		dims[i] = i - n
	}
	return dims
}
