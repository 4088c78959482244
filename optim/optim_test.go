package optim_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

type kind struct {
	name   string
	make   func(params []*dtensor.Tensor) optim.Optimizer
	oracle func() oracle
	// calls says how many collectives a step of one matrix and a vector makes, by which
	// dimensions of the matrix are sharded over several ranks, and whether the vector is.
	calls func(rows, columns, vector bool) int
}

func silent(bool, bool, bool) int { return 0 }

func oneIfSharded(rows, columns, vector bool) int {
	if rows || columns || vector {
		return 1
	}
	return 0
}

func oneIfColumns(_, columns, _ bool) int {
	if columns {
		return 1
	}
	return 0
}

var kinds = []kind{
	{"SGD", optim.With(optim.NewSGD, optim.SGDConfig{}),
		func() oracle { return sgdOracle(0, 0, 0, false) }, silent},
	{"SGD decay", optim.With(optim.NewSGD, optim.SGDConfig{WeightDecay: 0.1}),
		func() oracle { return sgdOracle(0, 0, 0.1, false) }, silent},
	{"SGD momentum", optim.With(optim.NewSGD, optim.SGDConfig{Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01}),
		func() oracle { return sgdOracle(0.9, 0.3, 0.01, false) }, silent},
	{"SGD Nesterov", optim.With(optim.NewSGD, optim.SGDConfig{Momentum: 0.8, Nesterov: true}),
		func() oracle { return sgdOracle(0.8, 0, 0, true) }, silent},
	{"AdamW", optim.With(optim.NewAdamW, optim.AdamWConfig{}),
		func() oracle { return adamwOracle(0.9, 0.999, 1e-8, 0) }, silent},
	{"AdamW decay", optim.With(optim.NewAdamW, optim.AdamWConfig{Beta1: 0.7, Beta2: 0.95, Eps: 1e-3, WeightDecay: 0.2}),
		func() oracle { return adamwOracle(0.7, 0.95, 1e-3, 0.2) }, silent},
	{"AdamW coupled decay", optim.With(optim.NewAdamW, optim.AdamWConfig{Beta1: 0.7, Beta2: 0.95, Eps: 1e-3, WeightDecay: 0.2, Coupled: true}),
		func() oracle { return adamOracle(0.7, 0.95, 1e-3, 0, 0.2) }, silent},
	{"SparseAdam", optim.With(optim.NewSparseAdam, optim.SparseAdamConfig{Eps: 1e-2}),
		func() oracle { return sparseAdamOracle(0.9, 0.999, 1e-2, 0) }, silent},
	{"SparseAdam decay", optim.With(optim.NewSparseAdam, optim.SparseAdamConfig{Eps: 1e-2, WeightDecay: 0.2}),
		func() oracle { return sparseAdamOracle(0.9, 0.999, 1e-2, 0.2) }, silent},
	{"RowAdagrad", optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{Eps: 1e-3}),
		func() oracle { return rowAdagradOracle(1e-3, 0) }, oneIfColumns},
	{"RowAdagrad decay", optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{Eps: 1e-3, WeightDecay: 0.3}),
		func() oracle { return rowAdagradOracle(1e-3, 0.3) }, oneIfColumns},
	{"AdamW AMSGrad", optim.With(optim.NewAdamW, optim.AdamWConfig{Beta1: 0.7, Beta2: 0.8, Eps: 1e-3, WeightDecay: 0.2, AMSGrad: true}),
		func() oracle { return amsgradOracle(0.7, 0.8, 1e-3, 0.2, 0) }, silent},
	{"Adam AMSGrad", optim.With(optim.NewAdamW, optim.AdamWConfig{Beta2: 0.8, Eps: 1e-3, WeightDecay: 0.2, AMSGrad: true, Coupled: true}),
		func() oracle { return amsgradOracle(0.9, 0.8, 1e-3, 0, 0.2) }, silent},
	{"Adagrad", optim.With(optim.NewAdagrad, optim.AdagradConfig{Eps: 1e-3, RateDecay: 0.5}),
		func() oracle { return adagradOracle(1e-3, 0, 0.5, 0) }, silent},
	{"Adagrad decay", optim.With(optim.NewAdagrad, optim.AdagradConfig{Initial: 0.1, WeightDecay: 0.3}),
		func() oracle { return adagradOracle(1e-10, 0.1, 0, 0.3) }, silent},
	{"RMSprop", optim.With(optim.NewRMSprop, optim.RMSpropConfig{Eps: 1e-2}),
		func() oracle { return rmspropOracle(0.99, 1e-2, 0, 0, false) }, silent},
	{"RMSprop centered",
		optim.With(optim.NewRMSprop, optim.RMSpropConfig{Alpha: 0.8, Eps: 1e-2, Momentum: 0.6, Centered: true, WeightDecay: 0.1}),
		func() oracle { return rmspropOracle(0.8, 1e-2, 0.6, 0.1, true) }, silent},
	{"Adadelta", optim.With(optim.NewAdadelta, optim.AdadeltaConfig{Rho: 0.8, Eps: 1e-3, WeightDecay: 0.1}),
		func() oracle { return adadeltaOracle(0.8, 1e-3, 0.1) }, silent},
	{"Adamax", optim.With(optim.NewAdamax, optim.AdamaxConfig{Beta2: 0.9, Eps: 1e-3, WeightDecay: 0.1}),
		func() oracle { return adamaxOracle(0.9, 0.9, 1e-3, 0.1) }, silent},
	{"NAdam", optim.With(optim.NewNAdam, optim.NAdamConfig{Beta1: 0.8, Eps: 1e-3, MomentumDecay: 0.2, WeightDecay: 0.1}),
		func() oracle { return nadamOracle(0.8, 0.999, 1e-3, 0.2, 0.1, 0) }, silent},
	{"NAdam decoupled", optim.With(optim.NewNAdam, optim.NAdamConfig{Eps: 1e-3, WeightDecay: 0.1, Decoupled: true}),
		func() oracle { return nadamOracle(0.9, 0.999, 1e-3, 4e-3, 0, 0.1) }, silent},
	{"RAdam", optim.With(optim.NewRAdam, optim.RAdamConfig{Beta2: 0.8, Eps: 1e-3, WeightDecay: 0.1}),
		func() oracle { return radamOracle(0.9, 0.8, 1e-3, 0.1, 0) }, silent},
	{"RAdam decoupled", optim.With(optim.NewRAdam, optim.RAdamConfig{Eps: 1e-3, WeightDecay: 0.1, Decoupled: true}),
		func() oracle { return radamOracle(0.9, 0.999, 1e-3, 0, 0.1) }, silent},
	{"ASGD", optim.With(optim.NewASGD, optim.ASGDConfig{Lambda: 0.1, Alpha: 0.5, Start: 1, WeightDecay: 0.2}),
		func() oracle { return asgdOracle(0.1, 0.5, 0.2) }, silent},
	{"Rprop", optim.With(optim.NewRprop, optim.RpropConfig{Shrink: 0.4, Grow: 1.5, Most: 0.2}),
		func() oracle { return rpropOracle(0.4, 1.5, 1e-6, 0.2) }, silent},
	{"Lion", optim.With(optim.NewLion, optim.LionConfig{WeightDecay: 0.3}),
		func() oracle { return lionOracle(0.9, 0.99, 0.3) }, silent},
	{"LAMB", optim.With(optim.NewLAMB, optim.LAMBConfig{WeightDecay: 0.3}),
		func() oracle { return lambOracle(0.9, 0.999, 1e-6, 0.3) }, oneIfSharded},
	{"Adafactor", optim.With(optim.NewAdafactor, optim.AdafactorConfig{WeightDecay: 0.2}),
		func() oracle { return adafactorOracle(0.2) }, func(rows, columns, vector bool) int {
			n := 0
			if rows {
				n += 2 // the columns' means, and the mean of the rows' means
			}
			if columns {
				n++
			}
			if rows || columns {
				n += 2 // the norms of the matrix and of its change
			}
			if vector {
				n += 2
			}
			return n
		}},
}

// ofMatrices are the kinds, and those that take nothing but matrices.
var ofMatrices = append(slices.Clone(kinds), kind{name: "Muon", make: optim.With(optim.NewMuon, optim.MuonConfig{WeightDecay: 0.1})})

// layouts are tried on meshes of their length; 5 ranks of rows are uneven, 7
// columns over 4 leave one rank with one.
var layouts = []struct {
	mesh   []int
	places []layout.Placement
}{
	{[]int{1}, []layout.Placement{rowWise}},
	{[]int{2}, []layout.Placement{replicate}},
	{[]int{2}, []layout.Placement{rowWise}},
	{[]int{3}, []layout.Placement{colWise}},
	{[]int{4}, []layout.Placement{rowWise}}, // 5 rows: 2, 2, 1, 0
	{[]int{4}, []layout.Placement{layout.ShardSizes(0, 0, 4, 0, 1)}},
	{[]int{4}, []layout.Placement{colWise}},
	{[]int{2, 2}, []layout.Placement{replicate, rowWise}},
	{[]int{2, 2}, []layout.Placement{rowWise, colWise}},
	{[]int{2, 2}, []layout.Placement{rowWise, rowWise}},
}

// TestStepsEqualTheOracle trains a matrix and a vector for some steps, with
// dense gradients and with rows, and compares with the loops of oracle_test.go.
func TestStepsEqualTheOracle(t *testing.T) {
	for _, k := range kinds {
		for _, l := range testenv.Fewer(layouts, 2, 8) {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
				for _, sparse := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%v%v/%v/sparse=%v", k.name, l.mesh, l.places, dt, sparse), func(t *testing.T) {
						meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
							return k.check(m, dt, sparse, l.places)
						})
					})
				}
			}
		}
	}
}

func (k *kind) check(m *dtensor.Mesh, dt tensor.DType, sparse bool, places []layout.Placement) error {
	const rows, width = 5, 7
	rtol, atol, stateType := 2e-6, 2e-6, dt
	switch dt {
	case tensor.Float64:
		rtol, atol = 1e-12, 1e-12
	case tensor.BFloat16: // the weights are float32 and rounded to the parameter
		rtol, stateType = 0x1.01p-8, tensor.Float32
	case tensor.Float16:
		rtol, stateType = 0x1.02p-11, tensor.Float32
	}
	numbers := func(n int, seed float64) []float64 { // of the type
		x := meshtest.Numbers(n, seed, 1)
		return meshtest.Values(tensor.Cast(tensor.FromSlice(m.Device(), x, n), dt))
	}
	p, v := numbers(rows*width, 1), numbers(rows, 2)
	vector := make([]layout.Placement, len(places))
	if places[0].Shards(0) {
		vector[0] = places[0]
	}
	param, bias := spread(m, dt, p, []int{rows, width}, places...), spread(m, dt, v, []int{rows}, vector...)
	opt := k.make([]*dtensor.Tensor{param, bias})
	matrix, list := k.oracle(), k.oracle()
	touched := [][]int{{1, 3}, {3}, {}, {0, 3, 4}}
	world := m.Comm()
	for step := range 4 {
		g, gv := numbers(rows*width, float64(step+3)), numbers(rows, float64(step+30))
		grads := []dtensor.Grad{dtensor.Dense(spread(m, dt, g, []int{rows, width}, places...)),
			dtensor.Dense(spread(m, dt, gv, []int{rows}, vector...))}
		var named []int
		if sparse {
			named = touched[step]
			grads[0] = rowsOf(param, g, named)
		}
		lr := 0.1 / float64(step+1)
		record := world.Record()
		if err := opt.Step(grads, lr); err != nil {
			return err
		}
		inRows, inColumns, inVector := false, false, vector[0].IsShard() && m.Axes()[0].Size > 1
		for axis, place := range places {
			inRows = inRows || place.Shards(0) && m.Axes()[axis].Size > 1
			inColumns = inColumns || place.Shards(1) && m.Axes()[axis].Size > 1
		}
		if n, want := len(record.Stop()), k.calls(inRows, inColumns, inVector); n != want {
			return fmt.Errorf("the step made %d collectives, want %d", n, want)
		}
		matrix(p, g, width, named, step+1, lr)
		list(v, gv, 1, nil, step+1, lr)
		if err := meshtest.Near(fmt.Sprintf("matrix after step %d", step), param.Full(), p, rtol, atol); err != nil {
			return err
		}
		if err := meshtest.Near(fmt.Sprintf("vector after step %d", step), bias.Full(), v, rtol, atol); err != nil {
			return err
		}
	}
	for name, s := range opt.State() {
		kind, i, _ := strings.Cut(name, ".")
		of := map[string]*dtensor.Tensor{"0": param, "1": bias}[i]
		if kind == "step" {
			if s.NDim() != 0 || s.Local().Item() != 4 {
				return fmt.Errorf("%s is %v, %v; want 4", name, s, tensor.ToSlice[int64](s.Local()))
			}
		} else if kind != "column" && s.Local().Dim(0) != of.Local().Dim(0) || s.DType() != stateType {
			return fmt.Errorf("%s is %v, the parameter %v", name, s, of)
		}
	}
	return nil
}

// TestStateCarriesOver stops after three steps, in one of which a parameter had no
// gradient, moves the state to a new optimizer and goes on: the same as never having
// stopped.
func TestStateCarriesOver(t *testing.T) {
	for i, k := range append(ofMatrices, ofMatrices...) {
		dt := []tensor.DType{tensor.Float32, tensor.BFloat16}[i/len(ofMatrices)]
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			const rows, width = 5, 3
			a := spread(m, dt, meshtest.Numbers(rows*width, 1, 1), []int{rows, width}, rowWise)
			b := spread(m, dt, meshtest.Numbers(rows*width, 1, 1), []int{rows, width}, rowWise)
			whole, first := k.make([]*dtensor.Tensor{a}), k.make([]*dtensor.Tensor{b})
			second := k.make([]*dtensor.Tensor{b})
			for step := range 5 {
				g := []dtensor.Grad{dtensor.Dense(spread(m, dt, meshtest.Numbers(rows*width, float64(step+3), 1), []int{rows, width}, rowWise))}
				if step == 1 {
					g = []dtensor.Grad{{}}
				}
				if err := whole.Step(g, 0.1); err != nil {
					return err
				}
				if step == 3 {
					restored := maps.Collect(second.State())
					for name, s := range first.State() {
						tensor.Copy(restored[name].Local(), s.Local())
					}
					first = second
				}
				if err := first.Step(g, 0.1); err != nil {
					return err
				}
			}
			return near(k.name, b, tensor.ToSlice[float64](tensor.Cast(a.Full(), tensor.Float64)), 0)
		})
	}
}

// TestZeroGradLeavesAlone: the zero Grad is no gradient, which is not a gradient of
// zeros; the parameter's first step is the first one with a gradient.
func TestZeroGradLeavesAlone(t *testing.T) {
	meshtest.On(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, k := range kinds {
			want := meshtest.Numbers(12, 1, 1)
			p := spread(m, tensor.Float64, want, []int{4, 3}, replicate)
			opt := k.make([]*dtensor.Tensor{p})
			for range 2 {
				if err := opt.Step([]dtensor.Grad{{}}, 0.5); err != nil {
					return err
				}
			}
			if err := near(k.name+": parameter", p, want, 0); err != nil {
				return err
			}
			step := k.oracle()
			for n := range 2 {
				g := meshtest.Numbers(12, float64(n), 1)
				if err := opt.Step([]dtensor.Grad{dtensor.Dense(spread(m, tensor.Float64, g, []int{4, 3}, replicate))}, 0.5); err != nil {
					return err
				}
				step(want, g, 3, nil, n+1, 0.5)
			}
			if err := near(k.name+": parameter after two steps", p, want, 1e-12); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestBadConfigurations(t *testing.T) {
	meshtest.On(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		p := spread(m, tensor.Float32, meshtest.Numbers(4, 1, 1), []int{2, 2}, replicate)
		ids := m.Wrap("ids", tensor.Zeros(m.Device(), tensor.Int64, 2), nil, false, []int{2}, replicate)
		list := []*dtensor.Tensor{p}
		for want, f := range map[string]func(){
			"Momentum is -1":                   func() { optim.NewSGD(list, optim.SGDConfig{Momentum: -1}) },
			"Nesterov":                         func() { optim.NewSGD(list, optim.SGDConfig{Nesterov: true}) },
			"Beta1 is 1":                       func() { optim.NewAdamW(list, optim.AdamWConfig{Beta1: 1}) },
			"RowAdagrad: WeightDecay is -1":    func() { optim.NewRowAdagrad(list, optim.RowAdagradConfig{WeightDecay: -1}) },
			"SparseAdam: WeightDecay is NaN":   func() { optim.NewSparseAdam(list, optim.SparseAdamConfig{WeightDecay: math.NaN()}) },
			"Beta2 is -0.5":                    func() { optim.NewSparseAdam(list, optim.SparseAdamConfig{Beta2: -0.5}) },
			"Eps is -1":                        func() { optim.NewRowAdagrad(list, optim.RowAdagradConfig{Eps: -1}) },
			"parameter 0 is in":                func() { optim.NewSGD([]*dtensor.Tensor{ids}, optim.SGDConfig{}) },
			"NewAdamW: parameter 1 is nil":     func() { optim.NewAdamW([]*dtensor.Tensor{p, nil}, optim.AdamWConfig{}) },
			"parameter 1 is parameter 0 again": func() { optim.NewAdamW([]*dtensor.Tensor{p, p}, optim.AdamWConfig{}) },
			"group 0 has no New":               func() { optim.NewGroups(list, optim.Group{Params: list}) },
			"Cast it to":                       func() { optim.NewAdamW([]*dtensor.Tensor{p.Cast(tensor.Int32)}, optim.AdamWConfig{}) },
		} {
			if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want an error with %q", err, want)
			}
		}
		opt := optim.NewSGD(list, optim.SGDConfig{})
		_, _, err := optim.NewScaler(m, optim.ScalerConfig{}).Step(ctx, nil, list, []dtensor.Grad{{}}, 1)
		if err == nil || !strings.Contains(err.Error(), "the optimizer is nil") {
			return fmt.Errorf("got %v", err)
		}
		if err := opt.Step(nil, 1); err == nil || !strings.Contains(err.Error(), "0 gradients for 1 parameters") {
			return fmt.Errorf("got %v", err)
		}
		wrong := dtensor.Dense(spread(m, tensor.Float32, meshtest.Numbers(3, 1, 1), []int{3}, replicate))
		if err := opt.Step([]dtensor.Grad{wrong}, 1); err == nil || !strings.Contains(err.Error(), "gradient 0") {
			return fmt.Errorf("got %v", err)
		}
		return comm.Barrier(ctx, m.Comm())
	})
}

// TestOutsideTheMesh: a rank that is in no position makes the same steps on
// nothing.
func TestOutsideTheMesh(t *testing.T) {
	for _, k := range ofMatrices {
		commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
			m, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "a", Size: 2})
			if err != nil {
				return err
			}
			for _, place := range []layout.Placement{rowWise, colWise} {
				var failed error
				err := dtensor.Try(ctx, m, func() {
					w := dtensor.Full(m, tensor.Float32, 1, []int{5, 4}, place)
					params := []*dtensor.Tensor{w}
					opt := k.make(params)
					grads := []dtensor.Grad{dtensor.Dense(dtensor.Full(m, tensor.Float32, 2, []int{5, 4}, place))}
					norm, err := optim.ClipGradNorm(ctx, params, grads, 1e9)
					if failed = err; err == nil {
						failed = opt.Step(grads, 0.5)
					}
					if world.Rank() != 1 && (norm < 8.9 || norm > 9) {
						failed = fmt.Errorf("norm %v", norm)
					}
				})
				if err != nil || failed != nil {
					return fmt.Errorf("rank %d: %v %v", world.Rank(), err, failed)
				}
			}
			return nil
		})
	}
}

// TestMovedParameter: one that is divided after its optimizer or average was made is named on every rank, and so is the remedy.
func TestMovedParameter(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2})
		if err != nil {
			return err
		}
		w := dtensor.Full(m, tensor.Float32, 1, []int{1, 4}, layout.Replicate())
		params := []*dtensor.Tensor{w}
		opt, ema, swa := optim.NewAdamW(params, optim.AdamWConfig{}), optim.NewEMA(params, 0.9), optim.NewSWA(params)
		*w = *w.Redistribute(layout.Shard(0)) // as nn.Shard does
		grads := []dtensor.Grad{dtensor.Dense(dtensor.Full(m, tensor.Float32, 1, []int{1, 4}, layout.Shard(0)))}
		try := func(f func()) error { return dtensor.Try(ctx, m, f) }
		for call, err := range map[string]error{"AdamW.Step": opt.Step(grads, 1), "EMA.Update": try(ema.Update), "SWA.Update": try(swa.Update),
			"Swap": try(ema.Swap)} {
			if err == nil || !strings.Contains(err.Error(), "optim: "+call+": parameter 0") || !strings.Contains(err.Error(), "after nn.Shard") {
				return fmt.Errorf("rank %d: %s: %v", world.Rank(), call, err)
			}
		}
		return nil
	})
}

// TestRowsGiveTheBitsOfDense: a row-sparse gradient and the dense one that it
// stands for make the same step, bit for bit.
func TestRowsGiveTheBitsOfDense(t *testing.T) {
	const rows, width = 40, 9
	for _, k := range ofMatrices {
		switch k.name {
		case "SparseAdam", "SparseAdam decay", "RowAdagrad decay": // lazy: they leave the other rows alone
			continue
		}
		meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
				shape := []int{rows, width}
				a := spread(m, dt, meshtest.Numbers(rows*width, 1, 1), shape, rowWise)
				b := spread(m, dt, meshtest.Numbers(rows*width, 1, 1), shape, rowWise)
				dense, sparse := k.make([]*dtensor.Tensor{a}), k.make([]*dtensor.Tensor{b})
				for step, touched := range [][]int{{0, 7, 31}, {7, 8}, {}, {39, 13, 14}} {
					g := rowsOf(b, meshtest.Numbers(rows*width, float64(step), 1), touched)
					if err := sparse.Step([]dtensor.Grad{g}, 0.1); err != nil {
						return err
					}
					if err := dense.Step([]dtensor.Grad{dtensor.Dense(g.Dense())}, 0.1); err != nil {
						return err
					}
				}
				if err := near(fmt.Sprint(k.name, " of ", dt), b, meshtest.Values(a.Full()), 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
