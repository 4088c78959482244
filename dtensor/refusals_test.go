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

// What other systems compute wrongly without a word is right here.
func TestSilentlyWrongElsewhere(t *testing.T) {
	S, P, R := layout.Shard(0), layout.Partial(layout.Sum), layout.Replicate()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	// make makes a vector; of a Partial one the first rank holds 3x and the last -2x.
	type maker func(p layout.Placement, data ...float32) T
	truth := func(x T) T { return x.CompareScalar(kernel.OpGt, 0) }
	for _, c := range []struct {
		name string
		want []float32
		f    func(make maker) T
	}{
		{"mean of an uneven shard", []float32{3}, func(make maker) T { return make(S, 1, 2, 6).Mean(nil, false) }},
		{"variance of an uneven shard", []float32{14.0 / 3}, func(make maker) T { return make(S, 1, 2, 6).Var(nil, 0, false) }},
		{"partial plus a number", []float32{11, 12}, func(make maker) T { return make(P, 1, 2).AddScalar(10) }},
		{"partial plus a replicated tensor", []float32{11, 12}, func(make maker) T { return make(P, 1, 2).Add(make(R, 10, 10)) }},
		{"partial times partial", []float32{3, 8}, func(make maker) T { return make(P, 1, 2).Mul(make(P, 3, 4)) }},
		{"norm of a partial", []float32{5}, func(make maker) T { return make(P, 3, 4).Norm(2, nil, false) }},
		{"sum of magnitudes of a partial", []float32{7}, func(make maker) T { return make(P, -3, 4).Norm(1, nil, false) }},
		{"largest of a partial", []float32{4}, func(make maker) T { return make(P, 3, 4).Amax(nil, false) }},
		{"position of the largest of a partial", []float32{1}, func(make maker) T { return make(P, 3, 4).Argmax(0, true).Cast(tensor.Float32) }},
		{"absolute value of a partial", []float32{3, 4}, func(make maker) T { return make(P, -3, 4).Abs() }},
		{"clamp of a partial", []float32{0, 2}, func(make maker) T { return make(P, -3, 4).Clamp(0, 2) }},
		{"fill of a partial", []float32{7, 7}, func(make maker) T {
			return dtensor.Full(make(R, 0).Mesh(), tensor.Float32, 7, []int{2}, P)
		}},
		{"sum of a partial average", []float32{3}, func(make maker) T { return make(layout.Partial(layout.Avg), 1, 2).Sum(nil, false) }},
		{"a partial sum of integers divided", []float32{3}, func(make maker) T {
			sum := make(S, 3, 3, 3, 3).AddScalar(0.5).Cast(tensor.Int64).Sum(nil, false)
			return sum.Div(make(R, 4.5).Cast(tensor.Int64)).Cast(tensor.Float32)
		}},
		{"a partial divided by 0", []float32{inf, -inf, nan}, func(make maker) T { return make(P, 1, -2, 0).Div(make(R, 0, 0, 0)) }},
		{"a partial times infinity", []float32{inf, -inf}, func(make maker) T { return make(P, 1, -2).Scale(math.Inf(1)) }},
		{"the largest of a shard plus infinity", []float32{inf},
			func(make maker) T { return make(S, 1).Amax(nil, false).AddScalar(math.Inf(1)) }},
		{"average of a partial sum", []float32{1.5}, func(make maker) T { return make(P, 1, 2).Mean(nil, false) }},
		{"any of a shard, counted once", []float32{1},
			func(make maker) T { return truth(make(S, 1, 1, 1)).Any(nil, false).Cast(tensor.Float32) }},
		{"all of a shard", []float32{0}, func(make maker) T { return truth(make(S, 1, 1, 0)).All(nil, false).Cast(tensor.Float32) }},
		{"all of a shard, all true", []float32{1}, func(make maker) T { return truth(make(S, 1, 1, 1)).All(nil, false).Cast(tensor.Float32) }},
		{"softmax of a sharded dimension", []float32{1}, func(make maker) T { return make(S, 1, 2, 6).Softmax(0).Sum(nil, false) }},
		{"running sum of a shard", []float32{1, 3, 9}, func(make maker) T { return make(S, 1, 2, 6).Cumsum(0) }},
		{"position of the largest of a shard", []float32{2}, func(make maker) T { return make(S, 1, 2, 6).Argmax(0, true).Cast(tensor.Float32) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{2, 3, 4} {
				onMesh(t, []int{size}, func(ctx context.Context, m *dtensor.Mesh) error {
					make := func(p layout.Placement, data ...float32) T {
						x, err := spread(m, []int{len(data)}, []layout.Placement{p})
						if err != nil {
							failf("%w", err)
						}
						factor := tensor.Binary(kernel.OpDiv, tensor.FromSlice(m.Device(), data, len(data)), numbers(m, []int{len(data)}))
						return x.Mul(dtensor.Distribute(m, factor, R))
					}
					return dtensor.Try(ctx, m, func() {
						got := tensor.ToSlice[float32](c.f(make).Full())
						if !slices.EqualFunc(got, c.want, func(a, b float32) bool { return a == b || a != a && b != b || math.Abs(float64(a-b)) < 1e-5 }) {
							failf("%v, want %v", got, c.want)
						}
					})
				})
			}
		})
	}
}

// Misuse throws the same error on every rank, one outside the mesh too, which
// names the operator, its operands and what to do.
func TestRefusals(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "x", Size: 2})
		if err != nil {
			return err
		}
		R, S := layout.Replicate(), layout.Shard
		of := func(dt tensor.DType, p layout.Placement, shape ...int) T { return dtensor.Zeros(m, dt, shape, p) }
		x, double, ids := of(tensor.Float32, S(0), 4, 6), of(tensor.Float64, R, 6), of(tensor.Int64, R, 3)
		for _, c := range []struct {
			says string
			f    func()
		}{
			{"Add: operand 0 [4, 6] S(0) on (x=2), operand 1 [6] R on (x=2): operand 1 holds float64, operand 0 float32; Cast",
				func() { x.Add(double) }},
			{"Lt: operand 0 [4, 6] S(0)", func() { x.Compare(kernel.OpLt, double) }},
			{"MatMul: operand 0 [4, 6] S(0)", func() { x.MatMul(double) }},
			{"Linear: operand 0 [4, 6] S(0)", func() { x.Linear(of(tensor.Float64, R, 2, 6), nil) }},
			{"Linear: operand 0 [4, 6] S(0)", func() { x.Linear(of(tensor.Float32, R, 6, 6), double) }},
			{"LayerNorm: operand 0 [4, 6] S(0)", func() { x.LayerNorm(double, nil, 1e-5) }},
			{"LayerNorm: operand 1 is nil", func() { x.LayerNorm(&dtensor.Tensor{}, nil, 1e-5) }},
			{"IndexAdd: operand 0 [4, 6] S(0)", func() { x.IndexAdd(0, ids, of(tensor.Float64, R, 3, 6)) }},
			{"Gather: index [4, 6] S(0) on (x=2): the index holds float32; Cast it to Int64", func() { x.Gather(0, x) }},
			{"Mean: input [3] R on (x=2): the input holds int64; Cast", func() { ids.Mean(nil, false) }},
			{"Amax: input [0, 2] R on (x=2): dim 0 has no elements", func() { of(tensor.Float32, R, 0, 2).Amax([]int{0}, false) }},
			{"Reshape: input [4, 6] S(0) on (x=2): [5 5] has 25 elements, the input 24; keep", func() { x.Reshape(5, 5) }},
			{"make them equal", func() { x.MatMul(of(tensor.Float32, R, 5, 3)) }},
			{"give one for each axis", func() { x.Redistribute(R, R) }},
			{"use a dim from -2 to 1", func() { x.Redistribute(S(2)) }},
		} {
			var wrong *dtensor.LayoutError
			if err := dtensor.Try(ctx, m, c.f); !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("the error is %v, want one that says %q", err, c.says)
			}
		}
		return nil
	})
}

// An error begins with what the program called, and what went on below that is no
// part of it; its end is the line of the program.
func TestRefusalsNameTheCall(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		S, R := layout.Shard, layout.Replicate()
		x := dtensor.Zeros(m, tensor.Float32, []int{4, 4}, S(0))
		for want, f := range map[string]func(){
			"dtensor: Zeros: S(2) on axis a": func() { dtensor.Zeros(m, tensor.Float32, []int{4, 4}, S(2)) },
			"dtensor: Full: 2 placements (S(0),R)": func() {
				dtensor.Full(m, tensor.Float32, 1, []int{4, 4}, S(0), R)
			},
			"dtensor: Redistribute: S(2) on axis a": func() { x.Redistribute(S(2)) },
			"dtensor: ScaledDotProductAttention: q [1, 6, 2, 2] R on (a=2), k [1, 2, 2, 2] R on (a=2), v [1, 2, 2, 2] R on (a=2): " +
				"[1 6 2 2], [1 2 2 2] and [1 2 2 2] are not [B, H, T, D], [B, H, S, D] and [B, H, S, E]; " +
				"repeat the heads that queries share: k.RepeatInterleave(3, 1), and v as well": func() {
				k := dtensor.Zeros(m, tensor.Float32, []int{1, 2, 2, 2}, layout.Replicate())
				dtensor.ScaledDotProductAttention(dtensor.Zeros(m, tensor.Float32, []int{1, 6, 2, 2}, layout.Replicate()), k, k, true)
			},
			"dtensor: Normal: the standard deviation is -1; give one that is not negative": func() {
				dtensor.Normal(m, dtensor.Key{}, 0, -1, []int{2}, layout.Replicate())
			},
			"dtensor: Normal: the standard deviation is NaN; ": func() {
				dtensor.Normal(m, dtensor.Key{}, 0, math.NaN(), []int{2}, layout.Replicate())
			},
			"dtensor: Uniform: the numbers are to be from 1 to 0; give the lower bound first": func() {
				dtensor.Uniform(m, dtensor.Key{}, 1, 0, []int{2}, layout.Replicate())
			},
			"dtensor: Flip: input [2, 3] R on (a=2): dim 1 is named twice in [1 -1]; name each once": func() {
				dtensor.Zeros(m, tensor.Float32, []int{2, 3}, layout.Replicate()).Flip(1, -1)
			},
			"dtensor: Full: int64 cannot be NaN; ": func() {
				dtensor.Full(m, tensor.Int64, math.NaN(), []int{1}, layout.Replicate())
			},
			"dtensor: Full: uint8 cannot be 300; ": func() {
				dtensor.Full(m, tensor.Uint8, 300, []int{1}, layout.Replicate())
			},
			"dtensor: MaskedFill: x [4, 4] S(0) on (a=2), mask [4, 4] S(0) on (a=2): x holds int64, which cannot be -Inf; Cast x first": func() {
				x.Cast(tensor.Int64).MaskedFill(x.CompareScalar(kernel.OpEq, 0), math.Inf(-1))
			},
			"dtensor: Narrow: input [4, 4] S(0) on (a=2): start 0 and length 9 ": func() { x.Narrow(0, 0, 9) },
		} {
			err := dtensor.Try(ctx, m, f)
			var misfit *dtensor.LayoutError
			if !errors.As(err, &misfit) || !strings.HasPrefix(err.Error(), want) ||
				!strings.Contains(err.Error(), " (at dtensor/refusals_test.go:") {
				t.Errorf("got %q, want %q and the line", err, want)
			}
		}
		for want, f := range map[string]func() error{ // what returns errors
			"dtensor: FromLocal: S(1) on axis a": func() error {
				_, err := dtensor.FromLocal(m, tensor.Zeros(m.Device(), tensor.Float32, 4), []int{4}, S(1))
				return err
			},
			"dtensor: FromLocal: [4] S(0) on mesh (a=2): the local shape is [4]": func() error {
				_, err := dtensor.FromLocal(m, tensor.Zeros(m.Device(), tensor.Float32, 4), []int{4}, S(0))
				return err
			},
			"dtensor: ValueAndGrad: no parameters": func() error {
				_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return x.Sum(nil, false) })
				return err
			},
			"dtensor: Accumulate: n is 0": func() error {
				_, _, err := dtensor.Accumulate(ctx, 0, func(int) *dtensor.Tensor { return x.Sum(nil, false) }, x)
				return err
			},
			"dtensor: Try: the function is nil": func() error { return dtensor.Try(ctx, m, nil) },
			"dtensor: NewPipeline: stage 0 has no Mesh": func() error {
				_, err := dtensor.NewPipeline(ctx, m.Parent(), dtensor.Stage{})
				return err
			},
			"dtensor: NewLocalShards: the shards have 0 of the 4 elements": func() error {
				_, err := dtensor.NewLocalShards(m, tensor.Float32, [2]int{2, 2})
				return err
			},
			"dtensor: Shards: [] R": func() error {
				_, err := dtensor.Zeros(m, tensor.Float32, nil, R).Shards()
				return err
			},
		} {
			if err := f(); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), " (at dtensor/refusals_test.go:") {
				t.Errorf("got %q, want %q and the line", err, want)
			}
		}
		return nil
	})
}

// A tensor prints as its type and layout.
func TestString(t *testing.T) {
	onMesh(t, []int{2, 1}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Zeros(m, tensor.Float32, []int{4, 8}, layout.Shard(-2), layout.Replicate())
		if got := x.String(); got != "float32 [4, 8] S(0),R on (a=2,b=1)" {
			return fmt.Errorf("prints %q", got)
		}
		return nil
	})
}

// What a program has forgotten, or asks for in vain, is refused by the name of the call that it makes.
func TestRefusedByName(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "x", Size: 2})
		if err != nil {
			return err
		}
		x := dtensor.Full(m, tensor.Float32, 1, []int{2, 3}, layout.Shard(0))
		truth, ids := x.CompareScalar(kernel.OpGt, 0), x.Cast(tensor.Int64)
		var none T
		for _, c := range []struct {
			want string // how the error begins, after the package
			f    func()
		}{
			{"DType: the tensor is nil", func() { none.DType() }},
			{"Shape: the tensor is nil", func() { (&dtensor.Tensor{}).Shape() }},
			{"Add: operand 1 is nil", func() { x.Add(none) }},
			{"Add: operand 1 is nil", func() { x.Add(&dtensor.Tensor{}) }},
			{"Keep: the tensor is nil", func() { dtensor.Keep(none) }},
			{"Zeros: the mesh is nil", func() { dtensor.Zeros(nil, tensor.Float32, []int{2}) }},
			{"Zeros: the mesh is nil", func() { dtensor.Zeros(&dtensor.Mesh{}, tensor.Float32, []int{2}) }},
			{"Distribute: whole is nil", func() { dtensor.Distribute(m, nil, layout.Replicate()) }},
			{"DistributeFrom: whole is nil", func() { dtensor.DistributeFrom(m, 0, nil, layout.Replicate()) }},
			{"Recompute: the function is nil", func() { dtensor.Recompute(nil, x) }},
			{"ScatterGradients: the function is nil", func() { dtensor.ScatterGradients(nil, x) }},
			{"Record: mine has no backward", func() { dtensor.Record("mine", x, []T{x}, nil) }},
			{"Compare: x [2, 3] S(0) on (x=2): operator 6 is no", func() { x.Compare(6, x) }},
			{"CompareScalar: x [2, 3] S(0) on (x=2): operator 255 is no", func() { x.CompareScalar(255, 0) }},
			{"Any: ", func() { truth.Any([]int{2}, false) }},
			{"All: ", func() { truth.All([]int{-3}, false) }},
			{"Argmin: ", func() { x.Argmin(2, false) }},
			{"Argmin: ", func() { x.Narrow(1, 0, 0).Argmin(1, false) }},
			{"Stack: ", func() { dtensor.Stack(4, x, x) }},
			{"Stack: there is nothing", func() { dtensor.Stack(0) }},
			{"Stack: operand 0 [2, 3] S(0) on (x=2), operand 1 [3] R", func() { dtensor.Stack(0, x, x.Sum([]int{0}, false).Reduced()) }},
			{"Stack: ", func() { dtensor.Stack(0, x, ids) }},
			{"Std: ", func() { x.Std([]int{2}, 1, false) }},
			{"Std: ", func() { ids.Std(nil, 1, false) }},
			{"LogAddExp: ", func() { x.LogAddExp(x.Narrow(1, 0, 2)) }},
			{"LogicalXor: ", func() { truth.LogicalXor(truth.Narrow(1, 0, 2)) }},
			{"Linear: ", func() { x.Linear(x.Sum(nil, false), nil) }},
			{"Var: ", func() { ids.Var(nil, 1, false) }},
			{"LogSumExp: ", func() { x.LogSumExp([]int{7}, false) }},
			{"Norm: ", func() { x.Norm(2, []int{7}, false) }},
			{"MaskedFill: ", func() { x.MaskedFill(ids, 0) }},
			{"MaskedFill: operand 1 is nil", func() { x.MaskedFill(none, 0) }},
		} {
			if err := dtensor.Try(ctx, m, c.f); err == nil || !strings.HasPrefix(err.Error(), "dtensor: "+c.want) {
				return fmt.Errorf("got %v, want %q", err, c.want)
			}
		}
		w := dtensor.Full(m, tensor.Float32, 1, nil, layout.Replicate())
		loss := func(grads ...dtensor.Grad) func() T {
			return func() T {
				return dtensor.Record("mine", w.Detach().Scale(2), []T{w}, func(T) []dtensor.Grad { return grads })
			}
		}
		value := func(f func() T, params ...T) error { _, _, err := dtensor.ValueAndGrad(ctx, f, params...); return err }
		_, _, part := dtensor.Accumulate(ctx, 1, nil, w)
		constant := value(func() T { return w.Detach().Scale(2) }, w)
		_, _, stages := new(dtensor.Pipeline).ValueAndGrad(ctx, 1, w)
		_, mesh := dtensor.NewMesh(nil)
		for want, err := range map[string]error{
			"backward of mine returned 0 gradients for 1 inputs": value(loss(), w),
			"backward of mine returned 2 gradients for 1 inputs": value(loss(dtensor.Grad{}, dtensor.Grad{}), w),
			"backward of mine returned a gradient of another":    value(loss(dtensor.Dense(x)), w),
			"ValueAndGrad: the function is nil":                  value(nil, w),
			"ValueAndGrad: parameter 1 is nil":                   value(loss(dtensor.Grad{}), w, nil),
			"loss [] R on (x=2): the loss depends on none":       constant,
			"Accumulate: the function is nil":                    part,
			"Try: the function is nil":                           dtensor.Try(ctx, m, nil),
			"Try: the mesh is nil":                               dtensor.Try(ctx, nil, func() {}),
			"Pipeline: it has no stages":                         stages,
			"NewMesh: the communicator is nil":                   mesh,
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want %q", err, want)
			}
		}
		if n := len(x.Chunk(1, 1<<50)); n != 3 {
			return fmt.Errorf("Chunk of 3 in 2⁵⁰ pieces made %d", n)
		}
		return comm.Barrier(ctx, world) // the group is usable
	})
}
