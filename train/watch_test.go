package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// learn trains a weight that all ranks have on 20 steps; change may do so before each step.
func learn(t *testing.T, ranks int, keep Keep, change func(w *dtensor.Tensor, rank, step int)) []error {
	t.Helper()
	return commtest.Ranks(t.Context(), ranks, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size()})
		if err != nil {
			return err
		}
		m.CheckReplicas(false) // which would find it first
		w := dtensor.Full(m, tensor.Float32, 1, []int{6, 5}, layout.Replicate())
		r := Run{Program: "test", Steps: 20, Unit: "things", PerStep: 1, Out: new(strings.Builder), CheckReplicas: 4, Keep: keep,
			Loss: func(step, _ int) *dtensor.Tensor {
				change(w, world.Rank(), step)
				return w.Mul(w).Sum(nil, false)
			},
			Params:    func(yield func(string, *dtensor.Tensor) bool) { yield("w", w) },
			Optimizer: optim.NewSGD([]*dtensor.Tensor{w}, optim.SGDConfig{Momentum: 0.5}), Rate: optim.Constant{Rate: 0.01}}
		return r.Do(ctx, world, func(string, ...any) {})
	})
}

// TestReplicasAreWatched changes an element on one rank.
func TestReplicasAreWatched(t *testing.T) {
	errs := learn(t, 3, Keep{}, func(w *dtensor.Tensor, rank, step int) {
		if rank == 2 && step == 6 {
			tensor.Edit(w.Local(), func(v []float32) { v[13] += 1e-6 })
		}
	})
	for rank, err := range errs {
		differs, ok := errors.AsType[*checkpoint.ReplicaError](err)
		if !ok || differs.Name != "model.w" || fmt.Sprint(differs.Index) != "[2 3]" || !strings.Contains(err.Error(), "before step 8") ||
			!strings.Contains(err.Error(), "on rank 2") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	for rank, err := range learn(t, 3, Keep{}, func(*dtensor.Tensor, int, int) {}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestCostOfAWatch: to wait for a rank that comes late to a comparison is no cost of it.
func TestCostOfAWatch(t *testing.T) {
	const late = time.Second
	for rank, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size()})
		if err != nil {
			return err
		}
		var state checkpoint.State
		state.AddTensor("w", dtensor.Full(m, tensor.Float32, 1, []int{6, 5}, layout.Replicate()))
		r := Run{Keep: Keep{State: &state}}
		watch, err := r.newWatcher(ctx, world, false)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			time.Sleep(late)
		}
		start := time.Now()
		if err := watch.check(ctx); err != nil {
			return err
		}
		if all := time.Since(start); world.Rank() == 0 && watch.cost > all-late/2 {
			return fmt.Errorf("a comparison that waited some %v of its %v costs %v", late, all, watch.cost)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestSealedRuns changes an element in a step that begins sealed, on one rank that alone holds it; and in one that does not.
func TestSealedRuns(t *testing.T) {
	for _, step := range []int{7, 8} {
		for rank, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
			if err != nil {
				return err
			}
			w := dtensor.Full(m, tensor.Float32, 1, []int{6, 5}, layout.Shard(0))
			r := Run{Program: "test", Steps: 20, Unit: "things", PerStep: 1, Out: new(strings.Builder), CheckReplicas: 4, Sealed: true,
				Loss: func(now, _ int) *dtensor.Tensor {
					if now == step && world.Rank() == 1 {
						tensor.Edit(w.Local(), func(v []float32) { v[7] = 1.5 })
					}
					return w.Mul(w).Sum(nil, false)
				},
				Params:    func(yield func(string, *dtensor.Tensor) bool) { yield("w", w) },
				Optimizer: optim.NewSGD([]*dtensor.Tensor{w}, optim.SGDConfig{Momentum: 0.5}), Rate: optim.Constant{Rate: 0.01}}
			return r.Do(ctx, world, func(string, ...any) {})
		}) {
			changed, ok := errors.AsType[*checkpoint.ChangedError](err)
			if step == 7 && err != nil {
				t.Errorf("step 8 does not begin sealed: %v", err)
			}
			if step == 8 && (!ok || changed.Name != "model.w" || fmt.Sprint(changed.Index) != "[4 2]" || changed.Rank != 1 ||
				!strings.Contains(err.Error(), "step 9")) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
}

// TestSealedSteps changes an element that one rank alone holds before a step's update, of what Lift is told of and of what no step
// updates; and after the update.
func TestSealedSteps(t *testing.T) {
	for i, c := range []struct {
		name  string // of the tensor that changes; "": w, after its update
		index string // that is found
	}{{"w", "[4 2]"}, {"fixed", "[7]"}, {"", ""}} {
		for rank, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
			if err != nil {
				return err
			}
			w := dtensor.Full(m, tensor.Float32, 1, []int{6, 5}, layout.Shard(0))
			fixed := dtensor.Full(m, tensor.Float32, 2, []int{8}, layout.Shard(0))
			opt := optim.NewSGD([]*dtensor.Tensor{w}, optim.SGDConfig{Momentum: 0.5})
			var state checkpoint.State
			state.AddTensor("w", w)
			state.AddTensor("fixed", fixed)
			state.AddTensors("optimizer.", opt.State())
			change := func(x *dtensor.Tensor, at, step int) {
				if step == 8 && world.Rank() == 1 {
					tensor.Edit(x.Local(), func(v []float32) { v[at] = 1.5 })
				}
			}
			r := Run{Program: "test", Steps: 20, Unit: "things", PerStep: 1, Out: new(strings.Builder), CheckReplicas: 4, Sealed: true,
				Keep: Keep{State: &state}}
			r.Step = func(ctx context.Context, step int, _ float64) (float64, error) {
				value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return w.Mul(w).Sum(nil, false) }, w)
				if err != nil {
					return 0, err
				}
				switch c.name {
				case "w":
					change(w, 7, step)
				case "fixed":
					change(fixed, 3, step)
				}
				r.Lift(append(nn.Tensors(opt.State()), w)...)
				if err = opt.Step(grads, 0.01); c.name == "" {
					change(w, 7, step)
				}
				return value.Item(), err
			}
			return r.Do(ctx, world, func(string, ...any) {})
		}) {
			changed, ok := errors.AsType[*checkpoint.ChangedError](err)
			if c.name == "" && err != nil {
				t.Errorf("%d: rank %d: %v", i, rank, err)
			}
			if c.name != "" && (!ok || changed.Name != c.name || fmt.Sprint(changed.Index) != c.index || changed.Rank != 1 ||
				!strings.Contains(err.Error(), "step 9") || !strings.Contains(err.Error(), "Run.Lift")) {
				t.Errorf("%d: rank %d: %v", i, rank, err)
			}
		}
	}
}

// TestProductsAreWatched counts what ranks send each other of products, in steps of which they are sampled.
func TestProductsAreWatched(t *testing.T) {
	const ranks, steps, every = 3, 200, 4
	for rank, err := range commtest.Ranks(t.Context(), ranks, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
		if err != nil {
			return err
		}
		m.SetSameBits(true)
		w := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{7, 5}, layout.Shard(0))
		x := dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{4, 5}, layout.Replicate())
		r := Run{Program: "test", Steps: steps, Unit: "things", PerStep: 1, Out: new(strings.Builder), CheckReplicas: every,
			Loss:      func(int, int) *dtensor.Tensor { return x.Linear(w, nil).Square().Sum(nil, false) },
			Params:    func(yield func(string, *dtensor.Tensor) bool) { yield("w", w) },
			Optimizer: optim.NewSGD([]*dtensor.Tensor{w}, optim.SGDConfig{}), Rate: optim.Constant{Rate: 0.001}}
		if err := r.Do(ctx, world, func(string, ...any) {}); err != nil {
			return err
		}
		causes := world.Stats().Causes
		for kind, calls := range map[comm.Kind]int{comm.SendKind: 2, comm.RecvKind: 2, comm.AllGatherKind: 1} {
			if got := causes[comm.Cause{Kind: kind, Cause: "ProductSample"}].Calls; got != calls*(steps/every-1) {
				return fmt.Errorf("%v: %d calls in %d steps", kind, got, steps)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestDigestsOfRuns compares runs that are the same, interrupted or not, and one that is not.
func TestDigestsOfRuns(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	nothing := func(*dtensor.Tensor, int, int) {}
	file := func(path string) { t.Setenv(job.DigestVar, path) }
	must := func(errs []error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	file(a)
	must(learn(t, 1, Keep{}, nothing))
	file(b)
	must(learn(t, 2, Keep{}, nothing)) // every rank has the same loss, so the sums are exact
	d, err := checkpoint.Diff(a, b)
	if err != nil || !d.Equal() || d.Compared != 20 {
		t.Errorf("the same runs: %+v, %v", d, err)
	}
	file(c)
	must(learn(t, 2, Keep{}, func(w *dtensor.Tensor, _, step int) {
		if step == 11 {
			tensor.Edit(w.Local(), func(v []float32) { v[29] *= 1.001 })
		}
	}))
	d, err = checkpoint.Diff(a, c)
	if err != nil || d.Step != 12 || len(d.Tensors) != 3 {
		t.Fatalf("a weight was changed in the step that makes 12: %+v, %v", d, err)
	}
	for i, name := range []string{"gradient.w", "model.w", "optimizer.momentum.0"} {
		if got := d.Tensors[i]; got.Name != name || fmt.Sprint(got.Ranges) != "[[28 30]]" {
			t.Errorf("%+v, want a difference of %s in elements 28 and 29", got, name)
		}
	}
	t.Setenv(job.DigestEveryVar, "none")
	if errs := learn(t, 1, Keep{}, nothing); errs[0] == nil || !strings.Contains(errs[0].Error(), "GORUN_DIGEST_EVERY=none is not a number") {
		t.Errorf("got %v", errs[0])
	}
}

// Each call of a step has the line of the program that led to it, however many functions of the libraries lie between.
func TestLinesOfCalls(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: 2})
		if err != nil {
			return err
		}
		block := nn.NewBlock(nn.NewInit(mesh, 1), nn.BlockConfig{Width: 8, Heads: 2, TensorAxis: "tp", Sequence: true})
		x := dtensor.Normal(mesh, dtensor.Key{Seed: 1}, 0, 1, []int{2, 4, 8}, layout.Shard(1))
		r := Run{Steps: 1, Accumulate: 2, Params: block.Params(), Optimizer: optim.NewSGD(nn.Tensors(block.Params()), optim.SGDConfig{}),
			Rate: optim.Constant{Rate: 0.1}, Out: io.Discard, Loss: func(step, part int) *dtensor.Tensor {
				return dtensor.Recompute(nn.Sequential{block}.Forward, x).Square().Mean(nil, false)
			}}
		recording := world.Record()
		if err := r.Do(ctx, world, nil); err != nil {
			return err
		}
		events := recording.Stop()
		if len(events) < 20 {
			return fmt.Errorf("%d calls", len(events))
		}
		for _, e := range events {
			if line, _, _ := strings.Cut(e.Site(), ":"); line != "train/watch_test.go" {
				return fmt.Errorf("%v for %s is said to be at %s", e.Kind, e.Cause, e.Site())
			}
		}
		return nil
	})
}
