package train

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/programtest"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// output keeps what a run prints, and calls heard with it.
type output struct {
	strings.Builder
	heard func(string)
}

func (o *output) Write(p []byte) (int, error) {
	if o.heard != nil {
		o.heard(string(p))
	}
	return o.Builder.Write(p)
}

// heard is called with what runs print.
var heard func(string)

// run makes a run of 10 steps of which step i has the loss i, on 2 ranks, and
// returns the losses, what was said and the error of rank 0.
func run(t *testing.T, interrupt int, change func(r *Run)) (losses []float64, said string, err error) {
	t.Helper()
	var lines []string
	var one sync.Mutex
	errs := commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		r := Run{Program: "test", Advice: "do something", Steps: 10, Unit: "things", PerStep: 3,
			Step: func(ctx context.Context, step int, share float64) (float64, error) {
				if share != float64(step)/10 {
					return 0, fmt.Errorf("step %d: share %v", step, share)
				}
				return float64(step), nil
			},
			Keep: Keep{State: new(checkpoint.State), Every: 2, Settings: map[string]string{"seed": "1"}}}
		change(&r)
		say := func(string, ...any) {}
		if world.Rank() == 0 {
			say = func(format string, args ...any) {
				one.Lock()
				defer one.Unlock()
				lines = append(lines, fmt.Sprintf(format, args...))
			}
		}
		out := output{heard: heard}
		if r.Out = &out; interrupt > 0 {
			ctx = programtest.Interrupted(ctx, interrupt, &r.OnStep)
		}
		err := r.Do(ctx, world, say)
		if world.Rank() == 0 {
			losses = r.Losses
			lines = append(lines, out.String())
		}
		return err
	})
	return losses, strings.Join(lines, "\n"), errs[0]
}

func TestALossThatIsNotFiniteEndsTheRunWithARemedy(t *testing.T) {
	for advice, want := range map[string]string{
		"":          "is NaN; lower the rate, or run with GORUN_DETECT_ANOMALY=1",
		"lower -lr": "is NaN; lower -lr",
	} {
		_, _, err := run(t, 0, func(r *Run) {
			r.Advice, r.Step = advice, func(context.Context, int, float64) (float64, error) { return math.NaN(), nil }
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Advice %q: %v, want %q", advice, err, want)
		}
	}
}

func TestRunsEndAndResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	keep := func(r *Run) { r.Keep.Dir = dir }
	resume := func(r *Run) { r.Keep.Dir, r.Keep.Resume = dir, true }
	if losses, _, err := run(t, 0, func(*Run) {}); err != nil || len(losses) != 10 {
		t.Errorf("%v, %v", losses, err)
	}
	if _, _, err := run(t, 0, resume); err == nil || !strings.Contains(err.Error(), "Keep.Resume: there is no checkpoint in "+dir) {
		t.Errorf("resume of nothing: %v", err)
	}
	if losses, said, err := run(t, 5, keep); !errors.Is(err, context.Canceled) || len(losses) != 5 ||
		!strings.Contains(said, "stopped after 5 steps; Keep.Resume goes on from "+dir) {
		t.Errorf("interrupted: %v, %v\n%s", losses, err, said)
	}
	if _, _, err := run(t, 0, keep); err == nil || !strings.Contains(err.Error(), "has a checkpoint of step 5; give Keep.Resume") {
		t.Errorf("a new run in the folder of another: %v", err)
	}
	flags := func(r *Run) { r.Keep.Flags(flag.NewFlagSet("", flag.ContinueOnError), 1, ""); r.Keep.Dir = dir }
	if _, _, err := run(t, 0, flags); err == nil || !strings.Contains(err.Error(), "has a checkpoint of step 5; give -resume") {
		t.Errorf("a new run in the folder of another, by flags: %v", err)
	}
	other := func(r *Run) { resume(r); r.Keep.Settings = map[string]string{"seed": "2"} }
	if _, _, err := run(t, 0, other); err == nil || !strings.Contains(err.Error(), "-seed was 1") ||
		!strings.Contains(err.Error(), "is 2 now") {
		t.Errorf("another seed: %v", err)
	}
	var made atomic.Int64 // steps, on both ranks
	losses, said, err := run(t, 0, func(r *Run) {
		resume(r)
		step := r.Step
		r.Step = func(ctx context.Context, n int, share float64) (float64, error) {
			made.Add(1)
			return step(ctx, n, share)
		}
	})
	if err != nil || len(losses) != 10 || losses[9] != 9 || made.Load() != 2*5 || !strings.Contains(said, "resumed at step 5") {
		t.Errorf("%d steps: %v, %q, %v", made.Load(), losses, said, err)
	}
	if losses, _, err = run(t, 0, resume); err != nil || len(losses) != 10 {
		t.Errorf("resumed at the end: %v, %v", losses, err)
	}
}

// A run whose OnStep sets Steps to what there have been ends there, saves, and goes on if it is wanted.
func TestRunsStopEarly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	early := func(r *Run) {
		r.Keep.Dir, r.OnStep = dir, func(steps int, loss float64) {
			if loss >= 4 {
				r.Steps = steps
			}
		}
	}
	if losses, _, err := run(t, 0, early); err != nil || len(losses) != 5 {
		t.Errorf("stopped early: %v, %v", losses, err)
	}
	losses, said, err := run(t, 0, func(r *Run) { r.Keep.Dir, r.Keep.Resume = dir, true })
	if err != nil || len(losses) != 10 || !strings.Contains(said, "resumed at step 5") {
		t.Errorf("resumed: %v, %q, %v", losses, said, err)
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	all := func(r *Run) {
		r.Step, r.Loss, r.Params = nil, func(int, int) *dtensor.Tensor { return nil }, func(func(string, *dtensor.Tensor) bool) {}
		r.Optimizer, r.Rate = optim.NewSGD(nil, optim.SGDConfig{}), optim.Constant{Rate: 1}
	}
	for want, change := range map[string]func(r *Run){
		"Loss is nil":                            func(r *Run) { r.Loss = nil },
		"Clip NaN":                               func(r *Run) { r.Clip = math.NaN() },
		"Params is nil":                          func(r *Run) { r.Params = nil },
		"Optimizer is nil":                       func(r *Run) { r.Optimizer = nil },
		"Rate is nil":                            func(r *Run) { r.Rate = nil },
		"neither Steps nor Limit is given":       func(r *Run) { r.Steps = 0 },
		"give 1 as Limit of its optim":           func(r *Run) { r.Scaler, r.Clip = new(optim.Scaler), 1 },
		"Accumulate -1":                          func(r *Run) { r.Accumulate = -1 },
		"Rate optim.WarmupCosine{Peak:1 Floor:0": func(r *Run) { r.Rate = optim.WarmupCosine{Peak: 1, Warmup: 1, Total: 10} },
		"Rate optim.WarmupLinear{Peak:1 Floor:0": func(r *Run) { r.Rate = optim.WarmupLinear{Peak: 1, Total: 10} },
		"Rate optim.OneCycle{Peak:1 Total:10":    func(r *Run) { r.Rate = optim.OneCycle{Peak: 1, Total: 10} },
		"Rate optim.Constant{Rate:1 Warmup:3}":   func(r *Run) { r.Rate = optim.Constant{Rate: 1, Warmup: 3} },
		"Rate optim.WarmupStep{Peak:1 Factor:0.5": func(r *Run) {
			r.Rate = optim.WarmupStep{Peak: 1, Factor: 0.5, Every: 10}
		},
	} {
		_, _, err := run(t, 0, func(r *Run) { all(r); change(r) })
		if err == nil || !strings.HasPrefix(err.Error(), "test: train.Run: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestKeepTheEndAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	if _, _, err := run(t, 0, func(r *Run) { r.Keep.Dir, r.Keep.Every = dir, 0 }); err != nil {
		t.Fatal(err)
	}
	if found, err := checkpoint.List(dir); err != nil || len(found) != 1 || found[0].Step != 10 {
		t.Errorf("kept %v, %v", found, err)
	}
	if _, _, err := run(t, 0, func(r *Run) { r.Keep.Dir, r.Keep.Every = dir, -1 }); err == nil ||
		!strings.Contains(err.Error(), "Keep.Every -1") {
		t.Errorf("a negative number of steps: %v", err)
	}
	if _, _, err := run(t, 0, func(r *Run) { r.Keep.Resume = true }); err == nil || !strings.Contains(err.Error(), "nothing to go on from") {
		t.Errorf("no folder to resume from: %v", err)
	}
}

func TestLossThatIsNoNumber(t *testing.T) {
	_, _, err := run(t, 0, func(r *Run) {
		r.Step = func(ctx context.Context, step int, share float64) (float64, error) { zero := 0.0; return 1 / zero, nil }
	})
	if err == nil || !strings.Contains(err.Error(), "test: the loss of step 0 is +Inf; do something") {
		t.Errorf("%v", err)
	}
}

func TestTimeIsOver(t *testing.T) {
	losses, _, err := run(t, 0, func(r *Run) {
		r.Steps, r.Limit = 0, time.Minute
		r.Step = func(ctx context.Context, step int, share float64) (float64, error) {
			if step == 3 {
				r.Limit = time.Nanosecond
			}
			return 1, nil
		}
	})
	if err != nil || len(losses) != 4 {
		t.Errorf("%v, %v", losses, err)
	}
}

// A checkpoint that cannot be saved is told of and training goes on; the last
// one decides how the run ends.
func TestSaveFails(t *testing.T) {
	for _, mend := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "a")
		heard = func(text string) {
			if mend && strings.Contains(text, "no such file") {
				os.MkdirAll(dir, 0o777)
			}
		}
		losses, said, err := run(t, 0, func(r *Run) {
			r.Keep.Dir = dir
			step := r.Step
			r.Step = func(ctx context.Context, n int, share float64) (float64, error) {
				if n == 0 {
					os.RemoveAll(dir)
				}
				return step(ctx, n, share)
			}
		})
		heard = nil
		_, after, failed := strings.Cut(said, "no such file or directory (at train/train_test.go:")
		if len(losses) != 10 || !failed || !strings.Contains(after, "); tr") || (err == nil) != mend {
			t.Errorf("mended %v: %v, %v\n%s", mend, losses, err, said)
		}
	}
}

func TestMesh(t *testing.T) {
	for _, c := range []struct{ dp, tp, wantDP, wantTP int }{{0, 0, 1, 4}, {2, 0, 2, 2}, {0, 2, 2, 2}, {4, 1, 4, 1}, {0, 4, 1, 4}} {
		if dp, tp, err := Mesh(c.dp, c.tp, 4); dp != c.wantDP || tp != c.wantTP || err != nil {
			t.Errorf("%+v: %d %d %v", c, dp, tp, err)
		}
	}
	for _, c := range []struct {
		dp, tp int
		says   string
	}{{3, 0, "-dp 3 does not divide the 4 ranks"}, {0, 3, "-tp 3 does not"},
		{2, 3, "-dp 2 -tp 3 do not make 4 ranks; give one of them alone, as 1, 2 or 4"},
		{-1, 0, "-dp -1"}} {
		if _, _, err := Mesh(c.dp, c.tp, 4); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// fit makes a run of the Optimizer on 2 ranks that fits w to x·3, its batch in so many parts.
func fit(t *testing.T, parts int, drop float64, keep Keep, out string) (losses []float64, err error) {
	t.Helper()
	errs := commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2})
		if err != nil {
			return err
		}
		var w, x *dtensor.Tensor
		if err := dtensor.Try(ctx, mesh, func() {
			w = dtensor.Zeros(mesh, tensor.Float32, []int{4}, layout.Replicate())
			x = dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []float32{1, 2, 3, 4}, 4), layout.Shard(0))
			dtensor.Keep(w, x)
		}); err != nil {
			return err
		}
		r := Run{Program: "test", Advice: "lower the rate", Steps: 8, Accumulate: parts, Clip: 100, Metrics: out, Keep: keep, Out: io.Discard,
			Loss: func(step, part int) *dtensor.Tensor {
				x := nn.Dropout{P: drop}.Forward(x)
				return w.Mul(x).Sub(x.Scale(3)).Square().Mean(nil, false).Scale(1 / float64(max(1, parts)))
			},
			Params:    func(yield func(string, *dtensor.Tensor) bool) { yield("w", w) },
			Optimizer: optim.NewSGD([]*dtensor.Tensor{w}, optim.SGDConfig{Momentum: 0.5}),
			Rate:      optim.WarmupLinear{Peak: 0.05, Warmup: Ticks / 4, Total: Ticks}}
		if keep.Dir != "" && !keep.Resume {
			ctx = programtest.Interrupted(ctx, 5, &r.OnStep)
		}
		err = r.Do(ctx, world, func(string, ...any) {})
		if world.Rank() == 0 {
			losses = r.Losses
		}
		return err
	})
	return losses, errs[0]
}

// TestRunOfAnOptimizer holds that a Run makes its steps itself, in parts or not, that it goes on
// from its checkpoint, and that it writes its losses.
func TestRunOfAnOptimizer(t *testing.T) {
	out := filepath.Join(t.TempDir(), "losses.jsonl")
	want, err := fit(t, 0, 0, Keep{}, out)
	if err != nil || len(want) != 8 || !(want[7] < want[0]/4) {
		t.Fatalf("%v, %v", want, err)
	}
	text, err := os.ReadFile(out)
	if err != nil || strings.Count(string(text), "\n") != 8 || !strings.HasPrefix(string(text), `{"step":1,"loss":67.5,"seconds":`) {
		t.Errorf("metrics %s, %v", text, err)
	}
	if got, err := fit(t, 2, 0, Keep{}, ""); err != nil || !near(got, want) {
		t.Errorf("in two parts: %v, %v, want %v", got, err, want)
	}
	keep := Keep{Dir: filepath.Join(t.TempDir(), "a"), Every: 100}
	if _, err := fit(t, 0, 0, keep, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	keep.Resume = true
	if got, err := fit(t, 0, 0, keep, ""); err != nil || !near(got, want) {
		t.Errorf("resumed: %v, %v, want %v", got, err, want)
	}
}

// A run that goes on drops what it would have dropped.
func TestDropoutGoesOn(t *testing.T) {
	want, err := fit(t, 0, 0.5, Keep{}, "")
	if err != nil {
		t.Fatal(err)
	}
	keep := Keep{Dir: filepath.Join(t.TempDir(), "a"), Every: 100}
	if _, err := fit(t, 0, 0.5, keep, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	keep.Resume = true
	if got, err := fit(t, 0, 0.5, keep, ""); err != nil || !near(got, want) {
		t.Errorf("resumed: %v, %v, want %v", got, err, want)
	}
}

func near(got, want []float64) bool {
	step, ok := programtest.Near(got, want)
	return ok && step == len(want)
}
