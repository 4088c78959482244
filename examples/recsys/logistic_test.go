package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/metrics"
)

func TestFitLogistic(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const n = 20000
	var x, labels []float32
	for range n {
		a, b := rng.NormFloat64(), rng.NormFloat64()
		x = append(x, float32(a), float32(b))
		label := float32(0)
		if rng.Float64() < 1/(1+math.Exp(-(0.5+a-2*b))) {
			label = 1
		}
		labels = append(labels, label)
	}
	l := fitLogistic(x, 2, labels)
	if math.Abs(l.bias-0.5) > 0.1 || math.Abs(l.weights[0]-1) > 0.1 || math.Abs(l.weights[1]+2) > 0.1 {
		t.Errorf("%+v", l)
	}
	logits := l.logits(x)
	if got := metrics.LogLoss(logits, labels); got > 0.45 || got < 0.3 {
		t.Errorf("log loss %v", got)
	}
	if got := metrics.LogLoss([]float32{0, 0}, []float32{0, 1}); math.Abs(got-math.Ln2) > 1e-12 {
		t.Errorf("log loss of nothing known is %v", got)
	}
	// A feature that never changes does not stop it.
	if l := fitLogistic([]float32{0, 0, 0}, 1, []float32{0, 1, 1}); math.IsNaN(l.bias) {
		t.Errorf("%+v", l)
	}
}
