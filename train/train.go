// Package train is the loop of a training program: steps with progress, checkpoints,
// metrics and a clean stop, the same on every rank.
//
//	r := train.Run{
//		Program: "mine", Advice: "lower the rate",
//		Loss:      func(step, part int) *dtensor.Tensor { return model.loss(batch(step)) },
//		Params:    model.params(), // nn.Params
//		Optimizer: optim.NewAdamW(nn.Tensors(model.params()), optim.AdamWConfig{WeightDecay: 0.1}),
//		Rate:      optim.WarmupCosine{Peak: 3e-3, Warmup: train.Ticks / 20, Total: train.Ticks},
//		Clip:      1,
//		Limit:     3 * time.Minute, Unit: "tokens", PerStep: 1024,
//		Keep:      train.Keep{Dir: "checkpoints", Every: 100, Resume: true},
//	}
//	err := r.Do(ctx, world, nil)
//
// A program that makes its steps itself gives Step instead of Loss. One that has a loop of its
// own takes parts: Keep's flags, Mesh, package metrics, package checkpoint.
package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/visualize"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/metrics"
	"github.com/gorun-spmd/gorun/metrics/progress"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/runtime"
)

// A Run is one run of a program: which steps to make and what to keep of them.
type Run struct {
	Program string // in errors; "": the name of the binary
	Advice  string // what to do about a loss that is not finite; "": to lower the rate, or to look for the operator

	// Loss returns the loss of a part of a step's batch, of one element. A step is
	// Accumulate parts, whose losses are added; 0 means one. Its gradients are clipped
	// to the norm Clip, unless that is 0, and Optimizer, which was made for Params, takes
	// them with the rate of the schedule at Ticks·(share of the run that is over).
	// A fused table is not clipped, see optim.ClipGradNorm.
	Loss       func(step, part int) *dtensor.Tensor
	Accumulate int
	Params     nn.Params
	Optimizer  optim.Optimizer
	Rate       optim.Schedule
	Clip       float64

	// Buffers are what a checkpoint has of the model beside Params, those of an nn.Buffered and the State of an optim.EMA or SWA;
	// nil: nothing. A run with checkpoints or snapshots, of a model with an nn.BatchNorm or with such an average, is an error
	// without them.
	Buffers nn.Params
	// Scaler scales the loss, for float16, and skips steps whose gradients are not finite; nil: there is none.
	// Its Limit is in place of Clip.
	Scaler *optim.Scaler

	// Step makes a whole step instead, and returns its loss. If Params are given, the keys of
	// dtensor.Mesh.NextKey begin anew in each step, as dropout needs it in a run that goes on.
	Step func(ctx context.Context, step int, share float64) (loss float64, err error)

	// OnStep is called on every rank after each step with how many there have been; nil: nothing is. To stop early, as when
	// a held-out loss falls no more, it sets Steps to that number: the run ends as one that is over, and saves.
	OnStep func(steps int, loss float64)

	// CheckReplicas is how many steps lie between two comparisons of what ranks hold
	// replicated of the tensors that a checkpoint has, see checkpoint.CheckReplicas. 0: as
	// often as takes 1 % of the time, and never if GORUN_CHECK is 0; negative: never.
	// With same bits the step that follows has a part of one of its products computed again on another rank: see
	// dtensor.ProductSample.
	CheckReplicas int
	// Sealed says that in a run of Loss nothing but Optimizer changes Params and its state; and in one of Step nothing the tensors of
	// Keep.State before Lift. Each time that replicas are compared, or would be if there were any, and that digests are written, the
	// step that follows begins with a checkpoint.Seal of them, which is checked before Optimizer's step, or by Lift: an element that
	// has changed, on whatever rank, ends the job.
	Sealed bool

	Steps   int           // after how many the run ends; 0: it does not end by them, but a run of Loss needs this one or Limit
	Limit   time.Duration // the run ends after this time; 0: no such end
	Unit    string        // of what a step works on; "": tokens
	PerStep int           // how many of them; 0: steps are counted, whatever the Unit

	Out     io.Writer // of progress; nil: standard error
	Metrics string    // where to write the loss of each step, see metrics.Open; "": nowhere
	Keep    Keep      // checkpoints

	Losses         []float64     // one a step
	Elapsed        time.Duration // of all attempts together
	UnitsPerSecond float64       // in the end

	grads []dtensor.Grad // of the last step that Loss made
	rate  float64        // of that step
	watch *watcher       // of Do
}

// Ticks is how finely a Rate divides a run, whose end may be a number of steps or a time.
const Ticks = 1 << 20

// Do makes the steps, from the last checkpoint on if there is one and it is
// wanted. If the job is to stop it does between two steps, saves if there is a place
// to, and returns ctx's error. say prints a line on one rank; nil: on standard error of
// rank 0.
func (r *Run) Do(ctx context.Context, world *comm.Comm, say func(string, ...any)) error {
	if err := r.check(); err != nil {
		return fault.Located(err)
	}
	if say == nil {
		say = Say(world)
	}
	if forecast.Of(world.Internals().Attr) != nil {
		defer r.withoutEnd()()
	}
	k, first, err := r.open(ctx, world, runtime.Attempt(ctx) > 0, say)
	if err != nil {
		return err
	}
	if n := runtime.Attempt(ctx); n > 0 && first == 0 {
		say("restart %d begins anew at step 0: nothing whole was kept before", n)
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
			r.UnitsPerSecond = meter.Rate()
		}()
	}
	out, failed := r.metrics(world)
	if out != nil {
		defer out.Close() // what it wrote is there; there is nothing more to write
	}
	w, err := r.newWatcher(ctx, world, first > 0 || runtime.Attempt(ctx) > 0)
	if err != nil {
		return err
	}
	defer w.close()
	r.watch, r.rate = w, 0
	flip, err := w.flips()
	if err != nil {
		return err
	}
	if r.Params != nil {
		visualize.Record(r.Params)
	}
	l := &loop{Run: r, world: world, say: say, keeper: k, watcher: w, meter: meter, out: out, flip: flip, first: first,
		before: r.Elapsed, failed: failed, start: time.Now(), last: time.Now()}
	for n := first; ; n++ {
		share, over, err := l.next(ctx, n)
		if err != nil || over {
			return err
		}
		loss, err := l.advance(ctx, n, share)
		if err != nil {
			return err
		}
		if err := l.made(ctx, n+1, loss); err != nil {
			return err
		}
	}
}

// withoutEnd has a run that is made for a forecast go on until the forecast has seen enough, and keep
// nothing, until undo is called.
func (r *Run) withoutEnd() (undo func()) {
	was := *r
	r.Steps, r.Limit, r.Metrics, r.Keep.Dir, r.Keep.Resume, r.CheckReplicas, r.Out = 0, 0, "", "", false, -1, io.Discard
	return func() {
		r.Steps, r.Limit, r.Metrics, r.Keep, r.CheckReplicas, r.Out = was.Steps, was.Limit, was.Metrics, was.Keep, was.CheckReplicas, was.Out
	}
}

// Say returns a function that prints a line on standard error of rank 0, and nothing on others.
func Say(world *comm.Comm) func(format string, args ...any) {
	if world.Rank() != 0 {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
}

// metrics opens what the loss of each step is written to, on rank 0; nil: nothing.
func (r *Run) metrics(world *comm.Comm) (metrics.Writer, error) {
	if r.Metrics == "" || world.Rank() != 0 {
		return nil, nil
	}
	w, err := metrics.Open(r.Metrics)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Program, err)
	}
	return w, nil
}

// step makes one step of the Optimizer and returns the loss from before it.
func (r *Run) step(ctx context.Context, step int, share float64) (float64, error) {
	params := nn.Tensors(r.Params)
	parts, rate := max(1, r.Accumulate), r.Rate.At(int(share*Ticks))
	r.rate = rate
	loss, factor := func(part int) *dtensor.Tensor { return r.Loss(step, part) }, 1.0
	if r.Scaler != nil {
		factor = r.Scaler.Factor()
		loss = func(part int) *dtensor.Tensor { return r.Scaler.Scale(r.Loss(step, part)) }
	}
	value, grads, err := dtensor.Accumulate(ctx, parts, loss, params...)
	if err != nil {
		return 0, err
	}
	if err := r.watch.unseal(ctx, step+1); err != nil {
		return 0, fmt.Errorf("%s: step %d: %w", r.Program, step+1, err)
	}
	if r.Scaler != nil {
		r.grads = grads
		_, _, err := r.Scaler.Step(ctx, r.Optimizer, params, grads, rate)
		return value.Item() / factor, err
	}
	if r.Clip > 0 {
		if _, err := optim.ClipGradNorm(ctx, params, grads, r.Clip); errors.Is(err, optim.ErrNotFinite) {
			return 0, fmt.Errorf("%s: %s: %w", r.Program, r.Advice, err)
		} else if err != nil {
			return 0, err
		}
	}
	r.grads = grads
	if err := r.Optimizer.Step(grads, rate); err != nil {
		return 0, err
	}
	return value.Item(), nil
}
