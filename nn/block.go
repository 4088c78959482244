package nn

import "github.com/gorun-spmd/gorun/dtensor"

// A BlockConfig describes a Block.
type BlockConfig struct {
	Width      int    // C: features of the residual stream
	Heads      int    // of the attention; divides Width
	Hidden     int    // features inside the MLP; 0: 4·Width
	Bias       bool   // the linear layers have biases
	TensorAxis string // the mesh axis that divides heads and hidden features; "": none
}

// A Block is one layer of a decoder: x + attention(norm(x)), then the same with
// the MLP.
type Block struct {
	Norm1     *RMSNorm
	Attention *Attention
	Norm2     *RMSNorm
	MLP       *MLP
}

// NewBlock makes a Block.
func NewBlock(init *Init, c BlockConfig) *Block {
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Width
	}
	return &Block{
		Norm1:     NewRMSNorm(init, c.Width),
		Attention: NewAttention(init, c.Width, c.Heads, c.Bias, c.TensorAxis),
		Norm2:     NewRMSNorm(init, c.Width),
		MLP:       NewMLP(init, c.Width, c.Hidden, c.Bias, c.TensorAxis),
	}
}

// Forward returns the block of x.
//
//	x [B, T, C]   →   [B, T, C]   in x's layout, R on the tensor axis
func (b *Block) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	x = x.Add(b.Attention.Forward(b.Norm1.Forward(x)))
	return x.Add(b.MLP.Forward(b.Norm2.Forward(x)))
}

// Params lists the parameters of the four parts.
func (b *Block) Params() Params {
	return Join([]string{"norm1", "attention", "norm2", "mlp"}, b.Norm1, b.Attention, b.Norm2, b.MLP)
}
