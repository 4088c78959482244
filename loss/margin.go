package loss

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The losses of this file are formulas over operators, as those of regression.go are. Signs y are 1 or -1, of any type.

// SoftMargin returns ln(1 + exp(-y·x)) for each element, as torch's soft_margin_loss: y is the sign that x should have.
func SoftMargin(x, y *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	x, y = operands("SoftMargin", r, x, y.Cast(x.DType()))
	return reduced(x.Mul(y).LogSigmoid().Neg(), r)
}

// HingeEmbedding returns for each element, as torch's hinge_embedding_loss, the distance x of two examples where y is 1,
// which are alike, and max(0, margin - x) where y is -1.
func HingeEmbedding(x, y *dtensor.Tensor, margin float64, r Reduction) *dtensor.Tensor {
	x, y = operands("HingeEmbedding", r, x, y.Cast(x.DType()))
	far := x.Neg().AddScalar(margin).Clamp(0, math.Inf(1))
	return reduced(bySign(y, x, far), r)
}

// CosineEmbedding returns for each pair of rows, as torch's cosine_embedding_loss, 1 - cos where y is 1 and the rows should
// point the same way, and max(0, cos - margin) where y is -1:
//
//	cos = a·b / √((a·a + 1e-12)·(b·b + 1e-12))
//
//	a [..., D]   b [..., D]   y [...]   →   [] R for Mean and Sum, [...] for None
func CosineEmbedding(a, b, y *dtensor.Tensor, margin float64, r Reduction) *dtensor.Tensor {
	const op = "CosineEmbedding"
	if a.NDim() == 0 {
		refuse(op, fmt.Sprintf("the operands are %v; give rows, [..., D]", a))
	}
	a, b = operands(op, r, a, b)
	dot := func(a, b *dtensor.Tensor) *dtensor.Tensor { return a.Mul(b).Sum([]int{-1}, false) }
	cos := dot(a, b).Div(dot(a, a).AddScalar(1e-12).Mul(dot(b, b).AddScalar(1e-12)).Sqrt())
	cos, y = operands(op, r, cos, y.Cast(cos.DType()))
	return reduced(bySign(y, cos.Neg().AddScalar(1), cos.AddScalar(-margin).Clamp(0, math.Inf(1))), r)
}

// bySign returns a where y is 1 and b where it is -1.
func bySign(y, a, b *dtensor.Tensor) *dtensor.Tensor {
	return y.CompareScalar(kernel.OpGt, 0).Where(a, b)
}

// MultiLabelMargin returns for each row, as torch's multilabel_margin_loss, with the classes of targets up to the first
// negative number as the row's labels,
//
//	Σ max(0, 1 - x[label] + x[class]) / C   over all labels, and all classes that are none
//
//	x [N, C]   targets [N, C], integers   →   [] R for Mean and Sum, [N] for None
//	x [C]      targets [C]                →   []
//
// It makes C·C numbers a row. A target that is no class is an error as in MultiMargin.
func MultiLabelMargin(x, targets *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	const op = "MultiLabelMargin"
	if x.NDim() == 1 && targets.NDim() == 1 {
		losses := MultiLabelMargin(x.Unsqueeze(0), targets.Unsqueeze(0), r)
		if r == None {
			losses = losses.Squeeze(0)
		}
		return losses
	}
	x, _ = operands(op, r, x, x)
	switch {
	case x.NDim() != 2:
		refuse(op, fmt.Sprintf("the scores are %v; give [N, C] or [C]", x))
	case !slices.Equal(targets.Shape(), x.Shape()) || targets.DType().Float():
		refuse(op, fmt.Sprintf("the targets are %v; give as many numbers as scores %v, labels first and then -1", targets, x))
	}
	targets = targets.Cast(tensor.Int64)
	none := targets.CompareScalar(kernel.OpLt, 0).Cast(tensor.Int64).Cumsum(1).CompareScalar(kernel.OpGt, 0)
	index := targets.MaskedFill(none, 0)
	counts := none.LogicalNot().Cast(tensor.Int64)
	labelled := counts.Scale(0).ScatterAdd(1, index, counts).CompareScalar(kernel.OpGt, 0)
	pairs := x.Unsqueeze(1).Sub(x.Gather(1, index).Unsqueeze(2)).AddScalar(1).Clamp(0, math.Inf(1)) // [N, label, class]
	pairs = pairs.MaskedFill(none.Unsqueeze(2), 0).MaskedFill(labelled.Unsqueeze(1), 0)
	return reduced(pairs.Sum([]int{1, 2}, false).Scale(1/float64(x.Dim(1))), r)
}

// MultiMarginOptions are the settings of MultiMargin.
type MultiMarginOptions struct {
	Reduction Reduction
	Margin    float64         // 0 stands for 1
	Squared   bool            // sums the squares, torch's p = 2
	Weight    *dtensor.Tensor // [C], a factor for the positions of each class; nil: all 1
}

// MultiMargin returns for each row, as torch's multi_margin_loss, the mean over its C classes of
//
//	max(0, Margin - x[target] + x[class])   for all classes but the target, whose term is 0
//
// so the target's score should be larger than all others by the margin: a support vector machine of several classes.
//
//	x [N, C]   targets [N], integers   →   [] R for Mean and Sum, [N] for None
//
// A target that is no class throws a *tensor.IndexError on every rank. Where rows are sharded it ends the communicator,
// as in dtensor.Tensor.Gather.
func MultiMargin(x, targets *dtensor.Tensor, o MultiMarginOptions) *dtensor.Tensor {
	const op = "MultiMargin"
	x, _ = operands(op, o.Reduction, x, x)
	switch {
	case x.NDim() != 2:
		refuse(op, fmt.Sprintf("the scores are %v; give [N, C]", x))
	case !slices.Equal(targets.Shape(), x.Shape()[:1]) || targets.DType().Float():
		refuse(op, fmt.Sprintf("the targets are %v; give one class for each row of %v", targets, x))
	case o.Weight != nil && (o.Weight.NDim() != 1 || o.Weight.Dim(0) != x.Dim(1)):
		refuse(op, fmt.Sprintf("Weight is %v; give one factor for each class of %v", o.Weight, x))
	}
	m := x.Mesh()
	index := targets.Unsqueeze(1)
	own := dtensor.Arange(m, tensor.Int64, 0, x.Dim(1), m.Every(layout.Replicate())...).Compare(kernel.OpEq, index)
	losses := x.Sub(x.Gather(1, index)).AddScalar(cmp.Or(o.Margin, 1)).Clamp(0, math.Inf(1)).MaskedFill(own, 0)
	if o.Squared {
		losses = losses.Square()
	}
	losses = losses.Mean([]int{1}, false)
	if o.Weight != nil {
		losses = losses.Mul(o.Weight.Detach().Cast(x.DType()).IndexSelect(0, targets))
	}
	return reduced(losses, o.Reduction)
}
