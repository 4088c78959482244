package optim

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/gorun-spmd/gorun/dtensor"
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
	params []*dtensor.Tensor
	decay  float64
	means  []*dtensor.Tensor
}

// NewEMA returns the average of params, which begins with their present values. It throws
// an error unless 0 <= decay < 1.
func NewEMA(params []*dtensor.Tensor, decay float64) *EMA {
	inUnit("NewEMA", "decay", decay)
	e := &EMA{params: params, decay: decay, means: states(params)}
	for i, p := range params {
		if p.Layout().IsPartial() {
			fault.Throw(fmt.Errorf("optim: NewEMA: parameter %d is %v, a sum of what the ranks hold; redistribute it to Replicate or Shard", i, p))
		}
		tensor.CastTo(e.means[i].Local(), p.Local())
	}
	return e
}

// Update adds the present parameters to the average.
func (e *EMA) Update() {
	for i, p := range e.params {
		wide := tensor.Widen(p.Local())
		average(e.means[i].Local(), e.decay, wide)
		if wide != p.Local() {
			wide.Free()
		}
	}
}

// Swap exchanges the parameters and the average. Call it once to evaluate with the average
// and again to train on. The average of a narrow type is rounded to the parameters, and
// so an optimizer without float32 weights goes on with other bits.
func (e *EMA) Swap() {
	for i, p := range e.params {
		now, mean := tensor.Clone(p.Local()), e.means[i].Local()
		tensor.CastTo(p.Local(), mean)
		tensor.CastTo(mean, now)
		now.Free()
	}
}

// State lists the averages, "ema.0" and so on, for a checkpoint.
func (e *EMA) State() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for i, m := range e.means {
			if !yield("ema."+strconv.Itoa(i), m) {
				return
			}
		}
	}
}
