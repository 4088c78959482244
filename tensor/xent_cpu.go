package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// CrossEntropyStats fills stats [n, 4] from logits [n, classes]; see the function
// of that name. weight may be nil.
func (c *CPU) CrossEntropyStats(dt DType, stats, logits unsafe.Pointer, it DType, target, weight unsafe.Pointer, n, classes, lo int, withSum bool) {
	if dt == BFloat16 {
		c.widenLogits(logits, n, classes, func(x unsafe.Pointer, at, k int) {
			c.CrossEntropyStats(Float32, unsafe.Add(stats, at*Stats*Float32.Size()), x, it, unsafe.Add(target, at*it.Size()), weight, k, classes, lo, withSum)
		})
		return
	}
	t := indices(it, target, n)
	if dt == Float64 {
		xentStats(sliceOf[float64](stats, n*Stats), sliceOf[float64](logits, n*classes), &t, optional[float64](weight, classes), classes, lo, withSum, rowStats[float64], shiftedSum[float64])
		return
	}
	xentStats(sliceOf[float32](stats, n*Stats), sliceOf[float32](logits, n*classes), &t, optional[float32](weight, classes), classes, lo, withSum, simd.SoftmaxStats, shiftedSum32)
}

// xentStats runs over the rows; the weighted sum of a row follows its other
// statistics, while the row is in a cache.
func xentStats[T float, R float](stats, logits []T, target *indexList, weight []T, classes, lo int, withSum bool,
	row func(x []T) (top, sum R), weighted func(x, w []T, shift T) T) {
	parallel(len(stats)/Stats, classes*8, 1, func(from, to int) {
		for r := from; r < to; r++ {
			x, s := logits[r*classes:(r+1)*classes], stats[r*Stats:(r+1)*Stats]
			top, sum := row(x)
			s[StatMax], s[StatSumExp], s[StatTarget], s[StatSum] = T(top), T(sum), 0, 0
			if k := target.at(r) - lo; k >= 0 && k < classes {
				s[StatTarget] = x[k]
			}
			if withSum {
				s[StatSum] = weighted(x, weight, statShift(s[StatMax]))
			}
		}
	})
}

// statShift is what the weighted sum counts logits from.
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
func (c *CPU) CrossEntropyJoin(dt DType, stats, more unsafe.Pointer, n int, weights, others float64) {
	if dt == Float64 {
		joinStats(sliceOf[float64](stats, n*Stats), sliceOf[float64](more, n*Stats), weights, others)
		return
	}
	joinStats(sliceOf[float32](stats, n*Stats), sliceOf[float32](more, n*Stats), weights, others)
}

func joinStats[T float](stats, more []T, weights, others float64) {
	for i := 0; i < len(stats); i += Stats {
		a, b := stats[i:][:Stats], more[i:][:Stats]
		top := float64(max(a[StatMax], b[StatMax]))
		a[StatTarget] += b[StatTarget]
		a[StatSumExp] = T(shiftedExp(a, top) + shiftedExp(b, top))
		a[StatSum] = T(shiftedDot(a, weights, top) + shiftedDot(b, others, top))
		a[StatMax] = T(top)
	}
}

// shiftedExp is Σ exp(x - top) of a part.
func shiftedExp[T float](s []T, top float64) float64 {
	if sum := float64(s[StatSumExp]); sum == 0 || float64(s[StatMax]) == top {
		return sum
	}
	return float64(s[StatSumExp]) * math.Exp(float64(s[StatMax])-top)
}

// shiftedDot is Σ w·(x - top) of a part whose weights add up to total.
func shiftedDot[T float](s []T, total, top float64) float64 {
	if total == 0 {
		return float64(s[StatSum])
	}
	return float64(s[StatSum]) + total*(float64(statShift(s[StatMax]))-statShift(top))
}

// CrossEntropyGrad computes the gradient of the logits; see the function of that
// name. dst may be logits, weight may be nil.
func (c *CPU) CrossEntropyGrad(to DType, dst unsafe.Pointer, dt DType, logits unsafe.Pointer, it DType, target, lse, coef, weight unsafe.Pointer, n, classes, lo int) {
	if to == BFloat16 {
		c.narrowGrad(dst, dt, logits, it, target, lse, coef, weight, n, classes, lo)
		return
	}
	t := indices(it, target, n)
	if dt == Float64 {
		xentGrad(sliceOf[float64](dst, n*classes), sliceOf[float64](logits, n*classes), &t, sliceOf[float64](lse, n), sliceOf[float64](coef, n*3), optional[float64](weight, classes), classes, lo, scaledExp[float64], nil)
		return
	}
	d, x := sliceOf[float32](dst, n*classes), sliceOf[float32](logits, n*classes)
	var past func(dst, x []float32, shift, scale float32)
	l := simd.Writing(d, x)
	if l == simd.AVX512Past {
		past = l.ScaledExp
	}
	xentGrad(d, x, &t, sliceOf[float32](lse, n), sliceOf[float32](coef, n*3), optional[float32](weight, classes), classes, lo, simd.Best().ScaledExp, past)
}

// narrowGrad is CrossEntropyGrad to bfloat16, from bfloat16 or float32: some rows at a
// time by way of float32.
func (c *CPU) narrowGrad(dst unsafe.Pointer, dt DType, logits unsafe.Pointer, it DType, target, lse, coef, weight unsafe.Pointer, n, classes, lo int) {
	size := Float32.Size()
	grad := func(x, wide unsafe.Pointer, at, k int) {
		c.CrossEntropyGrad(Float32, wide, Float32, x, it, unsafe.Add(target, at*it.Size()), unsafe.Add(lse, at*size), unsafe.Add(coef, 3*at*size), weight, k, classes, lo)
		simd.ToBF16(sliceOf[BF16](unsafe.Add(dst, at*classes*BFloat16.Size()), k*classes), sliceOf[float32](wide, k*classes))
	}
	if dt == BFloat16 {
		c.widenLogits(logits, n, classes, func(x unsafe.Pointer, at, k int) { grad(x, x, at, k) })
		return
	}
	c.byRows(n, classes, func(room unsafe.Pointer, at, k int) { grad(unsafe.Add(logits, at*classes*size), room, at, k) })
}

// widenedLogits bounds how many bfloat16 logits are widened at a time: 256 KiB of
// float32, or one row.
const widenedLogits = 64 << 10

// widenLogits calls f with the float32 values of rows at to at+k of bfloat16 logits
// [n, classes], until all have been passed. f may overwrite them.
func (c *CPU) widenLogits(logits unsafe.Pointer, n, classes int, f func(x unsafe.Pointer, at, k int)) {
	c.byRows(n, classes, func(x unsafe.Pointer, at, k int) {
		simd.FromBF16(sliceOf[float32](x, k*classes), sliceOf[BF16](unsafe.Add(logits, at*classes*BFloat16.Size()), k*classes))
		f(x, at, k)
	})
}

// byRows calls f for rows at to at+k of [n, classes], with room for them as float32,
// until all have been passed.
func (c *CPU) byRows(n, classes int, f func(room unsafe.Pointer, at, k int)) {
	rows := max(1, widenedLogits/max(classes, 1))
	buf := c.Scratch(max(1, min(rows, n)*classes) * Float32.Size())
	defer buf.Free()
	for at := 0; at < n; at += rows {
		f(buf.Block.Ptr(), at, min(rows, n-at))
	}
}

// xentTile is how many classes are computed before the smoothing is taken off,
// while they are in the first cache.
const xentTile = 4096

// xentAhead is from how many bytes on a gradient of its own is copied to its place from
// there: the copy asks ahead for what it overwrites.
const xentAhead = 4 << 20

// xentGrad computes with scaledExp, or, where nothing is taken off, with past if that is
// not nil.
func xentGrad[T float](dst, logits []T, target *indexList, lse, coef, weight []T, classes, lo int, scaledExp, past func(dst, x []T, shift, scale T)) {
	ahead := len(dst)*int(unsafe.Sizeof(*new(T))) >= xentAhead && unsafe.SliceData(dst) != unsafe.SliceData(logits)
	parallel(len(lse), classes*8, 1, func(from, to int) {
		if past != nil {
			defer simd.AVX512Past.Done()
		}
		var near [xentTile]T
		for r := from; r < to; r++ {
			d, x := dst[r*classes:(r+1)*classes], logits[r*classes:(r+1)*classes]
			a, b, s := coef[3*r], coef[3*r+1], coef[3*r+2]
			if a == 0 && b == 0 && s == 0 {
				clear(d)
				continue
			}
			hit := target.at(r) - lo
			if past != nil && s == 0 {
				past(d, x, lse[r], a)
				if hit >= 0 && hit < classes {
					d[hit] -= b
				}
				continue
			}
			for i := 0; i < classes; i += xentTile {
				end := min(i+xentTile, classes)
				tile := d[i:end]
				if ahead {
					tile = near[:end-i]
				}
				scaledExp(tile, x[i:end], lse[r], a)
				switch {
				case s != 0 && weight != nil:
					simd.Axpy(tile, -s, weight[i:end])
				case s != 0:
					simd.AddScalar(tile, tile, -s)
				}
				if hit >= i && hit < end {
					tile[hit-i] -= b
				}
				if ahead {
					simd.CopyAhead(d[i:end], tile)
				}
			}
		}
	})
}

// scaledExp is the definition of simd.ScaledExp.
func scaledExp[T float](dst, x []T, shift, scale T) {
	for i, v := range x {
		dst[i] = T(float64(scale) * math.Exp(float64(v)-float64(shift)))
	}
}
