package loss

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// hardStats returns the statistics [positions, 4] of the local classes for
// targets that are classes, node after node; with smoothing they are those of softStats.
func hardStats[T dtype.Float](j *job) *tensor.Tensor { return smoothed[T](j, classStats(j)) }

// smoothed returns the statistics of hardStats from those of classStats, which it frees
// unless it returns them. Those of leaves are added up.
func smoothed[T dtype.Float](j *job, stats *tensor.Tensor) *tensor.Tensor {
	eps, leaves := j.o.LabelSmoothing, j.leaves()
	if eps == 0 && leaves == 1 {
		return stats
	}
	defer stats.Free()
	flat, n := tensor.ToSlice[T](stats), j.n/leaves
	for leaf := range leaves {
		if eps == 0 {
			break
		}
		lo := j.lo + leaf*n
		share, total := eps/float64(j.classes), j.weightOf(lo, n)
		for i := range j.rows {
			s, r := flat[(i*leaves+leaf)*kernel.Stats:][:kernel.Stats], &j.rows[i]
			dot, weight := share*float64(s[kernel.StatSum]), share*total
			if k := int(r.label) - lo; r.use && k >= 0 && k < n && eps < 1 {
				b := (1 - eps) * j.labelWeight(r)
				dot += b * (float64(s[kernel.StatTarget]) - from(float64(s[kernel.StatMax])))
				weight += b
			}
			s[kernel.StatTarget], s[kernel.StatSum] = T(dot), T(weight)
		}
	}
	nodes, first := make([]T, 0, len(j.mine)*len(j.rows)*kernel.Stats), 0
	for _, n := range j.mine {
		for i := range j.rows {
			s := joined(flat[(i*leaves+first)*kernel.Stats:], n, kernel.Stats)
			nodes = append(nodes, s.Max, s.Sum, s.Target, s.All)
		}
		first += n
	}
	return tensor.FromSlice(j.y.Device(), nodes, len(j.mine)*j.positions(), kernel.Stats)
}

// leaves returns how many leaves the local classes are.
func (p *sharding) leaves() int {
	if p.leaf == 0 {
		return 1
	}
	return max(1, p.n/p.leaf)
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

// classStats returns the statistics of tensor.CrossEntropyStats, for each position those of
// all leaves.
func classStats(j *job) *tensor.Tensor {
	y, leaves := j.y.Reshape(j.positions()), j.leaves()
	if j.inner == 1 {
		return j.leafStats(j.x.Reshape(j.outer, j.n), y)
	}
	stats := tensor.New(j.x.Device(), j.wide, j.positions()*leaves, kernel.Stats)
	j.tiles(false, func(at, k int) {
		x := j.read(j.x, at, k)
		its := j.leafStats(x, tensor.Narrow(y, 0, at, k))
		tensor.Copy(tensor.Narrow(stats, 0, at*leaves, k*leaves), its)
		its.Free()
		j.done(x)
	})
	return stats
}

// leafStats is classStats of some positions: x are their logits [positions, n].
func (j *job) leafStats(x, y *tensor.Tensor) *tensor.Tensor {
	sums, leaves := j.o.LabelSmoothing > 0, j.leaves()
	if leaves == 1 {
		return tensor.CrossEntropyStats(x, y, j.lo, j.weight, sums)
	}
	size := j.n / leaves // a leaf is a row of its own, whose targets are counted from its first class
	targets := make([]int64, 0, y.Numel()*leaves)
	for _, label := range integers(y) {
		for leaf := range leaves {
			targets = append(targets, label-int64(j.lo+leaf*size))
		}
	}
	of := tensor.FromSlice(x.Device(), targets, len(targets))
	defer of.Free()
	return tensor.CrossEntropyStats(x.Reshape(len(targets), size), of, 0, nil, sums)
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
