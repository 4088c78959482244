package nn

import (
	"errors"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// An AttentionConfig describes an Attention. Width and Heads are needed.
type AttentionConfig struct {
	Width         int     // C: features of x
	Heads         int     // of the queries
	KVHeads       int     // heads of keys and values, each shared by Heads/KVHeads query heads; 0: Heads
	HeadDim       int     // D: features of a head; 0: Width/Heads
	Bias          bool    // all four linear layers have biases
	QKVBias       bool    // the layers of queries, keys and values have biases
	Bidirectional bool    // queries attend to all keys; else to those up to their own position
	QKNorm        bool    // an RMSNorm of the features of each head of queries, and one of keys, as in Qwen3
	Eps           float64 // of these norms; 0: 1e-6
	Rope          *Rope   // rotates queries and keys by their positions; nil: no rotation
	Scale         float64 // multiplies the scores; 0: 1/√D. T5 has 1
	Dropout       float64 // of the attention weights, while training
	Seed          uint64  // of the dropout
	TensorAxis    string  // the mesh axis that divides the heads; "": none
	ContextAxis   string  // the mesh axis that divides the positions of x: see dtensor.RingAttention; "": none
	Names         Names   // of the layers; zero: q, k, v, out, q_norm, k_norm
}

// An Attention is multi-head attention, of x to itself or to other features. Its heads
// are divided over one axis of the mesh.
type Attention struct {
	Q    *Linear // [H·D, C], column-parallel: each rank has whole heads
	K, V *Linear // [KVHeads·D, C], column-parallel
	Out  *Linear // [C, H·D], row-parallel

	QNorm, KNorm *RMSNorm // [D], of each head before it is rotated; nil: none

	Heads, KVHeads, HeadDim int
	Causal                  bool
	Rope                    *Rope
	Scale                   float64
	Dropout                 Dropout

	context string // the axis that divides positions
	names   Names
}

// NewAttention makes an Attention. Heads must be a multiple of KVHeads, and Width of
// Heads unless HeadDim is given. The numbers of heads need not be multiples of the axis.
func NewAttention(init *Init, c AttentionConfig) *Attention {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.Heads < 1 || c.Width < 1 {
		fault.Throw(fmt.Errorf("nn: NewAttention: width %d with %d heads; give Width and Heads, at least 1", c.Width, c.Heads))
	}
	if c.HeadDim == 0 && c.Width%c.Heads != 0 {
		fault.Throw(fmt.Errorf("nn: NewAttention: width %d is not a multiple of %d heads; change one of them, or give HeadDim", c.Width, c.Heads))
	}
	if c.KVHeads < 1 || c.Heads%c.KVHeads != 0 {
		fault.Throw(fmt.Errorf("nn: NewAttention: %d heads are not a multiple of %d heads of keys and values; change one of them",
			c.Heads, c.KVHeads))
	}
	if n := c.Names.orDefault(); c.QKNorm && (n.QNorm == "" || n.KNorm == "") {
		fault.Throw(errors.New("nn: NewAttention: QKNorm with Names that have no QNorm or KNorm; give both, such as q_norm and k_norm"))
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Width / c.Heads
	}
	q, kv, row := Column(c.TensorAxis), Column(c.TensorAxis), Row(c.TensorAxis)
	if i, ok := init.mesh.Axis(c.TensorAxis); ok {
		n := init.mesh.Axes()[i].Size
		q.Placement = wholeHeads(c.KVHeads, c.Heads/c.KVHeads*c.HeadDim, n)
		kv.Placement = wholeHeads(c.KVHeads, c.HeadDim, n)
		row.Placement = q.Placement.WithDim(1)
	}
	bias, wide, narrow := c.Bias || c.QKVBias, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	a := &Attention{
		Q: NewLinear(init, c.Width, wide, bias, q), K: NewLinear(init, c.Width, narrow, bias, kv), V: NewLinear(init, c.Width, narrow, bias, kv),
		Out: NewLinear(init, wide, c.Width, c.Bias, row), Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Causal: !c.Bidirectional,
		Rope: c.Rope, Scale: c.Scale, Dropout: Dropout{P: c.Dropout, Seed: c.Seed}.check("NewAttention, Dropout"),
		context: c.ContextAxis, names: c.Names,
	}
	if c.QKNorm {
		a.QNorm, a.KNorm = newRMSNorm(init, c.HeadDim, c.Eps), newRMSNorm(init, c.HeadDim, c.Eps)
	}
	return a
}

// wholeHeads returns a placement that divides dimension 0, heads of size elements each,
// over n ranks and keeps heads whole.
func wholeHeads(heads, size, n int) layout.Placement {
	if heads%n == 0 {
		return layout.Shard(0)
	}
	sizes := layout.ChunkSizes(heads, n)
	for i := range sizes {
		sizes[i] *= size
	}
	return layout.ShardSizes(0, sizes...)
}

// An AttentionInput has the optional inputs of Attention. The zero value is attention of x
// to itself.
type AttentionInput struct {
	// Memory [B, S, C] gives the keys and values of cross attention: every query attends
	// to all of it. nil: x.
	Memory *dtensor.Tensor
	// Mask, of Bool, broadcasts to [B, H, T, S]: a query attends to the keys where it is
	// true, unless attention is causal and they come later. Each query needs at least one
	// key. nil: all.
	Mask *dtensor.Tensor
	// Bias broadcasts to [B, H, T, S] and is added to the scores: T5's and Swin's biases of
	// relative positions, or ALiBi's. It gets a gradient. nil: none.
	Bias *dtensor.Tensor
	// Cache has the keys and values of the positions before x; Attention adds those of x. With Memory it has those of
	// Memory, which Attention computes while the Cache is empty, and only then.
	Cache *KVCache
}

// Forward returns the attention of x to itself. It communicates once, to reduce
// the result.
//
//	x [B, T, C] R   →   [B, T, C] R   on the divided axis
func (a *Attention) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	return a.ForwardWith(x, AttentionInput{})
}

// ForwardWith is Forward with a mask, a bias, a cache, or the features of another sequence.
func (a *Attention) ForwardWith(x *dtensor.Tensor, in AttentionInput) *dtensor.Tensor {
	return reduced(a.partial(x, in), x) // [B, T, C] P(sum) → R
}

// partial is ForwardWith before the reduction of its result.
func (a *Attention) partial(x *dtensor.Tensor, in AttentionInput) *dtensor.Tensor {
	if in.Mask != nil && in.Mask.DType() != tensor.Bool {
		fault.Throw(fmt.Errorf("nn: Attention: the mask %v is not Bool, true where a query attends; Compare it, or add numbers as Bias", in.Mask))
	}
	memory, before := x, in.Cache.Len()
	if in.Memory != nil {
		memory, before = in.Memory, 0
	}
	a.wantFeatures("x", x, a.Q)
	a.wantFeatures("Memory", memory, a.K)
	keys := memory.Dim(1) + before
	if in.Memory != nil && in.Cache.Len() > 0 {
		keys = in.Cache.Len()
	}
	a.wantScores("Mask", in.Mask, x, keys)
	a.wantScores("Bias", in.Bias, x, keys)
	q := a.rotated(a.Q, a.QNorm, x, a.Heads, before) // [B, H, T, D] S(1)
	if a.Scale != 0 {
		q = q.Scale(a.Scale * math.Sqrt(float64(a.HeadDim)))
	}
	var k, v *dtensor.Tensor
	if in.Memory != nil && in.Cache.Len() > 0 {
		k, v = in.Cache.all()
	} else {
		k, v = a.rotated(a.K, a.KNorm, memory, a.KVHeads, before), a.heads(a.V.Forward(memory), a.KVHeads)
		if in.Cache != nil {
			in.Cache.add(k, v)
		}
	}
	y := a.over(q, k, v, in, before)
	y = y.Transpose(1, 2).Reshape(x.Dim(0), x.Dim(1), a.Heads*a.HeadDim) // [B, T, H·D] S(2)
	return a.Out.Forward(y)
}

// wantFeatures throws unless x is what l takes of a batch of sequences.
func (a *Attention) wantFeatures(name string, x *dtensor.Tensor, l *Linear) {
	if x.NDim() != 3 || x.Dim(2) != l.Weight.Dim(1) {
		fault.Throw(fmt.Errorf("nn: Attention: %s is %v; give it the shape [batch, positions, %d features]", name, x, l.Weight.Dim(1)))
	}
}

// wantScores refuses an input that does not broadcast to the scores of the queries of x and a number of keys.
func (a *Attention) wantScores(name string, input, x *dtensor.Tensor, keys int) {
	if input == nil {
		return
	}
	scores, given := []int{x.Dim(0), a.Heads, x.Dim(1), keys}, input.Shape() // [B, H, T, S]
	fits := len(given) <= len(scores)
	for i := 1; fits && i <= len(given); i++ {
		n := given[len(given)-i]
		fits = n == 1 || n == scores[len(scores)-i]
	}
	if !fits {
		fault.Throw(fmt.Errorf("nn: Attention: the %s is %v; give it a shape that broadcasts to %v, [batch, heads, queries, keys]: "+
			"of padding [%d, 1, 1, %d]", name, input, scores, scores[0], scores[3]))
	}
}

// rotated returns the heads of queries or keys, [B, n, T, D] S(1), normalised and rotated; before is the position of the first.
func (a *Attention) rotated(l *Linear, norm *RMSNorm, x *dtensor.Tensor, n, before int) *dtensor.Tensor {
	y := a.heads(l.Forward(x), n)
	if norm != nil {
		y = norm.Forward(y)
	}
	if a.Rope != nil {
		y = a.Rope.Rotate(y, before)
	}
	return y
}

// over returns the attention of q to k and v, and to those before them in the cache.
func (a *Attention) over(q, k, v *dtensor.Tensor, in AttentionInput, before int) *dtensor.Tensor {
	if in.Cache != nil {
		if q.Dim(2) == 1 && in == (AttentionInput{Cache: in.Cache}) && !a.Dropout.drops(q) && !dtensor.Tracked(q) {
			return in.Cache.attend(q)
		}
		if before > 0 {
			k, v = in.Cache.all()
		}
	}
	return a.attend(q, a.shared(k), a.shared(v), in, before)
}

// heads divides features into heads: [B, T, n·D] S(2) → [B, n, T, D] S(1).
func (a *Attention) heads(y *dtensor.Tensor, n int) *dtensor.Tensor {
	return y.Reshape(y.Dim(0), y.Dim(1), n, a.HeadDim).Transpose(1, 2)
}

// shared repeats each head of keys or values for the queries that share it:
// [B, KVHeads, S, D] → [B, H, S, D].
func (a *Attention) shared(k *dtensor.Tensor) *dtensor.Tensor {
	group := a.Heads / a.KVHeads
	if group == 1 {
		return k
	}
	return k.Unsqueeze(2).Expand(k.Dim(0), a.KVHeads, group, k.Dim(2), a.HeadDim).Flatten(1, 2)
}

// attend returns softmax(q·kᵀ/√D)·v. before is the position of the first query.
func (a *Attention) attend(q, k, v *dtensor.Tensor, in AttentionInput, before int) *dtensor.Tensor {
	causal := a.Causal && in.Memory == nil
	t, s := q.Dim(2), k.Dim(2)
	if causal && t == 1 && s == before+1 { // the last query attends to every key
		causal = false
	}
	if i, ok := q.Mesh().Axis(a.context); ok && q.Placements()[i].Shards(2) {
		if in != (AttentionInput{}) || a.Dropout.drops(q) {
			fault.Throw(fmt.Errorf("nn: Attention over positions that axis %q divides has no mask, bias, cache, memory or dropout; "+
				"gather the positions, or leave these out", a.context))
		}
		places := q.Placements()
		for j, p := range places {
			if j != i && !p.IsReplicate() && !p.Shards(0) && !p.Shards(1) { // another axis divides samples or heads
				places[j] = layout.Shard(1)
			}
		}
		return dtensor.RingAttention(q.Redistribute(places...), k.Redistribute(places...), v.Redistribute(places...), causal, a.context)
	}
	if in.Mask == nil && in.Bias == nil && (!causal || before == 0) && !a.Dropout.drops(q) {
		return dtensor.ScaledDotProductAttention(q, k, v, causal)
	}
	scores := q.MatMul(k.Transpose(2, 3)).Scale(1 / math.Sqrt(float64(a.HeadDim))) // [B, H, T, S]
	if in.Bias != nil {
		scores = scores.Add(in.Bias.Cast(scores.DType()))
	}
	if in.Mask != nil {
		scores = scores.MaskedFill(in.Mask.LogicalNot(), math.Inf(-1))
	}
	if causal {
		scores = scores.MaskedFill(later(q.Mesh(), t, s, before), math.Inf(-1))
	}
	return a.Dropout.Forward(scores.Softmax(-1)).MatMul(v)
}

// later returns a Bool tensor [T, S], true where the key comes after the query; before is
// the position of the first query.
func later(mesh *dtensor.Mesh, t, s, before int) *dtensor.Tensor {
	list := make([]bool, t*s)
	for i := range t {
		for j := before + i + 1; j < s; j++ {
			list[i*s+j] = true
		}
	}
	return everywhere(mesh, list).Reshape(t, s)
}

// Params lists the parameters of the four layers, and of the norms if there are any.
func (a *Attention) Params() Params {
	n := a.names.orDefault()
	names, layers := []string{n.Q, n.K, n.V, n.Out}, []Layer{a.Q, a.K, a.V, a.Out}
	if a.QNorm != nil {
		names, layers = append(names, n.QNorm, n.KNorm), append(layers, a.QNorm, a.KNorm)
	}
	return Join(names, layers...)
}
