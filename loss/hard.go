package loss

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// hardStats returns the statistics [positions, 4] of the local classes for
// targets that are classes; with smoothing they are those of softStats.
func hardStats[T dtype.Float](j *job) *tensor.Tensor { return smoothed[T](j, classStats(j)) }

// smoothed returns the statistics of hardStats from those of classStats, which it frees
// unless it returns them.
func smoothed[T dtype.Float](j *job, stats *tensor.Tensor) *tensor.Tensor {
	eps := j.o.LabelSmoothing
	if eps == 0 {
		return stats
	}
	defer stats.Free()
	share, total := eps/float64(j.classes), j.weightOf(j.lo, j.n)
	flat := tensor.ToSlice[T](stats)
	for i := range j.rows {
		s, r := flat[i*kernel.Stats:][:kernel.Stats], &j.rows[i]
		dot, weight := share*float64(s[kernel.StatSum]), share*total
		if k := int(r.label) - j.lo; r.use && k >= 0 && k < j.n && eps < 1 {
			b := (1 - eps) * j.labelWeight(r)
			dot += b * (float64(s[kernel.StatTarget]) - from(float64(s[kernel.StatMax])))
			weight += b
		}
		s[kernel.StatTarget], s[kernel.StatSum] = T(dot), T(weight)
	}
	return tensor.FromSlice(j.y.Device(), flat, j.positions(), kernel.Stats)
}

// weightOf returns the sum of the weights of n classes from lo on.
func (j *job) weightOf(lo, n int) (total float64) {
	if j.weights == nil {
		return float64(n)
	}
	for _, w := range j.weights[lo : lo+n] {
		total += w
	}
	return total
}

// from returns the number that sums subtract from the logits: the largest logit, 0 if that
// is -Inf.
func from[T dtype.Float](top T) T {
	if math.IsInf(float64(top), -1) {
		return 0
	}
	return top
}

// classStats returns the statistics of tensor.CrossEntropyStats.
func classStats(j *job) *tensor.Tensor {
	sums := j.o.LabelSmoothing > 0
	y := j.y.Reshape(j.positions())
	if j.inner == 1 {
		return tensor.CrossEntropyStats(j.x.Reshape(j.outer, j.n), y, j.lo, j.weight, sums)
	}
	stats := tensor.New(j.x.Device(), j.wide, j.positions(), kernel.Stats)
	j.tiles(false, func(at, k int) {
		x := j.read(j.x, at, k)
		its := tensor.CrossEntropyStats(x, tensor.Narrow(y, 0, at, k), j.lo, j.weight, sums)
		tensor.Copy(tensor.Narrow(stats, 0, at, k), its)
		its.Free()
		j.done(x)
	})
	return stats
}

// hardGrad fills dx for targets that are classes.
func hardGrad(j *job, dx, shift, coef *tensor.Tensor) {
	y := j.y.Reshape(j.positions())
	j.tiles(false, func(at, k int) {
		x := j.read(j.x, at, k)
		dst := x // a copy, which can hold its own gradient
		if j.inner == 1 {
			dst = j.read(dx, at, k)
		}
		tensor.CrossEntropyGrad(dst, x, tensor.Narrow(y, 0, at, k), j.lo, tensor.Narrow(shift, 0, at, k), tensor.Narrow(coef, 0, at, k), j.weight)
		j.write(dx, dst, at, k)
		j.done(x)
	})
}
