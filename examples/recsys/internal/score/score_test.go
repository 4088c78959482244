package score

import (
	"math"
	"math/rand/v2"
	"testing"
)

// slowAUC counts pairs.
func slowAUC(scores, labels []float32) float64 {
	good, pairs := 0.0, 0.0
	for i := range scores {
		for j := range scores {
			if labels[i] == 1 && labels[j] == 0 {
				pairs++
				if scores[i] > scores[j] {
					good++
				} else if scores[i] == scores[j] {
					good += 0.5
				}
			}
		}
	}
	return good / pairs
}

func TestAUC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 2; n < 60; n++ {
		scores, labels := make([]float32, n), make([]float32, n)
		for i := range n {
			scores[i], labels[i] = float32(rng.IntN(8)), float32(rng.IntN(2))
		}
		labels[0], labels[1] = 0, 1
		if got, ok := AUC(scores, labels); !ok || math.Abs(got-slowAUC(scores, labels)) > 1e-12 {
			t.Fatalf("%v %v: %v, want %v", scores, labels, got, slowAUC(scores, labels))
		}
	}
	if _, ok := AUC([]float32{1, 2}, []float32{1, 1}); ok {
		t.Error("an area without both labels")
	}
}

func TestFit(t *testing.T) {
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
	l := Fit(x, 2, labels)
	if math.Abs(l.Bias-0.5) > 0.1 || math.Abs(l.Weights[0]-1) > 0.1 || math.Abs(l.Weights[1]+2) > 0.1 {
		t.Errorf("%+v", l)
	}
	logits := l.Logits(x)
	if got := LogLoss(logits, labels); got > 0.45 || got < 0.3 {
		t.Errorf("log loss %v", got)
	}
	if got := LogLoss([]float32{0, 0}, []float32{0, 1}); math.Abs(got-math.Ln2) > 1e-12 {
		t.Errorf("log loss of nothing known is %v", got)
	}
	// A feature that never changes does not stop it.
	if l := Fit([]float32{0, 0, 0}, 1, []float32{0, 1, 1}); math.IsNaN(l.Bias) {
		t.Errorf("%+v", l)
	}
}
