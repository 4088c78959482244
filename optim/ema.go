package optim

import (
	"fmt"
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// An EMA is the exponential moving average of a program's parameters, which often
// evaluates better than the parameters of the last step:
//
//	average = optim.NewEMA(params, 0.999)
//	...
//	err = opt.Step(grads, rate.At(step))
//	average.Update() // average = 0.999·average + 0.001·params
//
// The average has the layouts of the parameters and is float32 for narrow types; an update
// communicates nothing. It is AveragedModel with get_ema_multi_avg_fn of
// torch.optim.swa_utils.
type EMA struct {
	means
	decay float64
}

// NewEMA returns the average of params, which begins with their present values. It throws
// an error unless 0 <= decay < 1.
func NewEMA(params []*dtensor.Tensor, decay float64) *EMA {
	inUnit("NewEMA", "decay", decay)
	return &EMA{means: newMeans("NewEMA", params), decay: decay}
}

// Update adds the present parameters to the average.
func (e *EMA) Update() {
	e.ready("EMA.Update")
	for i := range e.params {
		e.update(i, e.decay)
	}
}

// State lists the averages, "ema.0" and so on, for a checkpoint.
func (e *EMA) State() iter.Seq2[string, *dtensor.Tensor] { return list(kind{"ema", e.tensors}) }

// An SWA is the mean of a program's parameters at several steps, with equal weights:
// stochastic weight averaging (Izmailov et al., arXiv 1803.05407). Give it the parameters now
// and then near the end of training, at a rate that stays high:
//
//	mean := optim.NewSWA(params)
//	...
//	if step >= from && step%every == 0 {
//		mean.Update()
//	}
//
// The mean has the layouts of the parameters and is float32 for narrow types; an update
// communicates nothing. It is AveragedModel of torch.optim.swa_utils. The running averages of
// an nn.BatchNorm are those of the parameters, not of the mean: after Swap run the model over
// some batches under dtensor.ValueAndGrad, without a step, in place of update_bn.
type SWA struct {
	means
	counts *tensor.Tensor // how many updates there were, for each parameter
	each   []*dtensor.Tensor
}

// NewSWA returns the mean of params, which begins at the first Update.
func NewSWA(params []*dtensor.Tensor) *SWA {
	s := &SWA{means: newMeans("NewSWA", params)}
	s.counts, s.each = newCounts(params)
	return s
}

// Update adds the present parameters to the mean.
func (s *SWA) Update() {
	s.ready("SWA.Update")
	counts := tensor.Data[int64](s.counts)
	for i, n := range counts {
		s.update(i, float64(n)/float64(n+1))
		counts[i]++
	}
}

// State lists the means, "swa.0" and so on, and the numbers of updates, "count.0" and so on, for a checkpoint.
func (s *SWA) State() iter.Seq2[string, *dtensor.Tensor] {
	return list(kind{"swa", s.tensors}, kind{"count", s.each})
}

// means are an average of parameters.
type means struct {
	params, tensors []*dtensor.Tensor
	places          [][]layout.Placement // of the parameters, when the average was made
	swapped         bool                 // Swap has exchanged them, and not back
}

// newMeans returns means that have the present values of params.
func newMeans(call string, params []*dtensor.Tensor) means {
	m := means{params: params, places: placesOf(call, params), tensors: states(params)} // in this order: a parameter may be nil
	first := make(map[*dtensor.Tensor]int, len(params))
	for i, p := range params {
		if k, again := first[p]; again {
			fault.Throw(fmt.Errorf("optim: %s: parameter %d is parameter %d again, and Swap would exchange it twice; give each once", call, i, k))
		}
		first[p] = i
		if !p.DType().Float() {
			fault.Throw(fmt.Errorf("optim: %s: parameter %d is %v, which has no average; leave it out, or Cast it", call, i, p))
		}
		if p.Layout().IsPartial() {
			fault.Throw(fmt.Errorf("optim: %s: parameter %d is %v, a sum of what the ranks hold; redistribute it to Replicate or Shard", call, i, p))
		}
		if of := p.ExcerptOf(); of != "" {
			fault.Throw(fmt.Errorf("optim: %s: parameter %d has the rows of %s that are in memory, and which they are changes; leave it out",
				call, i, of))
		}
		tensor.CastTo(m.tensors[i].Local(), p.Local())
	}
	return m
}

// unmoved throws if a parameter lies otherwise than when the average was made.
func (m *means) unmoved(call string) { unmoved(call, "average", m.params, m.places) }

// ready throws if the parameters cannot be added to the average: they have moved, or are the average.
func (m *means) ready(call string) {
	m.unmoved(call)
	if m.swapped {
		fault.Throw(fmt.Errorf("optim: %s: the parameters are the average, after Swap; Swap again before training goes on", call))
	}
}

// update makes the mean of parameter i keep·mean + (1-keep)·parameter.
func (m *means) update(i int, keep float64) {
	p := m.params[i]
	wide := tensor.Widen(p.Local())
	average(m.tensors[i].Local(), keep, wide)
	p.Mesh().NoteState("weight average", m.tensors[i])
	if wide != p.Local() {
		wide.Free()
	}
}

// Swap exchanges the parameters and the average. Call it once to evaluate with the average
// and again to train on; between the two Update is refused. The average of a narrow type is rounded to the parameters, and
// so an optimizer without float32 weights goes on with other bits.
func (m *means) Swap() {
	m.unmoved("Swap")
	for i, p := range m.params {
		now, mean := tensor.Clone(p.Local()), m.tensors[i].Local()
		tensor.CastTo(p.Local(), mean)
		tensor.CastTo(mean, now)
		now.Free()
	}
	m.swapped = !m.swapped
}
