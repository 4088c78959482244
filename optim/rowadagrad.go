package optim

import (
	"iter"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A RowAdagradConfig sets up RowAdagrad.
type RowAdagradConfig struct {
	Eps         float64 // added to the root; 0 stands for 1e-10
	WeightDecay float64 // added to the gradient, times the parameter, in the rows that the gradient has
	NoMaster    bool    // no float32 weights beside parameters of a narrow type; see the package's section on them
}

// RowAdagrad is Adagrad with one number for each row of a table instead of one
// for each element, the usual optimizer of large embedding tables. For each row
// p of D elements with gradient g,
//
//	g += WeightDecay·p
//	s += (g₀² + g₁² + …)/D
//	p -= lr · g/(√s + Eps)
//
// where s is sharded as the rows of the table are. Without weight decay a row whose gradient is 0
// does not move, so a row-sparse gradient gives exactly the result of a dense one. Only its rows
// are touched: with weight decay, as FBGEMM has it in its mode L2, a row decays when it is looked up, and
// all rows do with a dense gradient. If the columns of a parameter are sharded, one collective of a number a row
// adds up the sums of squares over those axes.
//
// A parameter of one dimension is a table of rows of one element, and one without
// dimensions a single row.
type RowAdagrad struct {
	base
	eps, decay float64
	sums       []*dtensor.Tensor // [rows]
}

// NewRowAdagrad returns a RowAdagrad for params. It throws an error that names
// the field if the configuration makes no sense.
func NewRowAdagrad(params []*dtensor.Tensor, c RowAdagradConfig) *RowAdagrad {
	if c.Eps == 0 {
		c.Eps = 1e-10
	}
	atLeastZero("NewRowAdagrad", "Eps", c.Eps)
	atLeastZero("NewRowAdagrad", "WeightDecay", c.WeightDecay)
	a := &RowAdagrad{base: newBase("RowAdagrad", params, c.NoMaster), eps: c.Eps, decay: c.WeightDecay}
	for _, p := range params {
		a.sums = append(a.sums, rowState(p))
	}
	return a
}

// rowState returns a zero for each row of a parameter, [rows], sharded as the rows are, in
// no scope.
func rowState(p *dtensor.Tensor) *dtensor.Tensor {
	rows, local, places := 1, 1, make([]layout.Placement, len(p.Placements()))
	if p.NDim() > 0 {
		rows, local = p.Dim(0), p.Local().Dim(0)
	}
	for axis, place := range p.Placements() {
		if place.Shards(0) {
			places[axis] = place
		}
	}
	sums := tensor.Zeros(p.Mesh().Device(), p.DType().Wide(), local).Persist()
	return p.Mesh().Wrap("optimizer state", sums, nil, false, []int{rows}, places...)
}

// State lists the sums of squares, "sum", one number a row, and the steps.
func (a *RowAdagrad) State() iter.Seq2[string, *dtensor.Tensor] {
	return a.list(kind{"sum", a.sums})
}

// Step makes one step; see Optimizer.
func (a *RowAdagrad) Step(grads []dtensor.Grad, lr float64) error {
	o := tensor.Adagrad{LR: lr, Eps: a.eps}
	return a.step(grads, lr, false, func(c change) {
		table, sums, rows := asTable(c.local), a.sums[c.i].Local(), c.rows
		if c.dense != nil {
			rows = tensor.Rows{Index: tensor.Arange(table.Device(), tensor.Int64, 0, table.Dim(0)), Values: asTable(c.dense)}
		}
		if a.decay != 0 {
			rows.Values = decayed(rows.Values, tensor.TakeRows(table, rows.Index, 0), a.decay)
		}
		var mean *tensor.Tensor
		if axes := columnAxes(c.param); len(axes) > 0 {
			if !c.param.Mesh().Inside() {
				return
			}
			mean = meanSquares(c.param, axes, rows.Values)
		}
		o.StepRows(table, rows, sums, mean)
	})
}

// asTable returns a shard reshaped to rows: dimension 0 by the product of the others.
func asTable(x *tensor.Tensor) *tensor.Tensor {
	n := 1
	if x.NDim() > 0 {
		n = x.Dim(0)
	}
	return x.Reshape(n, ints.Product(x.Shape()[min(1, x.NDim()):]))
}

// columnAxes names the axes that shard the elements of a row.
func columnAxes(p *dtensor.Tensor) (names []string) {
	for axis, place := range p.Placements() {
		if a := p.Mesh().Axes()[axis]; place.IsShard() && !place.Shards(0) && a.Size > 1 {
			names = append(names, a.Name)
		}
	}
	return names
}

// meanSquares returns the mean of the squares of each row of a gradient, float64 [N], where axes shard the
// elements of a row: this rank has the parts [N, D] of its rows.
func meanSquares(p *dtensor.Tensor, axes []string, parts *tensor.Tensor) *tensor.Tensor {
	const cause = "RowAdagrad: rows that lie in parts"
	mesh, n := p.Mesh(), parts.Dim(0)
	if mesh.SameBits() { // the squares of a whole row are added up as where it is not divided
		parts = asTable(dtensor.WholeRows(p, parts))
	}
	numbers := tensor.Arange(parts.Device(), tensor.Int64, 0, n)
	squares := tensor.Cast(tensor.RowPowSums(parts, numbers, 2), tensor.Float64)
	if !mesh.SameBits() {
		buf := dtensor.BufferOf(squares)
		mesh.Do(mesh.Group(axes...), comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: buf, Src: buf, Cause: cause})
	}
	return tensor.BinaryScalar(kernel.OpDiv, squares, float64(max(p.Numel()/max(p.Dim(0), 1), 1)))
}
