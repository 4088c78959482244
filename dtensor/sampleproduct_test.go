package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// sampledModel returns a function that runs and differentiates products of every kind, and its parameters by name.
func sampledModel(m *dtensor.Mesh, dt tensor.DType) (run func(ctx context.Context) error, named func(yield func(string, T) bool)) {
	R, S := layout.Replicate(), layout.Shard
	last := len(m.Axes()) - 1
	normal := func(stream uint64, p layout.Placement, shape ...int) T {
		places := m.Every(R)
		places[last] = p
		return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, places...).Cast(dt)
	}
	rows := m.Every(R)
	if last > 0 {
		rows[0] = S(0)
	}
	x := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{7, 5, 64}, rows...).Cast(dt)
	params := []T{normal(1, S(0), 1024, 64), normal(2, S(0), 1024), normal(3, S(1), 33, 1024), normal(4, R, 33)}
	run = func(ctx context.Context) error {
		_, _, err := dtensor.ValueAndGrad(ctx, func() T {
			h := x.Linear(params[0], params[1]).Linear(params[2], params[3]) // [7, 5, 33]
			both := h.MatMul(h.Transpose(1, 2))                              // [7, 5, 5]
			return both.MatMul(h).Cast(tensor.Float32).Sum(nil, false)
		}, params...)
		return err
	}
	return run, func(yield func(string, T) bool) {
		for i, p := range params {
			if !yield(fmt.Sprint("p", i), p) {
				return
			}
		}
	}
}

// stepsOf returns how many steps a test makes of those in which no rank is faulty: each takes long under a detector or an emulator.
func stepsOf(steps, faulty int) int {
	if testing.Short() && faulty < 0 {
		return (steps + 9) / 10
	}
	return steps
}

// A rank that multiplies wrongly is found by the next one, forward and backward; right products are never reported.
func TestSampledProducts(t *testing.T) {
	for _, c := range []struct {
		shape  []int
		dt     tensor.DType
		faulty int // negative: none
		steps  int
	}{
		{[]int{1}, tensor.Float32, -1, 3}, {[]int{2}, tensor.Float32, -1, 200}, {[]int{3}, tensor.Float32, -1, 30},
		{[]int{3}, tensor.BFloat16, -1, 30}, {[]int{2, 2}, tensor.Float64, -1, 20},
		{[]int{2}, tensor.Float32, 1, 20}, {[]int{3}, tensor.Float32, 0, 20}, {[]int{2, 2}, tensor.Float32, 3, 20},
		{[]int{3}, tensor.BFloat16, 2, 20}, {[]int{2, 2}, tensor.BFloat16, 1, 20},
	} {
		ops := make([]map[string]int, 4)
		for rank, err := range meshtest.OnFaulty(t, c.shape, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh,
			d *meshtest.Faulty) error {
			run, named := sampledModel(m, c.dt)
			ops[world.Rank()] = map[string]int{}
			for step := range stepsOf(c.steps, c.faulty) {
				sample := m.SampleProduct(uint64(step), named)
				d.On = world.Rank() == c.faulty
				err := run(ctx)
				d.On = false
				if err != nil {
					return err
				}
				before := world.Stats()
				err = sample.Check(ctx, world)
				after := world.Stats()
				calls := func(k comm.Kind) int { return after.Kinds[k].Calls - before.Kinds[k].Calls }
				if got := []int{calls(comm.SendKind), calls(comm.RecvKind), calls(comm.AllGatherKind)}; c.faulty < 0 &&
					(world.Size() > 1 && !slices.Equal(got, []int{2, 2, 1}) || after.Total().Calls-before.Total().Calls != got[0]+got[1]+got[2]) {
					return fmt.Errorf("Check makes %v sends, receives and gathers", got)
				}
				if c.faulty < 0 {
					if err != nil {
						return err
					}
					continue
				}
				wrong, ok := errors.AsType[*dtensor.ProductError](err)
				if !ok {
					return fmt.Errorf("step %d: found %v, want that rank %d is wrong", step, err, c.faulty)
				}
				if next := (c.faulty + 1) % world.Size(); wrong.Rank != c.faulty || wrong.By != next || wrong.Also ||
					!strings.Contains(wrong.Line, "sampleproduct_test.go") || !strings.Contains(err.Error(), fmt.Sprint("on rank ", c.faulty, ", but")) {
					return fmt.Errorf("step %d: %w", step, err)
				}
				ops[world.Rank()][wrong.Op+" "+wrong.Tensor]++
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("mesh %v, %v, rank %d faulty: rank %d: %v", c.shape, c.dt, c.faulty, rank, err)
			}
			if c.faulty >= 0 && c.dt == tensor.Float32 && (len(ops[rank]) < 3 || ops[rank]["Linear p0"] == 0) {
				t.Errorf("mesh %v: of %v products were found", c.shape, ops[rank])
			}
		}
	}
}

// One bit of one element is found where it is, if it is in the sample; and a rank that always computes wrongly is known by that
// two of its neighbours differ.
func TestSampledBits(t *testing.T) {
	for rank, err := range meshtest.OnFaulty(t, []int{3}, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh,
		d *meshtest.Faulty) error {
		normal := func(stream uint64, shape ...int) T {
			return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, layout.Replicate()).Redistribute(layout.Shard(0))
		}
		a, b := normal(1, 20, 40), dtensor.Normal(m, dtensor.Key{Stream: 2}, 0, 1, []int{40, 8}, layout.Replicate())
		none := func(func(string, T) bool) {}
		multiply := func(step int) (*dtensor.ProductError, error) {
			sample := m.SampleProduct(uint64(step), none)
			if err := dtensor.Try(ctx, m, func() { a.MatMul(b) }); err != nil {
				return nil, err
			}
			err := sample.Check(ctx, world)
			wrong, _ := errors.AsType[*dtensor.ProductError](err)
			return wrong, err
		}
		for only := range 6 * 8 { // the last rank has 6 rows, the others 7
			d.Only = only
			d.On = world.Rank() == 2
			sample := m.SampleProduct(uint64(only), none)
			if err := dtensor.Try(ctx, m, func() { a.MatMul(b) }); err != nil {
				return err
			}
			d.On = false
			err := sample.Check(ctx, world)
			wrong, ok := errors.AsType[*dtensor.ProductError](err)
			if want := fmt.Sprint([]int{14 + only/8, only % 8}); !ok || fmt.Sprint(wrong.Index) != want || wrong.Rank != 2 || wrong.Op != "MatMul" {
				return fmt.Errorf("element %d: %v, want %s", only, err, want)
			}
		}
		d.Only, d.On = -1, world.Rank() == 1
		if wrong, err := multiply(1); wrong == nil || wrong.Rank != 1 || !wrong.Also ||
			!strings.Contains(err.Error(), "rank 1 differs from a third rank too") {
			return fmt.Errorf("a rank that is faulty in the check too: %w", err)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A rank that attends wrongly is found by the next one, forward and backward, and so are elements of each result that are wrong alone;
// right ones are never reported.
func TestSampledAttention(t *testing.T) {
	for _, c := range []struct {
		shape         []int
		dt            tensor.DType
		causal        bool
		queries, keys int
		faulty        int // negative: none
		inputs        bool
		steps         int
	}{
		{[]int{2}, tensor.Float32, true, 135, 135, -1, false, 100}, {[]int{2}, tensor.Float32, false, 70, 150, -1, false, 20},
		{[]int{3}, tensor.BFloat16, true, 135, 135, -1, false, 20}, {[]int{2}, tensor.Float64, true, 150, 70, -1, false, 20},
		{[]int{2}, tensor.Float32, true, 1100, 1100, -1, false, 5}, {[]int{2}, tensor.Float32, true, 70, 150, -1, false, 20},
		{[]int{2}, tensor.Float32, true, 135, 135, 1, false, 20}, {[]int{3}, tensor.BFloat16, false, 70, 30, 0, false, 20},
		{[]int{3}, tensor.Float32, true, 135, 135, 2, true, 20}, {[]int{2, 2}, tensor.Float64, false, 20, 90, 3, true, 20},
	} {
		ops := map[string]int{}
		operands := map[string]string{"ScaledDotProductAttention": "q", "gradient of ScaledDotProductAttention, of q": "q",
			"gradient of ScaledDotProductAttention, of k": "k", "gradient of ScaledDotProductAttention, of v": "v"}
		for rank, err := range meshtest.OnFaulty(t, c.shape, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh,
			d *meshtest.Faulty) error {
			normal := func(stream uint64, shape ...int) T {
				return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, m.Every(layout.Replicate())...).
					Redistribute(attentionPlaces(m)...).Cast(c.dt)
			}
			q, k, v := normal(1, 2, 6, c.queries, 9), normal(2, 2, 6, c.keys, 9), normal(3, 2, 6, c.keys, 6)
			named := func(yield func(string, T) bool) { _ = yield("q", q) && yield("k", k) && yield("v", v) }
			d.Inputs = c.inputs
			for step := range stepsOf(c.steps, c.faulty) {
				sample := m.SampleProduct(uint64(step), named)
				d.On = world.Rank() == c.faulty
				_, _, err := dtensor.ValueAndGrad(ctx, func() T {
					return dtensor.ScaledDotProductAttention(q, k, v, c.causal).Cast(tensor.Float32).Square().Sum(nil, false)
				}, q, k, v)
				d.On = false
				if err != nil {
					return err
				}
				err = sample.Check(ctx, world)
				wrong, ok := errors.AsType[*dtensor.ProductError](err)
				if ok && c.faulty >= 0 && wrong.Rank == c.faulty && strings.Contains(wrong.Line, "sampleproduct_test.go") &&
					wrong.Tensor == operands[wrong.Op] {
					if world.Rank() == 0 {
						ops[wrong.Op]++
					}
				} else if c.faulty >= 0 || err != nil {
					return fmt.Errorf("step %d: found %v, want that rank %d is wrong", step, err, c.faulty)
				}
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("%v: rank %d: %v", c, rank, err)
			}
		}
		if c.faulty >= 0 && len(ops) != len(operands) {
			t.Errorf("%v: of %v wrong results were found", c, ops)
		}
	}
}

// attentionPlaces divides the heads by the last axis of a mesh, and the batch by the one before it.
func attentionPlaces(m *dtensor.Mesh) []layout.Placement {
	if len(m.Axes()) == 1 {
		return []layout.Placement{layout.Shard(1)}
	}
	return []layout.Placement{layout.Shard(0), layout.Shard(1)}
}

// An element of attention that one rank alone computes wrongly, or of its gradients, is named once a sample has it.
func TestSampledBitsOfAttention(t *testing.T) {
	const heads, queries, keys, size = 2, 3, 2, 2 // of a rank
	for rank, err := range meshtest.OnFaulty(t, []int{2}, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh,
		d *meshtest.Faulty) error {
		normal := func(stream uint64, n int) T {
			return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, []int{1, 2 * heads, n, size}, layout.Shard(1))
		}
		q, k, v := normal(1, queries), normal(2, keys), normal(3, keys)
		of := map[string]int{"ScaledDotProductAttention": queries}
		for i, n := range []int{queries, keys, keys} {
			of["gradient of ScaledDotProductAttention, of "+"qkv"[i:i+1]] = n
		}
		d.Only = 5
		for step := 0; len(of) > 0; step++ {
			if step == 1000 {
				return fmt.Errorf("not found: %v", of)
			}
			sample := m.SampleProduct(uint64(step), func(func(string, T) bool) {})
			d.On = world.Rank() == 1
			_, _, err := dtensor.ValueAndGrad(ctx, func() T {
				return dtensor.ScaledDotProductAttention(q, k, v, false).Square().Sum(nil, false)
			}, q, k, v)
			d.On = false
			if err != nil {
				return err
			}
			err = sample.Check(ctx, world)
			if err == nil {
				continue
			}
			wrong, ok := errors.AsType[*dtensor.ProductError](err)
			if !ok {
				return err
			}
			if n := of[wrong.Op]; n > 0 {
				want := fmt.Sprint([]int{0, heads + d.Only/(n*size), d.Only / size % n, d.Only % size})
				if fmt.Sprint(wrong.Index) != want || wrong.Rank != 1 {
					return fmt.Errorf("%w, want %s", err, want)
				}
				delete(of, wrong.Op)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
