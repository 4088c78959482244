package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

var (
	nan, inf = math.NaN(), math.Inf(1)
	whole    = []layout.Placement{layout.Replicate()}
)

// vector makes a replicated float64 tensor.
func vector(m *dtensor.Mesh, shape []int, data ...float64) T {
	return dtensor.Distribute(m, tensor.FromSlice(m.Device(), data, shape...), whole...)
}

// alike compares numbers; NaN is NaN.
func alike(a, b float64) bool { return math.Abs(a-b) < 1e-9 || a == b || a != a && b != b }

// At the edges operators give what PyTorch gives.
func TestEdges(t *testing.T) {
	type mesh = *dtensor.Mesh
	for _, c := range []struct {
		name  string
		f     func(m mesh) T
		shape []int
		want  []float64
	}{
		{"a clamp between bounds that have crossed", func(m mesh) T { return vector(m, []int{3}, -2, 0, nan).Clamp(1, -1) }, []int{3},
			[]float64{-1, -1, nan}},
		{"a clamp below what is no number", func(m mesh) T { return vector(m, []int{2}, -2, 0).Clamp(math.Inf(-1), nan) }, []int{2},
			[]float64{nan, nan}},
		{"integers compared with a fraction", func(m mesh) T {
			return vector(m, []int{3}, 0, 1, -1).Cast(tensor.Int64).CompareScalar(kernel.OpGe, 0.5).Cast(tensor.Float64)
		}, []int{3}, []float64{0, 1, 0}},
		{"the sum of one truth", func(m mesh) T {
			truths := dtensor.Full(m, tensor.Bool, 1, nil, whole...).Sum(nil, false)
			return truths.Add(truths).Cast(tensor.Float64)
		}, []int{}, []float64{2}},
		{"a narrowed tail", func(m mesh) T { return vector(m, []int{4}, 1, 2, 3, 4).Narrow(0, -2, 2) }, []int{2}, []float64{3, 4}},
		{"the variance of four less four, two of them the mean", func(m mesh) T {
			return vector(m, []int{4}, 0, 4, 2, 2).Redistribute(layout.Shard(0)).Var(nil, 4, false)
		}, []int{}, []float64{inf}},
		{"a matrix and a list of nothing joined", func(m mesh) T { return dtensor.Cat(1, vector(m, []int{0}), vector(m, []int{1, 2}, 3, 4)) },
			[]int{1, 2}, []float64{3, 4}},
		{"lists of nothing joined", func(m mesh) T { return dtensor.Cat(0, vector(m, []int{0}), vector(m, []int{0})) }, []int{0}, nil},
		{"the last chunk of nothing", func(m mesh) T { return vector(m, []int{0}).Chunk(0, 3)[2] }, []int{0}, nil},
		{"the largest none of none", func(m mesh) T { v, _ := vector(m, []int{2, 0}).TopK(0, 1); return v }, []int{2, 0}, nil},
		{"a slice selected by a number", func(m mesh) T {
			return vector(m, []int{2, 2}, 1, 2, 3, 4).IndexSelect(0, vector(m, nil, 1).Cast(tensor.Int64))
		}, []int{1, 2}, []float64{3, 4}},
		{"running products of small integers", func(m mesh) T {
			return vector(m, []int{3}, 2, 3, 100).Cast(tensor.Int8).Redistribute(layout.Shard(0)).Cumprod(0).Cast(tensor.Float64)
		}, []int{3}, []float64{2, 6, 600}},
		{"running products of an uneven shard", func(m mesh) T {
			return vector(m, []int{5}, 2, -1, 0.5, 3, 0).Redistribute(layout.Shard(0)).Cumprod(0)
		}, []int{5}, []float64{2, -2, -1, -3, 0}},
		{"sums of powers of what is infinite", func(m mesh) T {
			return vector(m, []int{4}, inf, -inf, -inf, 800).LogAddExp(vector(m, []int{4}, inf, -inf, 1, 800))
		}, []int{4}, []float64{inf, -inf, 1, 800 + math.Ln2}},
		{"a padded shard", func(m mesh) T { return vector(m, []int{3}, 1, 2, 3).Redistribute(layout.Shard(0)).Pad(-1, 1, 2, 7) },
			[]int{6}, []float64{7, 1, 2, 3, 7, 7}},
		{"whole quotients", func(m mesh) T {
			return vector(m, []int{8}, -5, 5, 1, 7, -7, inf, 3, 1e22).FloorDivide(vector(m, []int{8}, inf, inf, 0.1, -2, 2, 2, 0, 7))
		}, []int{8}, []float64{-1, 0, 9, -4, -4, nan, inf, 1428571428571428683776}},
		{"whole quotients of integers", func(m mesh) T {
			a, b := vector(m, []int{6}, -7, 7, 7, -7, -128, 5).Cast(tensor.Int8), vector(m, []int{6}, 2, 2, -2, -2, -1, 0).Cast(tensor.Int8)
			return a.Redistribute(layout.Shard(0)).FloorDivide(b).Cast(tensor.Float64)
		}, []int{6}, []float64{-4, 3, -4, 3, -128, 0}},
		{"rests with the sign of what is divided", func(m mesh) T {
			return vector(m, []int{6}, -5, 5, 7, -7, inf, 3).Fmod(vector(m, []int{6}, inf, inf, -2, 2, 2, 0))
		}, []int{6}, []float64{-5, 5, 1, -1, nan, nan}},
		{"angles", func(m mesh) T {
			y, x := vector(m, []int{6}, 0, 0, math.Copysign(0, -1), 1, -1, inf), vector(m, []int{6}, 0, -1, -1, 0, -1, inf)
			return y.Redistribute(layout.Shard(0)).Atan2(x)
		}, []int{6}, []float64{0, math.Pi, -math.Pi, math.Pi / 2, -3 * math.Pi / 4, math.Pi / 4}},
		{"shifted int8", func(m mesh) T {
			a, b := vector(m, []int{2, 1}, 100, -100).Cast(tensor.Int8), vector(m, []int{5}, 0, 1, 7, 8, -1).Cast(tensor.Int8)
			return dtensor.Stack(0, a.ShiftLeft(b), a.ShiftRight(b)).Cast(tensor.Float64)
		}, []int{2, 2, 5}, []float64{100, -56, 0, 0, 0, -100, 56, 0, 0, 0, 100, 50, 0, 0, 0, -100, -50, -1, -1, -1}},
		{"shifted uint8", func(m mesh) T {
			a, b := vector(m, []int{1}, 127).Cast(tensor.Uint8), vector(m, []int{3}, 1, 7, 8).Cast(tensor.Uint8)
			return dtensor.Stack(0, a.ShiftLeft(b), a.ShiftRight(b)).Cast(tensor.Float64)
		}, []int{2, 3}, []float64{254, 128, 0, 63, 0, 0}},
		{"bits", func(m mesh) T {
			a, b := vector(m, []int{3}, 12, -7, 5).Cast(tensor.Int16), vector(m, []int{3}, 10, 2, -1).Cast(tensor.Int16)
			return dtensor.Stack(0, a.BitwiseAnd(b), a.BitwiseOr(b), a.BitwiseXor(b), a.BitwiseNot()).Cast(tensor.Float64)
		}, []int{4, 3}, []float64{8, 0, 5, 14, -5, -1, 6, -5, -6, -13, 6, -6}},
		{"bits of truths", func(m mesh) T {
			a, b := vector(m, []int{3}, 0, 1, 1).Cast(tensor.Bool), vector(m, []int{3}, 1, 0, 1).Cast(tensor.Bool)
			return dtensor.Stack(0, a.BitwiseAnd(b), a.BitwiseOr(b), a.BitwiseXor(b), a.BitwiseNot()).Cast(tensor.Float64)
		}, []int{4, 3}, []float64{0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0}},
		{"running maxima", func(m mesh) T {
			values, index := vector(m, []int{7}, 1, 3, 3, 2, nan, 9, nan).Redistribute(layout.Shard(0)).Cummax(-1)
			return dtensor.Stack(0, values, index.Cast(tensor.Float64))
		}, []int{2, 7}, []float64{1, 3, 3, 3, nan, nan, nan, 0, 1, 2, 2, 4, 4, 6}},
		{"running minima", func(m mesh) T {
			values, index := vector(m, []int{7}, 5, 2, 2, 1, 3, 1, -inf).Redistribute(layout.Shard(0)).Cummin(0)
			return dtensor.Stack(0, values, index.Cast(tensor.Float64))
		}, []int{2, 7}, []float64{5, 2, 2, 1, 1, 1, -inf, 0, 1, 2, 3, 3, 5, 6}},
		{"logarithms of powers", func(m mesh) T {
			return dtensor.Cat(0, vector(m, []int{3}, 8, 0x1p-30, 0).Log2(), vector(m, []int{2}, 1000, -1).Log10())
		}, []int{5}, []float64{3, -30, -inf, 3, nan}},
		{"the far end of Erfc", func(m mesh) T { return vector(m, []int{2}, 5, -5).Erfc().Scale(1e12) },
			[]int{2}, []float64{1.5374597944280347, 1999999999998.4626}},
		{"the ends of inverse functions", func(m mesh) T {
			x := vector(m, []int{4}, 1, -1, 2, 0)
			return dtensor.Stack(0, x.Erfinv(), x.Atanh(), x.Acosh())
		}, []int{3, 4}, []float64{inf, -inf, nan, 0, inf, -inf, nan, 0, 0, nan, math.Acosh(2), nan}},
		{"a deviation", func(m mesh) T { return vector(m, []int{4}, 1, 3, 1, 3).Std(nil, 0, true) }, []int{1}, []float64{1}},
	} {
		onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			return dtensor.Try(ctx, m, func() {
				out := c.f(m)
				if got := tensor.ToSlice[float64](out.Full()); !slices.EqualFunc(got, c.want, alike) || !slices.Equal(out.Shape(), c.shape) {
					failf("%s: %v %v, want %v %v", c.name, out.Shape(), got, c.shape, c.want)
				}
			})
		})
	}
}

// A tensor without dimensions has the dimensions 0 and -1 where one is asked for.
func TestDimsOfScalar(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, c := range []struct {
			name string
			f    func(x T, dim int) T
			want float64
			ndim int
		}{
			{name: "Sum", f: func(x T, d int) T { return x.Sum([]int{d}, true) }, want: 3},
			{name: "Mean", f: func(x T, d int) T { return x.Mean([]int{d}, false) }, want: 3},
			{name: "Amax", f: func(x T, d int) T { return x.Amax([]int{d}, false) }, want: 3},
			{name: "Prod", f: func(x T, d int) T { return x.Prod([]int{d}, false) }, want: 3},
			{name: "Var", f: func(x T, d int) T { return x.Var([]int{d}, 0, true) }},
			{name: "Norm", f: func(x T, d int) T { return x.Norm(2, []int{d}, false) }, want: 3},
			{name: "LogSumExp", f: func(x T, d int) T { return x.LogSumExp([]int{d}, false) }, want: 3},
			{name: "Softmax", f: T.Softmax, want: 1},
			{name: "LogSoftmax", f: T.LogSoftmax},
			{name: "Cumsum", f: T.Cumsum, want: 3},
			{name: "Cumprod", f: T.Cumprod, want: 3},
			{name: "Cummax", f: func(x T, d int) T { v, _ := x.Cummax(d); return v }, want: 3},
			{name: "Std", f: func(x T, d int) T { return x.Std([]int{d}, 0, false) }},
			{name: "Flip", f: func(x T, d int) T { return x.Flip(d) }, want: 3},
			{name: "Roll", f: func(x T, d int) T { return x.Roll(1, d) }, want: 3},
			{name: "RepeatInterleave", f: func(x T, d int) T { return x.RepeatInterleave(1, d) }, want: 3, ndim: 1},
			{name: "Argmax", f: func(x T, d int) T { return x.Argmax(d, true).Cast(tensor.Float64) }},
			{name: "TopK", f: func(x T, d int) T { v, _ := x.TopK(1, d); return v }, want: 3},
			{name: "Gather", f: func(x T, d int) T { return x.Gather(d, vector(m, nil, 0).Cast(tensor.Int64)) }, want: 3},
			{name: "IndexSelect", f: func(x T, d int) T { return x.IndexSelect(d, vector(m, []int{1}, 0).Cast(tensor.Int64)) }, want: 3},
			{name: "Scatter", f: func(x T, d int) T { return x.Scatter(d, vector(m, nil, 0).Cast(tensor.Int64), x.Scale(2)) }, want: 6},
			{name: "ScatterAdd", f: func(x T, d int) T { return x.ScatterAdd(d, vector(m, nil, 0).Cast(tensor.Int64), x.Scale(2)) }, want: 9},
			{name: "IndexAdd", f: func(x T, d int) T { return x.IndexAdd(d, vector(m, []int{1}, 0).Cast(tensor.Int64), x) }, want: 6},
			{name: "Transpose", f: func(x T, d int) T { return x.Transpose(0, d) }, want: 3},
			{name: "Squeeze", f: T.Squeeze, want: 3},
			{name: "Flatten", f: func(x T, d int) T { return x.Flatten(0, d) }, want: 3, ndim: 1},
		} {
			for _, dim := range []int{0, -1} {
				err := dtensor.Try(ctx, m, func() {
					y := c.f(vector(m, nil, 3), dim)
					if got := y.Reshape().Full().Item(); !alike(got, c.want) || y.NDim() != c.ndim {
						failf("%v of %v, want %v with %d dimensions", got, y, c.want, c.ndim)
					}
				})
				if err != nil {
					return fmt.Errorf("%s of dim %d: %w", c.name, dim, err)
				}
			}
			if err := dtensor.Try(ctx, m, func() { c.f(vector(m, nil, 3), 1) }); err == nil {
				return fmt.Errorf("%s has a dim 1", c.name)
			}
		}
		return nil
	})
}

// The gradients of operators where they have none, or several: PyTorch's.
func TestGradientsAtEdges(t *testing.T) {
	for _, c := range []struct {
		name         string
		x, y, gx, gy float64
		f            func(x, y T) T
	}{
		{"Maximum of NaN", nan, 2, 1, 1, T.Maximum},
		{"Minimum of NaN", 1, nan, 1, 1, T.Minimum},
		{"Minimum of equals", 2, 2, 0.5, 0.5, T.Minimum},
		{"Pow of 0 by 2", 0, 2, 0, 0, T.Pow},
		{"Pow of 0 by 0", 0, 0, 0, 0, T.Pow},
		{"Pow of 0 by -1", 0, -1, -inf, -inf, T.Pow},
		{"Remainder with the sign of the divisor", 7, -2, 1, 4, T.Remainder},
		{"Cummax of equals", 3, 3, 1, 1, func(x, y T) T { v, _ := dtensor.Stack(0, x, y).Cummax(0); return v.Sum(nil, false) }},
		{"Cummin of what grows", 2, 3, 2, 0, func(x, y T) T { v, _ := dtensor.Stack(0, x, y).Cummin(0); return v.Sum(nil, false) }},
		{"Fmod of what is negative", -7, 2, 1, 3, T.Fmod},
		{"FloorDivide", -7, 2, 0, 0, T.FloorDivide},
		{"Atan2 on an axis", -1, 0, 0, 1, T.Atan2},
		{"Atan2 of nothing", 0, 0, nan, nan, T.Atan2},
		{"LogAddExp of infinities", inf, inf, 0.5, 0.5, T.LogAddExp},
		{"LogAddExp of nothing", -inf, 2, 0, 1, T.LogAddExp},
		{"Std of equals", 2, 2, 0, 0, func(x, y T) T { return dtensor.Stack(0, x, y).Std(nil, 1, false) }},
		{"Flip of no dims", 2, 3, 1, 0, func(x, y T) T { return x.Flip() }},
		{"Cumprod from 0", 0, 3, 4, 0, func(x, y T) T { return dtensor.Stack(0, x, y).Cumprod(0).Sum(nil, false) }},
		{"PowScalar of 0 by 0", 0, 0, 0, 0, func(x, _ T) T { return x.PowScalar(0) }},
	} {
		onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
			x, y := vector(m, nil, c.x), vector(m, nil, c.y)
			_, grads, err := dtensor.ValueAndGrad(ctx, func() T { return c.f(x, y) }, x, y)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			gx, gy := grads[0].Dense().Local().Item(), grads[1].Dense().Local().Item()
			if !alike(gx, c.gx) || !alike(gy, c.gy) {
				return fmt.Errorf("%s: gradients %v, %v, want %v, %v", c.name, gx, gy, c.gx, c.gy)
			}
			return nil
		})
	}
}

// What a rank holds of a maximum may lie where the function has no value.
func TestPartialBelowTheDomain(t *testing.T) {
	onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, c := range []struct {
			name string
			f    func(x T) T
		}{{"Log", T.Log}, {"Sqrt", T.Sqrt}} {
			for _, p := range []layout.Placement{layout.Partial(layout.Max), layout.Partial(layout.Min)} {
				others := -1.0
				if p == layout.Partial(layout.Min) {
					others = 9
				}
				held := []float64{others, others, others, others}
				held[m.Coord()[0]] = 4
				x, err := dtensor.FromLocal(m, tensor.FromSlice(m.Device(), held, 4), []int{4}, p)
				if err != nil {
					return err
				}
				err = dtensor.Try(ctx, m, func() {
					want := c.f(vector(m, []int{4}, 4, 4, 4, others)).Full()
					got := c.f(x).Full()
					if !slices.EqualFunc(tensor.ToSlice[float64](got), tensor.ToSlice[float64](want), alike) {
						failf("%s of %v: %v, want %v", c.name, x, got, want)
					}
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Cumprod and its gradient have the bits of the operators that stand for them, where elements are 0 and along any dimension too. The
// gradient is a sum with 0, so no -0; gradients of parts keep theirs.
func TestCumprodBits(t *testing.T) {
	onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, shape := range [][]int{{1, 1, 1}, {2, 3, 5}, {3, 33, 2}, {2, 4, 64}} {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64} {
				x := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1.5, shape, layout.Replicate()).Cast(dt)
				w := dtensor.Normal(m, dtensor.Key{Seed: 2}, 0, 1, shape, layout.Replicate()).Cast(dt)
				x = x.MaskedFill(x.Abs().CompareScalar(kernel.OpLt, 0.05), 0)
				for dim := range shape {
					run := func(f func(dim int) T) (T, T, error) {
						y, grads, err := dtensor.ValueAndGrad(ctx, func() T { return f(dim).Mul(w).Sum(nil, false) }, x)
						if err != nil {
							return nil, nil, err
						}
						return y, grads[0].Dense(), nil
					}
					y, gx, err := run(x.Cumprod)
					if err != nil {
						return err
					}
					want, wantGrad, err := run(x.CumprodOfOperators)
					if err != nil {
						return err
					}
					if err := errors.Join(sameBits(ctx, y, want), sameBits(ctx, gx, wantGrad.AddScalar(0))); err != nil {
						return fmt.Errorf("%v of %v, dim %d: %w", dt, shape, dim, err)
					}
				}
			}
		}
		return nil
	})
}

// A class that OneHot does not have is an error that names it, on every rank, also where another rank has it.
func TestOneHotOutOfRange(t *testing.T) {
	for _, places := range [][]layout.Placement{{layout.Replicate()}, {layout.Shard(0)}} {
		for _, dt := range []tensor.DType{tensor.Int64, tensor.Int8} {
			for _, bad := range []int64{-1, 4} {
				for rank, err := range commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
					m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 2})
					if err != nil {
						return err
					}
					return dtensor.Try(ctx, m, func() {
						x := tensor.Cast(tensor.FromSlice(m.Device(), []int64{0, 3, bad, 1}, 4), dt)
						dtensor.Distribute(m, x, places...).OneHot(4, tensor.Float32).Full()
					})
				}) {
					if says := fmt.Sprintf("tensor: OneHot: index %d at position", bad); err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("%v of %v, rank %d: got %v, want %q", places, dt, rank, err, says)
					}
				}
			}
		}
	}
}

// A p below 0 is that of torch.linalg.vector_norm: an x of 0 makes the norm 0, and its gradient.
func TestNormOfNegativeP(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []float32{1, -2, 4, 3, 0, 5}, 2, 3), layout.Shard(0))
		var norms []float32
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := x.Norm(-1, []int{1}, false)
			norms = tensor.ToSlice[float32](y.Full())
			return y.Sum(nil, false)
		}, x)
		if err != nil {
			return err
		}
		return dtensor.Try(ctx, m, func() {
			got := append(norms, tensor.ToSlice[float32](grads[0].Dense().Full())...)
			n := 4. / 7 // 1 / (1 + 1/2 + 1/4)
			for i, want := range []float64{n, 0, n * n, -n * n / 4, n * n / 16, 0, 0, 0} {
				if math.Abs(float64(got[i])-want) > 1e-6 {
					dtensor.Throw(fmt.Errorf("norms and gradient %v: number %d should be %v", got, i, want))
				}
			}
		})
	})
}
