package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestChannelNorm(t *testing.T) {
	dev, rng := NewCPU(nil), rand.New(rand.NewPCG(8, 9))
	for _, s := range [][3]int{{3, 4, 60}, {1, 1, 1}, {0, 2, 5}, {2, 3, 3000}, {2, 0, 4}} {
		b, c, n := s[0], s[1], s[2]
		at := func(i, k, p int) int { return (i*c+k)*n + p }
		normal := func(count int, mean float64) []float32 {
			list := make([]float32, count)
			for i := range list {
				list[i] = float32(mean + rng.NormFloat64())
			}
			return list
		}
		x, dy, weight, bias := normal(b*c*n, 50), normal(b*c*n, 0), normal(c, 0), normal(c, 0)
		mean, rstd, square := make([]float64, c), make([]float64, c), make([]float64, c)
		sum, sumH := make([]float64, c), make([]float64, c)
		each := func(k int, f func(at int)) {
			for i := range b {
				for p := range n {
					f(at(i, k, p))
				}
			}
		}
		for k := range c {
			each(k, func(i int) { mean[k] += float64(x[i]) / float64(b*n) })
			each(k, func(i int) { square[k] += (float64(x[i]) - mean[k]) * (float64(x[i]) - mean[k]) })
			rstd[k] = 0.5 + rng.Float64()
			each(k, func(i int) {
				sum[k] += float64(dy[i])
				sumH[k] += float64(dy[i]) * (float64(x[i]) - mean[k]) * rstd[k]
			})
		}
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
				t.Fatalf("%v: %s is %v, want %v", s, what, got, want)
			}
		}
		images := FromSlice(dev, x, b, c, n)
		slopes := FromSlice(dev, dy, b, c, n)
		moments := ToSlice[float64](ChannelMoments(images))
		for k := range c {
			near("a mean", moments[k], mean[k])
			near("a sum of squares", moments[c+k], square[k])
		}
		for _, over := range []float64{0, float64(b*n) + 1} {
			v := ChannelNorm{Mean: FromSlice(dev, mean, c), Rstd: FromSlice(dev, rstd, c), Weight: FromSlice(dev, weight, c),
				Bias: FromSlice(dev, bias, c), N: over}
			y, sums := ToSlice[float32](v.Forward(images)), v.Sums(slopes, images)
			dx := ToSlice[float32](v.Grad(slopes, images, sums))
			for k := range c {
				near("Σ dy", ToSlice[float64](sums)[k], sum[k])
				near("Σ dy·h", ToSlice[float64](sums)[c+k], sumH[k])
				each(k, func(i int) {
					h, g := (float64(x[i])-mean[k])*rstd[k], float64(dy[i])
					near("y", float64(y[i]), h*float64(weight[k])+float64(bias[k]))
					if over > 0 {
						g -= sum[k]/over + h*sumH[k]/over
					}
					near("dx", float64(dx[i]), float64(weight[k])*rstd[k]*g)
				})
			}
		}
	}
}
