package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// steps saves a state whose every number is the step, for each of the steps, and
// returns the errors of the last one by rank.
func steps(t *testing.T, fs *memFS, ranks int, o Options, list ...int) []error {
	t.Helper()
	o.fs, o.blockBytes = fs, 16
	errs := make([]error, ranks)
	onRanks(t, ranks, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", o)
		if err != nil {
			errs[world.Rank()] = err
			return nil
		}
		for _, step := range list {
			var state State
			state.AddValue("step", &step)
			for name, p := range map[string]layout.Placement{"shard": layout.Shard(0), "whole": layout.Replicate()} {
				state.AddTensor(name, dtensor.Full(m, tensor.Float32, float64(step), []int{6, 5}, p))
			}
			if err := store.Save(ctx, step, &state); err != nil {
				return fmt.Errorf("a result before Wait: %w", err)
			}
			errs[world.Rank()] = store.Wait()
		}
		return nil
	})
	return errs
}

// loaded resumes on one rank and returns the step, whose numbers must be its own.
func loaded(t *testing.T, fs *memFS) (step int) {
	t.Helper()
	onRanks(t, 1, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, "root", Options{fs: fs})
		if err != nil {
			return err
		}
		var state State
		value := -1
		state.AddValue("step", &value)
		shard := dtensor.Zeros(m, tensor.Float32, []int{6, 5}, layout.Replicate())
		whole := dtensor.Zeros(m, tensor.Float32, []int{6, 5}, layout.Replicate())
		state.AddTensor("shard", shard)
		state.AddTensor("whole", whole)
		var ok bool
		if step, ok, err = store.Resume(ctx, &state); err != nil || !ok {
			return fmt.Errorf("%v, %w", ok, err)
		}
		for _, x := range []*dtensor.Tensor{shard, whole} {
			for _, v := range tensor.Data[float32](x.Local()) {
				if v != float32(step) || value != step {
					return fmt.Errorf("step %d has the number %v and the value %d", step, v, value)
				}
			}
		}
		return nil
	})
	return step
}

// Every operation of a save fails in turn, alone or with all that follow, and the
// machine crashes. The last complete checkpoint always loads; one that was said
// to be saved is that one; and the next save succeeds and leaves nothing behind.
func TestCrashAfterEveryOperation(t *testing.T) {
	again := errors.New("the file system is gone")
	for _, ranks := range []int{1, 2, 3} {
		for _, stop := range []bool{false, true} {
			base := newMemFS()
			for r, err := range steps(t, base, ranks, Options{Keep: 1}, 1) {
				if err != nil {
					t.Fatalf("rank %d: %v", r, err)
				}
			}
			rng := rand.New(rand.NewPCG(1, uint64(ranks)))
			for k := 1; ; k++ {
				fs := base.crash(nil)
				hit := ""
				fs.fault = func(op int, what string) error {
					switch {
					case op == k:
						hit = what
						return fmt.Errorf("%s: %w", what, errInjected)
					case stop && op > k:
						return again
					}
					return nil
				}
				errs := steps(t, fs, ranks, Options{Keep: 1}, 2)
				fs.fault = nil
				if hit == "" {
					if k < 10 {
						t.Errorf("a save has only %d operations", k-1)
					}
					break
				}
				name := fmt.Sprintf("%d ranks, stop %v, operation %d, %s", ranks, stop, k, hit)
				for r, err := range errs {
					if err == nil || err.Error() != errs[0].Error() {
						t.Errorf("%s: rank %d: %v; rank 0: %v", name, r, err, errs[0])
					}
				}
				disks := []*memFS{fs.crash(nil), fs.crash(rng), fs.crash(rng), fs.crash(rng), fs}
				for i, disk := range disks {
					if step := loaded(t, disk); step != 1 && step != 2 {
						t.Errorf("%s, disk %d: step %d loads", name, i, step)
					}
					for _, err := range steps(t, disk, ranks, Options{Keep: 1}, 3) {
						if err != nil {
							t.Errorf("%s, disk %d: the next save: %v", name, i, err)
						}
					}
					if names, _ := disk.List("root"); len(names) != 2 || names[0] != lockName || loaded(t, disk.crash(nil)) != 3 {
						t.Errorf("%s, disk %d: after the next save there are %v", name, i, names)
					}
				}
				if t.Failed() {
					return
				}
			}
		}
	}
}

// What Wait says is saved survives any crash, before the next save and during it.
func TestSavedIsDurable(t *testing.T) {
	fs := newMemFS()
	rng := rand.New(rand.NewPCG(2, 2))
	for step := range 5 {
		for _, err := range steps(t, fs, 2, Options{Keep: 2}, step) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range []*rand.Rand{nil, rng, rng} {
			if got := loaded(t, fs.crash(r)); got != step {
				t.Fatalf("after the crash step %d loads, want %d", got, step)
			}
		}
	}
	all, err := list(fs, "root")
	if err != nil || len(all) != 2 || all[0].Step != 3 || all[1].Step != 4 {
		t.Errorf("%v %v are left; want 3 and 4", all, err)
	}
}

func TestSavingAStepAgain(t *testing.T) {
	fs := newMemFS()
	o := Options{Keep: 2}
	steps(t, fs, 2, o, 7, 9, 11)
	for _, err := range steps(t, fs, 1, o, 9, 9) {
		if err != nil {
			t.Fatal(err)
		}
	}
	names, _ := fs.List("root")
	if want := fmt.Sprint([]string{lockName, "step-000009.2", "step-000011"}); fmt.Sprint(names) != want {
		t.Errorf("%v are left, want %v", names, want)
	}
	// An earlier step than those that are kept is not removed by its own save.
	steps(t, fs, 1, o, 2)
	if names, _ := fs.List("root"); len(names) != 4 {
		t.Errorf("%v are left; step 2 was just saved", names)
	}
	if got := loaded(t, fs); got != 11 {
		t.Errorf("step %d loads, want 11", got)
	}
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	fs := newMemFS()
	for _, name := range []string{"root/step-000001.tmp", "root/notes.tmp", "root/step-1", "root/step-000004"} {
		if err := fs.Mkdir(name); err != nil {
			t.Fatal(err)
		}
	}
	steps(t, fs, 1, Options{Keep: 1}, 2, 3)
	names, _ := fs.List("root")
	if want := "[lock notes.tmp step-000003 step-000004 step-1]"; fmt.Sprint(names) != want {
		t.Errorf("%v are left, want %v", names, want)
	}
}
