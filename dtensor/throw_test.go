package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// errData is an error of a program.
var errData = &fs.PathError{Op: "read", Path: "batch.7", Err: fs.ErrNotExist}

// throwers are the functions that an error of the program has to leave.
var throwers = map[string]func(ctx context.Context, m *dtensor.Mesh, w T) error{
	"ValueAndGrad": func(ctx context.Context, m *dtensor.Mesh, w T) error {
		_, _, err := dtensor.ValueAndGrad(ctx, func() T { dtensor.Throw(errData); return w }, w)
		return err
	},
	"Accumulate": func(ctx context.Context, m *dtensor.Mesh, w T) error {
		_, _, err := dtensor.Accumulate(ctx, 3, func(i int) T {
			if i == 1 {
				dtensor.Check(errData)
			}
			return w.Sum(nil, false)
		}, w)
		return err
	},
	"Try": func(ctx context.Context, m *dtensor.Mesh, w T) error {
		return dtensor.Try(ctx, m, func() { dtensor.Check(errData) })
	},
	"Record": func(ctx context.Context, m *dtensor.Mesh, w T) error {
		_, _, err := dtensor.ValueAndGrad(ctx, func() T {
			y := dtensor.Record("mine", w.Detach(), []T{w}, func(T) []dtensor.Grad {
				dtensor.Check(errData)
				return []dtensor.Grad{{}}
			})
			return y.Sum(nil, false)
		}, w)
		return err
	},
}

// An error of the program leaves all that catches what operators throw, with its type
// and the line that threw it; ranks that all throw go on.
func TestThrow(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		w := dtensor.Full(m, tensor.Float32, 2, []int{4}, layout.Shard(0))
		for name, f := range throwers {
			err := f(ctx, m, w)
			var path *fs.PathError
			if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &path) || path != errData {
				return fmt.Errorf("%s: got %v, want %v", name, err, errData)
			}
			if !strings.Contains(err.Error(), "read batch.7") || !strings.Contains(err.Error(), "throw_test.go:") {
				return fmt.Errorf("%s: %q names no line", name, err)
			}
			if err := dtensor.Try(ctx, m, func() { dtensor.Check(nil) }); err != nil {
				return err
			}
			v, _, err := dtensor.ValueAndGrad(ctx, func() T { return w.Sum(nil, false) }, w)
			if err != nil || v.Item() != 8 {
				return fmt.Errorf("after %s: %v, %v", name, v, err)
			}
		}
		return nil
	})
}

// One rank that throws, and returns the error as the documentation says, ends the
// others' collectives: they name it.
func TestThrowOnOneRank(t *testing.T) {
	for name, f := range throwers {
		errs := commtest.Ranks(t.Context(), 3, func(ctx context.Context, world *comm.Comm) error {
			m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 3})
			if err != nil {
				return err
			}
			w := dtensor.Full(m, tensor.Float32, 2, []int{4}, layout.Replicate())
			if world.Rank() == 1 {
				return f(ctx, m, w)
			}
			part := dtensor.Full(m, tensor.Float32, 2, []int{4}, layout.Shard(0))
			for {
				if _, _, err := dtensor.ValueAndGrad(ctx, func() T { return part.Mul(w).Sum(nil, false) }, w); err != nil {
					return err
				}
			}
		})
		for r, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "batch.7") || r != 1 && !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("%s: rank %d: %v", name, r, err)
			}
		}
	}
}

// Item is one number on every rank, however the tensor lies.
func TestItem(t *testing.T) {
	for _, shape := range meshes {
		onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			return dtensor.Try(ctx, m, func() {
				x := dtensor.Arange(m, tensor.Float32, 0, 7, placementsOf(m, []layout.Placement{layout.Shard(0)}, 0)...)
				if got := x.Sum(nil, false).Item(); got != 21 {
					failf("the sum of %v is %v", x, got)
				}
				for _, p := range []layout.Placement{layout.Replicate(), layout.Shard(0), layout.Partial(layout.Sum), layout.Partial(layout.Avg),
					layout.Partial(layout.Max)} {
					y := dtensor.Full(m, tensor.BFloat16, 3, []int{1, 1}, placementsOf(m, []layout.Placement{p}, 0)...)
					if got := y.Item(); got != 3 {
						failf("%v: %v", y, got)
					}
				}
			})
		})
	}
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, n := range []int{0, 2} {
			var wrong *dtensor.LayoutError
			err := dtensor.Try(ctx, m, func() { dtensor.Zeros(m, tensor.Float32, []int{n}, layout.Shard(0)).Item() })
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), fmt.Sprintf("%d elements", n)) {
				return fmt.Errorf("%d elements: %v", n, err)
			}
		}
		return nil
	})
}
