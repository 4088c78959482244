package cuda

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// sum is what adding up n numbers in another order may change.
func sum(dt tensor.DType) float64 { return 10 * rounding(dt) }

func TestReductions(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, k := range []int{1, 3, 40} {
		c.same(fmt.Sprint("topk of halves", k), 0, func(x []*tensor.Tensor) []*tensor.Tensor {
			v, i := tensor.TopK(x[0], k, 1)
			return []*tensor.Tensor{v, i, scattered(x[0], 1, i, v)}
		}, c.half(4, 40))
	}
	for _, dt := range append(numbers, tensor.Bool) {
		for _, shape := range [][]int{{1}, {7, 5}, {3, 700}, {2, 300, 3}, {0, 3}, {3, 0}} {
			if dt == tensor.Float32 && len(shape) == 1 { // what is cut into parts, and more blocks than run at once
				shape = []int{1, 9000}
			}
			for _, op := range kernel.ReduceOps() {
				tol := 0.0
				if (dt == tensor.Float32 || dt == tensor.Float64) && (op == kernel.OpSum || op == kernel.OpProd) {
					tol = sum(dt)
				}
				x := c.arg(dt, shape...)
				for d := range shape {
					c.same(fmt.Sprint(op, dt, shape, d), tol,
						one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Reduce(op, x[0], []int{d}, false) }), x)
				}
				c.same(fmt.Sprint(op, dt, shape), tol, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Reduce(op, x[0], nil, false) }), x)
			}
		}
		for _, k := range []int{1, 3, 40} {
			c.same(fmt.Sprint("topk", dt, k), 0, func(x []*tensor.Tensor) []*tensor.Tensor {
				v, i := tensor.TopK(x[0], k, 1)
				return []*tensor.Tensor{v, i}
			}, c.arg(dt, 4, 40))
		}
		if dt == tensor.Float32 || dt == tensor.Float64 || dt == tensor.Int64 {
			for d := range 2 {
				c.same(fmt.Sprint("cumsum", dt, d), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Cumsum(x[0], d) }), c.arg(dt, 9, 40))
				c.same(fmt.Sprint("cumsumgrad", dt, d), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.CumsumGrad(x[0], d) }),
					c.arg(dt, 9, 40))
			}
		}
	}
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Int8} { // so many parts of columns that many threads combine them
		x := c.arg(dt, 2, 2100, 3)
		c.same(fmt.Sprint("columns in parts", dt), sum(dt),
			one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Sum(x[0], []int{1}, false) }), x)
		c.same(fmt.Sprint("largest of columns in parts", dt), 0,
			one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Reduce(kernel.OpAmax, x[0], []int{1}, false) }), x)
	}
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Int64} { // rows and columns in parts, and rows in tiles
		tol := 0.0
		if dt == tensor.Float32 {
			tol = rounding(dt)
		}
		for _, shape := range [][]int{{1, 257}, {3, 2500}, {1, 9001}, {300, 3}, {2, 301, 5}, {257, 258}} {
			for d := range shape {
				x := c.arg(dt, shape...)
				c.same(fmt.Sprint("cumsum in parts", dt, shape, d), tol, func(x []*tensor.Tensor) []*tensor.Tensor {
					return []*tensor.Tensor{tensor.Cumsum(x[0], d), tensor.CumsumGrad(x[0], d)}
				}, x)
			}
		}
	}
	for _, shape := range [][]int{{1, 65}, {40, 130}, {33, 64}} {
		c.same(fmt.Sprint("cumsum in order", shape), 0, func(x []*tensor.Tensor) []*tensor.Tensor {
			return []*tensor.Tensor{tensor.Cumsum(x[0], 1), tensor.CumsumGrad(x[0], 1)}
		}, c.arg(tensor.Float64, shape...))
	}
	for _, dt := range floats {
		nan := c.arg(dt, 3, 50)
		tensor.Fill(tensor.Narrow(nan.Reshape(150), 0, 70, 1), math.NaN())
		c.same("amax of NaN", 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Reduce(kernel.OpAmax, x[0], []int{1}, false) }), nan)
		c.same("topk of NaN", 0, func(x []*tensor.Tensor) []*tensor.Tensor {
			v, i := tensor.TopK(x[0], 2, 1)
			return []*tensor.Tensor{v, i}
		}, nan)
		for _, p := range []float64{1, 2, 3, math.Inf(1)} {
			c.same(fmt.Sprint("norm", dt, p), sum(dt), one(func(x []*tensor.Tensor) *tensor.Tensor { return rowStat(kernel.OpNorm, x[0], p) }),
				c.arg(dt, 5, 400))
		}
		c.same(fmt.Sprint("var", dt), sum(dt), one(func(x []*tensor.Tensor) *tensor.Tensor { return rowStat(kernel.OpSquareDev, x[0], 0) }),
			c.arg(dt, 5, 400))
		c.same(fmt.Sprint("logsumexp", dt), sum(dt),
			one(func(x []*tensor.Tensor) *tensor.Tensor { return rowStat(kernel.OpLogSumExp, x[0], 0) }), c.arg(dt, 5, 400))
		inf := c.arg(dt, 3, 50)
		tensor.Fill(tensor.Narrow(inf.Reshape(150), 0, 70, 1), math.Inf(1))
		tensor.Fill(tensor.Narrow(inf, 0, 2, 1), math.Inf(-1))
		c.same("logsumexp of infinities", sum(dt),
			one(func(x []*tensor.Tensor) *tensor.Tensor { return rowStat(kernel.OpLogSumExp, x[0], 0) }), inf)
		c.same(fmt.Sprint("cumsum of many", dt), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Cumsum(x[0], 0) }),
			tensor.Full(c.cpu, dt, 0.1, 20000))
		c.same(fmt.Sprint("sumsquares", dt), sum(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
			return tensor.Full(x[0].Device(), tensor.Float64, tensor.SumSquares(x[0])[0])
		}), c.arg(dt, 30000))
		c.same(fmt.Sprint("columnsquares", dt), sum(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
			return tensor.FromSlice(x[0].Device(), tensor.ColumnSquares(x[0]), x[0].Dim(1))
		}), c.arg(dt, 300, 70))
	}
}

func TestRows(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, op := range kernel.RowOps() {
		for _, dt := range floats {
			c.same(fmt.Sprint(op, dt), 10*sum(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
				y := tensor.New(x[0].Device(), dt, 5)
				y.Device().RowStat(op, dt, y.Ptr(), x[0].Ptr(), kernel.Matrix{Rows: 5, Cols: 70}, 3)
				runtime.KeepAlive(x[0])
				return y
			}), c.arg(dt, 5, 70))
		}
	}
	for _, dt := range floats {
		for _, shape := range [][]int{{3, 1}, {5, 7}, {4, 700}, {130, 33}, {70, 64}, {3, 2304}, {5, 1025}, {3, 8500}} {
			n := shape[1]
			name := fmt.Sprint(dt, shape)
			x, dy, w, b := c.arg(dt, shape...), c.arg(dt, shape...), c.arg(dt, n), c.arg(dt, n)
			c.same("softmax "+name, sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				y, l := tensor.Softmax(x[0], 1), tensor.LogSoftmax(x[0], 1)
				return []*tensor.Tensor{y, l, tensor.SoftmaxGrad(x[1], y, 1), tensor.LogSoftmaxGrad(x[1], l, 1)}
			}, x, dy)
			special := tensor.Clone(x)
			for i, v := range []float64{math.Inf(-1), math.Inf(1), math.NaN()} {
				tensor.Fill(tensor.Narrow(special.Reshape(shape[0]*n), 0, i*n+n/2, 1), v)
			}
			c.same("statistics of numbers that are none "+name, sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				zero := tensor.Zeros(x[0].Device(), tensor.Int64, shape[0])
				stats := tensor.CrossEntropyStats(x[0], zero, 0, nil, false)
				return []*tensor.Tensor{tensor.Narrow(stats, 0, 0, 2), tensor.Narrow(stats, 1, kernel.StatSumExp, 1), tensor.Softmax(x[0], 1),
					tensor.LogSoftmax(x[0], 1)}
			}, special)
			if n == 1 {
				continue // the variance of one number is 0, and its root of eps enlarges every rounding
			}
			c.same("layernorm "+name, 3*sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				y, stats := tensor.LayerNorm(x[0], x[2], x[3], 1, 1e-5)
				dx, dw, db := tensor.LayerNormGrad(x[1], x[0], x[2], stats, 1, true, true)
				return []*tensor.Tensor{y, stats, dx, dw, db}
			}, x, dy, w, b)
			c.same("rmsnorm "+name, 3*sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				y, stats := tensor.RMSNorm(x[0], x[2], 1, 1e-5)
				dx, dw := tensor.RMSNormGrad(x[1], x[0], x[2], stats, 1, true)
				return []*tensor.Tensor{y, stats, dx, dw}
			}, x, dy, w)
			c.same("norms without weights "+name, 3*sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				y, stats := tensor.LayerNorm(x[0], nil, nil, 1, 1e-5)
				dx, _, db := tensor.LayerNormGrad(x[1], x[0], nil, stats, 1, false, true)
				z, scale := tensor.RMSNorm(x[0], nil, 1, 1e-5)
				dz, _ := tensor.RMSNormGrad(x[1], x[0], nil, scale, 1, false)
				return []*tensor.Tensor{y, dx, db, z, dz}
			}, x, dy)
		}
		for _, withWeight := range []bool{false, true} {
			logits, target := c.arg(dt, 30, 1100), c.ids(tensor.Int64, -10, 600, 30)
			var weight *tensor.Tensor
			if withWeight {
				weight = tensor.Unary(kernel.OpAbs, c.arg(dt, 1100))
			}
			for _, classes := range []int{1, 2, 5, 499, 500, 1100} { // rows begin at other places than those of the gradient
				rows := []*tensor.Tensor{c.arg(dt, 31, classes), target, nil, c.arg(dt, 30), c.arg(dt, 30, 3)}
				if withWeight {
					rows[2] = tensor.Narrow(weight, 0, 0, classes)
				}
				c.same(fmt.Sprint("cross-entropy", dt, withWeight, classes), sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
					logits := tensor.Narrow(x[0], 0, 1, 30)
					stats := tensor.CrossEntropyStats(logits, x[1], 20, x[2], true)
					return []*tensor.Tensor{stats, tensor.CrossEntropyStats(logits, x[1], 20, nil, false),
						tensor.CrossEntropyGrad(nil, logits, x[1], 20, x[3], x[4], x[2])}
				}, rows...)
			}
			if dt == tensor.Float64 {
				continue // what 1e4 takes from the last places is more than the tolerance
			}
			c.same(fmt.Sprint("cross-entropy of large logits", dt, withWeight), sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				stats := tensor.CrossEntropyStats(x[0], x[1], 20, x[2], true)
				return []*tensor.Tensor{tensor.Narrow(stats, 1, kernel.StatSum, 1)}
			}, tensor.AddScalar(logits, -1e4), target, weight)
		}
	}
}

// TestBFloat16CrossEntropy compares logits of bfloat16 with the CPU, in place and not;
// a gradient that lies between two halves may be rounded to either.
func TestBFloat16CrossEntropy(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	const n, classes, ulp = 30, 501, 1.0 / 128
	for _, withWeight := range []bool{false, true} {
		logits, target := tensor.Cast(c.arg(tensor.Float32, n, classes), tensor.BFloat16), c.ids(tensor.Int64, -10, 600, n)
		var weight *tensor.Tensor
		if withWeight {
			weight = tensor.Unary(kernel.OpAbs, c.arg(tensor.Float32, classes))
		}
		coef := c.arg(tensor.Float32, n, 3)
		tensor.Fill(tensor.Narrow(coef, 0, 7, 1), 0) // a row that is ignored
		lse := c.arg(tensor.Float32, n)
		c.same(fmt.Sprint("statistics", withWeight), sum(tensor.Float32), one(func(x []*tensor.Tensor) *tensor.Tensor {
			return tensor.CrossEntropyStats(x[0], x[1], 20, x[2], true)
		}), logits, target, weight)
		c.same(fmt.Sprint("rounded gradient", withWeight), ulp, one(func(x []*tensor.Tensor) *tensor.Tensor {
			dst := tensor.New(x[0].Device(), tensor.BFloat16, n, classes)
			return tensor.CrossEntropyGrad(dst, tensor.Cast(x[0], tensor.Float32), x[1], 20, x[3], x[4], x[2])
		}), logits, target, weight, lse, coef)
		c.same(fmt.Sprint("gradient", withWeight), ulp, func(x []*tensor.Tensor) []*tensor.Tensor {
			dx := tensor.CrossEntropyGrad(nil, x[0], x[1], 20, x[3], x[4], x[2])
			return []*tensor.Tensor{dx, tensor.CrossEntropyGrad(x[0], x[0], x[1], 20, x[3], x[4], x[2])}
		}, logits, target, weight, lse, coef)
	}
}

// TestCrossEntropyJoin compares the statistics of joined parts, infinite ones among them.
func TestCrossEntropyJoin(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, dt := range floats {
		a, b := tensor.Unary(kernel.OpAbs, c.arg(dt, 300, 4)), tensor.Unary(kernel.OpAbs, c.arg(dt, 300, 4))
		tensor.Fill(tensor.Narrow(a, 0, 7, 1), 0)
		tensor.Fill(tensor.Narrow(a.Reshape(1200), 0, 28, 1), math.Inf(-1))
		for _, weights := range [][2]float64{{0, 0}, {3, 4}} {
			c.same(fmt.Sprint(dt, weights), rounding(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
				tensor.CrossEntropyJoin(x[0], x[1], weights[0], weights[1])
				return x[0]
			}), a, b)
		}
	}
}

// TestTopK has rows that begin at any place, numbers that come often, places for which
// there is no room at once, and more than are found at once.
func TestTopK(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	top := func(k int) func(x []*tensor.Tensor) []*tensor.Tensor {
		return func(x []*tensor.Tensor) []*tensor.Tensor {
			v, i := tensor.TopK(x[0], k, 1)
			return []*tensor.Tensor{v, i}
		}
	}
	for _, dt := range append(numbers, tensor.BFloat16) {
		for _, shape := range [][2]int{{5, 1}, {3, 257}, {2, 1025}, {2, 4099}, {1, 10000}} {
			for _, k := range []int{1, 2, 10, 130} {
				if k <= shape[1] {
					x := tensor.Cast(c.arg(tensor.Float64, shape[0], shape[1]), dt) // of integers most are equal
					c.same(fmt.Sprint(dt, shape, k), 0, top(k), x)
				}
			}
		}
	}
	// Most of the largest are in few groups: every 1024 elements four are.
	clustered := make([]float32, 64<<10)
	for i := range clustered {
		clustered[i] = float32(i%7) + 100*float32((1023-i%1024)/8)
	}
	x := tensor.FromSlice(c.cpu, clustered, 1, len(clustered))
	c.same("in few groups", 0, top(500), x)
	c.same("all", 0, top(1500), tensor.Narrow(x, 1, 0, 1500))
	c.same("ascending", 0, top(300), tensor.Arange(c.cpu, tensor.Float32, 0, 9000).Reshape(1, 9000))
	c.same("all equal", 0, top(300), tensor.Full(c.cpu, tensor.Float64, 3, 2, 3000))
	least := tensor.Full(c.cpu, tensor.Int64, 0, 2, 700)
	tensor.Fill(least, math.MinInt64)
	c.same("the least integer", 0, top(700), least)
	odd := c.arg(tensor.Float32, 1, 3000)
	for i, v := range []float64{math.Inf(-1), math.NaN(), math.Copysign(0, -1), 0, math.Inf(1), math.NaN()} {
		tensor.Fill(tensor.Narrow(odd, 1, 500*i, 7), v)
	}
	c.same("numbers that are none", 0, top(3000), odd)
}
