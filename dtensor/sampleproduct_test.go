package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A faultyDevice is a CPU that, while it is on, flips the lowest bit of elements of products.
type faultyDevice struct {
	tensor.Device
	on   bool
	only int // the one element of each matrix of which it does; negative: all
}

func (d *faultyDevice) SetPairwise(on bool) {
	d.Device.(interface{ SetPairwise(bool) }).SetPairwise(on)
}

func (d *faultyDevice) MatMul(dt dtype.DType, g kernel.Gemm, dst, a, b unsafe.Pointer, l kernel.Loop) {
	d.Device.MatMul(dt, g, dst, a, b, l)
	size := dt.Size()
	if g.Wide {
		size = 4
	}
	for i := range l.Numel() * g.M * g.N {
		if d.on && (d.only < 0 || i%(g.M*g.N) == d.only) {
			*(*byte)(unsafe.Add(dst, i*size)) ^= 1
		}
	}
}

// multiply calls f on each rank, with same bits, and with a device that is faulty while f wants.
func multiply(t *testing.T, shape []int, f func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh, d *faultyDevice) error) []error {
	t.Helper()
	var axes []dtensor.Axis
	n := 1
	for i, size := range shape {
		axes, n = append(axes, dtensor.Axis{Name: axisNames[i], Size: size}), n*size
	}
	return commtest.Ranks(t.Context(), n, func(ctx context.Context, world *comm.Comm) error {
		d := &faultyDevice{Device: tensor.NewCPU(world.Memory()), only: -1}
		world.Internals().Attr(dtensor.DeviceKey{}, func() any { return d })
		m, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return err
		}
		m.SetSameBits(true)
		m.CheckReplicas(false) // which would find it first
		return f(ctx, world, m, d)
	})
}

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
		for rank, err := range multiply(t, c.shape, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh, d *faultyDevice) error {
			run, named := sampledModel(m, c.dt)
			ops[world.Rank()] = map[string]int{}
			for step := range c.steps {
				sample := m.SampleProduct(uint64(step), named)
				d.on = world.Rank() == c.faulty
				err := run(ctx)
				d.on = false
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
	for rank, err := range multiply(t, []int{3}, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh, d *faultyDevice) error {
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
			d.only = only
			d.on = world.Rank() == 2
			sample := m.SampleProduct(uint64(only), none)
			if err := dtensor.Try(ctx, m, func() { a.MatMul(b) }); err != nil {
				return err
			}
			d.on = false
			err := sample.Check(ctx, world)
			wrong, ok := errors.AsType[*dtensor.ProductError](err)
			if want := fmt.Sprint([]int{14 + only/8, only % 8}); !ok || fmt.Sprint(wrong.Index) != want || wrong.Rank != 2 || wrong.Op != "MatMul" {
				return fmt.Errorf("element %d: %v, want %s", only, err, want)
			}
		}
		d.only, d.on = -1, world.Rank() == 1
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
