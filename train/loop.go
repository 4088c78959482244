package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/metrics"
	"github.com/gorun-spmd/gorun/metrics/progress"
	"github.com/gorun-spmd/gorun/runtime"
)

// A loop is what Do has of a run while it goes on.
type loop struct {
	*Run
	world   *comm.Comm
	say     func(string, ...any)
	keeper  *keeper
	watcher *watcher
	meter   *progress.Meter // nil but on rank 0
	out     metrics.Writer  // of the losses; nil: none
	flip    func(step int)  // see flips
	first   int             // step of this attempt
	noted   int             // how many tensors that are no parameters the steps have changed
	failed  error           // of writing metrics, on rank 0, which the others are still to be told

	before time.Duration // what the attempts before have taken
	start  time.Time     // of this attempt
	last   time.Time     // when the step before was made
}

// next does what is due between steps, after n of them. It returns how much of the run is over; over says that no step comes,
// because of that or because the job is to stop.
func (l *loop) next(ctx context.Context, n int) (share float64, over bool, err error) {
	k, w := l.keeper, l.watcher
	l.Elapsed = l.before + time.Since(l.start)
	if runtime.Stopping(ctx, l.world) {
		return 0, true, cmp.Or(k.stop(ctx, n, n > l.first, l.say), l.failed, ctx.Err())
	}
	share, due, keep, err := l.share(ctx, n, w.due(), k.due(n))
	if err != nil {
		return 0, false, err
	}
	if due {
		if err := w.check(ctx); err != nil {
			return 0, false, fmt.Errorf("%s: before step %d: %w", l.Program, n, err)
		}
	}
	if keep && n > l.first {
		if err := k.snapshot(ctx, n); err != nil {
			return 0, false, fmt.Errorf("%s: %w", l.Program, err)
		}
	}
	if share >= 1 {
		return share, true, k.last(ctx, len(l.Losses), l.say)
	}
	return share, false, nil
}

// advance makes the step after n others, and looks whether it did nothing else.
func (l *loop) advance(ctx context.Context, n int, share float64) (loss float64, err error) {
	w := l.watcher
	if err := w.begin(n); err != nil {
		return 0, fmt.Errorf("%s: %w", l.Program, err)
	}
	runtime.SetStep(ctx, n)
	if l.Params != nil {
		for _, p := range l.Params {
			p.Mesh().StartKeys(n) // a run that goes on drops what it would have dropped
		}
	}
	l.flip(n + 1)
	step := l.Step
	if step == nil {
		step = l.step
	}
	if loss, err = step(ctx, n, share); err != nil {
		return 0, err
	}
	if err := w.unseal(ctx, n+1); err != nil { // what Step has sealed still
		if _, changed := errors.AsType[*checkpoint.ChangedError](err); changed {
			err = fmt.Errorf("%w; or if Step changes it, have it call Run.Lift before: of the State of an optimizer that makes a step, and "+
				"of the Buffers of layers that train, too", err)
		}
		return 0, fmt.Errorf("%s: step %d: %w", l.Program, n+1, err)
	}
	if err := w.multiplied(ctx, n+1); err != nil {
		return 0, fmt.Errorf("%s: step %d: %w", l.Program, n+1, err)
	}
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, fmt.Errorf("%s: the loss of step %d is %v; %s", l.Program, n, loss, l.Advice)
	}
	return loss, nil
}

// made records a step in the digests, the metrics and OnStep, and saves if it is time. steps counts it and those before.
func (l *loop) made(ctx context.Context, steps int, loss float64) error {
	l.Losses, l.Elapsed = append(l.Losses, loss), l.before+time.Since(l.start)
	if err := l.watcher.digest(ctx, steps, loss); err != nil {
		return fmt.Errorf("%s: %w", l.Program, err)
	}
	if l.meter != nil {
		runtime.Metric(ctx, "loss", loss)
		if now := time.Now(); l.PerStep > 0 {
			runtime.Metric(ctx, l.Unit+"/s", float64(l.PerStep)/now.Sub(l.last).Seconds())
			l.last = now
		}
		l.meter.Update(progress.Status{Step: steps, Loss: loss, Done: (steps - l.first) * l.PerStep})
	}
	if l.out != nil {
		seconds := metrics.Value{Name: "seconds", Value: l.Elapsed.Seconds()}
		if err := l.out.Write(steps, metrics.Value{Name: "loss", Value: loss}, seconds); err != nil {
			l.failed = cmp.Or(l.failed, fmt.Errorf("%s: %w", l.Program, err))
		}
	}
	if l.OnStep != nil {
		l.OnStep(steps, loss)
	}
	if err := l.holds(); err != nil {
		return err
	}
	return l.keeper.step(ctx, steps, l.say)
}

// share returns how much of the run is over, and whether replicas are to be compared and a
// snapshot to be taken, as rank 0 sees it: clocks differ. Its call carries the settings, which all ranks have to give.
func (l *loop) share(ctx context.Context, step int, due, snapshot bool) (share float64, check, keep bool, err error) {
	word := make([]float64, 4)
	if l.Steps > 0 {
		word[0] = float64(step) / float64(l.Steps)
	}
	if l.Limit > 0 {
		word[0] = max(word[0], l.Elapsed.Seconds()/l.Limit.Seconds())
	}
	if due {
		word[1] = 1
	}
	if snapshot {
		word[2] = 1
	}
	if l.failed != nil {
		word[3] = 1
	}
	settings := settings{l.Clip, max(1, l.Accumulate), l.rate}
	err = l.world.Do(ctx, comm.Call{Kind: comm.BroadcastKind, Dst: comm.Of(word), Cause: "train.Run",
		Facts: settings.facts(), Subject: settings})
	if err == nil && word[3] == 1 {
		err = l.fail(ctx)
	}
	return word[0], word[1] == 1, word[2] == 1, err
}

// fail returns what rank 0 has failed with, on every rank.
func (l *loop) fail(ctx context.Context) error {
	if l.failed != nil {
		_, err := comm.BroadcastSlices(ctx, l.world, []byte(l.failed.Error()), 0)
		return cmp.Or(err, l.failed)
	}
	text, err := comm.BroadcastSlices[byte](ctx, l.world, nil, 0)
	return cmp.Or(err, fmt.Errorf("rank 0: %s", text))
}

// settings are what the ranks of a run have to give alike, and its calls cannot see.
type settings struct {
	clip       float64
	accumulate int
	rate       float64 // of the last step
}

// facts returns a hash of the settings.
func (s settings) facts() uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, s.clip, s.accumulate, s.rate)
	return h.Sum32()
}

func (s settings) String() string {
	return fmt.Sprintf("Clip %v, Accumulate %d and a Rate of %v", s.clip, s.accumulate, s.rate)
}
