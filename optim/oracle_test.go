package optim_test

import (
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

var (
	replicate = layout.Replicate()
	rowWise   = layout.Shard(0)
	colWise   = layout.Shard(1)
)

// spread places global values of type dt, in memory of their own.
func spread(m *dtensor.Mesh, dt tensor.DType, values []float64, shape []int, places ...layout.Placement) *dtensor.Tensor {
	whole := tensor.Cast(tensor.FromSlice(m.Device(), values, shape...), dt)
	t := dtensor.Distribute(m, whole, places...)
	return m.Wrap("spread", tensor.Clone(t.Local()), nil, false, shape, places...)
}

// rowsOf makes the row-sparse gradient of p, [V, D], whose row i is that of the
// dense values, for the given global rows.
func rowsOf(p *dtensor.Tensor, values []float64, rows []int) dtensor.Grad {
	offset, _ := p.Offset()
	local, width := p.Local().Shape(), p.Dim(1)
	var index []int64
	var data []float64
	for _, r := range rows {
		if r >= offset[0] && r < offset[0]+local[0] {
			index = append(index, int64(r))
			data = append(data, values[r*width+offset[1]:r*width+offset[1]+local[1]]...)
		}
	}
	dev := p.Mesh().Device()
	return dtensor.Sparse(dtensor.NewRows(p, tensor.FromSlice(dev, index, len(index)),
		tensor.Cast(tensor.FromSlice(dev, data, len(index), local[1]), p.DType())))
}

// An oracle makes step t, from 1, of an optimizer on a whole parameter p of
// rows of width elements. rows are those that the gradient has; nil: all.
type oracle func(p, g []float64, width int, rows []int, t int, lr float64)

// has reports whether row is in rows.
func has(rows []int, row int) bool {
	for _, r := range rows {
		if r == row {
			return true
		}
	}
	return rows == nil
}

func sgdOracle(momentum, dampening, decay float64, nesterov bool) oracle {
	var buf []float64
	return func(p, g []float64, width int, rows []int, t int, lr float64) {
		first := buf == nil
		if first {
			buf = make([]float64, len(p))
		}
		for i := range p {
			d := 0.0
			if has(rows, i/width) {
				d = g[i]
			}
			d += decay * p[i]
			if momentum != 0 {
				if first {
					buf[i] = d
				} else {
					buf[i] = momentum*buf[i] + (1-dampening)*d
				}
				if nesterov {
					d += momentum * buf[i]
				} else {
					d = buf[i]
				}
			}
			p[i] -= lr * d
		}
	}
}

func adamwOracle(b1, b2, eps, decay float64) oracle { return adamOracle(b1, b2, eps, decay, 0) }

// adamOracle is Adam with a decoupled decay, and with a share l2 of the parameter in its
// gradient.
func adamOracle(b1, b2, eps, decay, l2 float64) oracle {
	var m, v []float64
	return func(p, g []float64, width int, rows []int, t int, lr float64) {
		if m == nil {
			m, v = make([]float64, len(p)), make([]float64, len(p))
		}
		for i := range p {
			d := 0.0
			if has(rows, i/width) {
				d = g[i]
			}
			d += l2 * p[i]
			p[i] *= 1 - lr*decay
			m[i] = b1*m[i] + (1-b1)*d
			v[i] = b2*v[i] + (1-b2)*d*d
			mHat, vHat := m[i]/(1-math.Pow(b1, float64(t))), v[i]/(1-math.Pow(b2, float64(t)))
			p[i] -= lr * mHat / (math.Sqrt(vHat) + eps)
		}
	}
}

func sparseAdamOracle(b1, b2, eps, decay float64) oracle {
	var m, v []float64
	return func(p, g []float64, width int, rows []int, t int, lr float64) {
		if m == nil {
			m, v = make([]float64, len(p)), make([]float64, len(p))
		}
		step := lr * math.Sqrt(1-math.Pow(b2, float64(t))) / (1 - math.Pow(b1, float64(t)))
		for i := range p {
			if !has(rows, i/width) {
				continue
			}
			m[i] += (1 - b1) * (g[i] - m[i])
			v[i] += (1 - b2) * (g[i]*g[i] - v[i])
			p[i] -= lr*decay*p[i] + step*m[i]/(math.Sqrt(v[i])+eps)
		}
	}
}

func rowAdagradOracle(eps, decay float64) oracle {
	var sum []float64
	return func(p, g []float64, width int, rows []int, t int, lr float64) {
		if sum == nil {
			sum = make([]float64, len(p)/width)
		}
		for r := range sum {
			if !has(rows, r) {
				continue
			}
			own := make([]float64, width)
			for i := range own {
				own[i] = g[r*width+i] + decay*p[r*width+i]
				sum[r] += own[i] * own[i] / float64(width)
			}
			for i, v := range own {
				p[r*width+i] -= lr * v / (math.Sqrt(sum[r]) + eps)
			}
		}
	}
}

// elementwise makes an oracle of a loop over elements: f changes p[i] given d, its
// gradient, and k numbers that it remembers of it.
func elementwise(k int, f func(p *float64, d float64, s []float64, t int, lr float64)) oracle {
	var state []float64
	return func(p, g []float64, width int, rows []int, t int, lr float64) {
		if state == nil {
			state = make([]float64, k*len(p))
		}
		for i := range p {
			d := 0.0
			if has(rows, i/width) {
				d = g[i]
			}
			f(&p[i], d, state[i*k:(i+1)*k], t, lr)
		}
	}
}

func amsgradOracle(b1, b2, eps, decay, l2 float64) oracle {
	return elementwise(3, func(p *float64, d float64, s []float64, t int, lr float64) {
		d += l2 * *p
		*p *= 1 - lr*decay
		s[0], s[1] = b1*s[0]+(1-b1)*d, b2*s[1]+(1-b2)*d*d
		s[2] = max(s[2], s[1])
		*p -= lr / (1 - math.Pow(b1, float64(t))) * s[0] / (math.Sqrt(s[2]/(1-math.Pow(b2, float64(t)))) + eps)
	})
}

func adagradOracle(eps, initial, rateDecay, decay float64) oracle {
	return elementwise(1, func(p *float64, d float64, s []float64, t int, lr float64) {
		if t == 1 {
			s[0] = initial
		}
		d += decay * *p
		s[0] += d * d
		*p -= lr / (1 + float64(t-1)*rateDecay) * d / (math.Sqrt(s[0]) + eps)
	})
}

func rmspropOracle(alpha, eps, momentum, decay float64, centered bool) oracle {
	return elementwise(3, func(p *float64, d float64, s []float64, t int, lr float64) {
		d += decay * *p
		s[0], s[1] = alpha*s[0]+(1-alpha)*d*d, alpha*s[1]+(1-alpha)*d
		v := s[0]
		if centered {
			v -= s[1] * s[1]
		}
		s[2] = momentum*s[2] + d/(math.Sqrt(v)+eps)
		*p -= lr * s[2]
	})
}

func adadeltaOracle(rho, eps, decay float64) oracle {
	return elementwise(2, func(p *float64, d float64, s []float64, t int, lr float64) {
		d += decay * *p
		s[0] = rho*s[0] + (1-rho)*d*d
		move := math.Sqrt(s[1]+eps) / math.Sqrt(s[0]+eps) * d
		s[1] = rho*s[1] + (1-rho)*move*move
		*p -= lr * move
	})
}

func adamaxOracle(b1, b2, eps, decay float64) oracle {
	return elementwise(2, func(p *float64, d float64, s []float64, t int, lr float64) {
		d += decay * *p
		s[0], s[1] = b1*s[0]+(1-b1)*d, max(b2*s[1], math.Abs(d)+eps)
		*p -= lr / (1 - math.Pow(b1, float64(t))) * s[0] / s[1]
	})
}

func nadamOracle(b1, b2, eps, momentumDecay, l2, decay float64) oracle {
	momentum := func(t int) float64 { return b1 * (1 - math.Pow(0.96, float64(t)*momentumDecay)/2) }
	return elementwise(3, func(p *float64, d float64, s []float64, t int, lr float64) {
		*p *= 1 - lr*decay
		d += l2 * *p
		if t == 1 {
			s[2] = 1
		}
		s[2] *= momentum(t)
		s[0], s[1] = b1*s[0]+(1-b1)*d, b2*s[1]+(1-b2)*d*d
		root := math.Sqrt(s[1]/(1-math.Pow(b2, float64(t)))) + eps
		*p -= lr * (1 - momentum(t)) / (1 - s[2]) * d / root
		*p -= lr * momentum(t+1) / (1 - s[2]*momentum(t+1)) * s[0] / root
	})
}

func radamOracle(b1, b2, eps, l2, decay float64) oracle {
	return elementwise(2, func(p *float64, d float64, s []float64, t int, lr float64) {
		*p *= 1 - lr*decay
		d += l2 * *p
		s[0], s[1] = b1*s[0]+(1-b1)*d, b2*s[1]+(1-b2)*d*d
		mean, bias := s[0]/(1-math.Pow(b1, float64(t))), 1-math.Pow(b2, float64(t))
		most := 2/(1-b2) - 1
		now := most - 2*float64(t)*math.Pow(b2, float64(t))/bias
		if now > 5 {
			mean *= math.Sqrt((now-4)*(now-2)*most/((most-4)*(most-2)*now)) * math.Sqrt(bias) / (math.Sqrt(s[1]) + eps)
		}
		*p -= lr * mean
	})
}

// asgdOracle has the parameters alone, not their averages.
func asgdOracle(lambda, alpha, l2 float64) oracle {
	return elementwise(1, func(p *float64, d float64, s []float64, t int, lr float64) {
		rate := lr / math.Pow(1+lambda*lr*float64(t-1), alpha)
		d += l2 * *p
		*p -= lambda*rate**p + rate*d
	})
}

func rpropOracle(shrink, grow, least, most float64) oracle {
	return elementwise(2, func(p *float64, d float64, s []float64, t int, lr float64) {
		if t == 1 {
			s[0] = lr
		}
		switch {
		case d*s[1] > 0:
			s[0] *= grow
		case d*s[1] < 0:
			s[0] *= shrink
			d = 0
		}
		s[0], s[1] = min(max(s[0], least), most), d
		if d != 0 {
			*p -= math.Copysign(s[0], d)
		}
	})
}

func lionOracle(b1, b2, decay float64) oracle {
	return elementwise(1, func(p *float64, d float64, s []float64, t int, lr float64) {
		toward := b1*s[0] + (1-b1)*d
		*p *= 1 - lr*decay
		if toward != 0 {
			*p -= lr * math.Copysign(1, toward)
		}
		s[0] = b2*s[0] + (1-b2)*d
	})
}

func lambOracle(b1, b2, eps, decay float64) oracle {
	var m, v []float64
	return func(p, g []float64, width int, rows []int, t int, lr float64) {
		if m == nil {
			m, v = make([]float64, len(p)), make([]float64, len(p))
		}
		u := make([]float64, len(p))
		normP, normU := 0.0, 0.0
		for i := range p {
			d := 0.0
			if has(rows, i/width) {
				d = g[i]
			}
			m[i], v[i] = b1*m[i]+(1-b1)*d, b2*v[i]+(1-b2)*d*d
			u[i] = m[i]/(1-math.Pow(b1, float64(t)))/(math.Sqrt(v[i]/(1-math.Pow(b2, float64(t))))+eps) + decay*p[i]
			normP += p[i] * p[i]
			normU += u[i] * u[i]
		}
		ratio := 1.0
		if normP > 0 && normU > 0 {
			ratio = math.Sqrt(normP / normU)
		}
		for i := range p {
			p[i] -= lr * ratio * u[i]
		}
	}
}

// adafactorOracle takes rows of one element for a vector.
func adafactorOracle(decay float64) oracle {
	var row, column []float64
	return func(p, g []float64, width int, rows []int, t int, lr float64) {
		n := len(p) / width
		if row == nil {
			row, column = make([]float64, n), make([]float64, width)
		}
		share := math.Pow(float64(t), -0.8)
		d, rowNow, columnNow := make([]float64, len(p)), make([]float64, n), make([]float64, width)
		sumP := 0.0
		for i := range p {
			if has(rows, i/width) {
				d[i] = g[i]
			}
			rowNow[i/width] += d[i] * d[i] / float64(width)
			columnNow[i%width] += d[i] * d[i] / float64(n)
			sumP += p[i] * p[i]
		}
		mean := 0.0
		for r := range row {
			row[r] += share * (rowNow[r] - row[r])
			mean += row[r] / float64(n)
		}
		for c := range column {
			column[c] += share * (columnNow[c] - column[c])
		}
		u, sumU := make([]float64, len(p)), 0.0
		for i := range p {
			v := row[i/width] * column[i%width] / max(mean, 0x1p-23)
			if width == 1 {
				v = row[i]
			}
			u[i] = d[i] / math.Sqrt(max(v, 0x1p-46))
			sumU += u[i] * u[i]
		}
		count := float64(len(p))
		size := max(1e-3, math.Sqrt(sumP/count)) * min(lr, 1/math.Sqrt(float64(t))) / max(1, math.Sqrt(sumU/count))
		for i := range p {
			p[i] = p[i]*(1-lr*decay) - size*u[i]
		}
	}
}

// near compares the global tensor with what it should be.
func near(what string, t *dtensor.Tensor, want []float64, tol float64) error {
	return meshtest.Near(what, t.Full(), want, tol, tol)
}
