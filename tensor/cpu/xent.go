package cpu

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CrossEntropyStats fills stats [rows, 4] from logits; see tensor's function of that name.
func (c *own) CrossEntropyStats(stats unsafe.Pointer, l kernel.ClassLogits, withSum bool) {
	t, n, classes := indices(l.Target), l.Rows, l.Classes
	if l.DType == dtype.Float64 {
		xentStats(sliceOf[float64](stats, n*kernel.Stats), sliceOf[float64](l.Logits, n*classes), &t, optional[float64](l.Weight, classes),
			classes, l.Lo, withSum, rowStats[float64], shiftedSum[float64])
		return
	}
	xentStats(sliceOf[float32](stats, n*kernel.Stats), sliceOf[float32](l.Logits, n*classes), &t, optional[float32](l.Weight, classes),
		classes, l.Lo, withSum, simd.SoftmaxStats, shiftedSum32)
}

// xentStats computes the weighted sum of a row right after its other statistics, while
// the row is in a cache.
func xentStats[T float, R float](stats, logits []T, target *indexList, weight []T, classes, lo int, withSum bool,
	row func(x []T) (top, sum R), weighted func(x, w []T, shift T) T) {
	parallel(len(stats)/kernel.Stats, classes*8, 1, func(from, to int) {
		for r := from; r < to; r++ {
			x, s := logits[r*classes:(r+1)*classes], stats[r*kernel.Stats:(r+1)*kernel.Stats]
			top, sum := row(x)
			s[kernel.StatMax], s[kernel.StatSumExp], s[kernel.StatTarget], s[kernel.StatSum] = T(top), T(sum), 0, 0
			if k := target.at(r) - lo; k >= 0 && k < classes {
				s[kernel.StatTarget] = x[k]
			}
			if withSum {
				s[kernel.StatSum] = weighted(x, weight, statShift(s[kernel.StatMax]))
			}
		}
	})
}

// statShift returns the number that the weighted sum subtracts from the logits: top, or 0
// if top is -Inf.
func statShift[T float](top T) T {
	if math.IsInf(float64(top), -1) {
		return 0
	}
	return top
}

func shiftedSum[T float](x, w []T, shift T) T {
	var sum float64
	for i, v := range x {
		if d := float64(v) - float64(shift); w != nil {
			sum += d * float64(w[i])
		} else {
			sum += d
		}
	}
	return T(sum)
}

func shiftedSum32(x, w []float32, shift float32) float32 {
	return float32(simd.SumShifted(x, w, shift))
}

// CrossEntropyJoin joins the statistics of two parts; see the function of that name.
func (c *own) CrossEntropyJoin(dt dtype.DType, stats, more unsafe.Pointer, n int, weights, others float64) {
	if dt == dtype.Float64 {
		joinStats(sliceOf[float64](stats, n*kernel.Stats), sliceOf[float64](more, n*kernel.Stats), weights, others)
		return
	}
	joinStats(sliceOf[float32](stats, n*kernel.Stats), sliceOf[float32](more, n*kernel.Stats), weights, others)
}

func joinStats[T float](stats, more []T, weights, others float64) {
	for i := 0; i < len(stats); i += kernel.Stats {
		a, b := stats[i:][:kernel.Stats], more[i:][:kernel.Stats]
		top := float64(max(a[kernel.StatMax], b[kernel.StatMax]))
		a[kernel.StatTarget] += b[kernel.StatTarget]
		a[kernel.StatSumExp] = T(shiftedExp(a, top) + shiftedExp(b, top))
		a[kernel.StatSum] = T(shiftedDot(a, weights, top) + shiftedDot(b, others, top))
		a[kernel.StatMax] = T(top)
	}
}

// shiftedExp is Σ exp(x - top) of a part.
func shiftedExp[T float](s []T, top float64) float64 {
	if sum := float64(s[kernel.StatSumExp]); sum == 0 || float64(s[kernel.StatMax]) == top {
		return sum
	}
	return float64(s[kernel.StatSumExp]) * math.Exp(float64(s[kernel.StatMax])-top)
}

// shiftedDot is Σ w·(x - top) of a part whose weights add up to total.
func shiftedDot[T float](s []T, total, top float64) float64 {
	if total == 0 {
		return float64(s[kernel.StatSum])
	}
	return float64(s[kernel.StatSum]) + total*(float64(statShift(s[kernel.StatMax]))-statShift(top))
}

// CrossEntropyGrad computes the gradient of the logits; see tensor's function of that name.
// dst may be the logits.
func (c *own) CrossEntropyGrad(to dtype.DType, dst unsafe.Pointer, l kernel.ClassLogits, lse, coef unsafe.Pointer) {
	t, n, classes := indices(l.Target), l.Rows, l.Classes
	if l.DType == dtype.Float64 {
		g := classGrad[float64]{&t, sliceOf[float64](lse, n), sliceOf[float64](coef, n*3), optional[float64](l.Weight, classes), classes, l.Lo,
			scaledExp[float64]}
		g.rows(sliceOf[float64](dst, n*classes), sliceOf[float64](l.Logits, n*classes), nil)
		return
	}
	g := classGrad[float32]{&t, sliceOf[float32](lse, n), sliceOf[float32](coef, n*3), optional[float32](l.Weight, classes), classes, l.Lo,
		simd.Ordinary().ScaledExp}
	if to == dtype.BFloat16 {
		halves(&g, sliceOf[dtype.BF16](dst, n*classes), l)
		return
	}
	d, x := sliceOf[float32](dst, n*classes), sliceOf[float32](l.Logits, n*classes)
	var nonTemporal func(dst, x []float32, shift, scale float32)
	if mode := simd.Writing(d, x); mode.NonTemporal {
		nonTemporal = mode.ScaledExp
	}
	g.rows(d, x, nonTemporal)
}

// XentTile is how many classes are computed before the smoothing is subtracted,
// while they are in the first cache.
const XentTile = 4096

// prefetchLogits is how many bytes before they are read logits are prefetched: the processor does not prefetch over the end of a page.
const prefetchLogits = 6 << 10

// XentAhead is the size of a gradient, in bytes, from which on its tiles are computed in a
// buffer in the cache and then copied: the copy prefetches the memory that it overwrites.
// A gradient that overwrites the logits needs no prefetch.
const XentAhead = 4 << 20

// A classGrad is the arguments of CrossEntropyGrad.
type classGrad[T float] struct {
	target            *indexList
	lse, coef, weight []T
	classes, lo       int
	scaledExp         func(dst, x []T, shift, scale T)
}

// of returns the coefficients of row r, and which of its classes is the target. Without any the row's gradient is 0.
func (g *classGrad[T]) of(r int) (a, b, s T, hit int, any bool) {
	a, b, s = g.coef[3*r], g.coef[3*r+1], g.coef[3*r+2]
	return a, b, s, g.target.at(r) - g.lo, a != 0 || b != 0 || s != 0
}

// tile computes the gradient of some classes of row r, from class i on.
func (g *classGrad[T]) tile(dst, x []T, r, i int) {
	a, b, s, hit, _ := g.of(r)
	g.scaledExp(dst, x, g.lse[r], a)
	switch {
	case s != 0 && g.weight != nil:
		simd.Axpy(dst, -s, g.weight[i:i+len(dst)])
	case s != 0:
		simd.AddScalar(dst, dst, -s)
	}
	if hit >= i && hit < i+len(dst) {
		dst[hit-i] -= b
	}
}

// rows computes all rows; if no smoothing is subtracted and nonTemporal is
// not nil, with nonTemporal.
func (g *classGrad[T]) rows(dst, logits []T, nonTemporal func(dst, x []T, shift, scale T)) {
	size, classes := int(unsafe.Sizeof(*new(T))), g.classes
	ahead := len(dst)*size >= XentAhead && unsafe.SliceData(dst) != unsafe.SliceData(logits)
	parallel(len(g.lse), classes*8, 1, func(from, to int) {
		if nonTemporal != nil {
			defer simd.Fence()
		}
		var near [XentTile]T
		for r := from; r < to; r++ {
			d, x := dst[r*classes:(r+1)*classes], logits[r*classes:(r+1)*classes]
			a, b, s, hit, any := g.of(r)
			if !any {
				clear(d)
				continue
			}
			if nonTemporal != nil && s == 0 {
				nonTemporal(d, x, g.lse[r], a)
				if hit >= 0 && hit < classes {
					d[hit] -= b
				}
				continue
			}
			for i := 0; i < classes; i += XentTile {
				end := min(i+XentTile, classes)
				tile := d[i:end]
				if ahead {
					tile = near[:end-i]
				}
				prefetch(logits, r*classes+end, end-i)
				g.tile(tile, x[i:end], r, i)
				if ahead {
					simd.CopyAhead(d[i:end], tile)
				}
			}
		}
	})
}

// halves computes all rows in float32 and rounds them to bfloat16, the type of the logits or not, while they are in the first cache.
func halves(g *classGrad[float32], dst []dtype.BF16, l kernel.ClassLogits) {
	classes := g.classes
	parallel(len(g.lse), classes*8, 1, func(from, to int) {
		var near [XentTile]float32
		for r := from; r < to; r++ {
			if _, _, _, _, any := g.of(r); !any {
				clear(dst[r*classes : (r+1)*classes])
				continue
			}
			for i := 0; i < classes; i += XentTile {
				at, n := r*classes+i, min(XentTile, classes-i)
				tile := near[:n]
				x := tile
				if l.DType == dtype.BFloat16 {
					simd.FromBF16(tile, sliceOf[dtype.BF16](l.Logits, len(dst))[at:at+n])
				} else {
					logits := sliceOf[float32](l.Logits, len(dst))
					prefetch(logits, at+n, n)
					x = logits[at : at+n]
				}
				g.tile(tile, x, r, i)
				simd.ToBF16(dst[at:at+n], tile)
			}
		}
	})
}

// prefetch fetches n logits, some time before those from at on are read.
func prefetch[T float](logits []T, at, n int) {
	size := int(unsafe.Sizeof(*new(T)))
	if at += prefetchLogits / size; at+n <= len(logits) {
		simd.Prefetch(unsafe.Pointer(&logits[at]), n*size)
	}
}

// scaledExp is the definition of simd.ScaledExp.
func scaledExp[T float](dst, x []T, shift, scale T) {
	for i, v := range x {
		dst[i] = T(float64(scale) * math.Exp(float64(v)-float64(shift)))
	}
}
