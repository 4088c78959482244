package loss

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// softStats returns the statistics [positions, 4] of the local classes for
// targets that are class probabilities: the largest logit, the sum of
// exponentials, Σ q·(x - max) and Σ q, with q = w·((1-ε)·p + ε/C) the share of each
// class in the target. Counted from the largest logit, the loss Σ q·(lse - x) is
// Σ q·ln Σ exp(x - max) - Σ q·(x - max), and no large numbers cancel.
func softStats[T dtype.Float](j *job) *tensor.Tensor {
	stats := make([]T, j.positions()*kernel.Stats)
	j.tiles(true, func(at, k int) {
		x, free := j.widened(j.x, at, k)
		defer free()
		nobody := tensor.Full(x.Device(), tensor.Int32, -1, k)
		its := tensor.CrossEntropyStats(x, nobody, 0, nil, false)
		copy(stats[at*kernel.Stats:], tensor.ToSlice[T](its))
		tops := make([]T, k)
		for i := range tops {
			tops[i] = from(stats[(at+i)*kernel.Stats+kernel.StatMax])
		}
		top := tensor.FromSlice(x.Device(), tops, k, 1)
		q := j.shares(at, k)
		sums := tensor.Sum(q, []int{1}, false)
		product := tensor.Binary(kernel.OpSub, x, top)
		tensor.BinaryTo(product, kernel.OpMul, q, product)
		dots := tensor.Sum(product, []int{1}, false)
		for i, v := range tensor.ToSlice[T](dots) {
			stats[(at+i)*kernel.Stats+kernel.StatTarget] = v
		}
		for i, v := range tensor.ToSlice[T](sums) {
			stats[(at+i)*kernel.Stats+kernel.StatSum] = v
		}
		for _, t := range []*tensor.Tensor{nobody, its, q, top, sums, product, dots} {
			t.Free()
		}
	})
	return tensor.FromSlice(j.x.Device(), stats, j.positions(), kernel.Stats)
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
		tensor.BinaryTo(q, kernel.OpMul, q, j.weight)
	}
	return q
}

// softGrad fills dx for targets that are class probabilities: the gradient that coef
// gives, less q times the gradient of the row's loss, scale [positions, 1].
func softGrad(j *job, dx, shift, coef, scale *tensor.Tensor) {
	j.tiles(true, func(at, k int) {
		x, free := j.widened(j.x, at, k)
		defer free()
		dst := x // a copy, which can hold its own gradient
		if j.inner == 1 && j.dtype == j.wide {
			dst = j.read(dx, at, k)
		}
		nobody := tensor.Full(x.Device(), tensor.Int32, -1, k)
		tensor.CrossEntropyGrad(dst, x, nobody, 0, tensor.Narrow(shift, 0, at, k), tensor.Narrow(coef, 0, at, k), nil)
		q := j.shares(at, k)
		tensor.BinaryTo(q, kernel.OpMul, q, tensor.Narrow(scale, 0, at, k))
		tensor.BinaryTo(dst, kernel.OpSub, dst, q)
		if j.dtype != j.wide {
			dst = tensor.Cast(dst, j.dtype)
			defer dst.Free()
			if j.inner == 1 {
				tensor.Copy(j.read(dx, at, k), dst)
			}
		}
		j.write(dx, dst, at, k)
		nobody.Free()
		q.Free()
	})
}

// softTargetGrad returns the gradient of the local class probabilities,
//
//	(1-ε)·w[c]·(lse - x[c])
//
// times the gradient of the row's loss.
func softTargetGrad[T dtype.Float](j *job, gy *tensor.Tensor) *tensor.Tensor {
	dev, n := j.x.Device(), len(j.rows)
	factors, tops, logs := scales[T](j, gy), make([]T, n), make([]T, n)
	for i := range j.rows {
		factors[i] *= T(1 - j.o.LabelSmoothing)
		tops[i], logs[i] = T(j.rows[i].max), T(math.Log(j.rows[i].sum))
	}
	factor, top, log := tensor.FromSlice(dev, factors, n, 1), tensor.FromSlice(dev, tops, n, 1), tensor.FromSlice(dev, logs, n, 1)
	dp := tensor.NewLike(j.y)
	j.tiles(true, func(at, k int) {
		x, free := j.widened(j.x, at, k)
		defer free()
		d := tensor.Binary(kernel.OpSub, tensor.Narrow(top, 0, at, k), x)
		tensor.BinaryTo(d, kernel.OpAdd, d, tensor.Narrow(log, 0, at, k))
		tensor.BinaryTo(d, kernel.OpMul, d, tensor.Narrow(factor, 0, at, k))
		if j.weight != nil {
			tensor.BinaryTo(d, kernel.OpMul, d, j.weight)
		}
		if j.inner == 1 {
			tensor.Copy(j.read(dp, at, k), d)
		}
		j.write(dp, d, at, k)
		d.Free()
	})
	return dp
}
