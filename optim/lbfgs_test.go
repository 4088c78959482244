package optim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// minimization is a line of lbfgs.jsonl.
type minimization struct {
	Rate float64
	Args struct {
		Iterations  int     `json:"max_iter"`
		Evaluations int     `json:"max_eval"`
		History     int     `json:"history_size"`
		Grad        float64 `json:"tolerance_grad"`
		Change      float64 `json:"tolerance_change"`
		Search      string  `json:"line_search_fn"`
	}
	X, Y        []float64
	Params      [][]float64
	Losses      []float64
	Evaluations []int
	After       [][][]float64
}

func (q *minimization) config() optim.LBFGSConfig {
	a := q.Args
	return optim.LBFGSConfig{Iterations: a.Iterations, Evaluations: a.Evaluations, History: a.History, ToleranceGrad: a.Grad,
		ToleranceChange: a.Change, StrongWolfe: a.Search != ""}
}

// start makes the parameters and the function.
func (q *minimization) start(ctx context.Context, m *dtensor.Mesh, places []layout.Placement, calls *int) (
	[]*dtensor.Tensor, optim.Closure) {
	vector := make([]layout.Placement, len(places))
	data := make([]layout.Placement, len(places))
	for axis, p := range places {
		if p.Shards(0) {
			vector[axis] = p
		} else if p.Shards(1) {
			data[axis] = rowWise
		}
	}
	w := spread(m, tensor.Float64, q.Params[0], []int{5, 7}, places...)
	b := spread(m, tensor.Float64, q.Params[1], []int{5}, vector...)
	x, y := spread(m, tensor.Float64, q.X, []int{6, 7}, data...), spread(m, tensor.Float64, q.Y, []int{6, 5}, data...)
	params := []*dtensor.Tensor{w, b}
	return params, func() (*dtensor.Tensor, []dtensor.Grad, error) {
		*calls++
		return dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			fit := x.Linear(w, b).Sigmoid().Sub(y).Square().Mean(nil, false)
			return fit.Add(w.Square().AddScalar(-1).Square().Mean(nil, false).Scale(1. / 20))
		}, params...)
	}
}

// LBFGS evaluates the function as often as PyTorch's does, and finds the same points, whole and sharded.
func TestLBFGSEqualsPyTorch(t *testing.T) {
	count := 0
	lines(t, "lbfgs.jsonl", func(q minimization) {
		count++
		for _, l := range layouts {
			t.Run(fmt.Sprintf("%d/%v%v", count, l.mesh, l.places), func(t *testing.T) {
				meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					calls := 0
					params, f := q.start(ctx, m, l.places, &calls)
					opt := optim.NewLBFGS(params, q.config())
					for step, want := range q.Losses {
						loss, err := opt.Step(q.Rate, f)
						if err != nil {
							return err
						}
						if math.Abs(loss-want) > 1e-8 || calls != q.Evaluations[step] {
							return fmt.Errorf("step %d: the loss is %v after %d evaluations, want %v, %d", step, loss, calls, want, q.Evaluations[step])
						}
						for i, p := range params {
							if err := near(fmt.Sprintf("step %d: parameter %d", step, i), p, q.After[step][i], 1e-6); err != nil {
								return err
							}
						}
					}
					return nil
				})
			})
		}
	})
	if count < 7 {
		t.Errorf("only %d functions", count)
	}
}

// With SameBits an LBFGS finds the points of one rank's, to the bit, in every layout.
func TestLBFGSHasTheSameBits(t *testing.T) {
	lines(t, "lbfgs.jsonl", func(q minimization) {
		var want string
		for _, l := range layouts {
			meshtest.On(t, l.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				calls := 0
				params, f := q.start(ctx, m, l.places, &calls)
				opt := optim.NewLBFGS(params, q.config())
				got := ""
				for range q.Losses {
					loss, err := opt.Step(q.Rate, f)
					if err != nil {
						return err
					}
					got += fmt.Sprintf("%x", loss)
				}
				for _, p := range params {
					got += fmt.Sprintf(" %x", meshtest.Values(p.Full()))
				}
				if m.Comm().Rank() > 0 {
					return nil
				}
				if want == "" {
					want = got
				}
				if got != want {
					return fmt.Errorf("mesh %v, %v: %s, on one rank %s", m, l.places, got, want)
				}
				return nil
			})
		}
	})
}

// An LBFGS that has another's State goes on as that one would.
func TestLBFGSCarriesOver(t *testing.T) {
	lines(t, "lbfgs.jsonl", func(q minimization) {
		meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
			calls := 0
			params, f := q.start(ctx, m, []layout.Placement{rowWise}, &calls)
			opt := optim.NewLBFGS(params, q.config())
			for step := range q.Losses {
				if _, err := opt.Step(q.Rate, f); err != nil {
					return err
				}
				next := optim.NewLBFGS(params, q.config())
				to := maps.Collect(next.State())
				for name, s := range opt.State() {
					tensor.Copy(to[name].Local(), s.Local())
				}
				opt = next
				if err := near(fmt.Sprint("step ", step), params[0], q.After[step][0], 1e-6); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestLBFGSRefusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		p := spread(m, tensor.Float32, []float64{1, 2}, []int{2}, rowWise)
		list := []*dtensor.Tensor{p}
		for want, f := range map[string]func(){
			"Iterations is -1":     func() { optim.NewLBFGS(list, optim.LBFGSConfig{Iterations: -1}) },
			"ToleranceGrad is -1":  func() { optim.NewLBFGS(list, optim.LBFGSConfig{ToleranceGrad: -1}) },
			"Cast it to float32":   func() { optim.NewLBFGS([]*dtensor.Tensor{p.Cast(tensor.BFloat16)}, optim.LBFGSConfig{}) },
			"parameter 1 is param": func() { optim.NewLBFGS([]*dtensor.Tensor{p, p}, optim.LBFGSConfig{}) },
		} {
			if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want an error with %q", err, want)
			}
		}
		opt, mine := optim.NewLBFGS(list, optim.LBFGSConfig{}), errors.New("mine")
		if _, err := opt.Step(1, nil); err == nil || !strings.Contains(err.Error(), "the closure is nil") {
			return fmt.Errorf("got %v", err)
		}
		if _, err := opt.Step(math.NaN(), nil); err == nil {
			return errors.New("a rate that is NaN")
		}
		if _, err := opt.Step(1, func() (*dtensor.Tensor, []dtensor.Grad, error) { return nil, nil, mine }); !errors.Is(err, mine) {
			return fmt.Errorf("got %v", err)
		}
		_, err := opt.Step(1, func() (*dtensor.Tensor, []dtensor.Grad, error) { return p, nil, nil })
		if err == nil || !strings.Contains(err.Error(), "0 gradients for 1 parameters") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}
