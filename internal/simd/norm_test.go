package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// normalized is LayerNormRow and its gradient in float64; rms leaves the mean
// out, a nil weight or bias is ones or zeros.
func normalized(x, dy, weight, bias []float32, eps float64, rms bool) (y, dx, dweight []float64) {
	n := float64(len(x))
	var mean, variance float64
	for _, v := range x {
		mean += float64(v) / n
	}
	if rms {
		mean = 0
	}
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean) / n
	}
	rstd := 1 / math.Sqrt(variance+eps)
	w := func(i int) float64 {
		if weight == nil {
			return 1
		}
		return float64(weight[i])
	}
	var meanG, meanGH float64
	for i, v := range x {
		h, g := (float64(v)-mean)*rstd, float64(dy[i])*w(i)
		meanG, meanGH = meanG+g/n, meanGH+g*h/n
	}
	if rms {
		meanG = 0
	}
	for i, v := range x {
		h, g := (float64(v)-mean)*rstd, float64(dy[i])*w(i)
		b := 0.0
		if bias != nil {
			b = float64(bias[i])
		}
		y = append(y, h*w(i)+b)
		dx = append(dx, rstd*(g-meanG-h*meanGH))
		dweight = append(dweight, float64(dy[i])*h)
	}
	return y, dx, dweight
}

// farFromZero normalizes rows whose mean is 10⁵ times their deviation and no float32,
// some after an element that is far from the others.
func farFromZero(t *testing.T, r *rand.Rand) {
	for _, n := range []int{2, 33, 768, 3 * piece} {
		for _, first := range []float32{0, 3e3} {
			x, dy := normals(r, n, 1), normals(r, n, 1)
			for i := range x {
				x[i] += 1e5
			}
			x[0] += first
			y, dx, dweight := make([]float32, n), make([]float32, n), make([]float32, n)
			mean, rstd := ordinary.LayerNormRow(y, x, nil, nil, 0)
			ordinary.LayerNormGradRow(dx, dweight, nil, x, dy, nil, mean, rstd)
			wantY, wantDx, wantDw := normalized(x, dy, nil, nil, 0, false)
			for i := range x {
				tolerance := 1e-5 * (1 + math.Abs(wantY[i]))
				if !near(float64(y[i]), wantY[i], tolerance) || !near(float64(dx[i]), wantDx[i], rstd*tolerance) ||
					!near(float64(dweight[i]), wantDw[i], tolerance*(1+math.Abs(float64(dy[i])))) {
					t.Fatalf("%v: %d elements around 10⁵, the first %v more, element %d: y %v dx %v dweight %v, want %v %v %v",
						best, n, first, i, y[i], dx[i], dweight[i], wantY[i], wantDx[i], wantDw[i])
				}
			}
		}
	}
}

func TestNorms(t *testing.T) {
	for _, l := range modes() {
		defer func(was Mode) { ordinary = was }(ordinary)
		ordinary = l
		r := rand.New(rand.NewPCG(12, uint64(l.code())))
		for _, n := range lengths()[1:] {
			for _, with := range []struct{ weight, bias, gradients, rms bool }{
				{true, true, true, false}, {false, false, false, false}, {true, false, true, false}, {false, true, true, false},
				{true, false, true, true}, {false, false, false, true},
			} {
				x, dy := normals(r, n, 2), normals(r, n, 1)
				for i := range x {
					x[i] += 5 // a mean larger than the deviation
				}
				var weight, bias, dweight, dbias []float32
				if with.weight {
					weight = normals(r, n, 1)
				}
				if with.bias {
					bias = normals(r, n, 1)
				}
				if with.gradients {
					dweight, dbias = make([]float32, n), make([]float32, n)
					Fill(dweight, 10)
					Fill(dbias, 20)
				}
				const eps = 1e-2
				y, dx := make([]float32, n), make([]float32, n)
				if with.rms {
					rstd := ordinary.RMSNormRow(y, x, weight, eps)
					ordinary.RMSNormGradRow(dx, dweight, x, dy, weight, rstd)
				} else {
					mean, rstd := ordinary.LayerNormRow(y, x, weight, bias, eps)
					ordinary.LayerNormGradRow(dx, dweight, dbias, x, dy, weight, mean, rstd)
				}
				wantY, wantDx, wantDw := normalized(x, dy, weight, bias, eps, with.rms)
				for i := range x {
					// with eps 0.01, rstd ≤ 10 and x is off by 6e-7, h by 1e-5 at most
					tolerance := 1e-4
					ok := near(float64(y[i]), wantY[i], tolerance) && near(float64(dx[i]), wantDx[i], 10*tolerance)
					if with.gradients {
						ok = ok && near(float64(dweight[i]), 10+wantDw[i], tolerance)
						ok = ok && (with.rms || near(float64(dbias[i]), 20+float64(dy[i]), tolerance))
					}
					if !ok {
						t.Fatalf("%v: %d elements, %+v, element %d: y %v dx %v, want %v %v", l, n, with, i, y[i], dx[i], wantY[i], wantDx[i])
					}
				}
			}
		}
		farFromZero(t, r)
		// The variance of numbers that are close together but far from 0.
		x := make([]float32, 1000)
		for i := range x {
			x[i] = 10000 + float32(i%2)
		}
		if mean, variance := Moments(x); mean != 10000.5 || variance != 0.25 {
			t.Errorf("%v: mean %v, variance %v, want 10000.5, 0.25", l, mean, variance)
		}
	}
	if mean, variance := Moments(nil); mean != 0 || variance != 0 {
		t.Errorf("moments of nothing: %v, %v", mean, variance)
	}
}
