package main

import "math"

// A logistic is a logistic regression: logit = bias + Σ weights·x.
type logistic struct {
	bias    float64
	weights []float64
}

// fitLogistic fits a logistic regression to rows of width numbers by Newton's method,
// with a small penalty so that it has one answer.
func fitLogistic(x []float32, width int, labels []float32) *logistic {
	const steps, penalty = 12, 1e-3
	n := width + 1
	beta := make([]float64, n)
	row := make([]float64, n)
	row[0] = 1
	for range steps {
		g, h := make([]float64, n), make([]float64, n*n)
		for i, label := range labels {
			z := beta[0]
			for k := range width {
				row[k+1] = float64(x[i*width+k])
				z += beta[k+1] * row[k+1]
			}
			p := 1 / (1 + math.Exp(-z))
			for a := range n {
				g[a] += (float64(label) - p) * row[a]
				for b := range a + 1 {
					h[a*n+b] += p * (1 - p) * row[a] * row[b]
				}
			}
		}
		for a := range n {
			g[a] -= penalty * beta[a]
			h[a*n+a] += penalty
		}
		solve(h, g)
		for a := range n {
			beta[a] += g[a]
		}
	}
	return &logistic{bias: beta[0], weights: beta[1:]}
}

// logits returns the logits of rows.
func (l *logistic) logits(x []float32) []float32 {
	out := make([]float32, len(x)/len(l.weights))
	for i := range out {
		z := l.bias
		for k, w := range l.weights {
			z += w * float64(x[i*len(l.weights)+k])
		}
		out[i] = float32(z)
	}
	return out
}

// solve replaces b by the x with h·x = b, h being symmetric and positive
// definite, given by its lower triangle, which is overwritten (Cholesky).
func solve(h, b []float64) {
	n := len(b)
	for i := range n {
		for j := range i + 1 {
			s := h[i*n+j]
			for k := range j {
				s -= h[i*n+k] * h[j*n+k]
			}
			if i == j {
				h[i*n+i] = math.Sqrt(s)
			} else {
				h[i*n+j] = s / h[j*n+j]
			}
		}
	}
	for i := range n {
		for k := range i {
			b[i] -= h[i*n+k] * b[k]
		}
		b[i] /= h[i*n+i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			b[i] -= h[k*n+i] * b[k]
		}
		b[i] /= h[i*n+i]
	}
}
