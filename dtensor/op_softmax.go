package dtensor

import (
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Operators on whole rows along a dimension dim:
//
//	x                 result
//	R                 R
//	S(i), i not dim   S(i)
//	S(dim)            a shard of another dimension, by an all-to-all, or R
//	P, MaskP          R, after a reduction
//
// Softmax and LogSoftmax leave S(dim) as it is, but with SameBits: see softmaxOfShards. One over a sharded class
// dimension that ends in a loss is better left to package loss, which needs one small collective.

// Softmax returns exp(x)/Σexp(x), the sum being over dimension dim. Its
// gradient is dx = y·(dy - Σ y·dy). Where an axis divides dim, the elements stay where they are: two small all-reduces, of the
// maxima and the sums, and one for the gradient.
func (x *Tensor) Softmax(dim int) *Tensor {
	return x.softmax("Softmax", dim, tensor.Softmax, tensor.SoftmaxGrad)
}

// LogSoftmax returns x - ln Σexp(x), the sum being over dimension dim. Its
// gradient is dx = dy - exp(y)·Σdy. It communicates what Softmax does.
func (x *Tensor) LogSoftmax(dim int) *Tensor {
	return x.softmax("LogSoftmax", dim, tensor.LogSoftmax, tensor.LogSoftmaxGrad)
}

func (x *Tensor) softmax(op string, dim int, f func(x *tensor.Tensor, dim int) *tensor.Tensor,
	grad func(gy, y *tensor.Tensor, dim int) *tensor.Tensor) *Tensor {
	if x.NDim() == 0 {
		return x.lift().softmax(op, dim, f, grad).Reshape()
	}
	dim = x.dim(op, dim)
	var out *Tensor
	onShards := x.shards(dim) && !x.spec.mesh.eng.same
	if onShards {
		out = x.softmaxOfShards(op, dim)
	} else {
		out = x.rowwise(op, dim, f)
	}
	if x.tracked() {
		out.recordTwice(op, func(gy *Tensor) {
			if onShards || gy.again() {
				x.accumulate(softmaxGrad(op, gy.widen(), out.widen(), dim).Cast(gy.DType()))
				return
			}
			x.accumulate(gy.rowwise2(op+"Grad", dim, out, grad))
		})
	}
	return out
}

// softmaxOfShards returns Softmax or LogSoftmax along a dimension that an axis divides. It is not recorded.
func (x *Tensor) softmaxOfShards(op string, dim int) *Tensor {
	return x.Detach().inWide(op, func(x *Tensor) *Tensor {
		x = x.Reduced()
		less := x.Sub(x.reduce(kernel.OpAmax, []int{dim}, true).Reduced())
		e := less.Exp()
		sum := e.Sum([]int{dim}, true).Reduced()
		if op == "Softmax" {
			return e.Div(sum)
		}
		return less.Sub(sum.Log())
	})
}

// softmaxGrad returns the gradient of y = Softmax or LogSoftmax, computed by recorded operators.
func softmaxGrad(op string, gy, y *Tensor, dim int) *Tensor {
	if op == "Softmax" {
		return y.Mul(gy.Sub(y.Mul(gy).Sum([]int{dim}, true)))
	}
	return gy.Sub(y.Exp().Mul(gy.Sum([]int{dim}, true)))
}

// Cumsum returns the sums of the elements up to each one along dimension dim.
// Those of integers and Bool are Int64. Its gradient is the sum of dy from each one on.
func (x *Tensor) Cumsum(dim int) *Tensor {
	if x.NDim() == 0 {
		return x.lift().Cumsum(dim).Reshape()
	}
	dim = x.dim("Cumsum", dim)
	if !x.DType().Float() {
		x = x.Cast(tensor.Int64)
	}
	out := x.rowwise("Cumsum", dim, tensor.Cumsum)
	if x.tracked() {
		out.recordTwice("Cumsum", func(gy *Tensor) {
			gx := gy.rowwise("CumsumGrad", dim, tensor.CumsumGrad)
			if gy.tracked() {
				gx.recordTwice("CumsumGrad", func(g *Tensor) { gy.accumulate(g.Cumsum(dim)) })
			}
			x.accumulate(gx)
		})
	}
	return out
}

// Cumprod returns the products of the elements up to each one along dimension dim. Those of integers and Bool are Int64. Its
// gradient is right where elements are 0, too. The layouts are those of Narrow and Cat.
func (x *Tensor) Cumprod(dim int) *Tensor {
	defer x.spec.mesh.Span("Cumprod").End()
	if x.NDim() == 0 {
		return x.lift().Cumprod(dim).Reshape()
	}
	dim = x.dim("Cumprod", dim)
	dt := x.DType().Wide()
	out := x.DType()
	if !dt.Float() {
		dt, out = tensor.Int64, tensor.Int64
	}
	x = x.Cast(dt).Reduced()
	if !x.stays(dim) || !tensor.HostComputes(x.spec.mesh.eng.dev) {
		return x.cumprod(dim).Cast(out)
	}
	y := x.rowwise("Cumprod", dim, tensor.Cumprod)
	if x.tracked() {
		y.recordComposed("Cumprod", func(gy *Tensor) { x.accumulate(gy.rowwise2("CumprodGrad", dim, x, tensor.CumprodGrad)) },
			func() *Tensor { return x.cumprod(dim) })
	}
	return y.Cast(out)
}

// cumprod is Cumprod by other operators.
func (x *Tensor) cumprod(dim int) *Tensor {
	y, n := x, x.spec.shape[dim]
	for have := 1; have < n; have *= 2 { // each element of y is a product of so many, or of all before it
		y = Cat(dim, y.Narrow(dim, 0, have), y.Narrow(dim, have, n-have).Mul(y.Narrow(dim, 0, n-have)))
	}
	return y
}

// LogCumsumExp returns ln Σ eˣ of the elements up to each one along dimension dim, without overflow. The layouts are those of
// Softmax.
func (x *Tensor) LogCumsumExp(dim int) *Tensor {
	if x.NDim() == 0 {
		return x.lift().LogCumsumExp(dim).Reshape()
	}
	dim = x.dim("LogCumsumExp", dim)
	return x.inWide("LogCumsumExp", func(x *Tensor) *Tensor {
		if !tensor.HostComputes(x.spec.mesh.eng.dev) {
			return x.logCumsumExp(dim)
		}
		y := x.rowwise("LogCumsumExp", dim, tensor.LogCumsumExp)
		if x.tracked() {
			y.recordComposed("LogCumsumExp", func(gy *Tensor) {
				x.accumulate(gy.rowwise2("LogCumsumExpGrad", dim, x, func(gy, x *tensor.Tensor, dim int) *tensor.Tensor {
					y := tensor.LogCumsumExp(x, dim)
					defer y.Free()
					return tensor.LogCumsumExpGrad(gy, x, y, dim)
				}))
			}, func() *Tensor { return x.logCumsumExp(dim) })
		}
		return y
	})
}

// logCumsumExp is LogCumsumExp by other operators.
func (x *Tensor) logCumsumExp(dim int) *Tensor {
	n := x.spec.shape[dim]
	y, _ := x.summary("LogCumsumExpSteps", dim, n)
	for have := 1; have < n; have *= 2 { // each element of y is of so many, or of all before it
		y = Cat(dim, y.Narrow(dim, 0, have), y.Narrow(dim, have, n-have).LogAddExp(y.Narrow(dim, 0, n-have)))
	}
	return y
}

// rowwise computes a function of whole rows along dim. It is not recorded.
func (x *Tensor) rowwise(op string, dim int, f func(x *tensor.Tensor, dim int) *tensor.Tensor) *Tensor {
	defer x.spec.mesh.Span(op).End()
	m := x.spec.mesh
	key := keyOf(op, x)
	key.attr[0] = dim
	r := m.rule(key, func() (*layout.Rule, error) { return layout.Rowwise(op, []int{dim}, x.spec.shape) }, x)
	in := x.to(r.in[0], op)
	out := m.part(r.out[0], x.DType(), func() *tensor.Tensor { return f(in.local, dim) })
	out.made(op, in)
	return out
}

// rowwise2 is rowwise of two tensors of one shape.
func (x *Tensor) rowwise2(op string, dim int, y *Tensor, f func(x, y *tensor.Tensor, dim int) *tensor.Tensor) *Tensor {
	m := x.spec.mesh
	key := keyOf(op, x, y)
	key.attr[0] = dim
	r := m.rule(key, func() (*layout.Rule, error) { return layout.Rowwise(op, []int{dim}, x.spec.shape, y.spec.shape) }, x, y)
	a, b := x.to(r.in[0], op), y.to(r.in[1], op)
	return m.part(r.out[0], x.DType(), func() *tensor.Tensor { return f(a.local, b.local, dim) })
}
