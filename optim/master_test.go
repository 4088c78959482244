package optim_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// A hundred steps of 1e-3 take a bfloat16 parameter from 1 to 0.9, though each is less
// than rounding loses: with every optimizer, and with rows.
func TestSmallStepsOfBFloat16(t *testing.T) {
	for _, k := range kinds {
		for _, l := range testenv.Fewer(layouts[:5], 2) {
			meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				for _, sparse := range []bool{false, true} {
					shape := []int{5, 7}
					half, wide := spread(m, tensor.BFloat16, ones(35), shape, l.places...), spread(m, tensor.Float32, ones(35), shape, l.places...)
					a, b := k.make([]*dtensor.Tensor{half}), k.make([]*dtensor.Tensor{wide})
					grad := func(p *dtensor.Tensor) dtensor.Grad {
						if sparse {
							return rowsOf(p, ones(35), []int{0, 3})
						}
						return dtensor.Dense(spread(m, p.DType(), ones(35), shape, l.places...))
					}
					for range 100 {
						if err := a.Step([]dtensor.Grad{grad(half)}, 1e-3); err != nil {
							return err
						}
						if err := b.Step([]dtensor.Grad{grad(wide)}, 1e-3); err != nil {
							return err
						}
					}
					if k.name == "SGD" {
						if err := meshtest.Near("row 3", tensor.Narrow(half.Full(), 0, 3, 1), scaled(7, 0.9), 0x1p-9, 0); err != nil {
							return err
						}
					}
					want := meshtest.Values(tensor.Cast(wide.Full(), tensor.BFloat16))
					if err := near(fmt.Sprintf("%s, sparse %v", k.name, sparse), half, want, 0); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

func ones(n int) []float64 { return scaled(n, 1) }

func scaled(n int, v float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = v
	}
	return x
}

// What is written to a bfloat16 parameter between steps counts, element by element; what
// nobody wrote to keeps what rounding lost.
func TestWritesToBFloat16Count(t *testing.T) {
	meshtest.On(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, sparse := range []bool{false, true} {
			p := spread(m, tensor.BFloat16, ones(4), []int{2, 2}, replicate)
			opt := optim.NewSGD([]*dtensor.Tensor{p}, optim.SGDConfig{})
			step := func() error {
				g := dtensor.Dense(spread(m, tensor.BFloat16, ones(4), []int{2, 2}, replicate))
				if sparse {
					g = rowsOf(p, ones(4), []int{0, 1})
				}
				return opt.Step([]dtensor.Grad{g}, 1e-3)
			}
			for i := range 3 {
				if i == 2 {
					tensor.Fill(tensor.Narrow(p.Local(), 0, 0, 1), 16)
				}
				if err := step(); err != nil {
					return err
				}
			}
			for name, s := range opt.State() {
				if strings.HasPrefix(name, "master") {
					if err := meshtest.Near(name, s.Full(), []float64{15.999, 15.999, 0.997, 0.997}, 1e-6, 0); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// The float32 weights are among the state, lie as the parameter does, and there are none
// of other types.
func TestMasterWeightsAreState(t *testing.T) {
	meshtest.On(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, k := range kinds {
			params := []*dtensor.Tensor{
				spread(m, tensor.Float32, ones(6), []int{6}, replicate, rowWise),
				spread(m, tensor.BFloat16, ones(35), []int{5, 7}, rowWise, colWise),
			}
			var found []string
			for name, s := range k.make(params).State() {
				if strings.HasPrefix(name, "master") {
					found = append(found, name)
					if s.DType() != tensor.Float32 || s.Layout() != params[1].Layout() {
						return fmt.Errorf("%s: %s is %v", k.name, name, s)
					}
				}
			}
			if len(found) != 1 || found[0] != "master.1" {
				return fmt.Errorf("%s: %v", k.name, found)
			}
		}
		return nil
	})
}

// A rate that is negative or no finite number is refused by every optimizer, and so are gradients of
// which a later one does not fit: nothing has changed.
func TestRefusedStepsChangeNothing(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, k := range kinds {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
				params := []*dtensor.Tensor{spread(m, dt, ones(6), []int{3, 2}, rowWise), spread(m, dt, ones(6), []int{3, 2}, replicate)}
				grads := []dtensor.Grad{dtensor.Dense(spread(m, dt, ones(6), []int{3, 2}, rowWise)),
					dtensor.Dense(spread(m, dt, ones(6), []int{3, 2}, replicate))}
				opt := k.make(params)
				before := map[string][]float64{}
				for name, s := range opt.State() {
					before[name] = meshtest.Values(s.Local())
				}
				for want, lr := range map[string]float64{"NaN": math.NaN(), "+Inf": math.Inf(1), "-Inf": math.Inf(-1), "-0.1": -0.1} {
					if err := opt.Step(grads, lr); err == nil || !strings.Contains(err.Error(), "Step: the rate is "+want) {
						return fmt.Errorf("%s: rate %v: %v", k.name, lr, err)
					}
				}
				misfit := []dtensor.Grad{grads[0], dtensor.Dense(spread(m, dt, ones(2), []int{2}, layout.Replicate()))}
				if err := opt.Step(misfit, 0.1); err == nil || !strings.Contains(err.Error(), "gradient 1") {
					return fmt.Errorf("%s: %v", k.name, err)
				}
				for i, p := range params {
					if err := near(fmt.Sprintf("%s: parameter %d", k.name, i), p, ones(6), 0); err != nil {
						return err
					}
				}
				for name, s := range opt.State() {
					if !slices.Equal(meshtest.Values(s.Local()), before[name]) {
						return fmt.Errorf("%s: %s has changed", k.name, name)
					}
				}
			}
		}
		return nil
	})
}

// Parameters that are said to be replicated and differ are told at the next step, before
// anything changes.
func TestStepChecksReplicas(t *testing.T) {
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		m.CheckReplicas(true)
		for _, k := range kinds {
			params := []*dtensor.Tensor{spread(m, tensor.Float32, ones(6), []int{6}, rowWise),
				spread(m, tensor.Float32, ones(4), []int{2, 2}, replicate)}
			grads := []dtensor.Grad{dtensor.Dense(spread(m, tensor.Float32, ones(6), []int{6}, rowWise)),
				dtensor.Dense(spread(m, tensor.Float32, ones(4), []int{2, 2}, replicate))}
			opt := k.make(params)
			if err := opt.Step(grads, 0); err != nil {
				return err
			}
			if m.Comm().Rank() == 1 {
				tensor.Fill(params[1].Local(), 1.5)
			}
			err := opt.Step(grads, 0.1)
			if err == nil || !strings.Contains(err.Error(), ".Step: parameter 1, float32 [2, 2] R on mesh (a=3): ranks 0 and 1") ||
				!strings.Contains(err.Error(), "master_test.go:") {
				return fmt.Errorf("%s: %v", k.name, err)
			}
			if got := tensor.ToSlice[float32](params[0].Local()); got[0] != 1 {
				return fmt.Errorf("%s: parameter 0 has changed: %v", k.name, got)
			}
		}
		return nil
	})
}
