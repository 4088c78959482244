package optim

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// How many elements of a parameter an optimizer without a kernel of its own changes at a
// time: on a CPU few enough for the cache, on a GPU enough that a kernel takes longer than
// its launch.
const (
	pieceOnCPU    = 1 << 14
	pieceOnDevice = 1 << 24
)

// A rule changes some elements of a parameter p with gradient g, and of its state. They
// have one shape, and the type of the computation. The tensors that a rule makes are freed
// after it.
type rule func(p, g *tensor.Tensor, state []*tensor.Tensor)

// apply calls f with all elements of the weights, some at a time. A sparse gradient is 0
// in the other rows.
func (c *change) apply(f rule, state ...[]*dtensor.Tensor) {
	n := c.local.Numel()
	if n == 0 {
		return
	}
	width := 1 // a piece has whole rows
	if c.dense == nil {
		width = c.local.Dim(1)
	}
	size := max(1, pieceSize(c.local)/width) * width
	var index []int64
	if c.dense == nil {
		index = tensor.Read[int64](c.rows.Index)
	}
	for lo := 0; lo < n; lo += size {
		hi := min(lo+size, n)
		scope := c.local.Device().Open()
		cut := func(x *tensor.Tensor) *tensor.Tensor { return tensor.Narrow(x.Reshape(n), 0, lo, hi-lo) }
		var g *tensor.Tensor
		if c.dense != nil {
			g = cut(c.dense)
		} else {
			g = rowsBetween(c.rows, index, lo/width, hi/width).Reshape(hi - lo)
		}
		own := make([]*tensor.Tensor, len(state))
		for i, s := range state {
			own[i] = cut(s[c.i].Local())
		}
		onWide(cut(c.local), func(p *tensor.Tensor) { f(p, tensor.Widen(g), own) })
		scope.Close()
	}
}

// applyRows calls f with the rows of a sparse gradient, some at a time. For a dense
// gradient it is apply.
func (c *change) applyRows(f rule, state ...[]*dtensor.Tensor) {
	if c.dense != nil {
		c.apply(f, state...)
		return
	}
	n := c.rows.Index.Numel()
	size := max(1, pieceSize(c.local)/max(1, c.local.Dim(1)))
	for lo := 0; lo < n; lo += size {
		count := min(size, n-lo)
		scope := c.local.Device().Open()
		index, g := tensor.Narrow(c.rows.Index, 0, lo, count), tensor.Narrow(c.rows.Values, 0, lo, count)
		own := make([]*tensor.Tensor, len(state))
		for i, s := range state {
			own[i] = tensor.TakeRows(s[c.i].Local(), index, 0)
		}
		p := tensor.TakeRows(c.local, index, 0)
		onWide(p, func(p *tensor.Tensor) { f(p, tensor.Widen(g), own) })
		for i, s := range state {
			tensor.PutRows(s[c.i].Local(), tensor.Rows{Index: index, Values: own[i]})
		}
		tensor.PutRows(c.local, tensor.Rows{Index: index, Values: p})
		scope.Close()
	}
}

func pieceSize(x *tensor.Tensor) int {
	if tensor.OnHost(x.Device()) {
		return pieceOnCPU
	}
	return pieceOnDevice
}

// onWide calls f with p in the type of the computation and rounds the result to p.
func onWide(p *tensor.Tensor, f func(p *tensor.Tensor)) {
	wide := tensor.Widen(p)
	f(wide)
	if wide != p {
		tensor.CastTo(p, wide)
	}
}

// rowsBetween returns rows lo to hi of a sparse gradient as a dense tensor. index holds
// g.Index on the host.
func rowsBetween(g tensor.Rows, index []int64, lo, hi int) *tensor.Tensor {
	from, _ := slices.BinarySearch(index, int64(lo))
	to, _ := slices.BinarySearch(index, int64(hi))
	at := tensor.AddScalar(tensor.Narrow(g.Index, 0, from, to-from), -float64(lo))
	return tensor.DenseRows(tensor.Rows{Index: at, Values: tensor.Narrow(g.Values, 0, from, to-from)}, hi-lo)
}

// average sets mean to decay·mean + (1-decay)·x.
func average(mean *tensor.Tensor, decay float64, x *tensor.Tensor) {
	tensor.ScaleTo(mean, decay)
	tensor.AddScaledTo(mean, 1-decay, x)
}

// decayed returns g + decay·p.
func decayed(g, p *tensor.Tensor, decay float64) *tensor.Tensor {
	if decay == 0 {
		return g
	}
	sum := tensor.Clone(g)
	tensor.AddScaledTo(sum, decay, p)
	return sum
}

// withDecay shrinks p if its weight decay is decoupled, and else returns the gradient with it.
func withDecay(p, g *tensor.Tensor, lr, decay float64, decoupled bool) *tensor.Tensor {
	if !decoupled {
		return decayed(g, p, decay)
	}
	tensor.ScaleTo(p, 1-lr*decay)
	return g
}

// overRoot returns x/(√square + eps).
func overRoot(x, square *tensor.Tensor, eps float64) *tensor.Tensor {
	root := tensor.Unary(kernel.OpSqrt, square)
	return tensor.Binary(kernel.OpDiv, x, tensor.AddScalar(root, eps))
}

// square returns x².
func square(x *tensor.Tensor) *tensor.Tensor { return tensor.Unary(kernel.OpSquare, x) }
