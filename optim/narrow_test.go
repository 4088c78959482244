package optim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// bare are the optimizers without float32 weights.
var bare = map[string]func(p []*dtensor.Tensor) optim.Optimizer{
	"SGD":          optim.With(optim.NewSGD, optim.SGDConfig{NoMaster: true}),
	"SGD momentum": optim.With(optim.NewSGD, optim.SGDConfig{Momentum: 0.9, NoMaster: true}),
	"AdamW":        optim.With(optim.NewAdamW, optim.AdamWConfig{NoMaster: true}),
	"AMSGrad":      optim.With(optim.NewAdamW, optim.AdamWConfig{AMSGrad: true, NoMaster: true}),
	"SparseAdam":   optim.With(optim.NewSparseAdam, optim.SparseAdamConfig{NoMaster: true}),
	"RowAdagrad":   optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{NoMaster: true}),
	"Adagrad":      optim.With(optim.NewAdagrad, optim.AdagradConfig{NoMaster: true}),
	"RMSprop":      optim.With(optim.NewRMSprop, optim.RMSpropConfig{NoMaster: true}),
	"Adadelta":     optim.With(optim.NewAdadelta, optim.AdadeltaConfig{NoMaster: true}),
	"Adamax":       optim.With(optim.NewAdamax, optim.AdamaxConfig{NoMaster: true}),
	"NAdam":        optim.With(optim.NewNAdam, optim.NAdamConfig{NoMaster: true}),
	"RAdam":        optim.With(optim.NewRAdam, optim.RAdamConfig{NoMaster: true}),
	"ASGD":         optim.With(optim.NewASGD, optim.ASGDConfig{NoMaster: true}),
	"Rprop":        optim.With(optim.NewRprop, optim.RpropConfig{NoMaster: true}),
	"Lion":         optim.With(optim.NewLion, optim.LionConfig{NoMaster: true}),
	"Muon":         optim.With(optim.NewMuon, optim.MuonConfig{NoMaster: true}),
	"LAMB":         optim.With(optim.NewLAMB, optim.LAMBConfig{NoMaster: true}),
	"Adafactor":    optim.With(optim.NewAdafactor, optim.AdafactorConfig{NoMaster: true}),
}

// A float16 model whose gradients are too small for the type learns with a Scaler what the
// float32 model learns, and nothing without.
func TestScalerTrainsFloat16(t *testing.T) {
	const rows, width = 6, 3
	train := func(ctx context.Context, m *dtensor.Mesh, dt tensor.DType, scaled bool) ([]float64, error) {
		x := meshtest.Place(m, meshtest.Numbers(rows*width, 1, 1), []int{rows, width}, rowWise).Cast(dt)
		w := dtensor.Full(m, tensor.Float32, 1, []int{1, width}, replicate).Cast(dt)
		params := []*dtensor.Tensor{w}
		opt := optim.NewSGD(params, optim.SGDConfig{Momentum: 0.9})
		scaler := optim.NewScaler(m, optim.ScalerConfig{Initial: 0x1p40, Interval: 50}) // overflows at first
		for range 40 {
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				loss := x.Linear(w, nil).Cast(tensor.Float32).Square().Mean(nil, false).Scale(1e-8)
				if scaled {
					loss = scaler.Scale(loss)
				}
				return loss
			}, params...)
			if err == nil && scaled {
				_, _, err = scaler.Step(ctx, opt, params, grads, 1e7)
			} else if err == nil {
				err = opt.Step(grads, 1e7)
			}
			if err != nil {
				return nil, err
			}
		}
		return meshtest.Values(w.Full()), nil
	}
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		with, err := train(ctx, m, tensor.Float16, true)
		if err != nil {
			return err
		}
		without, err := train(ctx, m, tensor.Float16, false)
		if err != nil {
			return err
		}
		wide, err := train(ctx, m, tensor.Float32, true)
		if err != nil {
			return err
		}
		for i := range wide {
			if without[i] != 1 || math.Abs(wide[i]-1) < 0.05 || math.Abs(with[i]-wide[i]) > 0.1*math.Abs(wide[i]-1) {
				return fmt.Errorf("weight %d: float16 %v with a Scaler and %v without, float32 %v", i, with[i], without[i], wide[i])
			}
		}
		return nil
	})
}

// Without float32 weights the first step is that with them, dense and with rows, in every
// layout, and there is no "master" in the state.
func TestNoMaster(t *testing.T) {
	for name, make := range bare {
		for _, l := range layouts[:8] {
			meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				for i := range 4 {
					sparse, dt := i%2 == 1, []tensor.DType{tensor.BFloat16, tensor.Float16}[i/2]
					shape, values := []int{5, 7}, meshtest.Numbers(35, 1, 1)
					half := spread(m, dt, values, shape, l.places...)
					wide := half.Cast(tensor.Float32)
					grad := func(p *dtensor.Tensor) dtensor.Grad {
						g := tensor.ToSlice[float64](tensor.Cast(tensor.Cast(tensor.FromSlice(m.Device(), meshtest.Numbers(35, 2, 1), 35),
							dt), tensor.Float64))
						if sparse {
							return rowsOf(p, g, []int{0, 3})
						}
						return dtensor.Dense(spread(m, p.DType(), g, shape, l.places...))
					}
					opt := make([]*dtensor.Tensor{half})
					for kind := range opt.State() {
						if strings.HasPrefix(kind, "master") {
							return fmt.Errorf("%s has %s", name, kind)
						}
					}
					if err := opt.Step([]dtensor.Grad{grad(half)}, 0.25); err != nil {
						return err
					}
					if err := make([]*dtensor.Tensor{wide}).Step([]dtensor.Grad{grad(wide)}, 0.25); err != nil {
						return err
					}
					// One rounding, and the order of the sums of norms, apart.
					if err := meshtest.Near(fmt.Sprintf("%s of %v, sparse %v", name, dt, sparse), half.Full(), meshtest.Values(wide.Full()),
						map[tensor.DType]float64{tensor.BFloat16: 0x1.02p-8, tensor.Float16: 0x1.1p-11}[dt], 1e-6); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// Groups makes the steps of its groups, each with its settings, and its state has the
// numbers of all parameters.
func TestGroups(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		params := func() (p []*dtensor.Tensor) {
			for i := range 3 {
				p = append(p, spread(m, tensor.Float32, meshtest.Numbers(6, float64(i), 1), []int{3, 2}, rowWise))
			}
			return p
		}
		var grads []dtensor.Grad
		for i := range 3 {
			grads = append(grads, dtensor.Dense(spread(m, tensor.Float32, meshtest.Numbers(6, float64(i+9), 1), []int{3, 2}, rowWise)))
		}
		a, b := params(), params()
		decayed := optim.With(optim.NewAdamW, optim.AdamWConfig{WeightDecay: 0.5})
		plain := optim.With(optim.NewSGD, optim.SGDConfig{Momentum: 0.5})
		opt := optim.NewGroups(a, optim.Group{Params: []*dtensor.Tensor{a[2], a[0]}, New: decayed},
			optim.Group{Params: a[1:2], New: plain, Rate: 3})
		first, second := decayed([]*dtensor.Tensor{b[0], b[2]}), plain(b[1:2])
		for range 2 {
			if err := errors.Join(opt.Step(grads, 0.1), first.Step([]dtensor.Grad{grads[0], grads[2]}, 0.1),
				second.Step(grads[1:2], 0.1*3)); err != nil {
				return err
			}
		}
		for i := range a {
			if err := near(fmt.Sprint("parameter ", i), a[i], meshtest.Values(b[i].Full()), 0); err != nil {
				return err
			}
		}
		var names []string
		for name := range opt.State() {
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != "m.2 m.0 v.2 v.0 step.2 step.0 momentum.1 step.1" {
			return fmt.Errorf("state %s", got)
		}
		for want, f := range map[string]func(){
			"is in no group": func() { optim.NewGroups(a, optim.Group{Params: a[:2], New: plain}) },
			"in groups 0 and 1": func() {
				optim.NewGroups(a, optim.Group{Params: a, New: plain}, optim.Group{Params: a[:1], New: plain})
			},
			"not among all": func() { optim.NewGroups(a, optim.Group{Params: b, New: plain}) },
		} {
			if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want an error with %q", err, want)
			}
		}
		if err := opt.Step(grads[:2], 1); err == nil || !strings.Contains(err.Error(), "2 gradients for 3 parameters") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// EMA is a loop over elements, and Swap twice is nothing. A parameter that is listed twice, which Swap would leave exchanged, is refused,
// and so is one that has other rows now and then.
func TestEMA(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
			p := spread(m, dt, meshtest.Numbers(10, 1, 1), []int{5, 2}, rowWise)
			e := optim.NewEMA([]*dtensor.Tensor{p}, 0.75)
			want := meshtest.Values(p.Full())
			for step := range 3 {
				tensor.Copy(p.Local(), spread(m, dt, meshtest.Numbers(10, float64(step+5), 1), []int{5, 2}, rowWise).Local())
				e.Update()
				for i, v := range meshtest.Values(p.Full()) {
					want[i] = 0.75*want[i] + 0.25*v
				}
			}
			for _, s := range e.State() {
				if err := near("average", s, want, 1e-6); err != nil {
					return err
				}
			}
			before := meshtest.Values(p.Full())
			e.Swap()
			if err := near("swapped", p, want, 0x1p-8); err != nil {
				return err
			}
			for call, update := range map[string]func(){"EMA.Update": e.Update, "SWA.Update": func() {
				s := optim.NewSWA([]*dtensor.Tensor{spread(m, dt, meshtest.Numbers(10, 1, 1), []int{5, 2}, rowWise)})
				s.Swap()
				s.Update()
			}} {
				if err := dtensor.Try(ctx, m, update); err == nil || !strings.Contains(err.Error(), call+": the parameters are the average") {
					return fmt.Errorf("%s between Swaps: %v", call, err)
				}
			}
			e.Swap()
			ids := dtensor.Zeros(m, tensor.Int64, []int{2}, replicate)
			for want, list := range map[string][]*dtensor.Tensor{
				"NewEMA: parameter 0 is int64 [2] R on (a=3), which has no average": {ids},
				"NewEMA: parameter 1 is nil; give a tensor":                         {p, nil},
			} {
				if err := dtensor.Try(ctx, m, func() { optim.NewEMA(list, 0.5) }); err == nil || !strings.Contains(err.Error(), want) {
					return fmt.Errorf("an average of what has none: %v, want an error with %q", err, want)
				}
			}
			twice := dtensor.Try(ctx, m, func() { optim.NewSWA([]*dtensor.Tensor{p, p}) })
			if twice == nil || !strings.Contains(twice.Error(), "optim: NewSWA: parameter 1 is parameter 0 again") {
				return fmt.Errorf("an average of one parameter twice: %v", twice)
			}
			part := dtensor.Zeros(m, dt, []int{3, 2}, rowWise)
			part.MarkExcerpt("users")
			excerpt := dtensor.Try(ctx, m, func() { optim.NewEMA([]*dtensor.Tensor{p, part}, 0.5) })
			if excerpt == nil || !strings.Contains(excerpt.Error(), "optim: NewEMA: parameter 1 has the rows of users that are in memory") {
				return fmt.Errorf("an average of what is in memory: %v", excerpt)
			}
			return near("swapped back", p, before, 0)
		})
	}
}

// A Scaler leaves out steps that overflow on any rank, finds its scale again, and gives
// the optimizer the gradients of the loss, clipped.
func TestScaler(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			values := meshtest.Numbers(6, 1, 1)
			a, b := spread(m, dt, values, []int{6}, rowWise), spread(m, dt, values, []int{6}, rowWise)
			scaler := optim.NewScaler(m, optim.ScalerConfig{Initial: 1024, Interval: 2, Limit: 0.5})
			opt, plain := optim.NewAdamW([]*dtensor.Tensor{a}, optim.AdamWConfig{}), optim.NewAdamW([]*dtensor.Tensor{b}, optim.AdamWConfig{})
			if scaler.Scale(a.Sum(nil, false)); m.LossScale() != 1024 {
				return fmt.Errorf("the mesh has the scale %v", m.LossScale())
			}
			scales := []float64{1024, 1024, 2048, 1024, 1024, 2048}
			for step, want := range scales {
				if got := scaler.Factor(); got != want {
					return fmt.Errorf("step %d: the scale is %v, want %v", step, got, want)
				}
				g := meshtest.Numbers(6, float64(step+2), 4)
				scaled := make([]float64, 6)
				for i := range g {
					scaled[i] = g[i] * want
				}
				overflows := step == 2
				if overflows {
					scaled[5] = math.Inf(1) // of the last rank
				}
				grads := []dtensor.Grad{dtensor.Dense(spread(m, dt, scaled, []int{6}, rowWise))}
				norm, done, err := scaler.Step(ctx, opt, []*dtensor.Tensor{a}, grads, 0.1)
				if err != nil || done == overflows {
					return fmt.Errorf("step %d: done %v, norm %v, %v", step, done, norm, err)
				}
				if overflows {
					continue
				}
				own := []dtensor.Grad{dtensor.Dense(spread(m, dt, g, []int{6}, rowWise).Cast(dt))}
				wantNorm, err := optim.ClipGradNorm(ctx, []*dtensor.Tensor{b}, own, 0.5)
				if err != nil || math.Abs(norm-wantNorm) > 1e-5*wantNorm {
					return fmt.Errorf("step %d: norm %v, want %v, %v", step, norm, wantNorm, err)
				}
				if err := plain.Step(own, 0.1); err != nil {
					return err
				}
			}
			// The plain gradients of bfloat16 were rounded after they were clipped.
			tol := map[bool]float64{false: 1e-6, true: 0x1p-7}[dt == tensor.BFloat16]
			if err := near("parameter", a, meshtest.Values(b.Full()), tol); err != nil {
				return err
			}
			for name, s := range scaler.State() {
				if want := map[string]float64{"scale": 2048, "good": 1}[name]; s.Item() != want {
					return fmt.Errorf("%s is %v, want %v", name, s.Item(), want)
				}
			}
			return nil
		})
	}
}
