package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// While the file system stands still Save returns, the program changes its
// tensors and communicates; what is written is what was there when Save was
// called.
func TestSaveIsASnapshot(t *testing.T) {
	fs := newMemFS()
	gate := make(chan struct{})
	var opened, closeGate sync.Once
	onRanks(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		opened.Do(func() {
			fs.mu.Lock()
			defer fs.mu.Unlock()
			fs.fault = func(op int, what string) error {
				fs.mu.Unlock()
				defer fs.mu.Lock()
				<-gate
				return nil
			}
		})
		if err := comm.Barrier(ctx, world); err != nil {
			return err
		}
		var state State
		counter := 0
		w := dtensor.Zeros(m, tensor.Float32, []int{6, 5}, layout.Shard(0))
		state.AddTensor("shard", w)
		state.AddTensor("whole", dtensor.Zeros(m, tensor.Float32, []int{6, 5}, layout.Replicate()))
		state.AddValue("step", &counter)
		if err := store.Save(ctx, 0, &state); err != nil {
			return err
		}
		counter = 7
		tensor.Fill(w.Local(), 9)
		state.AddValue("later", &counter)
		n := []int64{1}
		if err := comm.AllReduce(ctx, world, n, comm.Sum); err != nil || n[0] != 3 {
			return fmt.Errorf("beside the save: %d, %w", n[0], err)
		}
		if all, err := list(fs, "root"); err != nil || len(all) > 0 {
			return fmt.Errorf("%v before anything was written, %w", all, err)
		}
		if err := comm.Barrier(ctx, world); err != nil {
			return err
		}
		closeGate.Do(func() { close(gate) })
		return store.Wait()
	})
	if step := loaded(t, fs); step != 0 {
		t.Errorf("step %d", step)
	}
}

// While one rank's disk stands still TrySave returns on every rank and saves
// nothing; once it goes on the next one saves.
func TestTrySaveDoesNotWait(t *testing.T) {
	fs := newMemFS()
	gate := make(chan struct{})
	onRanks(t, 3, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fs.mu.Lock()
			fs.fault = func(op int, what string) error {
				if strings.Contains(what, "rank-00002") {
					fs.mu.Unlock()
					defer fs.mu.Lock()
					<-gate
				}
				return nil
			}
			fs.mu.Unlock()
		}
		if err := comm.Barrier(ctx, world); err != nil {
			return err
		}
		var state State
		state.AddTensor("w", dtensor.Zeros(m, tensor.Float32, []int{6, 5}, layout.Shard(0)))
		for step := range 4 {
			if started, err := store.TrySave(ctx, step, &state); err != nil || started != (step == 0) {
				return fmt.Errorf("step %d: %v, %w", step, started, err)
			}
		}
		if world.Rank() == 2 {
			close(gate)
		}
		if err := store.Wait(); err != nil {
			return err
		}
		if started, err := store.TrySave(ctx, 4, &state); err != nil || !started {
			return fmt.Errorf("afterwards: %v, %w", started, err)
		}
		return store.Wait()
	})
	all, err := list(fs, "root")
	if err != nil || len(all) != 2 || all[0].Step != 0 || all[1].Step != 4 {
		t.Errorf("%v are saved, %v", all, err)
	}
}

// If a rank gives up while a save is under way all of them hear of it, and none
// waits for ever.
func TestAbortDuringSave(t *testing.T) {
	fs := newMemFS()
	gate := make(chan struct{})
	cause := errors.New("this rank gives up")
	errs := commtest.Ranks(t.Context(), 3, func(ctx context.Context, world *comm.Comm) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fs.mu.Lock()
			fs.fault = func(op int, what string) error { <-gate; return nil }
			fs.mu.Unlock()
		}
		if err := comm.Barrier(ctx, world); err != nil {
			return err
		}
		if err := store.Save(ctx, 1, new(State)); err != nil {
			return err
		}
		if world.Rank() == 2 {
			world.Abort(cause)
			close(gate)
		}
		return store.Wait()
	})
	for r, err := range errs {
		if !errors.Is(err, comm.ErrAborted) || !strings.Contains(err.Error(), "rank 2") || !strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if all, err := list(fs, "root"); len(all) > 0 || err != nil {
		t.Errorf("%v %v", all, err)
	}
}

// A tensor whose memory is gone is an error, not a crash.
func TestSaveOfClosedScope(t *testing.T) {
	sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: newMemFS()})
		if err != nil {
			return err
		}
		var state State
		err = dtensor.Try(ctx, m, func() { state.AddTensor("w", dtensor.Zeros(m, tensor.Float32, []int{4}, layout.Shard(0))) })
		return errors.Join(err, store.Save(ctx, 1, &state), store.Wait())
	}, "checkpoint: Save: rank 0", "scope")
}

// The error of a save comes from the next one, which is made all the same.
func TestErrorOfTheSaveBefore(t *testing.T) {
	fs := newMemFS()
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		var saved []int
		store, err := Open(ctx, world, "root", Options{fs: fs, Saved: func(step int) { saved = append(saved, step) }})
		if err != nil {
			return err
		}
		var other State // has another name on each rank, which they learn of in the background
		n := 0
		other.AddValue(fmt.Sprint(world.Rank()), &n)
		if err := store.Save(ctx, 3, &other); err != nil {
			return err
		}
		if err := store.Save(ctx, 4, new(State)); err == nil {
			return errors.New("the error of step 3 is lost")
		}
		if err := errors.Join(store.Wait(), store.Wait()); err != nil {
			return err
		}
		if len(saved) != 1 || saved[0] != 4 {
			return fmt.Errorf("Saved was told of the steps %v, want 4", saved)
		}
		return nil
	})
	if e, ok, err := latest(fs, "root"); !ok || e.Step != 4 || err != nil {
		t.Errorf("%v %v %v", e, ok, err)
	}
}

// otherJob is a file system on which another job begins to save, and so removes what it
// takes for the rest of a save that failed, when a file of some name is made.
type otherJob struct {
	*memFS
	before string
}

func (o otherJob) Create(name string) (file, error) {
	if filepath.Base(name) == o.before {
		if err := o.Remove(filepath.Dir(name)); err != nil {
			return nil, err
		}
	}
	return o.memFS.Create(name)
}

func TestTwoJobsSaveInOneFolder(t *testing.T) {
	for _, before := range []string{"rank-00000.safetensors", indexName + temporary} {
		fs := otherJob{newMemFS(), before}
		sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			store, err := Open(ctx, world, "root", Options{fs: fs})
			if err != nil {
				return err
			}
			all := map[string]*dtensor.Tensor{"matrix": dtensor.Zeros(m, tensor.Int16, []int{7, 5}, layout.Shard(0))}
			return errors.Join(store.Save(ctx, 1, stateOf(all)), store.Wait())
		}, "root/step-000001.tmp", "and no other job may save there")
	}
}

// train makes steps of gradient descent with momentum on w, from step on, with
// the arithmetic of optimizers: in place, element by element.
func train(w, moment *dtensor.Tensor, from, to int) {
	for step := from; step < to; step++ {
		tensor.ScaleTo(moment.Local(), 0.9)
		tensor.AddScaledTo(moment.Local(), 0.1+float64(step), w.Local())
		tensor.AddScaledTo(w.Local(), -0.01, moment.Local())
	}
}

// Stopped after a save and resumed on other ranks, a run ends with the same bits.
func TestResumedRunIsTheSame(t *testing.T) {
	begin := func(m *dtensor.Mesh, s setting) (w, moment *dtensor.Tensor, state *State) {
		shape := []int{7, 5}
		w = dtensor.Normal(m, dtensor.Key{Seed: 3}, 0, 1, shape, s.placed(shape)...)
		moment = dtensor.Zeros(m, tensor.Float32, shape, s.placed(shape)...)
		state = new(State)
		state.AddTensors("model.", func(yield func(string, *dtensor.Tensor) bool) { yield("w", w) })
		state.AddTensor("optimizer.m.w", moment)
		return w, moment, state
	}
	var want []float32
	onSetting(t, settings()[0], func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		w, moment, _ := begin(m, settings()[0])
		train(w, moment, 0, 6)
		want = tensor.ToSlice[float32](w.Local())
		return nil
	})
	for i, before := range settings() {
		fs := newMemFS()
		onSetting(t, before, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			store, err := Open(ctx, world, "root", Options{fs: fs})
			if err != nil {
				return err
			}
			w, moment, state := begin(m, before)
			train(w, moment, 0, 4)
			err = store.Save(ctx, 4, state)
			train(w, moment, 4, 5) // lost
			return errors.Join(err, store.Wait())
		})
		after := settings()[(i+5)%len(settings())]
		onSetting(t, after, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			store, err := Open(ctx, world, "root", Options{fs: fs})
			if err != nil {
				return err
			}
			w, moment, state := begin(m, after)
			tensor.Fill(w.Local(), -1)
			step, _, err := store.Resume(ctx, state)
			if err != nil {
				return err
			}
			train(w, moment, step, 6)
			if b, ok := local(w); ok {
				got := tensor.Data[float32](w.Local())
				for u := range runs(whole(w.Shape()), b) {
					for i := range u.n {
						if at := flatIndex(w, u.x+i); got[u.y+i] != want[at] {
							err = fmt.Errorf("%s to %s: element %d is %v, want %v", before.name, after.name, at, got[u.y+i], want[at])
						}
					}
				}
			}
			return err
		})
	}
}

// A map is loaded as it was saved: entries that it had before are gone.
func TestValueOfAMap(t *testing.T) {
	fs := newMemFS()
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		var saved, found State
		saved.AddValue("seen", &map[string]int{"a": 1})
		if err := store.Save(ctx, 1, &saved); err != nil {
			return err
		}
		if err := store.Wait(); err != nil {
			return err
		}
		seen := map[string]int{"b": 2}
		held := seen // the program may hold it elsewhere
		found.AddValue("seen", &seen)
		if _, _, err := store.Resume(ctx, &found); err != nil || !maps.Equal(held, map[string]int{"a": 1}) {
			return fmt.Errorf("%v, %w", held, err)
		}
		return nil
	})
}

// A value is loaded as it was saved: what JSON leaves out because it was zero is zero, what the type leaves out on purpose
// stays, and what is pointed to is changed in place.
func TestValueWithFieldsThatJSONOmits(t *testing.T) {
	type inner struct {
		Step int `json:"step,omitempty"`
	}
	type embedded struct {
		Phase string `json:",omitempty"`
	}
	type progress struct {
		embedded
		Best  float64        `json:"best,omitempty"`
		Since time.Time      `json:"since,omitzero"`
		Last  *inner         `json:"last,omitempty"`
		Of    *inner         `json:"of"`
		Each  []inner        `json:"each"`
		Pair  [2]inner       `json:"pair"`
		Names map[string]int `json:"names,omitempty"`
		Any   any            `json:"any"`
		Log   func()         `json:"-"`
	}
	fs := newMemFS()
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		now := progress{Of: &inner{}, Each: []inner{{}, {3}}, Any: &inner{}, Names: map[string]int{}}
		want, of, held, names := now, now.Of, now.Any, now.Names
		var state State
		state.AddValue("progress", &now)
		if err := errors.Join(store.Save(ctx, 1, &state), store.Wait()); err != nil {
			return err
		}
		now.Phase, now.Best, now.Since, now.Last, now.Log = "end", 3, time.Now(), &inner{1}, func() {}
		now.Pair, now.Each, names["b"], of.Step, held.(*inner).Step = [2]inner{{1}, {2}}, []inner{{8}, {9}}, 1, 7, 7
		if _, _, err := store.Resume(ctx, &state); err != nil {
			return err
		}
		if now.Log == nil || now.Of != of || now.Any != held {
			return errors.New("what JSON leaves out on purpose, or what is pointed to, was replaced")
		}
		if now.Log = nil; !reflect.DeepEqual(now, want) {
			return fmt.Errorf("loaded %+v, want %+v", now, want)
		}
		return nil
	})
}

// What interfaces in a value hold is saved whole, or refused.
func TestValueWithInterfaces(t *testing.T) {
	type hidden struct{ A, b int }
	fs := newMemFS()
	for what, its := range map[string]any{
		"a list": []any{1, hidden{1, 2}}, "a map": map[string]any{"x": []any{&hidden{}}}, "itself": hidden{},
	} {
		sameError(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			store, err := Open(ctx, world, "root", Options{fs: fs})
			if err != nil {
				return err
			}
			var state State
			state.AddValue(what, &its)
			return errors.Join(store.Save(ctx, 1, &state), store.Wait())
		}, "checkpoint: Save: rank 0: value \""+what+"\": encoding/json would leave out the field b of checkpoint.hidden")
	}
}

// A communicator saves what its ranks hold, and no tensor of which others hold a part.
func TestSaveByTooFewRanks(t *testing.T) {
	fs := newMemFS()
	sameError(t, 4, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		half, err := world.Split(ctx, world.Rank()/2, world.Rank())
		if err != nil {
			return err
		}
		store, err := Open(ctx, half, fmt.Sprint("root", world.Rank()/2), Options{fs: fs})
		if err != nil {
			return err
		}
		var state State
		state.AddTensor("x", dtensor.Zeros(m, tensor.Float32, []int{8, 2}, layout.Shard(0)))
		if err := store.Save(ctx, 1, &state); err != nil {
			return err
		}
		return store.Wait()
	}, "checkpoint: Save: ", `"x": ranks of the communicator hold 8 of its 16 elements`, "all ranks of its mesh, [8, 2] S(0) on ")
}

// TestSaveByOneRank: who saves on rank 0 alone, as is usual elsewhere, reads on all ranks that the call is one of this package.
func TestSaveByOneRank(t *testing.T) {
	fs := newMemFS()
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, _ *dtensor.Mesh) error {
		var err error
		if world.Rank() == 0 {
			_, err = Open(ctx, world, "root", Options{fs: fs})
		} else {
			err = comm.Barrier(ctx, world)
		}
		if want := "rank 0 called AllReduce min int64[3] for package checkpoint at "; err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got %v, want %q", err, want)
		}
		return nil
	})
}

// What JSON refuses or loses is saved and loaded all the same.
func TestValuesThatAreNotJSON(t *testing.T) {
	type progress struct {
		Best  float64
		Seen  map[string]float32
		Order *rand.PCG
	}
	fs := newMemFS()
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		best, losses, pcg := math.Inf(1), []float64{1, math.NaN(), math.Inf(-1)}, rand.NewPCG(1, 2)
		signal := complex(1, 2)
		bounds := map[string]float64{"a": math.Inf(1)}
		all := progress{Best: math.Inf(-1), Seen: map[string]float32{"x": 1}, Order: rand.NewPCG(3, 4)}
		var state State
		state.AddValue("best", &best)
		state.AddValue("losses", &losses)
		state.AddValue("order", pcg)
		state.AddValue("the same", &pcg)
		state.AddValue("signal", &signal)
		state.AddValue("bounds", &bounds)
		state.AddValue("all", &all)
		if err := store.Save(ctx, 1, &state); err != nil {
			return err
		}
		if err := store.Wait(); err != nil {
			return err
		}
		next, its := pcg.Uint64(), all.Order.Uint64()
		best, losses, signal, all.Best, all.Seen["y"] = 3, []float64{1, 2, 3, 4}, 0, 0, 2
		held := bounds
		held["b"] = 1
		if _, _, err := store.Resume(ctx, &state); err != nil {
			return err
		}
		switch {
		case !math.IsInf(best, 1), len(losses) != 3, losses[0] != 1, !math.IsNaN(losses[1]), !math.IsInf(losses[2], -1),
			signal != complex(1, 2), !maps.Equal(held, map[string]float64{"a": math.Inf(1)}), !math.IsInf(all.Best, -1), len(all.Seen) != 1:
			return fmt.Errorf("%v, %v, %v, %v, %v", best, losses, signal, held, all)
		case pcg.Uint64() != next, all.Order.Uint64() != its:
			return errors.New("a generator of random numbers goes on elsewhere")
		}
		return nil
	})
}
