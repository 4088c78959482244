package nn

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An RNNConfig describes an RNN. In and Hidden are needed.
type RNNConfig struct {
	In            int // C: features of x
	Hidden        int // H: features of the state
	Layers        int // each has the result of the one before as its x; 0: 1
	Bias          bool
	Bidirectional bool    // each layer has a second half, which reads x from its end
	Dropout       float64 // of the results of all layers but the last, while training
	Seed          uint64  // of the dropout
}

// An RNN is a recurrent network: an LSTM, a GRU, or a plain one of tanh, as torch.nn.LSTM,
// GRU and RNN compute them with batch_first. Its parameters have their names and layouts,
// so that their checkpoints load. Batches may be sharded, S(0), and then the forward pass
// communicates nothing. Positions and features that are divided are gathered or reduced
// once a layer. The parameters are replicated; Shard divides them between steps.
//
// A layer makes one product of all positions with its input weight, and one a position with
// its hidden weight.
type RNN struct {
	cells   []*rnnCell // forward and, of a bidirectional one, backward of the first layer, then of the others
	step    rnnStep
	config  RNNConfig
	dropout Dropout
}

// An rnnCell has the parameters of one direction of a layer. G is 4 in an LSTM, 3 in a GRU, else 1.
type rnnCell struct {
	weightIH, weightHH *dtensor.Tensor // [G·H, C], [G·H, H]
	biasIH, biasHH     *dtensor.Tensor // [G·H]; nil: none
	suffix             string          // of their names: "_l0_reverse"
}

// An rnnStep returns the state after a position: x [B, G·H] is the product of the input there, hidden that of the state.
type rnnStep func(x, hidden *dtensor.Tensor, s RNNState) RNNState

// NewLSTM makes an RNN of long short-term memory (Hochreiter and Schmidhuber, 1997). Weights
// and biases are uniform in ±1/√H, as PyTorch's.
func NewLSTM(init *Init, c RNNConfig) *RNN { return newRNN(init, "NewLSTM", c, 4, lstmStep) }

// NewGRU makes an RNN of gated recurrent units (Cho et al., 2014); see NewLSTM.
func NewGRU(init *Init, c RNNConfig) *RNN { return newRNN(init, "NewGRU", c, 3, gruStep) }

// NewRNN makes an RNN whose state is the tanh of both products (Elman, 1990); see NewLSTM.
func NewRNN(init *Init, c RNNConfig) *RNN {
	return newRNN(init, "NewRNN", c, 1, func(x, hidden *dtensor.Tensor, _ RNNState) RNNState {
		return RNNState{H: x.Add(hidden).Tanh()}
	})
}

func newRNN(init *Init, op string, c RNNConfig, gates int, step rnnStep) *RNN {
	c.Layers = cmp.Or(c.Layers, 1)
	if min(c.In, c.Hidden, c.Layers) < 1 {
		fault.Throw(fmt.Errorf("nn: %s: %+v: In, Hidden and Layers have to be positive", op, c))
	}
	r := &RNN{step: step, config: c, dropout: Dropout{P: c.Dropout, Seed: c.Seed}.check(op + ", Dropout")}
	bound, in := 1/math.Sqrt(float64(c.Hidden)), c.In
	draw := func(shape ...int) *dtensor.Tensor { return init.Uniform(-bound, bound, shape, "", layout.Replicate()) }
	for l := range c.Layers {
		for d := range c.directions() {
			cell := &rnnCell{weightIH: draw(gates*c.Hidden, in), weightHH: draw(gates*c.Hidden, c.Hidden), suffix: fmt.Sprint("_l", l)}
			if c.Bias {
				cell.biasIH, cell.biasHH = draw(gates*c.Hidden), draw(gates*c.Hidden)
			}
			if d == 1 {
				cell.suffix += "_reverse"
			}
			r.cells = append(r.cells, cell)
		}
		in = c.directions() * c.Hidden
	}
	return r
}

func (c RNNConfig) directions() int {
	if c.Bidirectional {
		return 2
	}
	return 1
}

// An RNNState is what an RNN knows after some positions: [Layers, B, H], or of a
// bidirectional one [Layers·2, B, H], in which a layer's second direction follows its first.
type RNNState struct {
	H *dtensor.Tensor
	C *dtensor.Tensor // the cells of an LSTM; nil elsewhere
}

// An RNNInput has the optional inputs of an RNN. The zero value is a state of zeros and all
// positions.
type RNNInput struct {
	State RNNState // before the first position
	// Lengths [B], of Int64, says how many positions of each sequence count, as the lengths
	// of torch's pack_padded_sequence do, in any order: beyond them results are 0 and the
	// state stays as it is. nil: all.
	Lengths *dtensor.Tensor
}

// Forward returns the states of the last layer at all positions, in x's type.
//
//	x [B, T, C]   →   [B, T, H], or [B, T, 2·H] if it is bidirectional
func (r *RNN) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	y, _ := r.ForwardWith(x, RNNInput{})
	return y
}

// ForwardWith is Forward with a state to begin with, or sequences of different lengths. It
// also returns the last state, which of each sequence is that at its own length, and of a
// second direction that at its first position.
func (r *RNN) ForwardWith(x *dtensor.Tensor, in RNNInput) (*dtensor.Tensor, RNNState) {
	r.check(x, in)
	y := x.Transpose(0, 1) // [T, B, C]
	var mask []*dtensor.Tensor
	if in.Lengths != nil {
		m, n := x.Mesh(), x.Dim(1)
		at := dtensor.Arange(m, tensor.Int64, 0, n, m.Every(layout.Replicate())...).Reshape(n, 1, 1)
		mask = positions(at.Compare(kernel.OpLt, in.Lengths.Reshape(1, x.Dim(0), 1)))
	}
	var hs, cs []*dtensor.Tensor
	directions := r.config.directions()
	for l := range r.config.Layers {
		if l > 0 {
			y = r.dropout.Forward(y)
		}
		list := make([]*dtensor.Tensor, directions)
		for d := range directions {
			i := l*directions + d
			var last RNNState
			list[d], last = r.run(r.cells[i], y, in.State.at(i), mask, d == 1)
			hs, cs = append(hs, last.H), append(cs, last.C)
		}
		if y = list[0]; directions == 2 {
			y = dtensor.Cat(2, list...)
		}
	}
	last := RNNState{H: dtensor.Stack(0, hs...)}
	if cs[0] != nil {
		last.C = dtensor.Stack(0, cs...)
	}
	return y.Transpose(0, 1), last
}

// check refuses what does not fit.
func (r *RNN) check(x *dtensor.Tensor, in RNNInput) {
	if x.NDim() != 3 || x.Dim(1) == 0 || x.Dim(2) != r.config.In {
		fault.Throw(fmt.Errorf("nn: RNN.Forward: %v: it wants [batch, positions, %d features] and at least one position",
			x.Layout(), r.config.In))
	}
	for _, s := range []*dtensor.Tensor{in.State.H, in.State.C} {
		if s != nil && (s.NDim() != 3 || s.Dim(0) != len(r.cells) || s.Dim(1) != x.Dim(0) || s.Dim(2) != r.config.Hidden) {
			fault.Throw(fmt.Errorf("nn: RNN.Forward: the state is %v; give [%d, %d, %d]", s.Layout(), len(r.cells), x.Dim(0), r.config.Hidden))
		}
	}
	if n := in.Lengths; n != nil && (n.NDim() != 1 || n.Dim(0) != x.Dim(0) || n.DType() != tensor.Int64) {
		fault.Throw(fmt.Errorf("nn: RNN.Forward: Lengths is %v; give Int64 [%d]", n, x.Dim(0)))
	}
}

// at returns the state of one direction of a layer, of which each tensor may be nil.
func (s RNNState) at(i int) RNNState {
	pick := func(x *dtensor.Tensor) *dtensor.Tensor {
		if x == nil {
			return nil
		}
		return x.Narrow(0, i, 1).Squeeze(0)
	}
	return RNNState{H: pick(s.H), C: pick(s.C)}
}

// run takes one direction of a layer through x [T, B, C]. It returns the states of all positions, [T, B, H], and the last.
func (r *RNN) run(cell *rnnCell, x *dtensor.Tensor, s RNNState, mask []*dtensor.Tensor, backward bool) (*dtensor.Tensor, RNNState) {
	to := x.Placements()
	for i, p := range to {
		if p.Shards(0) {
			to[i] = layout.Replicate()
		}
	}
	x = x.Redistribute(to...)
	inputs := positions(x.Linear(like(cell.weightIH, x), like(cell.biasIH, x)).Reduced())
	weight, bias := like(cell.weightHH, x), like(cell.biasHH, x)
	zeros := r.zeros(inputs[0])
	s.H, s.C = cmp.Or(s.H, zeros), cmp.Or(s.C, zeros)
	states := make([]*dtensor.Tensor, len(inputs))
	for i := range inputs {
		if backward {
			i = len(inputs) - 1 - i
		}
		next := r.step(inputs[i], s.H.Linear(weight, bias), s)
		states[i] = next.H
		if mask != nil {
			states[i] = mask[i].Where(next.H, zeros)
			next.H = mask[i].Where(next.H, s.H)
			if next.C != nil {
				next.C = mask[i].Where(next.C, s.C)
			}
		}
		s = next
	}
	return dtensor.Stack(0, states...), s
}

// zeros returns a state of zeros [B, H] whose batch lies as that of x [B, …].
func (r *RNN) zeros(x *dtensor.Tensor) *dtensor.Tensor {
	return dtensor.Zeros(x.Mesh(), x.DType(), []int{x.Dim(0), r.config.Hidden}, batchOf(x)...)
}

// positions cuts x [T, …] into its positions. It halves it again and again, because the gradient of a part is as long as
// what the part was cut from.
func positions(x *dtensor.Tensor) []*dtensor.Tensor {
	n := x.Dim(0)
	if n == 1 {
		return []*dtensor.Tensor{x.Squeeze(0)}
	}
	return append(positions(x.Narrow(0, 0, n/2)), positions(x.Narrow(0, n/2, n-n/2))...)
}

// lstmStep has the gates in PyTorch's order: input, forget, cell, output.
func lstmStep(x, hidden *dtensor.Tensor, s RNNState) RNNState {
	g := x.Add(hidden).Chunk(1, 4)
	c := g[1].Sigmoid().Mul(s.C).Add(g[0].Sigmoid().Mul(g[2].Tanh()))
	return RNNState{H: g[3].Sigmoid().Mul(c.Tanh()), C: c}
}

// gruStep has the gates in PyTorch's order: reset, update, new.
func gruStep(x, hidden *dtensor.Tensor, s RNNState) RNNState {
	a, b := x.Chunk(1, 3), hidden.Chunk(1, 3)
	reset, update := a[0].Add(b[0]).Sigmoid(), a[1].Add(b[1]).Sigmoid()
	fresh := a[2].Add(reset.Mul(b[2])).Tanh()
	return RNNState{H: fresh.Add(update.Mul(s.H.Sub(fresh)))}
}

// Params lists the parameters under PyTorch's names: "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", …
func (r *RNN) Params() Params {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for _, c := range r.cells {
			if !yield("weight_ih"+c.suffix, c.weightIH) || !yield("weight_hh"+c.suffix, c.weightHH) {
				return
			}
			if c.biasIH != nil && (!yield("bias_ih"+c.suffix, c.biasIH) || !yield("bias_hh"+c.suffix, c.biasHH)) {
				return
			}
		}
	}
}
