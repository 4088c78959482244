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

// The losses of this file are formulas over element-wise operators:
//
//	x [...]   y [...]   →   [] R for Mean and Sum, [...] for None
//
// Operands have one shape and type, and any layout; Mean and Sum make one collective of a
// number if the elements are sharded. Both operands get gradients, in their layouts. The
// mean of no elements is NaN. A loss of bfloat16 operands is computed in float32 and is
// float32. A loss throws an *Error for shapes or types that differ.

// MSE returns the squared error (x - y)² of each element, as torch's mse_loss.
func MSE(x, y *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	x, y = operands("MSE", r, x, y)
	return reduced(x.Sub(y).Square(), r)
}

// L1 returns the absolute error |x - y| of each element, as torch's l1_loss. Its gradient
// where x is y is 0.
func L1(x, y *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	x, y = operands("L1", r, x, y)
	return reduced(x.Sub(y).Abs(), r)
}

// Huber returns for each element, with d = |x - y|, as torch's huber_loss (Huber, 1964)
//
//	d²/2              where d <= delta
//	delta·(d - delta/2)   elsewhere
//
// Over delta it is torch's smooth_l1_loss with beta = delta. It throws an *Error unless
// delta > 0.
func Huber(x, y *dtensor.Tensor, delta float64, r Reduction) *dtensor.Tensor {
	if !(delta > 0) {
		refuse("Huber", fmt.Sprintf("delta is %v; it must be above 0", delta))
	}
	x, y = operands("Huber", r, x, y)
	d := x.Sub(y).Abs()
	near := d.Clamp(0, delta)
	return reduced(near.Square().Scale(0.5).Add(d.Sub(near).Scale(delta)), r)
}

// KLOptions are the settings of KL.
type KLOptions struct {
	Reduction Reduction
	LogTarget bool // target holds logarithms of probabilities
	BatchMean bool // the sum over the size of dimension 0, the divergence itself; in place of Reduction
}

// KL returns target·(ln target - logs) for each element, 0 where target is 0, as torch's
// kl_div: the Kullback-Leibler divergence of target from the probabilities whose
// logarithms are logs. The Mean is over all elements, as in PyTorch; BatchMean is the mean
// of the divergences.
func KL(logs, target *dtensor.Tensor, o KLOptions) *dtensor.Tensor {
	const op = "KL"
	logs, target = operands(op, o.Reduction, logs, target)
	var losses *dtensor.Tensor
	if o.LogTarget {
		losses = target.Exp().Mul(target.Sub(logs))
	} else {
		zero := target.Detach().CompareScalar(kernel.OpEq, 0)
		losses = target.Mul(target.MaskedFill(zero, 1).Log().Sub(logs))
	}
	if !o.BatchMean {
		return reduced(losses, o.Reduction)
	}
	if logs.NDim() == 0 {
		refuse(op, "BatchMean of operands without dimensions; use Sum")
	}
	return reduced(losses, Sum).Scale(1 / float64(logs.Dim(0)))
}

// MarginRanking returns max(0, margin - y·(a - b)) for each element, as torch's
// margin_ranking_loss: y is 1 where a should be larger than b by the margin, and -1 where
// it should be smaller.
func MarginRanking(a, b, y *dtensor.Tensor, margin float64, r Reduction) *dtensor.Tensor {
	const op = "MarginRanking"
	a, b = operands(op, r, a, b)
	a, y = operands(op, r, a, y.Cast(a.DType()))
	return reduced(y.Mul(b.Sub(a)).AddScalar(margin).Clamp(0, math.Inf(1)), r)
}

// TripletMargin returns max(0, margin + ‖a - p‖ - ‖a - n‖) for each row, as torch's
// triplet_margin_loss: the anchors a should be nearer to the positive examples p than to
// the negative ones n. The distances are those of the last dimension, with 1e-6 added to
// each difference as in PyTorch.
//
//	a [..., D]   p [..., D]   n [..., D]   →   [] R for Mean and Sum, [...] for None
func TripletMargin(a, p, n *dtensor.Tensor, margin float64, r Reduction) *dtensor.Tensor {
	const op = "TripletMargin"
	if a.NDim() == 0 {
		refuse(op, fmt.Sprintf("the anchors are %v; give rows, [..., D]", a))
	}
	_, p = operands(op, r, a, p)
	a, n = operands(op, r, a, n)
	far := func(x *dtensor.Tensor) *dtensor.Tensor { return a.Sub(x).AddScalar(1e-6).Norm(2, []int{-1}, false) }
	return reduced(far(p).Sub(far(n)).AddScalar(margin).Clamp(0, math.Inf(1)), r)
}

// InfoNCEOptions are the settings of InfoNCE.
type InfoNCEOptions struct {
	Temperature float64 // what similarities are divided by; 0 stands for 0.1
	Symmetric   bool    // the mean of this loss and that of the keys among the queries, as CLIP has it
	DotProduct  bool    // queries and keys are compared as they are, not as unit vectors
}

// InfoNCE returns the mean cross-entropy of finding each query's own key among the keys of
// the whole batch, of all ranks (van den Oord et al., arXiv 1807.03748; symmetric: Radford
// et al., arXiv 2103.00020):
//
//	similarity[i, j] = query[i]·key[j] / (‖query[i]‖·‖key[j]‖·Temperature)
//	loss = mean over i of ln(Σⱼ exp(similarity[i, j])) - similarity[i, i]
//
//	query [N, D]   key [N, D]   →   [] R
//
//	query   key    similarity [N, N]
//	S(0)    S(0)   S(0), after one all-gather of the keys
//	R       R      R
//	S(1)    S(1)   R, after one all-reduce
//
// Both operands get gradients, in their layouts.
func InfoNCE(query, key *dtensor.Tensor, o InfoNCEOptions) *dtensor.Tensor {
	const op = "InfoNCE"
	query, key = operands(op, Mean, query, key)
	t := cmp.Or(o.Temperature, 0.1)
	switch {
	case query.NDim() != 2:
		refuse(op, fmt.Sprintf("the queries are %v; give vectors, [N, D]", query))
	case !(t > 0):
		refuse(op, fmt.Sprintf("Temperature is %v; it must be above 0", t))
	}
	if !o.DotProduct {
		query, key = unit(query), unit(key)
	}
	// Gathered here, the keys are there for the gradient too: MatMul would gather them again.
	places := key.Placements()
	for axis, p := range query.Placements() {
		if p.Shards(0) && places[axis].Shards(0) {
			places[axis] = layout.Replicate()
		}
	}
	key = key.Redistribute(places...)
	similarity := query.MatMul(key.Transpose(0, 1)).Scale(1 / t).Reduced()
	m := query.Mesh()
	own := dtensor.Arange(m, tensor.Int64, 0, query.Dim(0), m.Every(layout.Replicate())...)
	loss := CrossEntropy(similarity, own, Options{})
	if o.Symmetric {
		loss = loss.Add(CrossEntropy(similarity.Transpose(0, 1), own, Options{})).Scale(0.5)
	}
	return loss
}

// unit returns the rows of x with norm 1; those of norm 0 stay as they are.
func unit(x *dtensor.Tensor) *dtensor.Tensor {
	return x.Div(x.Norm(2, []int{-1}, true).Clamp(1e-12, math.Inf(1)))
}

// operands returns x and y in the type of the computation. It throws if they do not fit
// together.
func operands(op string, r Reduction, x, y *dtensor.Tensor) (*dtensor.Tensor, *dtensor.Tensor) {
	switch {
	case r >= reductions:
		refuse(op, fmt.Sprintf("Reduction is %d; use Mean, Sum or None", r))
	case !x.DType().Float() || x.DType() != y.DType():
		refuse(op, fmt.Sprintf("the operands are %v and %v; give one floating-point type, Cast one of them", x, y))
	case !slices.Equal(x.Shape(), y.Shape()):
		refuse(op, fmt.Sprintf("the operands are %v and %v; give one shape, Expand one of them", x, y))
	case x.Mesh() != y.Mesh():
		refuse(op, fmt.Sprintf("the operands are on mesh %v and on another, %v; move one of them", x.Mesh(), y.Mesh()))
	}
	wide := x.DType().Wide()
	return x.Cast(wide), y.Cast(wide)
}

// reduced combines the losses of all elements as r says.
func reduced(losses *dtensor.Tensor, r Reduction) *dtensor.Tensor {
	switch r {
	case Mean:
		losses = losses.Mean(nil, false)
	case Sum:
		losses = losses.Sum(nil, false)
	case None:
		return losses
	}
	return losses.Redistribute(losses.Mesh().Every(layout.Replicate())...)
}
