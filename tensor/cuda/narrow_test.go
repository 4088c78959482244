package cuda

import (
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// TestFloat16 has every kernel that widens a narrow type: this package has none of its own
// for float16. The results are those of the CPU, within a unit of the last place.
func TestFloat16(t *testing.T) {
	const unit = 1.0 / 1024
	c := newCheck(t, openGPU(t, false))
	type tensors = []*tensor.Tensor
	half := func(shape ...int) *tensor.Tensor { return tensor.Cast(c.arg(tensor.Float32, shape...), tensor.Float16) }
	index := tensor.FromSlice(c.cpu, []int64{2, 0, 11}, 3)
	repeats := tensor.FromSlice(c.cpu, []int64{2, 0, 2, 1}, 4)
	for _, op := range kernel.UnaryOps() {
		c.same(op.String(), unit, func(x tensors) tensors {
			y := tensor.Unary(op, x[0])
			return tensors{y, tensor.UnaryGrad(op, x[1], x[0], y)}
		}, tensor.Unary(kernel.OpAbs, half(70)), half(70))
	}
	for _, op := range kernel.BinaryOps() {
		if !op.Takes(tensor.Float16) {
			continue
		}
		c.same(op.String(), unit, func(x tensors) tensors {
			return tensors{tensor.Binary(op, x[0], x[0]), tensor.Binary(op, x[0], x[1]), tensor.BinaryScalar(op, x[0], 0.5)}
		}, half(4, 5), half(5))
	}
	for _, op := range kernel.ReduceOps() {
		c.same(op.String(), unit, func(x tensors) tensors {
			return tensors{tensor.Reduce(op, x[0], []int{0}, false), tensor.Reduce(op, x[0], nil, false)}
		}, half(4, 5))
	}
	c.same("elements", unit, func(x tensors) tensors {
		tensor.AddScaledTo(x[0], 0.3, x[1])
		return tensors{x[0], tensor.Clamp(x[1], -0.5, 0.5), tensor.ClampGrad(x[1], x[0], -0.5, 0.5), tensor.Compare(kernel.OpLt, x[0], x[1]),
			tensor.Arange(x[0].Device(), tensor.Float16, 3, 5)}
	}, half(4, 5), half(4, 5))
	c.same("products", unit, func(x tensors) tensors {
		wide := tensor.New(x[0].Device(), tensor.Float32, 3, 4, 6)
		tensor.MatMulTo(wide, x[0], x[1], false, true, false)
		return tensors{tensor.MatMul(x[0], x[1], false, true), tensor.Linear(x[0], x[2], x[3]), wide}
	}, half(3, 4, 5), half(3, 6, 5), half(6, 5), half(6))
	c.same("attention", unit, func(x tensors) tensors {
		y, lse := tensor.Attention(x[0], x[1], x[2], true)
		dq, dk, dv := tensor.AttentionGrad(x[3], x[0], x[1], x[2], y, lse, true)
		return tensors{y, lse, dq, dk, dv}
	}, half(1, 2, 7, 4), half(1, 2, 7, 4), half(1, 2, 7, 3), half(1, 2, 7, 3))
	c.same("rows", unit, func(x tensors) tensors {
		y, stats := tensor.LayerNorm(x[0], x[2], x[3], 1, 1e-5)
		dx, dw, db := tensor.LayerNormGrad(x[1], x[0], x[2], stats, 1, true, true)
		z, root := tensor.RMSNorm(x[0], x[2], 1, 1e-5)
		dz, dv := tensor.RMSNormGrad(x[1], x[0], x[2], root, 1, true)
		s := tensor.Softmax(x[0], 1)
		values, at := tensor.TopK(x[0], 3, 1)
		return tensors{y, dx, dw, db, z, dz, dv, s, tensor.SoftmaxGrad(x[1], s, 1), tensor.LogSoftmax(x[0], 1), values, at,
			rowStat(kernel.OpLogSumExp, x[0], 0), rowStat(kernel.OpNorm, x[0], 2), tensor.Cumsum(x[0], 1)}
	}, half(6, 33), half(6, 33), half(33), half(33))
	c.same("indices", unit, func(x tensors) tensors {
		rows := tensor.Coalesce(x[3], x[1], 0, 12)
		added := tensor.Zeros(x[1].Device(), x[1].DType(), 12, 5)
		tensor.IndexAddTo(added, 0, x[3], x[1])
		return tensors{added, scattered(x[0], 0, tensor.Expand(x[3].Reshape(4, 1), 4, 5), x[1]),
			rows.Index, rows.Values, tensor.RowPowSums(x[0], x[2], 3)}
	}, half(12, 5), half(4, 5), index, repeats)
	c.same("tables", unit, func(x tensors) tensors {
		rows := tensor.Rows{Index: x[2], Values: x[1]}
		tensor.SGD{LR: -0.5}.StepRows(x[0], rows)
		tensor.ScaleRowsTo(x[0], x[2], x[3])
		tensor.Adagrad{LR: 0.1, Eps: 1e-10}.StepRows(x[0], rows, x[4], nil)
		adamW.StepRows(x[0], rows, x[5], x[6], 2)
		return x
	}, half(12, 5), half(3, 5), index, c.arg(tensor.Float32, 3), tensor.Unary(kernel.OpAbs, c.arg(tensor.Float32, 12)),
		c.arg(tensor.Float32, 12, 5),
		tensor.Unary(kernel.OpAbs, c.arg(tensor.Float32, 12, 5)))
	c.same("steps", unit, func(x tensors) tensors {
		tensor.SGD{LR: 0.1, Momentum: 0.9}.Step(x[0], x[1], x[2], false)
		adamW.Step(x[0], x[1], x[2], x[3], 3)
		sums := tensor.SumSquares(x[0])
		return append(x, tensor.FromSlice(x[0].Device(), sums, 1))
	}, half(20), half(20), c.arg(tensor.Float32, 20), tensor.Unary(kernel.OpAbs, c.arg(tensor.Float32, 20)))
	c.same("cross-entropy", unit, func(x tensors) tensors {
		stats := tensor.CrossEntropyStats(x[0], x[1], 0, nil, true)
		grad := tensor.CrossEntropyGrad(nil, x[0], x[1], 0, x[2], x[3], nil)
		narrow := tensor.CrossEntropyGrad(tensor.NewLike(x[0]), tensor.Widen(x[0]), x[1], 0, x[2], x[3], nil)
		return tensors{stats, grad, narrow}
	}, half(4, 9), repeats, c.arg(tensor.Float32, 4), c.arg(tensor.Float32, 4, 3))
}
