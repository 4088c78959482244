package optim

import (
	"cmp"
	"math"
	"slices"
)

// A Schedule is the learning rate of each step. Steps are counted from 0.
type Schedule interface{ At(step int) float64 }

// A RateFunc is a Schedule of a program's own, as torch.optim's LambdaLR:
//
//	optim.RateFunc(func(step int) float64 { return 0.1 * math.Pow(0.9, float64(step)) })
type RateFunc func(step int) float64

// At returns the learning rate of a step.
func (f RateFunc) At(step int) float64 { return f(step) }

// A Phase is a Schedule for a number of steps, which it counts from 0.
type Phase struct {
	Schedule
	Steps int // of the last Phase, no matter
}

// Phases are schedules one after the other, as torch.optim's SequentialLR has them; the last one goes on.
// Warm-up, a rate that stays, and a descent at the end are
//
//	optim.Phases{{optim.Constant{Rate: 1e-3, Warmup: 200}, 9000}, {optim.WarmupLinear{Peak: 1e-3, Total: 1000}, 1000}}
//
// Steps in a train.Run are of train.Ticks, there as in every Schedule.
type Phases []Phase

// At returns the learning rate of a step; of no Phase 0.
func (p Phases) At(step int) float64 {
	for i, phase := range p {
		if step < phase.Steps || i == len(p)-1 {
			return phase.At(step)
		}
		step -= phase.Steps
	}
	return 0
}

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

// A WarmupMilestones is a straight line up to Peak over the first Warmup steps, then Peak, which
// is multiplied by Factor at each of the Milestones: the steps, in ascending order, that are the
// first with a lower rate. Without warm-up it is torch.optim's MultiStepLR.
type WarmupMilestones struct {
	Peak, Factor float64
	Warmup       int
	Milestones   []int
}

// At returns the learning rate of a step.
func (s WarmupMilestones) At(step int) float64 {
	if rate, ok := warmup(step, s.Warmup, s.Peak); ok {
		return rate
	}
	passed, _ := slices.BinarySearch(s.Milestones, step+1)
	return s.Peak * math.Pow(s.Factor, float64(passed))
}

// A WarmupPower is a straight line up to Peak over the first Warmup steps, then a power of a
// straight line down to Floor at step Total, then Floor:
//
//	Floor + (Peak-Floor)·(1 - (step-Warmup)/(Total-Warmup))^Power
//
// Without warm-up it is torch.optim's PolynomialLR.
type WarmupPower struct {
	Peak, Floor   float64
	Power         float64 // 0 stands for 1
	Warmup, Total int
}

// At returns the learning rate of a step.
func (s WarmupPower) At(step int) float64 {
	if rate, ok := warmup(step, s.Warmup, s.Peak); ok {
		return rate
	}
	return s.Floor + (s.Peak-s.Floor)*math.Pow(1-progress(step, s.Warmup, s.Total), cmp.Or(s.Power, 1))
}

// A WarmupInverseSqrt is a straight line up to Peak over the first Warmup steps, then
// Peak·√(Warmup/(step+1)), as Vaswani et al., Attention Is All You Need, 2017, and T5 have it.
type WarmupInverseSqrt struct {
	Peak   float64
	Warmup int // 0 stands for 1
}

// At returns the learning rate of a step.
func (s WarmupInverseSqrt) At(step int) float64 {
	first := max(s.Warmup, 1)
	if rate, ok := warmup(step, first, s.Peak); ok {
		return rate
	}
	return s.Peak * math.Sqrt(float64(first)/float64(step+1))
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

// A CosineRestarts falls by half a cosine from Peak to Floor in Length steps, then begins again at Peak; each fall takes
// Factor times the steps of the one before (Loshchilov and Hutter, SGDR, arXiv 1608.03983). It is torch.optim's
// CosineAnnealingWarmRestarts.
type CosineRestarts struct {
	Peak, Floor float64
	Length      int
	Factor      int // 0 stands for 1
}

// At returns the learning rate of a step; with a Length of 0 it stays at Peak.
func (s CosineRestarts) At(step int) float64 {
	length := s.Length
	if length <= 0 {
		return s.Peak
	}
	for ; step >= length; length *= max(1, s.Factor) {
		if s.Factor <= 1 {
			step %= length
			break
		}
		step -= length
	}
	return cosine(s.Peak, s.Floor, float64(step)/float64(length))
}

// A Plateau lowers a rate where a loss stops falling, as torch.optim's ReduceLROnPlateau. It goes by losses and not by
// steps, so it is no Schedule: give Next the loss of each epoch, the same on all ranks. checkpoint.State.AddValue saves it.
//
//	plateau := optim.Plateau{Rate: 0.1, Factor: 0.5, Patience: 3}
//	for epoch := range epochs {
//		... opt.Step(grads, plateau.Rate) ...
//		plateau.Next(heldOutLoss)
//	}
type Plateau struct {
	Rate      float64 // of the next step
	Factor    float64 // what multiplies it; 0 stands for 0.1
	Patience  int     // losses in a row that may be no better than the best
	Threshold float64 // a better loss is below (1-Threshold) times the best; 0 stands for 1e-4
	Cooldown  int     // losses after a change that are never too bad
	Floor     float64 // the least rate

	Best  float64 // the best loss so far
	Count int     // losses so far
	Bad   int     // the last ones of them that were no better
	Cool  int     // how many more are never too bad
}

// Next takes a loss, and returns the rate of the steps that follow it.
func (p *Plateau) Next(loss float64) (rate float64) {
	p.Bad++
	if p.Count == 0 || loss < p.Best*(1-cmp.Or(p.Threshold, 1e-4)) {
		p.Best, p.Bad = loss, 0
	}
	p.Count++
	if p.Cool > 0 {
		p.Cool--
		p.Bad = 0
	}
	if p.Bad > p.Patience {
		p.Rate, p.Cool, p.Bad = max(p.Floor, p.Rate*cmp.Or(p.Factor, 0.1)), p.Cooldown, 0
	}
	return p.Rate
}
