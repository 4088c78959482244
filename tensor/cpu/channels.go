package cpu

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// eachChannel calls f for each channel of n; plane returns what p has of it in an image.
func eachChannel(n *kernel.ChannelNorm, f func(channel int, plane func(p unsafe.Pointer, image int) []float32)) {
	parallel(n.Channels, n.Batch*n.Positions, 1, func(lo, hi int) {
		for c := lo; c < hi; c++ {
			f(c, func(p unsafe.Pointer, image int) []float32 {
				return sliceOf[float32](p, n.Batch*n.Channels*n.Positions)[(image*n.Channels+c)*n.Positions:][:n.Positions]
			})
		}
	})
}

// ChannelMoments computes Sums from those of each plane (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances", 1979).
func (c *Kernels) ChannelMoments(n kernel.ChannelNorm) {
	sums := sliceOf[float64](n.Sums, 2*n.Channels)
	eachChannel(&n, func(channel int, plane func(unsafe.Pointer, int) []float32) {
		mean, squares := 0.0, 0.0
		for b := range n.Batch {
			its, variance := simd.Moments(plane(n.X, b))
			off := its - mean
			mean += off / float64(b+1)
			squares += float64(n.Positions) * (variance + off*off*float64(b)/float64(b+1))
		}
		sums[channel], sums[n.Channels+channel] = mean, squares
	})
}

// ChannelNorm computes Y.
func (c *Kernels) ChannelNorm(n kernel.ChannelNorm) {
	mean, rstd := sliceOf[float64](n.Mean, n.Channels), sliceOf[float64](n.Rstd, n.Channels)
	weight, bias := sliceOf[float32](n.Weight, n.Channels), sliceOf[float32](n.Bias, n.Channels)
	m := simd.Moving(2 * 4 * n.Batch * n.Channels * n.Positions) // bytes read and written
	eachChannel(&n, func(channel int, plane func(unsafe.Pointer, int) []float32) {
		defer m.Done()
		for b := range n.Batch {
			m.NormalizeBy(plane(n.Y, b), plane(n.X, b), mean[channel], rstd[channel]*float64(weight[channel]), float64(bias[channel]))
		}
	})
}

// ChannelNormSums computes Sums.
func (c *Kernels) ChannelNormSums(n kernel.ChannelNorm) {
	mean, rstd := sliceOf[float64](n.Mean, n.Channels), sliceOf[float64](n.Rstd, n.Channels)
	sums := sliceOf[float64](n.Sums, 2*n.Channels)
	eachChannel(&n, func(channel int, plane func(unsafe.Pointer, int) []float32) {
		sum, sumH := 0.0, 0.0
		for b := range n.Batch {
			its, itsH := simd.NormalizeSums(plane(n.X, b), plane(n.DY, b), mean[channel], rstd[channel])
			sum, sumH = sum+float64(its), sumH+float64(itsH)
		}
		sums[channel], sums[n.Channels+channel] = sum, sumH
	})
}

// ChannelNormGrad computes DX.
func (c *Kernels) ChannelNormGrad(n kernel.ChannelNorm) {
	mean, rstd := sliceOf[float64](n.Mean, n.Channels), sliceOf[float64](n.Rstd, n.Channels)
	sums, weight := sliceOf[float64](n.Sums, 2*n.Channels), sliceOf[float32](n.Weight, n.Channels)
	eachChannel(&n, func(channel int, plane func(unsafe.Pointer, int) []float32) {
		var meanDY, meanDYH float32
		if n.N > 0 {
			meanDY, meanDYH = float32(sums[channel]/n.N), float32(sums[n.Channels+channel]/n.N)
		}
		for b := range n.Batch {
			dx := plane(n.DX, b)
			simd.Ordinary().NormalizeGrad(dx, plane(n.X, b), plane(n.DY, b), mean[channel], rstd[channel], meanDY, meanDYH)
			simd.Scale(dx, dx, weight[channel])
		}
	})
}
