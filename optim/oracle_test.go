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

func sparseAdamOracle(b1, b2, eps float64) oracle {
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
			p[i] -= step * m[i] / (math.Sqrt(v[i]) + eps)
		}
	}
}

func rowAdagradOracle(eps float64) oracle {
	var sum []float64
	return func(p, g []float64, width int, rows []int, t int, lr float64) {
		if sum == nil {
			sum = make([]float64, len(p)/width)
		}
		for r := range sum {
			if !has(rows, r) {
				continue
			}
			for _, v := range g[r*width : (r+1)*width] {
				sum[r] += v * v / float64(width)
			}
			for i := r * width; i < (r+1)*width; i++ {
				p[i] -= lr * g[i] / (math.Sqrt(sum[r]) + eps)
			}
		}
	}
}

// near compares the global tensor with what it should be.
func near(what string, t *dtensor.Tensor, want []float64, tol float64) error {
	return meshtest.Near(what, t.Full(), want, tol, tol)
}
