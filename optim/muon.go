package optim

import (
	"cmp"
	"fmt"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A MuonConfig sets up Muon. The zero value has its author's constants and no weight decay.
type MuonConfig struct {
	Momentum    float64 // decay of the mean of gradients; 0 stands for 0.95
	Plain       bool    // leave Nesterov's look ahead out
	Iterations  int     // of Newton and Schulz; 0 stands for 5
	WeightDecay float64 // decoupled: each step multiplies the parameter by 1 - lr·WeightDecay
	MatchAdamW  bool    // scale steps as large as AdamW's, so that its rate and weight decay fit (arXiv 2502.16982)
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// Muon makes orthogonal steps of the matrices of a network's hidden layers (Jordan et al., Muon: An optimizer for hidden
// layers in neural networks, 2024), as torch.optim.Muon. Embeddings, heads and vectors take another optimizer: see Groups.
// For each parameter p [R, C] with gradient g,
//
//	m = Momentum·m + (1-Momentum)·g
//	u = Momentum·m + (1-Momentum)·g, or m with Plain
//	x = the orthogonal matrix near u, by iterations of Newton and Schulz
//	p -= lr·(WeightDecay·p + √max(1, R/C)·x), with MatchAdamW 0.2·√max(R, C)·x
//
// x needs the whole matrix: a step gathers u of a sharded parameter in one collective, and each rank computes x, in float32.
// A row-sparse gradient is that of a parameter whose other rows have the gradient 0.
type Muon struct {
	base
	config MuonConfig
	m      []*dtensor.Tensor
}

// NewMuon returns a Muon for params. It throws an error for a parameter that is no matrix, and one that names the field if the
// configuration makes no sense.
func NewMuon(params []*dtensor.Tensor, c MuonConfig) *Muon {
	const op = "NewMuon"
	c.Momentum, c.Iterations = cmp.Or(c.Momentum, 0.95), cmp.Or(c.Iterations, 5)
	inUnit(op, "Momentum", c.Momentum)
	atLeastZero(op, "Iterations", float64(c.Iterations))
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	for i, p := range params {
		if p.NDim() != 2 {
			fault.Throw(fmt.Errorf("optim: NewMuon: parameter %d is %v, and no matrix; give it another optimizer, see optim.Groups", i, p))
		}
	}
	return &Muon{base: newBase("Muon", params, c.NoMaster), config: c, m: states(params)}
}

// State lists the means, "m", and the steps.
func (m *Muon) State() iter.Seq2[string, *dtensor.Tensor] { return m.list(kind{"m", m.m}) }

// Step makes one step; see Optimizer.
func (m *Muon) Step(grads []dtensor.Grad, lr float64) error {
	o := m.config
	return m.step(grads, lr, true, func(c change) {
		toward := make([]*dtensor.Tensor, len(m.params)) // u, and then x
		toward[c.i] = c.param.Mesh().Wrap("Muon", tensor.Clone(m.m[c.i].Local()), nil, false, c.param.Shape(), c.param.Placements()...)
		c.apply(func(_, g *tensor.Tensor, s []*tensor.Tensor) {
			average(s[0], o.Momentum, g)
			tensor.Copy(s[1], s[0])
			if !o.Plain {
				average(s[1], o.Momentum, g)
			}
		}, m.m, toward)
		whole := toward[c.i].Redistribute(make([]layout.Placement, len(c.param.Placements()))...)
		if c.local.Numel() > 0 {
			x := orthogonal(whole.Local(), o.Iterations)
			whole = whole.Mesh().Wrap("Muon", x, nil, false, c.param.Shape(), whole.Placements()...)
		}
		toward[c.i] = whole.Redistribute(c.param.Placements()...)
		rows, columns := float64(c.param.Dim(0)), float64(c.param.Dim(1))
		rate := lr * math.Sqrt(max(1, rows/columns))
		if o.MatchAdamW {
			rate = lr * 0.2 * math.Sqrt(max(rows, columns))
		}
		c.apply(func(p, _ *tensor.Tensor, s []*tensor.Tensor) {
			if o.WeightDecay != 0 {
				tensor.ScaleTo(p, 1-lr*o.WeightDecay)
			}
			tensor.AddScaledTo(p, -rate, s[0])
		}, toward)
	})
}

// orthogonal returns the orthogonal matrix near u, about: its singular values lie near 1. An iteration makes of x
//
//	a·x + (b·A + c·A²)·x    with A = x·xᵀ
func orthogonal(u *tensor.Tensor, iterations int) *tensor.Tensor {
	const a, b, c = 3.4445, -4.7750, 2.0315
	tall := u.Dim(0) > u.Dim(1)
	x := tensor.MulScalar(u, 1/max(1e-7, math.Sqrt(tensor.SumSquares(u)[0])))
	for range iterations {
		gram := tensor.MatMul(x, x, tall, !tall) // the smaller of the two
		factor := tensor.MatMul(gram, gram, false, false)
		tensor.ScaleTo(factor, c)
		tensor.AddScaledTo(factor, b, gram)
		next := tensor.MulScalar(x, a)
		if tall {
			tensor.MatMulTo(next, x, factor, false, false, true)
		} else {
			tensor.MatMulTo(next, factor, x, false, false, true)
		}
		x = next
	}
	return x
}
