package nn

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A GridSampleConfig sets up GridSample. The zero value has F.grid_sample's defaults.
type GridSampleConfig struct {
	Nearest      bool // takes the nearest element; else between the four around a place
	Border       bool // places outside have what is at the border; else zeros
	AlignCorners bool // -1 and 1 are the middles of the first and the last element; else their outer edges
}

// GridSample returns what images have at the places of a grid, as F.grid_sample does with padding_mode zeros or border:
//
//	x [B, C, H, W]   grid [B, H', W', 2]   →   [B, C, H', W']   in x's type
//
// A place is its position along W and that along H, from -1 to 1. One that is NaN is the first with Border, and else has NaN, or 0
// with Nearest. Both x and the grid have gradients; with Nearest the grid's is 0, and with Border that of places at or beyond an
// edge. Batches and channels may be sharded, S(0) and S(1). It throws for other shapes.
func GridSample(x, grid *dtensor.Tensor, c GridSampleConfig) *dtensor.Tensor {
	if x.NDim() != 4 || grid.NDim() != 4 || grid.Dim(3) != 2 || grid.Dim(0) != x.Dim(0) || x.Dim(2)*x.Dim(3) == 0 {
		fault.Throw(fmt.Errorf("nn: GridSample: x is %v and the grid %v; give x [B, C, H, W] with pixels and a grid [B, H', W', 2]", x, grid))
	}
	wide := x.DType().Wide()
	shape := []int{x.Dim(0), x.Dim(1), grid.Dim(1), grid.Dim(2)}
	high, width, points := x.Dim(2), x.Dim(3), shape[2]*shape[3]
	grid = grid.Cast(wide).Reshape(x.Dim(0), points, 2)
	column, row := c.place(grid.Narrow(2, 0, 1), width), c.place(grid.Narrow(2, 1, 1), high) // [B, P, 1]
	pixels := x.Cast(wide).Flatten(2, 3)                                                     // [B, C, H·W]
	// at returns the pixels at whole places, zeros outside, [B, C, P].
	at := func(column, row *dtensor.Tensor) *dtensor.Tensor {
		in := func(at *dtensor.Tensor, n int) *dtensor.Tensor {
			return at.Compare(kernel.OpEq, at.Clamp(0, float64(n-1))).Cast(wide)
		}
		near := func(at *dtensor.Tensor, n int) *dtensor.Tensor {
			return known(at).Clamp(0, float64(n-1)).Cast(tensor.Int64)
		}
		index := near(row, high).Scale(float64(width)).Add(near(column, width))
		found := pixels.Gather(2, index.Transpose(1, 2).Expand(x.Dim(0), x.Dim(1), points))
		return found.Mul(in(column, width).Mul(in(row, high)).Transpose(1, 2))
	}
	var y *dtensor.Tensor
	if c.Nearest {
		y = at(column.Detach().Round(), row.Detach().Round())
	} else {
		left, top := column.Detach().Floor(), row.Detach().Floor()
		right, low := column.Sub(left).Transpose(1, 2), row.Sub(top).Transpose(1, 2) // how far
		between := func(a, b, part *dtensor.Tensor) *dtensor.Tensor { return a.Add(b.Sub(a).Mul(part)) }
		next, below := left.AddScalar(1), top.AddScalar(1)
		y = between(between(at(left, top), at(next, top), right), between(at(left, below), at(next, below), right), low)
	}
	return y.Reshape(shape...).Cast(x.DType())
}

// place returns positions from -1 to 1 as numbers of pixels, of which there are n.
func (c GridSampleConfig) place(at *dtensor.Tensor, n int) *dtensor.Tensor {
	at = at.AddScalar(1)
	if c.AlignCorners {
		at = at.Scale(float64(n-1) / 2)
	} else {
		at = at.Scale(float64(n) / 2).AddScalar(-0.5)
	}
	if c.Border { // what is at an edge has no gradient, as beyond it
		first, last := at.CompareScalar(kernel.OpLe, 0), at.CompareScalar(kernel.OpGe, float64(n-1))
		at = known(at).MaskedFill(first, 0).MaskedFill(last, float64(n-1))
	}
	return at
}

// known returns places with 0 for those that are NaN.
func known(at *dtensor.Tensor) *dtensor.Tensor { return at.MaskedFill(at.Compare(kernel.OpNe, at), 0) }
