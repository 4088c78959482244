package optim

import (
	"math"
	"testing"
)

func TestWarmupCosine(t *testing.T) {
	s := WarmupCosine{Peak: 1, Floor: 0.1, Warmup: 4, Total: 12}
	for step, want := range map[int]float64{
		0: 0.25, 1: 0.5, 3: 1, // the line
		4: 1, 8: 0.55, 6: 0.1 + 0.45*(1+math.Sqrt2/2), // the cosine: start, half way, a quarter
		12: 0.1, 1000: 0.1, // the floor
	} {
		if got := s.At(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("At(%d) = %v, want %v", step, got, want)
		}
	}
	for step := 4; step < 11; step++ {
		if s.At(step+1) >= s.At(step) {
			t.Errorf("At(%d) = %v is not below At(%d) = %v", step+1, s.At(step+1), step, s.At(step))
		}
	}
}

func TestWarmupCosineWithoutParts(t *testing.T) {
	if got := (WarmupCosine{Peak: 3, Total: 10}).At(0); got != 3 {
		t.Errorf("without a warm-up it starts at %v, want 3", got)
	}
	if got := (WarmupCosine{Peak: 3, Warmup: 2}).At(50); got != 3 {
		t.Errorf("without an end it is %v later, want 3", got)
	}
	if got := (WarmupCosine{Peak: 3, Warmup: 2, Total: 2}).At(2); got != 3 {
		t.Errorf("with nothing after the warm-up it is %v, want 3", got)
	}
}

// A cycle that only rises ends at its peak.
func TestOneCycleThatOnlyRises(t *testing.T) {
	s := OneCycle{Peak: 1, Total: 4, Rise: 1}
	for step, want := range []float64{0.04, 0.28, 0.76, 1, 1} {
		if got := s.At(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: %v, want %v", step, got, want)
		}
	}
}
