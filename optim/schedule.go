package optim

import (
	"cmp"
	"math"
)

// A Schedule is the learning rate of each step. Steps are counted from 0.
type Schedule interface{ At(step int) float64 }

// warmup returns the rate on a straight line up to peak over the first steps; ok is false
// after them.
func warmup(step, steps int, peak float64) (rate float64, ok bool) {
	return peak * float64(step+1) / float64(steps), step < steps
}

// A Constant is a straight line up to Rate over the first Warmup steps, then Rate: the
// rate of step < Warmup is Rate·(step+1)/Warmup.
type Constant struct {
	Rate   float64
	Warmup int
}

// At returns the learning rate of a step.
func (s Constant) At(step int) float64 {
	if rate, ok := warmup(step, s.Warmup, s.Rate); ok {
		return rate
	}
	return s.Rate
}

// A WarmupLinear is a straight line up to Peak over the first Warmup steps, then one down
// to Floor at step Total, then Floor; see WarmupCosine. Without warm-up it is
// torch.optim's LinearLR from Peak to Floor.
type WarmupLinear struct {
	Peak, Floor   float64
	Warmup, Total int
}

// At returns the learning rate of a step.
func (s WarmupLinear) At(step int) float64 {
	if rate, ok := warmup(step, s.Warmup, s.Peak); ok {
		return rate
	}
	return s.Floor + (s.Peak-s.Floor)*(1-progress(step, s.Warmup, s.Total))
}

// progress returns how far step is from first to total, from 0 to 1; 0 if total is not
// above first.
func progress(step, first, total int) float64 {
	if total <= first {
		return 0
	}
	return min(1, float64(step-first)/float64(total-first))
}

// A WarmupStep is a straight line up to Peak over the first Warmup steps, then Peak, which
// is multiplied by Factor after every Every steps of those that follow. Without warm-up it
// is torch.optim's StepLR.
type WarmupStep struct {
	Peak, Factor  float64
	Warmup, Every int
}

// At returns the learning rate of a step; with an Every of 0 it stays at Peak.
func (s WarmupStep) At(step int) float64 {
	if rate, ok := warmup(step, s.Warmup, s.Peak); ok {
		return rate
	}
	if s.Every <= 0 {
		return s.Peak
	}
	return s.Peak * math.Pow(s.Factor, float64((step-s.Warmup)/s.Every))
}

// A OneCycle rises by half a cosine from Peak/Start to Peak and falls by another to
// Peak/(Start·End) at step Total-1 (Smith and Topin, arXiv 1708.07120). It is
// torch.optim's OneCycleLR.
type OneCycle struct {
	Peak  float64
	Total int
	Rise  float64 // the part of the steps that rise; 0 stands for 0.3
	Start float64 // 0 stands for 25
	End   float64 // 0 stands for 10000
}

// At returns the learning rate of a step.
func (s OneCycle) At(step int) float64 {
	rise, start, end := cmp.Or(s.Rise, 0.3), cmp.Or(s.Start, 25), cmp.Or(s.End, 1e4)
	first, last := rise*float64(s.Total)-1, float64(s.Total)-1
	low, bottom, at := s.Peak/start, s.Peak/start/end, min(float64(step), last)
	if at < first || at == first && first > 0 { // with a Rise of 1 it never falls
		return cosine(low, s.Peak, at/first)
	}
	return cosine(s.Peak, bottom, (at-first)/(last-first))
}

// cosine goes from a to b by half a cosine as at goes from 0 to 1.
func cosine(a, b, at float64) float64 { return b + (a-b)/2*(1+math.Cos(math.Pi*at)) }

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
	if rate, ok := warmup(step, s.Warmup, s.Peak); ok {
		return rate
	}
	if s.Total <= s.Warmup {
		return s.Peak
	}
	return s.Floor + (s.Peak-s.Floor)*0.5*(1+math.Cos(math.Pi*progress(step, s.Warmup, s.Total)))
}
