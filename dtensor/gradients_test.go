package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// once are the cases whose operators cannot be differentiated twice.
var once = []string{"Digamma", "I0"}

// twiceCases are opCases, and functions in which several gradients are added up.
var twiceCases = append(slices.Clone(opCases),
	opCase{name: "a weight used twice", shapes: [][][]int{{{6, 16}, {16, 16}}}, tol: 1e-3,
		f: func(in []T) T { return in[0].Linear(in[1], nil).Tanh().MatMul(in[1]) }},
	opCase{name: "network", shapes: [][][]int{{{6, 16}, {16, 16}, {16}}}, tol: 1e-3,
		f: func(in []T) T { return network(in[0], in[1], in[2]) }})

// slope is the case whose operator is the gradient of c by all its numbers.
func (c opCase) slope() opCase {
	f := c.f
	c.name, c.tol = "slope of "+c.name, max(c.tol, 1e-4)
	c.shapes = c.shapes[:1]
	c.f = func(in []T) T {
		var xs []T
		for _, x := range in {
			if x.DType().Float() {
				xs = append(xs, x)
			}
		}
		slopes := dtensor.Gradients(func() T {
			y := f(in)
			return y.Mul(weights(y.Mesh(), y).Cast(y.DType())).Sum(nil, false)
		}, xs...)
		for i, s := range slopes {
			slopes[i] = s.Reshape(s.Numel())
		}
		return dtensor.Cat(0, slopes...)
	}
	return c
}

// The second derivatives of every operator are those of finite differences, and the same in all layouts; an operator that has none
// is refused by its name.
func TestSecondDerivatives(t *testing.T) {
	grids := [][]int{{3}, {2, 2}}
	if testing.Short() {
		grids = grids[1:]
	}
	for _, c := range twiceCases {
		if c.nograd || slices.Contains(kinks, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			slope := c.slope()
			if slices.Contains(once, c.name) {
				onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
					if err := slope.differences(ctx, m); err == nil || !strings.Contains(err.Error(), "cannot be differentiated twice") {
						return fmt.Errorf("got %v", err)
					}
					return nil
				})
				return
			}
			onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error { return slope.differences(ctx, m) })
			for _, shape := range grids {
				onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error { return slope.check(ctx, m) })
			}
		})
	}
}

// The gradients of f by its inputs, also where f uses what depends on them outside, and what does not depend on them.
func TestGradients(t *testing.T) {
	for _, shape := range [][]int{{1}, {3}, {2, 2}} {
		onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			R, S := m.Every(layout.Replicate()), m.Every(layout.Replicate())
			S[0] = layout.Shard(0)
			x := dtensor.Arange(m, tensor.Float64, 1, 5, R...).Redistribute(S...) // 1 to 5
			a := dtensor.Full(m, tensor.Float64, 2, nil, R...)
			third := func(x T) T { // the third derivative of a·x⁴ is 24·a·x
				return dtensor.Gradients(func() T {
					return dtensor.Gradients(func() T {
						return dtensor.Gradients(func() T { return x.PowScalar(4).Mul(a).Sum(nil, false) }, x)[0].Sum(nil, false)
					}, x)[0].Sum(nil, false)
				}, x)[0]
			}
			wantNumbers := func(what string, got T, want ...float64) {
				if got.DType() != tensor.Float64 || !near64(tensor.ToSlice[float64](got.Full()), want) {
					failf("%s: got %v, want %v", what, tensor.ToSlice[float64](got.Full()), want)
				}
			}
			return dtensor.Try(ctx, m, func() {
				// Outside of ValueAndGrad the gradients are constants, in the layout of x.
				got := third(x)
				wantNumbers("third", got, 48, 96, 144, 192, 240)
				if !slices.Equal(got.Placements(), x.Placements()) || dtensor.Tracked(got) {
					failf("its layout is %v", got)
				}
				// Inside it they are recorded: by x and a, which f uses besides.
				_, grads, err := dtensor.ValueAndGrad(ctx, func() T { return third(x).Square().Sum(nil, false) }, x, a)
				if err != nil {
					failf("%w", err)
				}
				wantNumbers("by x", grads[0].Dense(), 4608, 9216, 13824, 18432, 23040)
				wantNumbers("by a", grads[1].Dense(), 2*24*24*2*55)
				// By what is computed from a parameter: of y = x², z = y³ has the slope 3·y², whose gradient by x is 12·x³.
				_, grads, err = dtensor.ValueAndGrad(ctx, func() T {
					y := x.Square()
					return dtensor.Gradients(func() T { return y.PowScalar(3).Sum(nil, false) }, y)[0].Sum(nil, false)
				}, x)
				if err != nil {
					failf("%w", err)
				}
				wantNumbers("by y", grads[0].Dense(), 12, 96, 324, 768, 1500)
				// Through a Recompute, which uses a parameter from outside: of a·x³ the slope by a is x³, and its gradient 3·x².
				_, grads, err = dtensor.ValueAndGrad(ctx, func() T {
					return dtensor.Gradients(func() T {
						return dtensor.Recompute(func(x T) T { return x.PowScalar(3).Mul(a) }, x).Sum(nil, false)
					}, a)[0]
				}, x, a)
				if err != nil {
					failf("%w", err)
				}
				wantNumbers("recomputed, by x", grads[0].Dense(), 3, 12, 27, 48, 75)
				wantNumbers("recomputed, by a", grads[1].Dense(), 0)
				// Inside a Recompute, and inside one that is inside another.
				cubed := func(y T) T {
					return dtensor.Gradients(func() T { return y.PowScalar(3).Sum(nil, false) }, y)[0]
				}
				for name, f := range map[string]func(y T) T{
					"one":   func(y T) T { return dtensor.Recompute(cubed, y) },
					"two":   func(y T) T { return dtensor.Recompute(func(y T) T { return dtensor.Recompute(cubed, y) }, y) },
					"below": func(y T) T { return dtensor.Recompute(func(x T) T { return cubed(x.Square()) }, x) },
				} {
					value, grads, err := dtensor.ValueAndGrad(ctx, func() T { return f(x.Square()).Sum(nil, false) }, x)
					if err != nil {
						failf("in a Recompute, %s: %w", name, err)
					}
					wantNumbers("in a Recompute, "+name, value, 3*979)
					wantNumbers("in a Recompute, "+name+", by x", grads[0].Dense(), 12, 96, 324, 768, 1500)
				}
				// What f does not use has the gradient zero, and what depends on nothing too.
				both := dtensor.Gradients(func() T { return x.Sum(nil, false) }, a, x)
				wantNumbers("unused", both[0], 0)
				wantNumbers("used", both[1], 1, 1, 1, 1, 1)
				wantNumbers("a constant", dtensor.Gradients(func() T { return dtensor.Full(m, tensor.Float64, 1, nil, R...) }, x)[0], 0, 0, 0, 0, 0)
			})
		})
	}
}

// The second derivatives of operators on bfloat16 are computed in float32, and rounded to it.
func TestSecondDerivativesOfBFloat16(t *testing.T) {
	for _, c := range casesOf(t, tensor.BFloat16) {
		if c.nograd || slices.Contains(once, strings.TrimSuffix(c.name, " of bfloat16")) {
			continue
		}
		slope := c.slope()
		onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error { return slope.check(ctx, m) })
	}
}

// With SameBits the second derivatives of every operator have the bits of those of whole tensors, in every layout.
func TestSecondDerivativesHaveTheSameBits(t *testing.T) {
	for _, c := range twiceCases {
		if c.nograd || slices.Contains(once, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			slope := c.slope()
			for _, shape := range [][]int{{3}, {2, 2}} {
				onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
					m.SetSameBits(true)
					if err := slope.checkBits(ctx, m, slope.shapes[0]); err != nil {
						return fmt.Errorf("%s, mesh %v: %w", c.name, m, err)
					}
					return nil
				})
			}
		})
	}
}

func near64(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(b)) })
}

func TestGradientsRefusals(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Full(m, tensor.Float32, 2, []int{4}, layout.Shard(0))
		ints := dtensor.Full(m, tensor.Int64, 2, []int{4}, layout.Shard(0))
		sum := func() T { return x.Square().Sum(nil, false) }
		for _, c := range []struct {
			name, want string
			f          func()
		}{
			{"nothing", "nothing to differentiate by", func() { dtensor.Gradients(sum) }},
			{"no function", "the function is nil", func() { dtensor.Gradients(nil, x) }},
			{"twice", "x 1 is given twice", func() { dtensor.Gradients(sum, x, x) }},
			{"integers", "int64", func() { dtensor.Gradients(sum, ints) }},
			{"no scalar", "one element", func() { dtensor.Gradients(func() T { return x.Square() }, x) }},
			{"nil", "returned nil", func() { dtensor.Gradients(func() T { return nil }, x) }},
			{"an operator", "Digamma cannot be differentiated twice", func() {
				dtensor.Gradients(func() T { return x.Digamma().Sum(nil, false) }, x)
			}},
		} {
			if err := dtensor.Try(ctx, m, c.f); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
			}
			// The group and the tensors are usable afterwards.
			if _, g, err := dtensor.ValueAndGrad(ctx, sum, x); err != nil || g[0].Dense().Local().NDim() != 1 {
				return fmt.Errorf("after %s: %v", c.name, err)
			}
		}
		return nil
	})
}
