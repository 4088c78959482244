package loss

import "github.com/gorun-spmd/gorun/tensor"

// softStats returns the statistics [positions, 4] of the local classes for
// targets that are class probabilities: the largest logit, the sum of
// exponentials, Σ q·x and Σ q, with q = w·((1-ε)·p + ε/C).
func softStats[T float](j *job) *tensor.Tensor {
	stats := make([]T, j.positions()*tensor.Stats)
	j.tiles(true, func(at, k int) {
		x := j.read(j.x, at, k)
		nobody := tensor.Full(x.Device(), tensor.Int32, -1, k)
		its := tensor.CrossEntropyStats(x, nobody, 0, nil, false)
		copy(stats[at*tensor.Stats:], tensor.ToSlice[T](its))
		q := j.shares(at, k)
		sums := tensor.Sum(q, []int{1}, false)
		product := tensor.Mul(q, x)
		dots := tensor.Sum(product, []int{1}, false)
		for i, v := range tensor.ToSlice[T](dots) {
			stats[(at+i)*tensor.Stats+tensor.StatTarget] = v
		}
		for i, v := range tensor.ToSlice[T](sums) {
			stats[(at+i)*tensor.Stats+tensor.StatSum] = v
		}
		for _, t := range []*tensor.Tensor{nobody, its, q, sums, product, dots} {
			t.Free()
		}
		j.done(x)
	})
	return tensor.FromSlice(j.x.Device(), stats, j.positions(), tensor.Stats)
}

// shares returns q for k positions, [k, n], in memory of its own.
func (j *job) shares(at, k int) *tensor.Tensor {
	p := j.read(j.y, at, k)
	eps := j.o.LabelSmoothing
	q := tensor.MulScalar(p, 1-eps)
	j.done(p)
	if eps > 0 {
		smooth := tensor.AddScalar(q, eps/float64(j.classes))
		q.Free()
		q = smooth
	}
	if j.weight != nil {
		tensor.BinaryTo(q, tensor.OpMul, q, j.weight)
	}
	return q
}

// softGrad fills dx for targets that are class probabilities: what coef says,
// less q times the gradient of the row's loss, scale [positions, 1].
func softGrad(j *job, dx, shift, coef, scale *tensor.Tensor) {
	j.tiles(true, func(at, k int) {
		x := j.read(j.x, at, k)
		dst := x
		if j.inner == 1 {
			dst = j.read(dx, at, k)
		}
		nobody := tensor.Full(x.Device(), tensor.Int32, -1, k)
		tensor.CrossEntropyGrad(dst, x, nobody, 0, tensor.Narrow(shift, 0, at, k), tensor.Narrow(coef, 0, at, k), nil)
		q := j.shares(at, k)
		tensor.BinaryTo(q, tensor.OpMul, q, tensor.Narrow(scale, 0, at, k))
		tensor.BinaryTo(dst, tensor.OpSub, dst, q)
		j.write(dx, dst, at, k)
		nobody.Free()
		q.Free()
		j.done(x)
	})
}
