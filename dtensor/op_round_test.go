package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// The operators that round have the values of package math to the bit, also of numbers that no integer holds, and of halves
// those of PyTorch.
func TestRounding(t *testing.T) {
	x := []float64{0, math.Copysign(0, -1), 0.25, -0.25, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999999999999994, 3, -7, 1e9 + 0.5, 1<<51 + 0.5,
		1<<52 - 0.5, -(1<<52 - 0.5), 1<<52 + 1, 1<<53 + 2, 1e300, -1e300, math.Inf(1), math.Inf(-1), math.NaN(), 5e-324, -5e-324}
	for _, dt := range []tensor.DType{tensor.Float64, tensor.Float32, tensor.BFloat16, tensor.Float16} {
		for name, op := range map[string]struct {
			f    func(T) T
			want func(float64) float64
		}{"Floor": {T.Floor, math.Floor}, "Ceil": {T.Ceil, math.Ceil}, "Trunc": {T.Trunc, math.Trunc}, "Round": {T.Round, math.RoundToEven}} {
			t.Run(name+" of "+dt.String(), func(t *testing.T) {
				onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
					in := dtensor.Distribute(m, tensor.FromSlice(m.Device(), x, len(x)), layout.Shard(0)).Cast(dt)
					of, got := tensor.ToSlice[float64](in.Cast(tensor.Float64).Full()), tensor.ToSlice[float64](op.f(in).Cast(tensor.Float64).Full())
					for i, v := range of {
						if want := op.want(v); math.Float64bits(got[i]) != math.Float64bits(want) && !(got[i] != got[i] && want != want) {
							return fmt.Errorf("of %v: %v, want %v", v, got[i], want)
						}
					}
					return nil
				})
			})
		}
	}
}

// Remainder has the values of torch.remainder.
func TestRemainder(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		a, b := []float64{7, -7, 7, -7, 6, -6, 5.5, -5.5, 1, 0, 9.6, 1e22, 5, -5}, []float64{3, 3, -3, -3, 3, -3, 2, 2, 0.1, 5, 0.8, 7, inf, inf}
		of := func(v []float64, dt tensor.DType) T {
			return dtensor.Distribute(m, tensor.FromSlice(m.Device(), v, len(v)), layout.Shard(0)).Cast(dt)
		}
		for _, c := range []struct {
			dt   tensor.DType
			n    int
			want []float64
		}{
			{tensor.Int64, 6, []float64{1, 2, -2, -1, 0, 0}}, {tensor.Int8, 6, []float64{1, 2, -2, -1, 0, 0}},
			{tensor.Float64, 14, []float64{1, 2, -2, -1, 0, 0, 1.5, 0.5, math.Mod(1, 0.1), 0, math.Mod(9.6, 0.8), math.Mod(1e22, 7), 5, inf}},
			// The last but one is fmod(float32(1), float32(0.1)).
			{tensor.Float32, 10, []float64{1, 2, -2, -1, 0, 0, 1.5, 0.5, float64(float32(0.09999998658895493)), 0}},
		} {
			got := tensor.ToSlice[float64](of(a[:c.n], c.dt).Remainder(of(b[:c.n], c.dt)).Cast(tensor.Float64).Full())
			for i, want := range c.want {
				if got[i] != want {
					return fmt.Errorf("%v: remainder of %v by %v is %v, want %v", c.dt, a[i], b[i], got[i], want)
				}
			}
		}
		return nil
	})
}

// The activations that are made of others have the values and the gradients that PyTorch's have, at the ends of their ranges too.
func TestActivations(t *testing.T) {
	x := []float64{-1e4, -100, -30, -3, -1, -1e-5, 0, 1e-5, 1, 3, 30, 100, 1e4}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	softplus := func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
	within := func(x, lo, hi float64) float64 { // 1 between lo and hi
		if lo <= x && x <= hi {
			return 1
		}
		return 0
	}
	for name, op := range map[string]struct {
		f           func(T) T
		want, slope func(x float64) float64
	}{
		"ELU": {func(x T) T { return x.ELU(0.5) }, func(x float64) float64 { return max(x, 0) + 0.5*math.Expm1(min(x, 0)) },
			func(x float64) float64 {
				if x > 0 {
					return 1
				}
				return 0.5 * math.Exp(x)
			}},
		"LeakyReLU": {func(x T) T { return x.LeakyReLU(0.1) }, func(x float64) float64 { return max(x, 0.1*x) },
			func(x float64) float64 {
				if x > 0 {
					return 1
				}
				return 0.1
			}},
		"Softplus":   {T.Softplus, softplus, sigmoid},
		"LogSigmoid": {T.LogSigmoid, func(x float64) float64 { return -softplus(-x) }, func(x float64) float64 { return sigmoid(-x) }},
		"Mish": {T.Mish, func(x float64) float64 { return x * math.Tanh(softplus(x)) }, func(x float64) float64 {
			th := math.Tanh(softplus(x))
			return th + x*sigmoid(x)*(1-th*th)
		}},
		"Hardsigmoid": {T.Hardsigmoid, func(x float64) float64 { return min(max(x+3, 0), 6) / 6 },
			func(x float64) float64 { return within(x, -3, 3) / 6 }},
		"Hardswish": {T.Hardswish, func(x float64) float64 { return x * min(max(x+3, 0), 6) / 6 },
			func(x float64) float64 { return min(max(x+3, 0), 6)/6 + x*within(x, -3, 3)/6 }},
	} {
		t.Run(name, func(t *testing.T) {
			onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
				in := dtensor.Distribute(m, tensor.FromSlice(m.Device(), x, len(x)), layout.Shard(0)).Cast(tensor.Float32)
				var out T
				_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
					out = op.f(in)
					dtensor.Keep(out)
					return out.Sum(nil, false)
				}, in)
				if err != nil {
					return err
				}
				got, slopes := tensor.ToSlice[float32](out.Full()), tensor.ToSlice[float32](grads[0].Dense().Full())
				for i, v := range x {
					v = float64(float32(v))
					for what, pair := range map[string][2]float64{"value": {float64(got[i]), op.want(v)}, "slope": {float64(slopes[i]), op.slope(v)}} {
						if d := math.Abs(pair[0] - pair[1]); !(d <= 1e-6*math.Abs(pair[1])+1e-37) {
							return fmt.Errorf("%s at %v is %v, want %v", what, v, pair[0], pair[1])
						}
					}
				}
				return nil
			})
		})
	}
}

// Flip, Repeat and RepeatInterleave have the values of torch.flip, torch.tile and torch.repeat_interleave.
func TestRepeating(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Arange(m, tensor.Int64, 0, 6, layout.Replicate()).Reshape(2, 3).Redistribute(layout.Shard(1))
		for _, c := range []struct {
			name string
			got  T
			want string
		}{
			{"Flip", x.Flip(0, -1), "[2 3] [5 4 3 2 1 0]"},
			{"Flip of none", x.Flip(), "[2 3] [0 1 2 3 4 5]"},
			{"Repeat", x.Repeat(2, 1), "[4 3] [0 1 2 3 4 5 0 1 2 3 4 5]"},
			{"Repeat in a new dim", x.Repeat(2, 1, 1), "[2 2 3] [0 1 2 3 4 5 0 1 2 3 4 5]"},
			{"Repeat along two", x.Narrow(1, 0, 2).Repeat(2, 2), "[4 4] [0 1 0 1 3 4 3 4 0 1 0 1 3 4 3 4]"},
			{"Repeat not once", x.Repeat(0, 2), "[0 6] []"},
			{"RepeatInterleave", x.RepeatInterleave(2, -1), "[2 6] [0 0 1 1 2 2 3 3 4 4 5 5]"},
			{"RepeatInterleave first", x.RepeatInterleave(2, 0), "[4 3] [0 1 2 0 1 2 3 4 5 3 4 5]"},
		} {
			if got := fmt.Sprint(c.got.Shape(), tensor.ToSlice[int64](c.got.Full())); got != c.want {
				return fmt.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
		return nil
	})
}

// Of a narrow type the activations are those of float32, rounded once.
func TestActivationsRoundOnce(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := make([]float64, 4001)
		for i := range x {
			x[i] = float64(i-2000) / 500
		}
		for _, c := range []struct { // in one order on all ranks
			name string
			f    func(T) T
		}{{"ELU", func(x T) T { return x.ELU(0.3) }}, {"LeakyReLU", func(x T) T { return x.LeakyReLU(0.3) }}, {"Softplus", T.Softplus},
			{"LogSigmoid", T.LogSigmoid}, {"Mish", T.Mish}, {"Hardswish", T.Hardswish}} {
			for _, dt := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
				in := dtensor.Distribute(m, tensor.FromSlice(m.Device(), x, len(x)), layout.Shard(0)).Cast(dt)
				got := tensor.ToSlice[float32](c.f(in).Cast(tensor.Float32).Full())
				want := tensor.ToSlice[float32](c.f(in.Cast(tensor.Float32)).Cast(dt).Cast(tensor.Float32).Full())
				for i := range got {
					if got[i] != want[i] {
						return fmt.Errorf("%s of %v(%v): %v, want %v", c.name, dt, x[i], got[i], want[i])
					}
				}
			}
		}
		return nil
	})
}
