package nn

import (
	"errors"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A BlockConfig describes a Block. Width and Heads are needed. Llama's block is
//
//	BlockConfig{Width: C, Heads: H, KVHeads: G, Hidden: F, Gated: true, Rope: rope, Names: nn.LlamaNames}
//
// and GPT-2's
//
//	BlockConfig{Width: C, Heads: H, Bias: true, LayerNorm: true, Activation: (*dtensor.Tensor).GeluTanh, Names: nn.GPT2Names}
//
// BERT's is an encoder's, which torch.nn.TransformerEncoderLayer has too, with Relu and other names:
//
//	BlockConfig{Width: C, Heads: H, Bias: true, LayerNorm: true, Eps: 1e-12, Bidirectional: true, PostNorm: true, Names: nn.BERTNames}
type BlockConfig struct {
	Width      int     // C: features of the residual stream
	Heads      int     // of the attention
	KVHeads    int     // heads of keys and values; 0: Heads
	HeadDim    int     // features of a head; 0: Width/Heads
	Hidden     int     // features inside the MLP; 0: 4·Width
	Bias       bool    // the linear layers have biases
	QKVBias    bool    // the layers of queries, keys and values have biases
	QKNorm     bool    // norms of the heads of queries and keys; see AttentionConfig
	Rope       *Rope   // rotates queries and keys by their positions; nil: no rotation
	Scale      float64 // multiplies the scores of the attention; 0: 1/√HeadDim
	LayerNorm  bool    // the norms are LayerNorm; else RMSNorm
	PostNorm   bool    // norm(x + attention(x)), as in BERT; else x + attention(norm(x)), PyTorch's norm_first
	Eps        float64 // of the norms; 0: 1e-5 of LayerNorm, 1e-6 of RMSNorm
	Gated      bool    // the MLP is gated; see MLPConfig
	Activation func(x *dtensor.Tensor) *dtensor.Tensor
	Dropout    float64 // of the attention weights and of what each part adds to the stream
	Seed       uint64  // of the dropout
	// Bidirectional positions attend to all positions, as in an encoder; else to those up to their own.
	Bidirectional bool

	TensorAxis string // the mesh axis that divides heads and hidden features; "": none
	// ContextAxis is the mesh axis that divides the positions of x, in the attention too:
	// context parallelism, for long sequences. "": none.
	ContextAxis string
	// Sequence divides the residual stream's positions over TensorAxis, S(1): sequence
	// parallelism. Norms, additions and dropout are then divided too, and each
	// all-reduce becomes an all-gather and a reduce-scatter of the same bytes in all.
	Sequence bool

	Names Names // of the parts; zero: norm1, attention, norm2, mlp
}

// Names are the names that Params gives the parts of a Block.
type Names struct {
	Norm1, Attention, Norm2, MLP string
	Q, K, V, Out, QNorm, KNorm   string // of Attention
	Gate, Up, Down               string // of MLP
}

var (
	// LlamaNames are the names in Hugging Face's Llama, Mistral, Qwen2 and Qwen3.
	LlamaNames = Names{"input_layernorm", "self_attn", "post_attention_layernorm", "mlp", "q_proj", "k_proj", "v_proj", "o_proj",
		"q_norm", "k_norm", "gate_proj", "up_proj", "down_proj"}
	// BERTNames are the names in Hugging Face's BERT.
	BERTNames = Names{"attention.output.LayerNorm", "attention", "output.LayerNorm", "", "self.query", "self.key", "self.value",
		"output.dense", "", "", "", "intermediate.dense", "output.dense"}
	// GPT2Names are the names in Hugging Face's GPT-2, where c_attn is q, k and v in one.
	GPT2Names = Names{"ln_1", "attn", "ln_2", "mlp", "q", "k", "v", "c_proj", "", "", "", "c_fc", "c_proj"}
)

func (n Names) orDefault() Names {
	if n == (Names{}) {
		return Names{"norm1", "attention", "norm2", "mlp", "q", "k", "v", "out", "q_norm", "k_norm", "gate", "up", "down"}
	}
	return n
}

// A Block is one layer of a decoder or an encoder: x + attention(norm(x)), then the
// same with the MLP.
type Block struct {
	Norm1     Module // *RMSNorm or *LayerNorm
	Attention *Attention
	Norm2     Module
	MLP       *MLP

	dropout  Dropout
	postNorm bool
	sequence string // the axis that divides positions; "": none
	names    Names
}

// NewBlock makes a Block. It throws for a Dropout that is no probability, and for Sequence without a TensorAxis.
func NewBlock(init *Init, c BlockConfig) *Block {
	if c.Sequence && c.TensorAxis == "" {
		fault.Throw(errors.New("nn: NewBlock: Sequence without a TensorAxis, which divides the positions; give the name of an axis of the mesh"))
	}
	Dropout{P: c.Dropout}.check("NewBlock, Dropout")
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Width
	}
	b := &Block{
		Norm1: newNorm(init, c),
		Attention: NewAttention(init, AttentionConfig{Width: c.Width, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Bias: c.Bias,
			QKVBias: c.QKVBias, Bidirectional: c.Bidirectional, QKNorm: c.QKNorm, Eps: c.Eps, Rope: c.Rope, Scale: c.Scale,
			Dropout: c.Dropout, Seed: c.Seed, TensorAxis: c.TensorAxis, ContextAxis: c.ContextAxis, Names: c.Names}),
		Norm2: newNorm(init, c),
		MLP: NewMLP(init, MLPConfig{Width: c.Width, Hidden: c.Hidden, Bias: c.Bias, Gated: c.Gated, Activation: c.Activation,
			TensorAxis: c.TensorAxis, Names: c.Names}),
		dropout: Dropout{P: c.Dropout, Seed: c.Seed}, postNorm: c.PostNorm, names: c.Names,
	}
	if c.Sequence {
		b.sequence = c.TensorAxis
	}
	return b
}

func newNorm(init *Init, c BlockConfig) Module {
	if c.LayerNorm {
		n := NewLayerNorm(init, c.Width)
		if c.Eps != 0 {
			n.Eps = c.Eps
		}
		return n
	}
	return newRMSNorm(init, c.Width, c.Eps)
}

// Forward returns the block of x.
//
//	x [B, T, C]   →   [B, T, C]   in x's layout, on the tensor axis R, or S(1) with Sequence
func (b *Block) Forward(x *dtensor.Tensor) *dtensor.Tensor { return b.ForwardWith(x, AttentionInput{}) }

// ForwardWith is Forward with a mask, a bias or a cache for the attention.
func (b *Block) ForwardWith(x *dtensor.Tensor, in AttentionInput) *dtensor.Tensor {
	x = b.part(x, b.Norm1, func(x *dtensor.Tensor) *dtensor.Tensor { return b.Attention.partial(x, in) })
	return b.part(x, b.Norm2, b.MLP.partial)
}

// part returns x + f(norm(x)), or with postNorm norm(x + f(x)).
func (b *Block) part(x *dtensor.Tensor, norm Module, f func(x *dtensor.Tensor) *dtensor.Tensor) *dtensor.Tensor {
	h := x
	if !b.postNorm {
		h = norm.Forward(x)
	}
	x = x.Add(b.dropout.Forward(b.settled(f(b.gathered(h)), x)))
	if b.postNorm {
		x = norm.Forward(x)
	}
	return x
}

// gathered returns x with all positions on each rank of the tensor axis.
func (b *Block) gathered(x *dtensor.Tensor) *dtensor.Tensor {
	return onAxis(x, b.sequence, layout.Replicate())
}

// settled reduces a result of attention or the MLP to the layout of the residual stream x.
func (b *Block) settled(y, x *dtensor.Tensor) *dtensor.Tensor {
	return reduced(onAxis(y, b.sequence, layout.Shard(1)), x)
}

// reduced is y.Reduced(), R where x is: with same bits ranks that have no nodes of a sum over the features inside may have divided the
// result. It is gathered once here, else wherever a norm or a product needs it.
func reduced(y, x *dtensor.Tensor) *dtensor.Tensor {
	y = y.Reduced()
	if !y.Mesh().SameBits() {
		return y
	}
	places := y.Placements()
	for axis, p := range places {
		if p.IsShard() && x.Placements()[axis].IsReplicate() {
			places[axis] = layout.Replicate()
		}
	}
	return y.Redistribute(places...)
}

// onAxis returns x redistributed to p on one axis of the mesh. It returns x if the mesh has
// no such axis.
func onAxis(x *dtensor.Tensor, axis string, p layout.Placement) *dtensor.Tensor {
	i, ok := x.Mesh().Axis(axis)
	if !ok {
		return x
	}
	to := x.Placements()
	to[i] = p
	return x.Redistribute(to...)
}

// Params lists the parameters of the four parts.
func (b *Block) Params() Params {
	n := b.names.orDefault()
	return Join([]string{n.Norm1, n.Attention, n.Norm2, n.MLP}, b.Norm1, b.Attention, b.Norm2, b.MLP)
}
