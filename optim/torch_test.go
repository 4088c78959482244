package optim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// lines calls f with each line of a file of testdata, which gen.py made.
func lines[T any](t *testing.T, name string, f func(line T)) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in := bufio.NewScanner(file)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line T
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		f(line)
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
}

// steps is a line of steps.jsonl.
type steps struct {
	Optimizer string
	Args      struct {
		Betas       [2]float64
		Eps         float64
		Alpha       float64
		Momentum    float64
		Dampening   float64
		Nesterov    bool
		Centered    bool
		AMSGrad     bool
		WeightDecay float64 `json:"weight_decay"`
		LRDecay     float64 `json:"lr_decay"`
		Initial     float64 `json:"initial_accumulator_value"`
		D           float64
		Beta2Decay  float64 `json:"beta2_decay"`
		Rho         float64
		Momentums   float64 `json:"momentum_decay"`
		Decoupled   bool    `json:"decoupled_weight_decay"`
		Lambda      float64 `json:"lambd"`
		Etas        [2]float64
		Sizes       [2]float64 `json:"step_sizes"`
		Iterations  int        `json:"ns_steps"`
		Match       bool
		T0          int
	}
	Shapes [][]int
	Params [][]float64
	Rates  []float64
	Grads  [][][]float64 // by step and parameter
	After  [][][]float64
}

func (s *steps) make(params []*dtensor.Tensor) optim.Optimizer {
	a := s.Args
	switch s.Optimizer {
	case "SGD":
		return optim.NewSGD(params, optim.SGDConfig{Momentum: a.Momentum, Dampening: a.Dampening, Nesterov: a.Nesterov,
			WeightDecay: a.WeightDecay})
	case "Adam", "AdamW":
		return optim.NewAdamW(params, optim.AdamWConfig{Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps, WeightDecay: a.WeightDecay,
			AMSGrad: a.AMSGrad, Coupled: s.Optimizer == "Adam"})
	case "Adagrad":
		return optim.NewAdagrad(params, optim.AdagradConfig{Eps: a.Eps, Initial: a.Initial, RateDecay: a.LRDecay, WeightDecay: a.WeightDecay})
	case "RMSprop":
		return optim.NewRMSprop(params, optim.RMSpropConfig{Alpha: a.Alpha, Eps: a.Eps, Momentum: a.Momentum, Centered: a.Centered,
			WeightDecay: a.WeightDecay})
	case "Adafactor":
		return optim.NewAdafactor(params, optim.AdafactorConfig{Beta2Decay: a.Beta2Decay, Limit: a.D, WeightDecay: a.WeightDecay})
	case "Lion":
		return optim.NewLion(params, optim.LionConfig{Beta1: a.Betas[0], Beta2: a.Betas[1], WeightDecay: a.WeightDecay})
	case "Muon":
		return optim.NewMuon(params, optim.MuonConfig{Momentum: a.Momentum, Iterations: a.Iterations, WeightDecay: a.WeightDecay,
			Plain: !a.Nesterov, MatchAdamW: a.Match})
	case "Adadelta":
		return optim.NewAdadelta(params, optim.AdadeltaConfig{Rho: a.Rho, Eps: a.Eps, WeightDecay: a.WeightDecay})
	case "Adamax":
		return optim.NewAdamax(params, optim.AdamaxConfig{Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps, WeightDecay: a.WeightDecay})
	case "NAdam":
		return optim.NewNAdam(params, optim.NAdamConfig{Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps, MomentumDecay: a.Momentums,
			WeightDecay: a.WeightDecay, Decoupled: a.Decoupled})
	case "RAdam":
		return optim.NewRAdam(params, optim.RAdamConfig{Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps, WeightDecay: a.WeightDecay,
			Decoupled: a.Decoupled})
	case "ASGD":
		return optim.NewASGD(params, optim.ASGDConfig{Lambda: a.Lambda, Alpha: a.Alpha, Start: a.T0, WeightDecay: a.WeightDecay})
	case "Rprop":
		return optim.NewRprop(params, optim.RpropConfig{Shrink: a.Etas[0], Grow: a.Etas[1], Least: a.Sizes[0], Most: a.Sizes[1]})
	case "LAMB":
		return optim.NewLAMB(params, optim.LAMBConfig{Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps, WeightDecay: a.WeightDecay})
	}
	panic("steps.jsonl has an optimizer " + s.Optimizer)
}

// The optimizers make the steps that PyTorch's make, whole and sharded.
func TestStepsEqualPyTorch(t *testing.T) {
	count := 0
	lines(t, "steps.jsonl", func(s steps) {
		count++
		for _, l := range layouts {
			t.Run(fmt.Sprintf("%d %s/%v%v", count, s.Optimizer, l.mesh, l.places), func(t *testing.T) {
				meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					places := [][]layout.Placement{l.places, make([]layout.Placement, len(l.places))}
					for axis, p := range l.places {
						if p.Shards(0) {
							places[1][axis] = p
						}
					}
					put := func(values [][]float64) (ts []*dtensor.Tensor) {
						for i, v := range values {
							ts = append(ts, spread(m, tensor.Float32, v, s.Shapes[i], places[i]...))
						}
						return ts
					}
					params := put(s.Params)
					opt := s.make(params)
					for step, rate := range s.Rates {
						var grads []dtensor.Grad
						for _, g := range put(s.Grads[step]) {
							grads = append(grads, dtensor.Dense(g))
						}
						if err := opt.Step(grads, rate); err != nil {
							return err
						}
						for i, p := range params {
							if err := near(fmt.Sprintf("step %d: parameter %d", step, i), p, s.After[step][i], 4e-6); err != nil {
								return err
							}
						}
					}
					return nil
				})
			})
		}
	})
	if count < 31 {
		t.Errorf("only %d optimizers", count)
	}
}

// The schedules are those of torch.optim.lr_scheduler.
func TestRatesEqualPyTorch(t *testing.T) {
	count := 0
	lines(t, "rates.jsonl", func(r struct {
		Schedule string
		Peak     float64
		Args     struct {
			Floor, Factor, Rise, Start, End, Power float64
			Total, Every, Warmup, Length           int
			Milestones                             []int
		}
		Rates []float64
	}) {
		count++
		a := r.Args
		s, ok := map[string]optim.Schedule{
			"Constant":          optim.Constant{Rate: r.Peak, Warmup: a.Warmup},
			"WarmupLinear":      optim.WarmupLinear{Peak: r.Peak, Floor: a.Floor, Total: a.Total},
			"WarmupCosine":      optim.WarmupCosine{Peak: r.Peak, Floor: a.Floor, Total: a.Total},
			"WarmupStep":        optim.WarmupStep{Peak: r.Peak, Factor: a.Factor, Every: a.Every},
			"CosineRestarts":    optim.CosineRestarts{Peak: r.Peak, Floor: a.Floor, Length: a.Length, Factor: int(a.Factor)},
			"WarmupMilestones":  optim.WarmupMilestones{Peak: r.Peak, Factor: a.Factor, Milestones: a.Milestones},
			"WarmupPower":       optim.WarmupPower{Peak: r.Peak, Power: a.Power, Total: a.Total},
			"WarmupInverseSqrt": optim.WarmupInverseSqrt{Peak: r.Peak, Warmup: a.Warmup},
			"RateFunc":          optim.RateFunc(func(step int) float64 { return r.Peak * math.Pow(a.Factor, float64(step)) }),
			"Phases": optim.Phases{{optim.Constant{Rate: r.Peak, Warmup: a.Warmup}, a.Every},
				{optim.WarmupLinear{Peak: r.Peak, Total: a.Total}, 1}},
			"OneCycle": optim.OneCycle{Peak: r.Peak, Total: a.Total, Rise: a.Rise, Start: a.Start, End: a.End},
		}[r.Schedule]
		if !ok {
			t.Fatalf("rates.jsonl has a schedule %s", r.Schedule)
		}
		total := a.Total
		if r.Schedule != "WarmupCosine" {
			total = len(r.Rates)
		}
		for step, want := range r.Rates {
			if step > total { // PyTorch's cosine rises again
				break
			}
			if got := s.At(step); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: step %d has rate %v, want %v", r.Schedule, step, got, want)
			}
		}
	})
	if count < 14 {
		t.Errorf("only %d schedules", count)
	}
}

// A Plateau has the rates of ReduceLROnPlateau, and goes on from what was saved of it.
func TestPlateausEqualPyTorch(t *testing.T) {
	count := 0
	lines(t, "plateaus.jsonl", func(r struct {
		Args struct {
			Factor, Threshold  float64
			Floor              float64 `json:"min_lr"`
			Patience, Cooldown int
		}
		Losses, Rates []float64
	}) {
		a := r.Args
		p := optim.Plateau{Rate: 0.4, Factor: a.Factor, Patience: a.Patience, Threshold: a.Threshold, Cooldown: a.Cooldown, Floor: a.Floor}
		for i, loss := range r.Losses {
			count++
			saved, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			p = optim.Plateau{}
			if err := json.Unmarshal(saved, &p); err != nil {
				t.Fatal(err)
			}
			if got := p.Next(loss); math.Abs(got-r.Rates[i]) > 1e-15 {
				t.Errorf("%+v: loss %d has rate %v, want %v", a, i, got, r.Rates[i])
			}
		}
	})
	if count < 36 {
		t.Errorf("only %d losses", count)
	}
}

// EMA and SWA average as AveragedModel does, whole and sharded. SWA goes on from its State.
func TestAveragesEqualPyTorch(t *testing.T) {
	count := 0
	lines(t, "averages.jsonl", func(a struct {
		Decay            float64
		Params, Averages [][]float64
	}) {
		count += len(a.Averages)
		for _, l := range layouts {
			meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				put := func(step int) *dtensor.Tensor {
					return spread(m, tensor.Float32, a.Params[step], []int{5, 7}, l.places...)
				}
				p := put(0)
				check := func(step int, mean *dtensor.Tensor) error {
					return near(fmt.Sprintf("decay %v, step %d", a.Decay, step), mean, a.Averages[step], 1e-6)
				}
				if a.Decay == 0 {
					params := []*dtensor.Tensor{p}
					mean := optim.NewSWA(params)
					for step := range a.Params {
						tensor.Copy(p.Local(), put(step).Local())
						saved := maps.Collect(mean.State())
						mean = optim.NewSWA(params)
						for name, t := range mean.State() {
							tensor.Copy(t.Local(), saved[name].Local())
						}
						mean.Update()
						if err := check(step, maps.Collect(mean.State())["swa.0"]); err != nil {
							return err
						}
					}
					return nil
				}
				average := optim.NewEMA([]*dtensor.Tensor{p}, a.Decay)
				for step := 1; step < len(a.Params); step++ { // step 0 takes the parameters as they are
					tensor.Copy(p.Local(), put(step).Local())
					average.Update()
					for _, s := range average.State() {
						if err := check(step, s); err != nil {
							return err
						}
					}
				}
				return nil
			})
		}
	})
	if count < 15 {
		t.Errorf("only %d averages", count)
	}
}

// A Scaler leaves out the steps that GradScaler leaves out, and has its scales.
func TestScalesEqualPyTorch(t *testing.T) {
	count := 0
	lines(t, "scales.jsonl", func(s struct {
		Args struct {
			Initial  float64 `json:"init_scale"`
			Growth   float64 `json:"growth_factor"`
			Backoff  float64 `json:"backoff_factor"`
			Interval int     `json:"growth_interval"`
		}
		Finite         []bool
		Scales, Params []float64
	}) {
		count += len(s.Scales)
		meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
			p := []*dtensor.Tensor{spread(m, tensor.Float32, []float64{1, 1, 1}, []int{3}, rowWise)}
			opt := optim.NewSGD(p, optim.SGDConfig{})
			scaler := optim.NewScaler(m, optim.ScalerConfig{Initial: s.Args.Initial, Growth: s.Args.Growth, Backoff: s.Args.Backoff,
				Interval: s.Args.Interval})
			for step, finite := range s.Finite {
				g := []float64{scaler.Factor(), scaler.Factor(), scaler.Factor()}
				if !finite {
					g[2] = math.Inf(1) // of the last rank
				}
				grads := []dtensor.Grad{dtensor.Dense(spread(m, tensor.Float32, g, []int{3}, rowWise))}
				_, done, err := scaler.Step(ctx, opt, p, grads, 0.1)
				if got := scaler.Factor(); err != nil || done != finite || got != s.Scales[step] {
					return fmt.Errorf("%+v, step %d: done %v, scale %v, want %v: %v", s.Args, step, done, got, s.Scales[step], err)
				}
			}
			return near("parameter", p[0], s.Params, 1e-6)
		})
	})
	if count < 24 {
		t.Errorf("only %d steps", count)
	}
}

// The averages of ASGD are the means of the parameters since averaging began.
func TestASGDAverages(t *testing.T) {
	for _, l := range layouts {
		meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			p := spread(m, tensor.Float32, meshtest.Numbers(35, 1, 1), []int{5, 7}, l.places...)
			opt := optim.NewASGD([]*dtensor.Tensor{p}, optim.ASGDConfig{Lambda: 0.1, Start: 1})
			want := make([]float64, 35)
			for step := range 5 {
				g := spread(m, tensor.Float32, meshtest.Numbers(35, float64(step), 1), []int{5, 7}, l.places...)
				if err := opt.Step([]dtensor.Grad{dtensor.Dense(g)}, 0.1); err != nil {
					return err
				}
				if step < 2 {
					continue
				}
				for i, x := range meshtest.Values(p.Full()) {
					want[i] += x / 3
				}
			}
			for name, s := range opt.State() {
				if name == "average.0" {
					return near(name, s, want, 1e-6)
				}
			}
			return errors.New("there is no average.0")
		})
	}
}
