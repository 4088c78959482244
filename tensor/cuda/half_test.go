package cuda

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// halfRounding is one unit in the last place of bfloat16: a sum that lies between two
// may be rounded to either.
const halfRounding = 1.0 / 128

// half returns random numbers as bfloat16, not only whole ones.
func (c *check) half(shape ...int) *tensor.Tensor {
	return tensor.Cast(c.arg(tensor.Float32, shape...), tensor.BFloat16)
}

// TestBFloat16Products compares products of bfloat16, their sums and gradients with
// the CPU: by cuBLAS, by a cuBLAS that is too old for them, and by the own kernel.
func TestBFloat16Products(t *testing.T) {
	eachGPU(t, func(t *testing.T, dev *Device) {
		for _, old := range []bool{false, true} {
			if old && dev.blas == nil {
				continue
			}
			if dev.blas != nil {
				if !dev.blas.takes(tensor.BFloat16) {
					t.Fatal("this cuBLAS does not multiply bfloat16")
				}
				if old {
					dev.blas.half = 0
				}
			}
			c := newCheck(t, dev)
			for _, s := range [][3]int{{5, 7, 9}, {70, 65, 33}, {1, 130, 17}, {64, 1, 64}, {3, 4, 0}, {100, 20, 300}} {
				m, n, k := s[0], s[1], s[2]
				for trans := range 4 {
					transA, transB := trans&1 != 0, trans&2 != 0
					a, b := c.half(m, k), c.half(k, n)
					if transA {
						a = c.half(k, m)
					}
					if transB {
						b = c.half(n, k)
					}
					name := fmt.Sprint(s, transA, transB, old)
					c.same(name, halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
						y := tensor.MatMul(x[0], x[1], transA, transB)
						tensor.MatMulTo(x[2], x[0], x[1], transA, transB, true)
						return []*tensor.Tensor{y, x[2]}
					}, a, b, c.half(m, n))
					c.same(name+" to float32", sum(tensor.Float32), func(x []*tensor.Tensor) []*tensor.Tensor {
						y := tensor.New(x[0].Device(), tensor.Float32, m, n)
						tensor.MatMulTo(y, x[0], x[1], transA, transB, false)
						tensor.MatMulTo(x[2], x[0], x[1], transA, transB, true)
						return []*tensor.Tensor{y, x[2]}
					}, a, b, c.arg(tensor.Float32, m, n))
				}
			}
			c.same("batches", halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
				y := tensor.MatMul(x[0], x[1], false, true)
				da, db := tensor.MatMul(y, x[1], false, false), tensor.MatMul(y, x[0], true, false)
				return []*tensor.Tensor{y, tensor.Sum(da, []int{1}, true), tensor.Sum(db, []int{0}, false)}
			}, c.half(2, 1, 5, 6), c.half(3, 4, 6))
			c.same("batches to float32", sum(tensor.Float32), one(func(x []*tensor.Tensor) *tensor.Tensor {
				y := tensor.New(x[0].Device(), tensor.Float32, 2, 3, 5, 4)
				tensor.MatMulTo(y, x[0], x[1], false, true, false)
				return y
			}), c.half(2, 1, 5, 6), c.half(3, 4, 6))
			c.same("linear", halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
				y := tensor.Linear(x[0], x[1], x[2])
				dx, dw := tensor.MatMul(y, x[1], false, false), tensor.MatMul(y.Reshape(36, 11), x[0].Reshape(36, 7), true, false)
				return []*tensor.Tensor{y, dx, dw, sumToLast(y)}
			}, c.half(4, 9, 7), c.half(11, 7), c.half(11))
			for _, causal := range []bool{false, true} {
				c.same(fmt.Sprint("attention ", causal), halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
					y, lse := tensor.Attention(x[0], x[1], x[2], causal)
					dq, dk, dv := tensor.AttentionGrad(x[3], x[0], x[1], x[2], y, lse, causal)
					return []*tensor.Tensor{y, lse, dq, dk, dv}
				}, c.half(1, 2, 70, 8), c.half(1, 2, 70, 8), c.half(1, 2, 70, 5), c.half(1, 2, 70, 5))
			}
			c.same("sums", halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
				return []*tensor.Tensor{tensor.Sum(x[0], nil, false), tensor.Sum(x[0], []int{0, 2}, true), tensor.Sum(x[0], []int{1}, false)}
			}, c.half(5, 70, 30))
		}
	})
}

// TestBFloat16Reductions has rows that a warp combines and that blocks do, in parts and
// not, and columns that are taken one at a time and several, at places that 16 bytes
// divide and at others.
func TestBFloat16Reductions(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, s := range [][3]int{{1, 1, 1}, {70, 300, 1}, {3, 2100, 1}, {1, 9001, 1}, {3, 40, 7}, {2, 50, 24}, {1, 300, 8}, {1, 300, 1001},
		{0, 3, 2}, {3, 0, 2}, {2, 0, 1}} {
		outer, red, inner := s[0], s[1], s[2]
		for offset := range 2 {
			view := func(x *tensor.Tensor) *tensor.Tensor {
				return tensor.Narrow(x, 0, offset, x.Numel()-1).Reshape(outer, red, inner)
			}
			x := c.half(1 + outer*red*inner)
			for _, op := range kernel.ReduceOps() {
				name, tol := fmt.Sprint(op, s, offset), 0.0
				if op == kernel.OpSum || op == kernel.OpProd {
					tol = sum(tensor.Float32)
				}
				c.same(name, tol, one(func(x []*tensor.Tensor) *tensor.Tensor {
					v, y := view(x[0]), tensor.New(x[0].Device(), tensor.Float32, outer, inner)
					v.Device().Reduce(op, tensor.BFloat16, y.Ptr(), v.Ptr(), kernel.Axis{Outer: outer, N: red, Inner: inner})
					runtime.KeepAlive(v)
					return y
				}), x)
				if tol > 0 {
					tol = halfRounding
				}
				c.same(name+" rounded", tol, one(func(x []*tensor.Tensor) *tensor.Tensor {
					return tensor.Reduce(op, view(x[0]), []int{1}, false)
				}), x)
			}
		}
	}
	c.same("a number", 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Sum(x[0].Reshape(), nil, false) }), c.half(1))
}

// TestBFloat16Rows has rows that a team of threads holds and rows that it streams.
func TestBFloat16Rows(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, shape := range [][]int{{3, 1}, {5, 7}, {130, 33}, {70, 64}, {20, 2304}, {3, 4104}, {3, 8200}} {
		n, name := shape[1], fmt.Sprint(shape)
		x, dy, w, b := c.half(shape...), c.half(shape...), c.half(n), c.half(n)
		c.same("softmax "+name, halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
			y, l := tensor.Softmax(x[0], 1), tensor.LogSoftmax(x[0], 1)
			return []*tensor.Tensor{y, l}
		}, x)
		y := tensor.Softmax(x, 1)
		c.same("softmax gradient "+name, halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
			return []*tensor.Tensor{tensor.SoftmaxGrad(x[1], x[0], 1), tensor.LogSoftmaxGrad(x[1], x[0], 1)}
		}, y, dy)
		if n == 1 {
			continue // the variance of one number is 0, and its root of eps enlarges every rounding
		}
		c.same("norms "+name, halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
			y, stats := tensor.LayerNorm(x[0], x[2], x[3], 1, 1e-5)
			z, scale := tensor.RMSNorm(x[0], x[2], 1, 1e-5)
			return []*tensor.Tensor{y, stats, z, scale}
		}, x, dy, w, b)
		c.same("gradients of norms "+name, halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
			_, stats := tensor.LayerNorm(x[0], x[2], x[3], 1, 1e-5)
			_, scale := tensor.RMSNorm(x[0], x[2], 1, 1e-5)
			dx, dw, db := tensor.LayerNormGrad(x[1], x[0], x[2], stats, 1, true, true)
			dz, dv := tensor.RMSNormGrad(x[1], x[0], x[2], scale, 1, true)
			return []*tensor.Tensor{dx, dw, db, dz, dv}
		}, x, dy, w, b)
	}
}

// TestBFloat16Arithmetic has the bits of the CPU's.
func TestBFloat16Arithmetic(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, op := range kernel.BinaryOps() {
		if !op.Takes(tensor.BFloat16) {
			continue
		}
		tol := 0.0
		if op == kernel.OpPow || op == kernel.OpDiv || op == kernel.OpAtan2 {
			tol = halfRounding
		}
		c.same(fmt.Sprint(op), tol, func(x []*tensor.Tensor) []*tensor.Tensor {
			return []*tensor.Tensor{tensor.Binary(op, x[0], x[1]), tensor.BinaryScalar(op, x[0], 0.3), scalarBinary(op, 0.3, x[0])}
		}, c.half(700), c.half(700))
	}
	// Places that 16 bytes divide, and others; NaN and infinities are among the halves.
	for _, n := range []int{1, 7, 8, 9, 500} {
		for at := range 8 {
			view := func(x *tensor.Tensor, at int) *tensor.Tensor { return tensor.Narrow(x, 0, at, n) }
			special := c.half(n + 8)
			for i, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)} {
				tensor.Fill(tensor.Narrow(special, 0, (at+i)%n, 1), v)
			}
			c.same(fmt.Sprint("at ", at, n), 0, func(x []*tensor.Tensor) []*tensor.Tensor {
				a, b, wide := view(x[0], at), view(x[1], at%3), view(x[2], at)
				into := tensor.Full(a.Device(), tensor.BFloat16, 0, n+8)
				tensor.BinaryTo(view(into, at), kernel.OpMaximum, a, b)
				tensor.CastTo(view(x[2], 8-at), a)
				return []*tensor.Tensor{tensor.Binary(kernel.OpSub, a, b),
					tensor.BinaryScalar(kernel.OpMul, a, 0.3), into, tensor.Cast(wide, tensor.BFloat16), x[2]}
			}, special, c.half(n+8), c.arg(tensor.Float32, n+8))
		}
	}
	c.same("in place", 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
		tensor.AddTo(x[0], x[1])
		tensor.ScaleTo(x[0], 0.3)
		return x[0]
	}), c.half(700), c.half(700))
}

// TestBFloat16Elements compares functions of one argument and their gradients, broadcasts,
// sums of squares and optimizers.
func TestBFloat16Elements(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, op := range kernel.UnaryOps() {
		for at := range 2 { // a place that 4 bytes divide, and one that they do not
			c.same(fmt.Sprint(op, at), halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
				a, b := tensor.Narrow(x[0], 0, at, 701), tensor.Narrow(x[1], 0, 0, 701)
				y := tensor.Unary(op, a)
				return []*tensor.Tensor{y, tensor.UnaryGrad(op, b, a, y)}
			}, tensor.Unary(kernel.OpAbs, c.half(702)), c.half(702))
		}
	}
	for _, op := range kernel.BinaryOps() {
		if !op.Takes(tensor.BFloat16) {
			continue
		}
		tol := 0.0
		if op == kernel.OpDiv || op == kernel.OpPow || op == kernel.OpAtan2 {
			tol = halfRounding
		}
		c.same(fmt.Sprint(op, " broadcast"), tol, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Binary(op, x[0], x[1]) }),
			c.half(3, 1, 5), c.half(4, 1))
	}
	c.same("add scaled", 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
		tensor.AddScaledTo(x[0], 0.3, x[1])
		return x[0]
	}), c.half(701), c.half(701))
	c.same("sums of squares", sum(tensor.Float32), one(func(x []*tensor.Tensor) *tensor.Tensor {
		sums := tensor.SumSquares(x...)
		return tensor.FromSlice(x[0].Device(), sums, len(sums))
	}), c.half(10000), c.half(3), c.half(0), c.arg(tensor.Float32, 50))
	p, g, m, v := c.half(20, 7), c.half(20, 7), c.arg(tensor.Float32, 20, 7), tensor.Unary(kernel.OpAbs, c.arg(tensor.Float32, 20, 7))
	for _, o := range []tensor.SGD{{LR: 0.1}, {LR: 0.1, Momentum: 0.9, WeightDecay: 0.1, Nesterov: true}} {
		c.same(fmt.Sprintf("%+v", o), halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
			o.Step(x[0], x[1], x[2], false)
			return []*tensor.Tensor{x[0], x[2]}
		}, p, g, m)
	}
	index := tensor.FromSlice(c.cpu, []int64{2, 3, 11}, 3)
	c.same("adam", halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
		adamW.Step(x[0], x[1], x[2], x[3], 3)
		return x
	}, p, g, m, v)
	c.same("adam rows", halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
		adamW.StepRows(x[0], tensor.Rows{Index: x[4], Values: x[1]}, x[2], x[3], 2)
		return x
	}, p, c.half(3, 7), m, v, index)
	c.same("adagrad rows", halfRounding, func(x []*tensor.Tensor) []*tensor.Tensor {
		tensor.Adagrad{LR: 0.1, Eps: 1e-10}.StepRows(x[0], tensor.Rows{Index: x[3], Values: x[1]}, x[2], nil)
		return x
	}, p, c.half(3, 7), tensor.Unary(kernel.OpAbs, c.arg(tensor.Float32, 20)), index)
}
