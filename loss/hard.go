package loss

import "github.com/gorun-spmd/gorun/tensor"

// hardStats returns the statistics [positions, 4] of the local classes for
// targets that are classes.
func hardStats(j *job) *tensor.Tensor {
	sums := j.o.LabelSmoothing > 0
	y := j.y.Reshape(j.positions())
	if j.inner == 1 {
		return tensor.CrossEntropyStats(j.x.Reshape(j.outer, j.n), y, j.lo, j.weight, sums)
	}
	stats := tensor.New(j.x.Device(), j.dtype, j.positions(), tensor.Stats)
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
