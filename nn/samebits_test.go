package nn_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// A layer is what TestLayersHaveTheSameBits needs of one.
type layer interface {
	Forward(x *dtensor.Tensor) *dtensor.Tensor
	Params() nn.Params
}

// With SameBits layers that are compositions of operators give, however a batch is divided, the bits of one rank: results and gradients.
func TestLayersHaveTheSameBits(t *testing.T) {
	conv := nn.ConvConfig{In: 4, Out: 4, Kernel: 3, Stride: 2, Bias: true}
	rnn := nn.RNNConfig{In: 4, Hidden: 3, Layers: 2, Bidirectional: true, Bias: true}
	for _, c := range []struct {
		name  string
		shape []int // of the input
		make  func(init *nn.Init) layer
	}{
		{"Conv1d", []int{12, 4, 9}, func(init *nn.Init) layer { return nn.NewConv1d(init, conv) }},
		{"ConvTranspose1d", []int{12, 4, 9}, func(init *nn.Init) layer { return nn.NewConvTranspose1d(init, conv) }},
		{"RNN", []int{12, 5, 4}, func(init *nn.Init) layer { return nn.NewRNN(init, rnn) }},
		{"GRU", []int{12, 5, 4}, func(init *nn.Init) layer { return nn.NewGRU(init, rnn) }},
		{"LSTM", []int{12, 5, 4}, func(init *nn.Init) layer { return nn.NewLSTM(init, rnn) }},
		{"PReLU", []int{12, 4, 9}, func(init *nn.Init) layer { return nn.NewPReLU(init, 4) }},
		{"Upsample", []int{12, 4, 9}, func(*nn.Init) layer { return nn.NewUpsample(nn.UpsampleConfig{Size: []int{15}, Linear: true}) }},
		{"BatchNorm", []int{12, 4, 9}, func(init *nn.Init) layer { return nn.NewBatchNorm(init, 4) }},
		{"GroupNorm", []int{12, 4, 9}, func(init *nn.Init) layer { return nn.NewGroupNorm(init, 2, 4) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want []uint64
			for _, shape := range [][]int{{1}, {2}, {3}, {4}, {5}, {2, 2}, {3, 2}} {
				meshtest.On(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
					m.SetSameBits(true)
					l := c.make(nn.NewInit(m, 1))
					for _, first := range []layout.Placement{layout.Replicate(), layout.Shard(0)} {
						place := m.Every(layout.Replicate())
						place[0] = first
						x := wave(m, 1, c.shape, place...)
						got, err := bitsOf(ctx, l, x)
						if err != nil {
							return err
						}
						if want == nil {
							want = got
						}
						for i := range want {
							if got[i] != want[i] {
								return fmt.Errorf("mesh %v, %v: number %d is %v, want %v", m, place, i,
									math.Float64frombits(got[i]), math.Float64frombits(want[i]))
							}
						}
					}
					return nil
				})
			}
		})
	}
}

// bitsOf returns the bits of a layer's result and of the gradients of its squares.
func bitsOf(ctx context.Context, l layer, x *dtensor.Tensor) (all []uint64, err error) {
	add := func(t *dtensor.Tensor) {
		for _, v := range tensor.ToSlice[float64](tensor.Cast(t.Full(), tensor.Float64)) {
			all = append(all, math.Float64bits(v))
		}
	}
	err = dtensor.Try(ctx, x.Mesh(), func() {
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := l.Forward(x)
			add(y)
			return y.Square().Sum(nil, false)
		}, append(nn.Tensors(l.Params()), x)...)
		if err != nil {
			panic(err)
		}
		for _, g := range grads {
			add(g.Dense())
		}
	})
	return all, err
}

// With SameBits, as without, the results of a Block, an Attention and an MLP are R where x is, also where the ranks have no
// nodes of the sums over the features inside.
func TestBlocksKeepTheLayout(t *testing.T) {
	const width, heads = 24, 6
	for _, ranks := range []int{2, 3} {
		meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			init, axis := nn.NewInit(m, 1), m.Axes()[0].Name
			x := wave(m, 1, []int{2, 64, width}, layout.Replicate())
			for i, l := range []layer{nn.NewBlock(init, nn.BlockConfig{Width: width, Heads: heads, TensorAxis: axis}),
				nn.NewAttention(init, nn.AttentionConfig{Width: width, Heads: heads, TensorAxis: axis}),
				nn.NewMLP(init, nn.MLPConfig{Width: width, Hidden: 4 * width, TensorAxis: axis})} {
				err := dtensor.Try(ctx, m, func() {
					if p := l.Forward(x).Placements()[0]; !p.IsReplicate() {
						dtensor.Check(fmt.Errorf("layer %d: %v", i, p))
					}
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}
