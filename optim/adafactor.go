package optim

import (
	"cmp"
	"iter"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// An AdafactorConfig sets up Adafactor. The zero value has the constants of
// torch.optim.Adafactor and no weight decay.
type AdafactorConfig struct {
	Beta2Decay  float64 // in step t, the new squares have weight t^Beta2Decay in the mean; 0 stands for -0.8
	Eps1        float64 // lower bound of the mean of squares, and its square of v; 0 stands for 2⁻²³
	Eps2        float64 // lower bound of the rms of a parameter, to which a step is relative; 0 stands for 1e-3
	Limit       float64 // a step of a larger root mean square is scaled down to Limit; 0 stands for 1
	WeightDecay float64 // decoupled: each step multiplies the parameter by 1 - lr·WeightDecay
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// Adafactor keeps of a matrix the mean squares of its rows and of its columns, where Adam
// keeps two numbers for each element (Shazeer and Stern, arXiv 1804.04235). It is
// torch.optim.Adafactor. In step t, counted from 1, for each parameter p [..., R, C] with
// gradient g, with rms(x) = √mean(x²) and w = t^Beta2Decay,
//
//	p *= 1 - lr·WeightDecay
//	row += w·(mean of g² over C - row)                [..., R, 1]
//	column += w·(mean of g² over R - column)          [..., 1, C]
//	v = row·column / max(mean of row over R, Eps1)
//	u = g/√max(v, Eps1²)
//	p -= max(Eps2, rms(p)) · min(lr, 1/√t) · u/max(1, rms(u)/Limit)
//
// A parameter of fewer than two dimensions has v += w·(g² - v) instead.
//
// row is sharded as the rows of p are, and column as its columns are. A step of a sharded
// parameter makes up to five small collectives: one for each mean over a sharded
// dimension and one for each rms. A row-sparse gradient is converted to a dense one.
type Adafactor struct {
	base
	config               AdafactorConfig
	rows, columns, whole []*dtensor.Tensor // nil where a parameter has none
}

// NewAdafactor returns an Adafactor for params. It throws an error that names the field
// if the configuration makes no sense.
func NewAdafactor(params []*dtensor.Tensor, c AdafactorConfig) *Adafactor {
	const op = "NewAdafactor"
	c.Beta2Decay, c.Eps1, c.Eps2, c.Limit = cmp.Or(c.Beta2Decay, -0.8), cmp.Or(c.Eps1, 0x1p-23), cmp.Or(c.Eps2, 1e-3), cmp.Or(c.Limit, 1)
	atLeastZero(op, "-Beta2Decay", -c.Beta2Decay)
	atLeastZero(op, "Eps1", c.Eps1)
	atLeastZero(op, "Eps2", c.Eps2)
	atLeastZero(op, "Limit", c.Limit)
	atLeastZero(op, "WeightDecay", c.WeightDecay)
	a := &Adafactor{base: newBase("Adafactor", params, c.NoMaster), config: c}
	for _, p := range params {
		var row, column, whole *dtensor.Tensor
		if n := p.NDim(); n > 1 {
			row, column = summaryState(p, n-1), summaryState(p, n-2)
		} else {
			whole = state(p)
		}
		a.rows, a.columns, a.whole = append(a.rows, row), append(a.columns, column), append(a.whole, whole)
	}
	return a
}

// summaryState returns zeros, in no scope, of the parameter's layout and shape, but with
// size 1 for dimension dim.
func summaryState(p *dtensor.Tensor, dim int) *dtensor.Tensor {
	shape, local, places := p.Shape(), p.LocalShape(), p.Placements()
	shape[dim], local[dim] = 1, 1
	for axis, place := range places {
		if place.Shards(dim) {
			places[axis] = layout.Replicate()
		}
	}
	zeros := tensor.Zeros(p.Mesh().Device(), p.DType().Wide(), local...).Persist()
	return p.Mesh().Wrap("optimizer state", zeros, nil, false, shape, places...)
}

// State lists the mean squares, "row" and "column" of matrices and "v" of others, and the
// steps.
func (a *Adafactor) State() iter.Seq2[string, *dtensor.Tensor] {
	return a.list(kind{"row", a.rows}, kind{"column", a.columns}, kind{"v", a.whole})
}

// Step makes one step; see Optimizer.
func (a *Adafactor) Step(grads []dtensor.Grad, lr float64) error {
	return a.step(grads, lr, true, func(c change) {
		scope := c.local.Device().Open()
		defer scope.Close()
		if c.dense == nil {
			c.dense = tensor.DenseRows(c.rows, c.local.Dim(0))
		}
		onWide(c.local, func(local *tensor.Tensor) { a.update(c, local, lr) })
	})
}

func (a *Adafactor) update(c change, local *tensor.Tensor, lr float64) {
	o, t := a.config, float64(c.step)
	lies := func(x *tensor.Tensor) *dtensor.Tensor {
		return c.param.Mesh().Wrap("Adafactor", x, nil, false, c.param.Shape(), c.param.Placements()...)
	}
	p, g := lies(local), lies(tensor.Widen(c.dense))
	share := math.Pow(t, o.Beta2Decay)
	squares := g.Square()
	mean := func(state *dtensor.Tensor, dims ...int) *dtensor.Tensor {
		now := squares
		if len(dims) > 0 {
			now = squares.Mean(dims, true)
		}
		average(state.Local(), 1-share, now.Redistribute(state.Placements()...).Local())
		return state
	}
	size := max(o.Eps2, rms(p)) * min(lr, 1/math.Sqrt(t)) // before the decay, as PyTorch has it
	var v *dtensor.Tensor
	if row := a.rows[c.i]; row != nil {
		row, column := mean(row, -1), mean(a.columns[c.i], -2)
		v = row.Mul(column).Div(row.Mean([]int{-2}, true).Clamp(o.Eps1, math.Inf(1)))
	} else {
		v = mean(a.whole[c.i])
	}
	u := v.Clamp(o.Eps1*o.Eps1, math.Inf(1)).Rsqrt().Mul(g).Redistribute(p.Placements()...) // of rows in turn Mul makes blocks
	if o.WeightDecay != 0 {
		tensor.ScaleTo(local, 1-lr*o.WeightDecay)
	}
	tensor.AddScaledTo(local, -size/max(1, rms(u)/o.Limit), u.Local())
}

// rms returns the root mean square of all elements, 0 for none.
func rms(x *dtensor.Tensor) float64 {
	if x.Numel() == 0 || !x.Mesh().Inside() {
		return 0
	}
	return math.Sqrt(x.Square().Sum(nil, false).Item() / float64(x.Numel()))
}
