package tensor

import (
	"runtime"
	"slices"
)

// LayerNorm normalises the last len(shape of weight) dimensions of x, D elements:
//
//	y = (x - mean)·rstd·weight + bias   rstd = 1/√(variance + eps)
//
// weight and bias may be nil (ones, zeros); normDims says how many dimensions are
// normalised and weight and bias have their sizes. stats [rows, 2], float64 for every
// type of x, holds mean and rstd of each row, for LayerNormGrad.
func LayerNorm(x, weight, bias *Tensor, normDims int, eps float64) (y, stats *Tensor) {
	rows, n := normSizes("LayerNorm", x, weight, bias, normDims)
	y = allocLike("LayerNorm", x)
	stats = alloc("LayerNorm", x.dev, Float64, []int{rows, 2})
	if !x.dev.LayerNorm(x.dtype, y.addr, stats.addr, x.ptr("LayerNorm"), addrOf("LayerNorm", weight), addrOf("LayerNorm", bias), rows, n, eps) {
		freeAll(y, stats)
		y, stats = LayerNorm(Widen(x), widened(weight), widened(bias), normDims, eps)
		return narrowed(y), stats
	}
	runtime.KeepAlive(x)
	runtime.KeepAlive(weight)
	runtime.KeepAlive(bias)
	return y, stats
}

// LayerNormGrad returns the gradients of LayerNorm from its stats: dx always, and
// dweight and dbias (nil if not wanted) in the shape of what is normalised. With
// h = (x - mean)·rstd and g = dy·weight,
//
//	dx = rstd·(g - mean(g) - h·mean(g·h))   dweight = Σ dy·h   dbias = Σ dy
func LayerNormGrad(dy, x, weight, stats *Tensor, normDims int, wantWeight, wantBias bool) (dx, dweight, dbias *Tensor) {
	rows, n := normSizes("LayerNormGrad", x, weight, nil, normDims)
	wantSameType("LayerNormGrad", dy, x)
	wantSameShape("LayerNormGrad", dy, x)
	wantStats("LayerNormGrad", x, stats, rows, 2)
	dx = allocLike("LayerNormGrad", x)
	shape := x.Shape()[x.NDim()-normDims:]
	if wantWeight {
		dweight = Zeros(x.dev, x.dtype, shape...)
	}
	if wantBias {
		dbias = Zeros(x.dev, x.dtype, shape...)
	}
	if !x.dev.LayerNormGrad(x.dtype, dx.addr, addrOf("LayerNormGrad", dweight), addrOf("LayerNormGrad", dbias),
		dy.ptr("LayerNormGrad"), x.ptr("LayerNormGrad"), addrOf("LayerNormGrad", weight), stats.ptr("LayerNormGrad"), rows, n) {
		freeAll(dx, dweight, dbias)
		dx, dweight, dbias = LayerNormGrad(Widen(dy), Widen(x), widened(weight), stats, normDims, wantWeight, wantBias)
		return narrowed(dx), narrowed(dweight), narrowed(dbias)
	}
	runtime.KeepAlive(dy)
	runtime.KeepAlive(x)
	runtime.KeepAlive(weight)
	runtime.KeepAlive(stats)
	return dx, dweight, dbias
}

// RMSNorm scales the last normDims dimensions of x by their root mean square:
//
//	y = x·rstd·weight   rstd = 1/√(mean of x² + eps)
//
// weight may be nil (ones). stats [rows], float64, holds rstd.
func RMSNorm(x, weight *Tensor, normDims int, eps float64) (y, stats *Tensor) {
	rows, n := normSizes("RMSNorm", x, weight, nil, normDims)
	y = allocLike("RMSNorm", x)
	stats = alloc("RMSNorm", x.dev, Float64, []int{rows})
	if !x.dev.RMSNorm(x.dtype, y.addr, stats.addr, x.ptr("RMSNorm"), addrOf("RMSNorm", weight), rows, n, eps) {
		freeAll(y, stats)
		y, stats = RMSNorm(Widen(x), widened(weight), normDims, eps)
		return narrowed(y), stats
	}
	runtime.KeepAlive(x)
	runtime.KeepAlive(weight)
	return y, stats
}

// RMSNormGrad returns the gradients of RMSNorm from its stats: dx always, dweight
// nil if not wanted. With h = x·rstd and g = dy·weight,
//
//	dx = rstd·(g - h·mean(g·h))   dweight = Σ dy·h
func RMSNormGrad(dy, x, weight, stats *Tensor, normDims int, wantWeight bool) (dx, dweight *Tensor) {
	rows, n := normSizes("RMSNormGrad", x, weight, nil, normDims)
	wantSameType("RMSNormGrad", dy, x)
	wantSameShape("RMSNormGrad", dy, x)
	wantStats("RMSNormGrad", x, stats, rows, 1)
	dx = allocLike("RMSNormGrad", x)
	if wantWeight {
		dweight = Zeros(x.dev, x.dtype, x.Shape()[x.NDim()-normDims:]...)
	}
	if !x.dev.RMSNormGrad(x.dtype, dx.addr, addrOf("RMSNormGrad", dweight),
		dy.ptr("RMSNormGrad"), x.ptr("RMSNormGrad"), addrOf("RMSNormGrad", weight), stats.ptr("RMSNormGrad"), rows, n) {
		freeAll(dx, dweight)
		dx, dweight = RMSNormGrad(Widen(dy), Widen(x), widened(weight), stats, normDims, wantWeight)
		return narrowed(dx), narrowed(dweight)
	}
	runtime.KeepAlive(dy)
	runtime.KeepAlive(x)
	runtime.KeepAlive(weight)
	runtime.KeepAlive(stats)
	return dx, dweight
}

// normSizes checks the arguments of a norm and returns its rows and their length.
func normSizes(op string, x, weight, bias *Tensor, normDims int) (rows, n int) {
	wantFloatOrHalf(op, x)
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
			throwShape(op, "%s %v does not have the normalised shape %v of x %v", []string{"weight", "bias"}[i], w.brief(), slices.Clone(tail), x.brief())
		}
	}
	return product(lead), product(tail)
}

func wantStats(op string, x, stats *Tensor, rows, each int) {
	wantSameDevice(op, x, stats)
	if stats.dtype != Float64 {
		throwType(op, "stats %v are not those of %v: want float64", stats.brief(), x.brief())
	}
	if stats.numel != rows*each {
		throwShape(op, "stats %v are not those of x %v: want %d numbers for each of %d rows", stats.brief(), x.brief(), each, rows)
	}
}
