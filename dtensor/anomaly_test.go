package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// filledWith returns a [4, 4] tensor whose last element is v and the others 1.
func filledWith(m *dtensor.Mesh, v float64, places ...layout.Placement) T {
	x := make([]float64, 16)
	for i := range x {
		x[i] = 1
	}
	x[15] = v
	return dtensor.Distribute(m, tensor.Cast(tensor.FromSlice(m.Device(), x, 4, 4), tensor.Float32), places...)
}

// The first operator that makes a NaN or an infinity is named with its line, forward and
// backward, recorded or not, and by the rank that has it.
func TestDetectAnomaly(t *testing.T) {
	none := math.Inf(-1)
	for _, c := range []struct {
		op       string
		v        float64 // the last element of x; the others are 1
		want     float64
		backward bool
		f        func(x T) T
	}{
		{"Log", 0, none, false, func(x T) T { return x.Log() }},
		{"Sqrt", -1, math.NaN(), false, func(x T) T { return x.Sqrt() }},
		{"Exp", 1000, math.Inf(1), false, func(x T) T { return x.Exp().Mul(x) }},
		{"Div", 0, math.Inf(1), false, func(x T) T { return x.AddScalar(1).Div(x) }},
		{"Mul", 3e38, math.Inf(1), false, func(x T) T { return x.Add(x.Neg()).Add(x.Mul(x)) }},
		{"Square", 3e38, math.Inf(1), false, func(x T) T { return x.Square() }},
		{"Scale", 3e38, math.Inf(1), false, func(x T) T { return x.Scale(2) }},
		{"AddScalar", 3.2e38, math.Inf(1), false, func(x T) T { return x.AddScalar(3e37) }},
		{"PowScalar", 0, math.Inf(1), false, func(x T) T { return x.PowScalar(-1) }},
		{"Cast", 3.4e38, math.Inf(1), false, func(x T) T { return x.Cast(tensor.BFloat16) }},
		{"Linear", 3e38, math.Inf(1), false, func(x T) T { return x.Linear(x, nil) }},
		{"MatMul", 3e38, math.Inf(1), false, func(x T) T { return x.MatMul(x) }},
		{"RMSNorm", 0, math.Inf(1), false, func(x T) T {
			m := x.Mesh()
			return x.RMSNorm(dtensor.Full(m, tensor.Float32, 3e38, []int{4}, m.Every(layout.Replicate())...), 0)
		}},
		{"Softmax", none, math.NaN(), false, func(x T) T {
			return x.Reshape(16, 1).MaskedFill(x.Reshape(16, 1).CompareScalar(kernel.OpLt, 0), none).Softmax(1)
		}},
		{"Sqrt", 0, math.Inf(1), true, func(x T) T { return x.Sqrt() }},
		{"PowScalar", 0, math.Inf(1), true, func(x T) T { return x.PowScalar(0.5) }},
		{"Scale", 1, math.Inf(1), true, func(x T) T { return x.Scale(0).Scale(3e38).Scale(1e20) }},
	} {
		for _, shape := range [][]int{{1}, {3}} {
			for _, tracked := range []bool{true, false} {
				if c.backward && !tracked {
					continue
				}
				name := fmt.Sprintf("%s of %v, backward %v, on %v, tracked %v", c.op, c.v, c.backward, shape, tracked)
				errs := commtest.Ranks(t.Context(), shape[0], func(ctx context.Context, world *comm.Comm) error {
					m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: shape[0]})
					if err != nil {
						return err
					}
					x := filledWith(m, c.v, layout.Shard(0))
					run := func() (err error) {
						if !tracked {
							return dtensor.Try(ctx, m, func() { c.f(x) })
						}
						_, _, err = dtensor.ValueAndGrad(ctx, func() T { return c.f(x).Scale(1e-10).Sum(nil, false) }, x)
						return err
					}
					if err := run(); err != nil {
						return fmt.Errorf("off: %w", err)
					}
					m.DetectAnomaly(true)
					if err := run(); err != nil {
						return err
					}
					return comm.Barrier(ctx, world)
				})
				var a *dtensor.AnomalyError
				for r, err := range errs {
					if err == nil || !strings.Contains(err.Error(), c.op) || !strings.Contains(err.Error(), "anomaly_test.go:") {
						t.Errorf("%s: rank %d: %v", name, r, err)
					}
					if errors.As(err, &a) && (a.Op != c.op || a.Backward != c.backward ||
						!(a.Value == c.want || math.IsNaN(a.Value) && math.IsNaN(c.want))) {
						t.Errorf("%s: rank %d: %+v", name, r, a)
					}
				}
				if a == nil {
					t.Errorf("%s: no rank has the error: %v", name, errs)
				}
			}
		}
	}
}

// An anomaly of one rank alone is told on all, with its rank and its place.
func TestAnomalyOfOneRank(t *testing.T) {
	for name, f := range map[string]func(x T) T{
		"Log": func(x T) T { return x.Log().Sum(nil, false) },
		"Mul": func(x T) T { return x.AddScalar(-1).Scale(3e38).Mul(x).Mul(x).Mul(x.Scale(-7)).Sum(nil, false) },
	} {
		v := map[string]float64{"Log": 0, "Mul": -9}[name]
		errs := commtest.Ranks(t.Context(), 4, func(ctx context.Context, world *comm.Comm) error {
			m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2}, dtensor.Axis{Name: "tp", Size: 2})
			if err != nil {
				return err
			}
			x := filledWith(m, v, layout.Shard(0), layout.Shard(1))
			m.DetectAnomaly(true)
			_, _, err = dtensor.ValueAndGrad(ctx, func() T { return f(x) }, x)
			return err
		})
		for r, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "rank 3") || !strings.Contains(err.Error(), "[3 3]") ||
				!strings.Contains(err.Error(), "anomaly_test.go:") {
				t.Errorf("%s: rank %d: %v", name, r, err)
			}
		}
	}
}

// Data that has a NaN, and sums over ranks that are infinite, are told as what they are.
func TestAnomalyThatNoOperatorMade(t *testing.T) {
	for want, f := range map[string]func(ctx context.Context, m *dtensor.Mesh) error{
		"operand 1, float32 [4, 4] S(0) on (a=2), has a NaN already": func(ctx context.Context, m *dtensor.Mesh) error {
			bad, x := filledWith(m, math.NaN(), layout.Shard(0)), filledWith(m, 1, layout.Shard(0))
			_, _, err := dtensor.ValueAndGrad(ctx, func() T { return x.Mul(bad).Sum(nil, false) }, x)
			return err
		},
		"reduction for Reduced": func(ctx context.Context, m *dtensor.Mesh) error {
			x := filledWith(m, 3e38, layout.Shard(0))
			return dtensor.Try(ctx, m, func() { x.MaskedFill(x.CompareScalar(kernel.OpGt, 0), 2e38).Scale(0.15).Sum(nil, false).Reduced() })
		},
		"sum of the gradients of parameter 0": func(ctx context.Context, m *dtensor.Mesh) error {
			w, x := dtensor.Zeros(m, tensor.Float32, []int{4, 4}, layout.Replicate()),
				dtensor.Full(m, tensor.Float32, 2e38, []int{2, 4, 4}, layout.Shard(0))
			_, _, err := dtensor.ValueAndGrad(ctx, func() T { return w.Mul(x).Sum(nil, false) }, w)
			return err
		},
	} {
		for r, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
			m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 2})
			if err != nil {
				return err
			}
			m.DetectAnomaly(true)
			return f(ctx, m)
		}) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: got %v, want %q", r, err, want)
			}
		}
	}
}

// An infinity that was asked for, and a shard without elements, are no anomalies; nor is
// what a gradient leaves out. The environment turns detection on.
func TestNoAnomaly(t *testing.T) {
	t.Setenv(dtensor.AnomalyVar, "1")
	for _, shape := range meshes {
		onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			S, R := placementsOf(m, []layout.Placement{layout.Shard(0)}, 0), placementsOf(m, []layout.Placement{layout.Replicate()}, 0)
			x, zero := filledWith(m, 0, S...), dtensor.Zeros(m, tensor.Float32, []int{4, 4}, R...)
			short := dtensor.Full(m, tensor.Float32, 1, []int{1, 4}, S...)
			_, _, err := dtensor.ValueAndGrad(ctx, func() T {
				y := x.MaskedFill(x.CompareScalar(kernel.OpEq, 0), math.Inf(-1)).Softmax(1).Sum(nil, false)
				y = y.Add(zero.Add(x).Pow(x.AddScalar(2)).Sum(nil, false)) // 0²: the slope by the exponent is 0·ln 0
				y = y.Add(short.Amax([]int{0}, false).Sum(nil, false)).Add(short.Mul(short).Amin(nil, false))
				return y.Add(x.Norm(2, []int{1}, false).Sum(nil, false)).Add(zero.Norm(2, nil, false)).Add(x.Prod([]int{1}, false).Sum(nil, false))
			}, x, short)
			if err != nil {
				return err
			}
			return dtensor.Try(ctx, m, func() { x.Exp().Sum(nil, false).Reduced() })
		})
	}
	errs := commtest.Ranks(t.Context(), 1, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 1})
		if err != nil {
			return err
		}
		return dtensor.Try(ctx, m, func() { filledWith(m, 0, layout.Replicate()).Log() })
	})
	if errs[0] == nil {
		t.Errorf("%s=1 finds nothing", dtensor.AnomalyVar)
	}
}
