package optim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A ScalerConfig sets up a Scaler. The zero value is torch.amp.GradScaler's.
type ScalerConfig struct {
	Initial  float64 // the first scale; 0 stands for 65536
	Growth   float64 // multiplies the scale after Interval good steps; 0 stands for 2
	Backoff  float64 // multiplies the scale after a step that overflowed; 0 stands for 0.5
	Interval int     // 0 stands for 2000
	Limit    float64 // the largest norm of all gradients, as of ClipGradNorm; 0 stands for no limit
}

// A Scaler trains in float16, whose gradients are often too small for the type. It
// multiplies the loss by a scale, has the optimizer divide the gradients by it in float32,
// and skips a step whose gradients are not finite. The scale grows until that happens and
// then shrinks, as with torch.amp.GradScaler. Float32 and bfloat16 need no Scaler.
//
//	scaler := optim.NewScaler(mesh, optim.ScalerConfig{})
//	...
//	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return scaler.Scale(forward()) }, params...)
//	...
//	norm, done, err := scaler.Step(ctx, opt, params, grads, rate.At(step))
type Scaler struct {
	config ScalerConfig
	state  *tensor.Tensor    // the scale, and how many good steps it has had, in host memory
	list   []*dtensor.Tensor // the same, one by one
}

// NewScaler returns a Scaler, the same on every rank of the mesh. It throws an error that
// names the field if the configuration makes no sense.
func NewScaler(mesh *dtensor.Mesh, c ScalerConfig) *Scaler {
	c.Initial, c.Growth = cmp.Or(c.Initial, 65536), cmp.Or(c.Growth, 2)
	c.Backoff, c.Interval = cmp.Or(c.Backoff, 0.5), cmp.Or(c.Interval, 2000)
	inUnit("NewScaler", "Backoff", c.Backoff)
	atLeastZero("NewScaler", "Limit", c.Limit)
	if !(c.Initial > 0) || !(c.Growth > 1) || c.Interval < 1 || math.IsInf(c.Initial, 0) || math.IsInf(c.Growth, 0) {
		fault.Throw(fmt.Errorf("optim: NewScaler: Initial is %v, Growth %v and Interval %d; they must be above 0, above 1 and at least 1",
			c.Initial, c.Growth, c.Interval))
	}
	s := &Scaler{config: c, state: tensor.FromSlice(tensor.NewCPU(nil), []float64{c.Initial, 0}, 2).Persist()}
	for i := range 2 {
		number := tensor.Narrow(s.state, 0, i, 1).Reshape()
		s.list = append(s.list, mesh.Wrap("scaler state", number, nil, false, nil, mesh.Every(layout.Replicate())...))
	}
	return s
}

// Factor returns the scale.
func (s *Scaler) Factor() float64 { return tensor.Data[float64](s.state)[0] }

// Scale returns the loss times the scale, to be differentiated in place of the loss. Tables that the backward pass changes,
// see Fuse of embedding.Table, throw an error: their gradients come with the scale, and no step could be skipped.
func (s *Scaler) Scale(loss *dtensor.Tensor) *dtensor.Tensor {
	loss.Mesh().NoteLossScale(s.Factor())
	return loss.Scale(s.Factor())
}

// A gradientScaler, as every optimizer of this package is, multiplies the gradients of each
// step by a factor, in float32. It returns false if it has a Group whose optimizer does not.
type gradientScaler interface{ scaleGradients(factor float64) bool }

func (b *base) scaleGradients(factor float64) bool {
	b.factor = factor
	return true
}

// Step makes a step of the optimizer with the gradients of the scaled loss, and returns
// the norm of the unscaled gradients. If the norm is not finite, no rank makes the step,
// done is false and the scale shrinks. It makes the collectives of ClipGradNorm.
//
// Gradients of parameters without float32 weights are divided in their own type, and so
// are those for an optimizer that is not of this package.
func (s *Scaler) Step(ctx context.Context, opt Optimizer, params []*dtensor.Tensor, grads []dtensor.Grad, lr float64) (
	norm float64, done bool, err error) {
	if opt == nil {
		return 0, false, fault.Located(errors.New("optim: Scaler.Step: the optimizer is nil; give the one that was made for the parameters"))
	}
	c, state := s.config, tensor.Data[float64](s.state)
	norm, err = ClipGradNorm(ctx, params, grads, math.Inf(1))
	if err != nil {
		return 0, false, err
	}
	norm /= state[0]
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		state[0], state[1] = state[0]*c.Backoff, 0
		return norm, false, nil
	}
	factor := 1 / state[0]
	if c.Limit > 0 {
		factor *= min(1, c.Limit/(norm+1e-6))
	}
	if in, ok := opt.(gradientScaler); ok && in.scaleGradients(factor) {
		defer in.scaleGradients(1)
	} else {
		for i := range grads {
			if local := localOf(&grads[i]); local != nil {
				tensor.ScaleTo(local, factor)
			}
		}
	}
	if err := opt.Step(grads, lr); err != nil {
		return norm, false, err
	}
	if state[1]++; state[1] == float64(c.Interval) {
		state[0], state[1] = state[0]*c.Growth, 0
	}
	return norm, true, nil
}

// State lists the scale, "scale", and the number of good steps it has had, "good", for a
// checkpoint.
func (s *Scaler) State() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		if yield("scale", s.list[0]) {
			yield("good", s.list[1])
		}
	}
}
