// Package score measures how well clicks are told from the rest, and has the
// simple model to compare with.
package score

import (
	"math"
	"slices"
)

// AUC returns the area under the receiver operating characteristic: how often a
// click has a higher score than a line that is none, ties counting half. ok is
// false if one of the two kinds is missing.
func AUC(scores, labels []float32) (auc float64, ok bool) {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case scores[a] < scores[b]:
			return -1
		case scores[a] > scores[b]:
			return 1
		}
		return 0
	})
	var pairs, clicks, others float64
	for lo := 0; lo < len(order); {
		hi, up := lo, 0.0
		for ; hi < len(order) && scores[order[hi]] == scores[order[lo]]; hi++ {
			up += float64(labels[order[hi]])
		}
		down := float64(hi-lo) - up
		pairs += up*others + up*down/2
		clicks, others = clicks+up, others+down
		lo = hi
	}
	if clicks == 0 || others == 0 {
		return 0, false
	}
	return pairs / (clicks * others), true
}

// LogLoss returns the mean binary cross-entropy of logits.
func LogLoss(logits, labels []float32) float64 {
	sum := 0.0
	for i, x := range logits {
		x := float64(x)
		sum += max(x, 0) - x*float64(labels[i]) + math.Log1p(math.Exp(-math.Abs(x)))
	}
	return sum / float64(len(logits))
}

// A Logistic is a logistic regression: logit = Bias + Σ Weights·x.
type Logistic struct {
	Bias    float64
	Weights []float64
}

// Fit fits a logistic regression to rows of width numbers by Newton's method,
// with a small penalty so that it has one answer.
func Fit(x []float32, width int, labels []float32) *Logistic {
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
	return &Logistic{Bias: beta[0], Weights: beta[1:]}
}

// Logits returns the logits of rows.
func (l *Logistic) Logits(x []float32) []float32 {
	out := make([]float32, len(x)/len(l.Weights))
	for i := range out {
		z := l.Bias
		for k, w := range l.Weights {
			z += w * float64(x[i*len(l.Weights)+k])
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
