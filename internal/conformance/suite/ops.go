package suite

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// inputs are the tensors of a case by name; one that is absent is nil.
type inputs = map[string]*dtensor.Tensor

// An operator calls what a case names. extra is topk's indices, else nil.
type operator func(in inputs, a *Args) (out, extra *dtensor.Tensor)

// operators are the operators by the names the cases use.
var operators = map[string]operator{
	"add":     binary((*dtensor.Tensor).Add),
	"sub":     binary((*dtensor.Tensor).Sub),
	"mul":     binary((*dtensor.Tensor).Mul),
	"div":     binary(func(a, b *dtensor.Tensor) *dtensor.Tensor { return floats(a).Div(floats(b)) }),
	"maximum": binary((*dtensor.Tensor).Maximum),
	"matmul":  binary(matmul),

	"gelu":      unary((*dtensor.Tensor).Gelu),
	"gelu_tanh": unary((*dtensor.Tensor).GeluTanh),
	"relu":      unary((*dtensor.Tensor).Relu),
	"silu":      unary((*dtensor.Tensor).Silu),
	"tanh":      unary(func(x *dtensor.Tensor) *dtensor.Tensor { return floats(x).Tanh() }),
	"exp":       unary(func(x *dtensor.Tensor) *dtensor.Tensor { return floats(x).Exp() }),
	"sigmoid":   unary(func(x *dtensor.Tensor) *dtensor.Tensor { return floats(x).Sigmoid() }),

	"sin": unary((*dtensor.Tensor).Sin),
	"cos": unary((*dtensor.Tensor).Cos),
	"erf": unary((*dtensor.Tensor).Erf),

	"logical_not": unary((*dtensor.Tensor).LogicalNot),
	"logical_and": binary((*dtensor.Tensor).LogicalAnd),
	"logical_or":  binary((*dtensor.Tensor).LogicalOr),
	"logical_xor": binary((*dtensor.Tensor).LogicalXor),

	"tril": one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].Tril(a.Diagonal) }),
	"triu": one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].Triu(a.Diagonal) }),
	"roll": one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].Roll(a.Shift, a.Dim[0]) }),
	"sort": func(in inputs, a *Args) (values, index *dtensor.Tensor) {
		return in["input"].Sort(a.Dim[0], a.Descending)
	},

	"sum":  reduction((*dtensor.Tensor).Sum),
	"mean": reduction((*dtensor.Tensor).Mean),
	"amax": reduction((*dtensor.Tensor).Amax),

	"linear": one(func(in inputs, a *Args) *dtensor.Tensor {
		return in["input"].Linear(in["weight"], in["bias"])
	}),
	"softmax":     alongDim((*dtensor.Tensor).Softmax),
	"log_softmax": alongDim((*dtensor.Tensor).LogSoftmax),
	"argmax": one(func(in inputs, a *Args) *dtensor.Tensor {
		if len(a.Dim) == 0 {
			return in["input"].Reshape(-1).Argmax(0, false)
		}
		return in["input"].Argmax(a.Dim[0], a.Keepdim)
	}),
	"argmin": one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].Argmin(a.Dim[0], a.Keepdim) }),
	"topk": func(in inputs, a *Args) (values, index *dtensor.Tensor) {
		return in["input"].TopK(a.K, a.Dim[0])
	},
	"layer_norm": one(func(in inputs, a *Args) *dtensor.Tensor {
		return in["input"].LayerNorm(gain(in, a), in["bias"], a.eps(1e-5))
	}),
	"rms_norm": one(func(in inputs, a *Args) *dtensor.Tensor {
		eps := 0x1p-52
		if in["input"].DType() == tensor.Float32 {
			eps = 0x1p-23
		}
		return in["input"].RMSNorm(gain(in, a), a.eps(eps))
	}),
	"scaled_dot_product_attention": one(func(in inputs, a *Args) *dtensor.Tensor {
		return dtensor.ScaledDotProductAttention(in["query"], in["key"], in["value"], a.IsCausal)
	}),

	"narrow":       one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].Narrow(a.Dim[0], a.Start, a.Length) }),
	"cat":          one(cat),
	"gather":       one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].Gather(a.Dim[0], in["index"]) }),
	"index_select": one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].IndexSelect(a.Dim[0], in["index"]) }),
	"redistribute": one(redistribute),

	"embedding":            one(lookup),
	"embedding_bag":        one(bag),
	"cross_entropy":        one(crossEntropy),
	"linear_cross_entropy": one(linearCrossEntropy),

	"mse_loss":   comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor { return loss.MSE(x, y, a.reduction) }),
	"l1_loss":    comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor { return loss.L1(x, y, a.reduction) }),
	"huber_loss": comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor { return loss.Huber(x, y, a.Delta, a.reduction) }),
	"kl_div": comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor {
		return loss.KL(x, y, loss.KLOptions{Reduction: a.reduction, LogTarget: a.LogTarget, BatchMean: a.Reduction == batchMean})
	}),
	"binary_cross_entropy_with_logits": comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor {
		return loss.BinaryCrossEntropy(x, y, a.reduction)
	}),
	"margin_ranking_loss": one(func(in inputs, a *Args) *dtensor.Tensor {
		return loss.MarginRanking(in["a"], in["b"], in["target"], a.Margin, a.reduction)
	}),
	"binary_cross_entropy_pos_weight": one(func(in inputs, a *Args) *dtensor.Tensor {
		return loss.BinaryCrossEntropyWithPosWeight(in["input"], in["target"], in["pos_weight"], a.reduction)
	}),
	"binary_cross_entropy": comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor {
		return loss.BinaryCrossEntropyOfProbabilities(x, y, a.reduction)
	}),
	"poisson_nll_loss": comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor {
		return loss.PoissonNLL(x, y, loss.PoissonNLLOptions{Reduction: a.reduction, Rates: !a.LogInput, Full: a.Full})
	}),
	"gaussian_nll_loss": one(func(in inputs, a *Args) *dtensor.Tensor {
		return loss.GaussianNLL(in["input"], in["target"], in["var"], loss.GaussianNLLOptions{Reduction: a.reduction, Full: a.Full})
	}),
	"soft_margin_loss": comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor { return loss.SoftMargin(x, y, a.reduction) }),
	"hinge_embedding_loss": comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor {
		return loss.HingeEmbedding(x, y, a.Margin, a.reduction)
	}),
	"cosine_embedding_loss": one(func(in inputs, a *Args) *dtensor.Tensor {
		return loss.CosineEmbedding(in["a"], in["b"], in["target"], a.Margin, a.reduction)
	}),
	"multi_margin_loss": one(func(in inputs, a *Args) *dtensor.Tensor {
		return loss.MultiMargin(in["input"], in["target"],
			loss.MultiMarginOptions{Reduction: a.reduction, Margin: a.Margin, Squared: a.P == 2, Weight: in["weight"]})
	}),
	"multilabel_margin_loss": comparison(func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor {
		return loss.MultiLabelMargin(x, y, a.reduction)
	}),
	"ctc_loss": one(func(in inputs, a *Args) *dtensor.Tensor {
		return loss.CTC(in["log_probs"], in["targets"], loss.CTCOptions{Reduction: a.reduction, Blank: a.Blank,
			InputLengths: in["input_lengths"], TargetLengths: in["target_lengths"], ZeroInfinity: a.ZeroInfinity})
	}),
	"triplet_margin_loss": one(func(in inputs, a *Args) *dtensor.Tensor {
		return loss.TripletMargin(in["a"], in["b"], in["c"], a.Margin, a.reduction)
	}),
	"info_nce": one(func(in inputs, a *Args) *dtensor.Tensor {
		return loss.InfoNCE(in["query"], in["key"],
			loss.InfoNCEOptions{Temperature: a.Temperature, Symmetric: a.Symmetric, DotProduct: a.DotProduct})
	}),

	"reshape":   one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].Reshape(a.Shape...) }),
	"transpose": one(func(in inputs, a *Args) *dtensor.Tensor { return in["input"].Transpose(a.Dim0, a.Dim1) }),
}

// one makes an operator of a function with one result.
func one(f func(in inputs, a *Args) *dtensor.Tensor) operator {
	return func(in inputs, a *Args) (out, extra *dtensor.Tensor) { return f(in, a), nil }
}

func unary(f func(x *dtensor.Tensor) *dtensor.Tensor) operator {
	return one(func(in inputs, _ *Args) *dtensor.Tensor { return f(in["input"]) })
}

func binary(f func(a, b *dtensor.Tensor) *dtensor.Tensor) operator {
	return one(func(in inputs, _ *Args) *dtensor.Tensor { return f(promote(in["input"], in["other"])) })
}

// comparison makes an operator of a loss of two operands.
func comparison(f func(x, y *dtensor.Tensor, a *Args) *dtensor.Tensor) operator {
	return one(func(in inputs, a *Args) *dtensor.Tensor { return f(in["input"], in["target"], a) })
}

func reduction(f func(x *dtensor.Tensor, dims []int, keepdim bool) *dtensor.Tensor) operator {
	return one(func(in inputs, a *Args) *dtensor.Tensor { return f(in["input"], a.Dim, a.Keepdim) })
}

func alongDim(f func(x *dtensor.Tensor, dim int) *dtensor.Tensor) operator {
	return one(func(in inputs, a *Args) *dtensor.Tensor { return f(in["input"], a.Dim[0]) })
}

// What PyTorch casts of itself, our operators ask their caller to.

// floats returns integers as float32.
func floats(x *dtensor.Tensor) *dtensor.Tensor {
	if x.DType().Float() {
		return x
	}
	return x.Cast(tensor.Float32)
}

// promote returns integers that stand beside floats as such.
func promote(a, b *dtensor.Tensor) (x, y *dtensor.Tensor) {
	if a.DType().Float() != b.DType().Float() {
		return floats(a), floats(b)
	}
	return a, b
}

// matmul multiplies integers as float64, exactly up to 2⁵³.
func matmul(a, b *dtensor.Tensor) *dtensor.Tensor {
	if dt := a.DType(); dt.Int() {
		return a.Cast(tensor.Float64).MatMul(b.Cast(tensor.Float64)).Cast(dt)
	}
	return a.MatMul(b)
}

func cat(in inputs, a *Args) *dtensor.Tensor {
	x, y := promote(in["a"], in["b"])
	return dtensor.Cat(a.Dim[0], x, y)
}

// gain returns the weight of a norm, ones where there is none.
func gain(in inputs, a *Args) *dtensor.Tensor {
	x, want := in["input"], []int(a.NormalizedShape)
	if n := x.NDim() - len(want); want != nil && (n < 0 || !slices.Equal(x.Shape()[n:], want)) {
		fault.Throw(fmt.Errorf("the input has shape %v, normalized_shape is %v", x.Shape(), want))
	}
	if w := in["weight"]; w != nil {
		if want != nil && !slices.Equal(w.Shape(), want) {
			fault.Throw(fmt.Errorf("the weight has shape %v, normalized_shape is %v", w.Shape(), want))
		}
		return w
	}
	return dtensor.Full(x.Mesh(), x.DType(), 1, want, x.Mesh().Every(layout.Replicate())...)
}

// eps returns the argument, or what PyTorch takes where there is none.
func (a *Args) eps(absent float64) float64 {
	if a.Eps == nil {
		return absent
	}
	return *a.Eps
}

func redistribute(in inputs, a *Args) *dtensor.Tensor {
	return in["input"].Redistribute(a.placements...)
}

func lookup(in inputs, a *Args) *dtensor.Tensor {
	return embedding.Lookup(in["weight"], in["input"], a.embedding())
}

func bag(in inputs, a *Args) *dtensor.Tensor {
	o := embedding.BagOptions{Options: a.embedding(), Mode: a.mode}
	return embedding.Bag(in["weight"], in["input"], in["offsets"], in["per_sample_weights"], o)
}

func (a *Args) embedding() embedding.Options {
	return embedding.Options{PaddingIdx: a.PaddingIdx, MaxNorm: (*float64)(a.MaxNorm), NormType: (*float64)(a.NormType),
		ScaleGradByFreq: a.ScaleGradByFreq}
}

func crossEntropy(in inputs, a *Args) *dtensor.Tensor {
	return loss.CrossEntropy(in["logits"], in["target"], a.loss(in["weight"]))
}

func linearCrossEntropy(in inputs, a *Args) *dtensor.Tensor {
	return loss.LinearCrossEntropy(in["hidden"], in["weight"], in["target"], a.loss(nil))
}

func (a *Args) loss(weight *dtensor.Tensor) loss.Options {
	return loss.Options{Weight: weight, IgnoreIndex: a.IgnoreIndex, Reduction: a.reduction, LabelSmoothing: a.LabelSmoothing}
}
