package tensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// LayerNorm normalises the last normDims dimensions of x:
//
//	y = (x - mean)·rstd·weight + bias   rstd = 1/√(variance + eps)
//
// weight and bias have the sizes of these dimensions, or are nil (ones, zeros). stats
// [rows, 2], float64 for every type of x, holds mean and rstd of each row, for
// LayerNormGrad.
func LayerNorm(x, weight, bias *Tensor, normDims int, eps float64) (y, stats *Tensor) {
	const op = "LayerNorm"
	n := normOf(op, x, weight, bias, normDims)
	n.Centre, n.Eps = true, eps
	return norm(op, n, x, weight, bias)
}

// LayerNormGrad returns the gradients of LayerNorm from its stats: dx always, and
// dweight and dbias (nil if not wanted) in the shape of what is normalised. With
// h = (x - mean)·rstd and g = dy·weight,
//
//	dx = rstd·(g - mean(g) - h·mean(g·h))   dweight = Σ dy·h   dbias = Σ dy
func LayerNormGrad(dy, x, weight, stats *Tensor, normDims int, wantWeight, wantBias bool) (dx, dweight, dbias *Tensor) {
	const op = "LayerNormGrad"
	n := normOf(op, x, weight, nil, normDims)
	n.Centre = true
	return normGrad(op, n, dy, x, weight, stats, normDims, wantWeight, wantBias)
}

// RMSNorm scales the last normDims dimensions of x by their root mean square:
//
//	y = x·rstd·weight   rstd = 1/√(mean of x² + eps)
//
// weight may be nil (ones). stats [rows], float64, holds rstd.
func RMSNorm(x, weight *Tensor, normDims int, eps float64) (y, stats *Tensor) {
	const op = "RMSNorm"
	n := normOf(op, x, weight, nil, normDims)
	n.Eps = eps
	return norm(op, n, x, weight, nil)
}

// RMSNormGrad returns the gradients of RMSNorm from its stats: dx always, dweight
// nil if not wanted. With h = x·rstd and g = dy·weight,
//
//	dx = rstd·(g - h·mean(g·h))   dweight = Σ dy·h
func RMSNormGrad(dy, x, weight, stats *Tensor, normDims int, wantWeight bool) (dx, dweight *Tensor) {
	const op = "RMSNormGrad"
	n := normOf(op, x, weight, nil, normDims)
	dx, dweight, _ = normGrad(op, n, dy, x, weight, stats, normDims, wantWeight, false)
	return dx, dweight
}

// norm computes n, which LayerNorm and RMSNorm have filled in except for the addresses.
func norm(op string, n kernel.Norm, x, weight, bias *Tensor) (y, stats *Tensor) {
	shape := []int{n.Rows, 2}
	if !n.Centre {
		shape = shape[:1]
	}
	y, stats = allocLike(op, x), alloc(op, x.dev, Float64, shape)
	n.Y, n.Stats, n.X, n.Weight, n.Bias = y.addr, stats.addr, x.ptr(op), addrOf(op, weight), addrOf(op, bias)
	x.dev.Norm(n)
	keepAlive(x, weight, bias)
	return y, stats
}

// normGrad computes the gradient of n, which has no addresses yet.
func normGrad(op string, n kernel.Norm, dy, x, weight, stats *Tensor, normDims int, wantWeight, wantBias bool) (
	dx, dweight, dbias *Tensor) {
	wantSameType(op, dy, x)
	wantSameShape(op, dy, x)
	wantStats(op, x, stats, n)
	shape := x.Shape()[x.NDim()-normDims:]
	dx = allocLike(op, x)
	if wantWeight {
		dweight = Zeros(x.dev, x.dtype, shape...)
	}
	if wantBias {
		dbias = Zeros(x.dev, x.dtype, shape...)
	}
	n.Stats, n.X, n.Weight = stats.ptr(op), x.ptr(op), addrOf(op, weight)
	x.dev.NormGrad(kernel.NormGrad{Norm: n, DX: dx.addr, DWeight: addrOf(op, dweight), DBias: addrOf(op, dbias), DY: dy.ptr(op)})
	keepAlive(dy, x, weight, stats)
	return dx, dweight, dbias
}

// normOf checks the arguments of a norm and returns its shape and type.
func normOf(op string, x, weight, bias *Tensor, normDims int) kernel.Norm {
	wantFloat(op, x)
	if normDims < 1 || normDims > x.NDim() {
		throwShape(op, "x %v: cannot normalise its last %d dimensions", x.brief(), normDims)
	}
	lead, tail := x.Shape()[:x.NDim()-normDims], x.Shape()[x.NDim()-normDims:]
	for i, w := range []*Tensor{weight, bias} {
		if w == nil {
			continue
		}
		wantSameType(op, x, w)
		if !slices.Equal(w.Shape(), tail) {
			throwShape(op, "%s %v does not have the normalised shape %v of x %v", []string{"weight", "bias"}[i], w.brief(), slices.Clone(tail),
				x.brief())
		}
	}
	return kernel.Norm{Matrix: kernel.Matrix{Rows: ints.Product(lead), Cols: ints.Product(tail)}, DType: x.dtype}
}

// wantStats throws unless stats are those of n.
func wantStats(op string, x, stats *Tensor, n kernel.Norm) {
	each := 1
	if n.Centre {
		each = 2
	}
	wantSameDevice(op, x, stats)
	if stats.dtype != Float64 {
		throwType(op, "stats %v are not those of %v: want float64", stats.brief(), x.brief())
	}
	if stats.numel != n.Rows*each {
		throwShape(op, "stats %v are not those of x %v: want %d numbers for each of %d rows", stats.brief(), x.brief(), each, n.Rows)
	}
}
