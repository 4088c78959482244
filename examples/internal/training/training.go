// Package training is what the jobs of examples/train and examples/recsys share:
// a loop of steps with progress, checkpoints and a clean stop, on every rank.
//
//	r := training.Run{Steps: 400, Step: step, State: &state, …}
//	err := r.Do(ctx, world, say)
package training

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/examples/internal/progress"
	"github.com/gorun-spmd/gorun/runtime"
)

// A Run is one run of a program: which steps to make and what to keep of them.
type Run struct {
	Program string                                                                       // in errors
	Step    func(ctx context.Context, step int, share float64) (loss float64, err error) // share of the run is over
	Advice  string                                                                       // what to do about a loss that is not finite

	Steps   int           // the run ends after so many; 0: no such end
	Limit   time.Duration // the run ends after this time; 0: no such end
	Unit    string        // of what a step works on
	PerStep int           // how many of them

	Out io.Writer // of progress; nil: standard error

	Keep Keep // checkpoints

	Losses  []float64     // one a step
	Elapsed time.Duration // of all attempts together
	Rate    float64       // units per second, in the end
}

// Do makes the steps, from the last checkpoint on if there is one and it is
// wanted. If ctx is done it stops between two steps, all ranks at the same one,
// saves if there is a place to, and returns ctx's error. say prints a line on one
// rank.
func (r *Run) Do(ctx context.Context, world *comm.Comm, say func(string, ...any)) error {
	// A collective ends with its ctx; steps run under one that the user's
	// interrupt does not end, so that no rank is cut off in the middle.
	work := context.WithoutCancel(ctx)
	k, first, err := r.open(work, world, runtime.Attempt(ctx) > 0, say)
	if err != nil {
		return err
	}
	if r.Out == nil {
		r.Out = os.Stderr
	}
	var meter *progress.Meter
	if world.Rank() == 0 {
		columns, _ := runtime.Terminal(ctx)
		meter = progress.New(r.Out, progress.Options{Steps: r.Steps, Limit: max(0, r.Limit-r.Elapsed), Unit: r.Unit, Columns: columns})
		say = func(format string, args ...any) { meter.Println(fmt.Sprintf(format, args...)) }
		defer func() {
			meter.Finish()
			r.Rate = meter.Rate()
		}()
	}
	start, before := time.Now(), r.Elapsed
	for step := first; ; step++ {
		r.Elapsed = before + time.Since(start)
		share, stop, err := r.agree(work, world, step, ctx.Err() != nil)
		if err != nil {
			return err
		}
		if stop {
			err := k.last(work, step, say)
			if k != nil && err == nil {
				say("stopped after %d steps; -resume goes on from %s", step, r.Keep.Dir)
			}
			return errors.Join(err, ctx.Err())
		}
		if share >= 1 {
			break
		}
		runtime.SetStep(ctx, step)
		l, err := r.Step(work, step, share)
		if err != nil {
			return err
		}
		if math.IsNaN(l) || math.IsInf(l, 0) {
			return fmt.Errorf("%s: the loss of step %d is %v; %s", r.Program, step, l, r.Advice)
		}
		r.Losses = append(r.Losses, l)
		if meter != nil {
			meter.Update(progress.Status{Step: step + 1, Loss: l, Done: (step + 1 - first) * r.PerStep})
		}
		if err := k.step(work, step+1, say); err != nil {
			return err
		}
	}
	return k.last(work, len(r.Losses), say)
}

// agree returns how much of the run is over and whether to stop, as rank 0 sees
// it: clocks differ, and so does when an interrupt arrives.
func (r *Run) agree(ctx context.Context, world *comm.Comm, step int, interrupted bool) (share float64, stop bool, err error) {
	word := make([]float64, 2)
	if r.Steps > 0 {
		word[0] = float64(step) / float64(r.Steps)
	}
	if r.Limit > 0 {
		word[0] = max(word[0], r.Elapsed.Seconds()/r.Limit.Seconds())
	}
	if interrupted {
		word[1] = 1
	}
	err = comm.Broadcast(ctx, world, word, 0)
	return word[0], word[1] != 0, err
}
