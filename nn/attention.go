package nn

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// An Attention is multi-head self-attention. Its heads are divided over one
// axis of the mesh.
type Attention struct {
	Q, K, V *Linear // [C, C], column-parallel: each rank has whole heads
	Out     *Linear // [C, C], row-parallel
	Heads   int
	Causal  bool
}

// NewAttention makes a causal Attention of width features in heads heads, which
// must divide width. The number of heads need not be a multiple of the axis.
func NewAttention(init *Init, width, heads int, bias bool, axis string) *Attention {
	if heads < 1 || width%heads != 0 {
		fault.Throw(fmt.Errorf("nn: NewAttention: width %d is not a multiple of %d heads; change one of them", width, heads))
	}
	col, row := Column(axis), Row(axis)
	if i, ok := init.mesh.Axis(axis); ok {
		col.Placement = headShard(0, width, heads, init.mesh.Axes()[i].Size)
		row.Placement = col.Placement.WithDim(1)
	}
	return &Attention{
		Q: NewLinear(init, width, width, bias, col), K: NewLinear(init, width, width, bias, col), V: NewLinear(init, width, width, bias, col),
		Out: NewLinear(init, width, width, bias, row), Heads: heads, Causal: true,
	}
}

// headShard divides a dimension of width elements so that heads stay whole.
func headShard(dim, width, heads, n int) layout.Placement {
	if heads%n == 0 {
		return layout.Shard(dim)
	}
	sizes := layout.ChunkSizes(heads, n)
	for i := range sizes {
		sizes[i] *= width / heads
	}
	return layout.ShardSizes(dim, sizes...)
}

// Forward returns the attention of x to itself. It communicates once, to reduce
// the result.
//
//	x [B, T, C] R   →   [B, T, C] R   on the divided axis
func (a *Attention) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	b, t, c := x.Dim(0), x.Dim(1), x.Dim(2)
	heads := func(y *dtensor.Tensor) *dtensor.Tensor { // [B, T, C] S(2) → [B, H, T, D] S(1)
		return y.Reshape(b, t, a.Heads, c/a.Heads).Transpose(1, 2)
	}
	y := dtensor.ScaledDotProductAttention(heads(a.Q.Forward(x)), heads(a.K.Forward(x)), heads(a.V.Forward(x)), a.Causal)
	y = y.Transpose(1, 2).Reshape(b, t, c) // [B, T, C] S(2)
	return a.Out.Forward(y).Reduced()      // [B, T, C] P(sum) → R
}

// Params lists the parameters of the four layers.
func (a *Attention) Params() Params {
	return Join([]string{"q", "k", "v", "out"}, a.Q, a.K, a.V, a.Out)
}
