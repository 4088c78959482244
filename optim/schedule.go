package optim

import "math"

// A WarmupCosine is a learning-rate schedule: a straight line up to Peak over
// the first Warmup steps, then half a cosine down to Floor at step Total, then
// Floor.
//
//	step < Warmup   Peak·(step+1)/Warmup
//	step < Total    Floor + (Peak-Floor)·½(1 + cos(π·(step-Warmup)/(Total-Warmup)))
//	otherwise       Floor
//
// Steps are counted from 0, so the first step already learns. A Warmup of 0
// starts at Peak; a Total of 0, or one below Warmup, stays at Peak for ever.
type WarmupCosine struct {
	Peak, Floor   float64
	Warmup, Total int
}

// At returns the learning rate of a step.
func (s WarmupCosine) At(step int) float64 {
	switch {
	case step < s.Warmup:
		return s.Peak * float64(step+1) / float64(s.Warmup)
	case s.Total <= s.Warmup:
		return s.Peak
	case step >= s.Total:
		return s.Floor
	}
	at := float64(step-s.Warmup) / float64(s.Total-s.Warmup)
	return s.Floor + (s.Peak-s.Floor)*0.5*(1+math.Cos(math.Pi*at))
}
