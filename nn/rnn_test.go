package nn_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// An rnnCase is a case of reference.py's rnn.
type rnnCase struct {
	make    func(*nn.Init, nn.RNNConfig) *nn.RNN
	b, t    int
	config  nn.RNNConfig
	state   int     // how many tensors of a first state
	lengths []int64 // nil: none
}

var rnnCases = map[string]rnnCase{
	"rnn":           {nn.NewRNN, 3, 4, nn.RNNConfig{In: 2, Hidden: 3}, 0, nil},
	"gru":           {nn.NewGRU, 3, 5, nn.RNNConfig{In: 2, Hidden: 3}, 0, nil},
	"gru both ways": {nn.NewGRU, 1, 3, nn.RNNConfig{In: 3, Hidden: 2, Layers: 2, Bidirectional: true}, 1, nil},
	"gru padded":    {nn.NewGRU, 4, 5, nn.RNNConfig{In: 2, Hidden: 3, Bidirectional: true}, 1, []int64{2, 5, 1, 4}},

	"lstm":              {nn.NewLSTM, 3, 5, nn.RNNConfig{In: 2, Hidden: 3}, 0, nil},
	"lstm both ways":    {nn.NewLSTM, 3, 4, nn.RNNConfig{In: 3, Hidden: 2, Layers: 2, Bidirectional: true}, 2, nil},
	"lstm one position": {nn.NewLSTM, 1, 1, nn.RNNConfig{In: 3, Hidden: 2}, 2, nil},
	"lstm padded":       {nn.NewLSTM, 3, 5, nn.RNNConfig{In: 2, Hidden: 3, Layers: 2, Bidirectional: true}, 0, []int64{3, 1, 4}},
}

// build makes the layer of a case with waves as its parameters, its inputs, and the list of all that has a gradient.
func (c rnnCase) build(mesh *dtensor.Mesh, place ...layout.Placement) (*nn.RNN, *dtensor.Tensor, nn.RNNInput, []*dtensor.Tensor) {
	c.config.Bias = true
	r := c.make(nn.NewInit(mesh, 1), c.config)
	x := wave(mesh, 1, []int{c.b, c.t, c.config.In}, place...)
	grads := []*dtensor.Tensor{x}
	var in nn.RNNInput
	cells := max(c.config.Layers, 1)
	if c.config.Bidirectional {
		cells *= 2
	}
	for i, s := range []**dtensor.Tensor{&in.State.H, &in.State.C}[:c.state] {
		*s = wave(mesh, float64(30+i), []int{cells, c.b, c.config.Hidden}, layout.Shard(1), layout.Replicate())
		grads = append(grads, *s)
	}
	if c.lengths != nil {
		in.Lengths = dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), c.lengths, c.b), batch()...)
	}
	for i, p := range nn.Tensors(r.Params()) {
		*p = *wave(mesh, float64(2+i), p.Shape(), p.Placements()...)
		grads = append(grads, p)
	}
	return r, x, in, grads
}

// all joins a result and the last state, as reference.py does.
func all(y *dtensor.Tensor, last nn.RNNState) *dtensor.Tensor {
	list := []*dtensor.Tensor{y.Reshape(-1), last.H.Reshape(-1)}
	if last.C != nil {
		list = append(list, last.C.Reshape(-1))
	}
	return dtensor.Cat(0, list...)
}

// Batches, positions and features may be divided, and the parameters.
func TestRNNAgainstPyTorch(t *testing.T) {
	references := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(rnnCases) {
			for _, place := range [][]layout.Placement{batch(), {whole, s1}, {s0, layout.Shard(2)}, {s0, layout.Partial(layout.Sum)}} {
				r, x, in, params := c.build(mesh, place...)
				if place[1] == whole {
					nn.Shard(r, "dp")
				}
				if err := compare(ctx, references[name], func() *dtensor.Tensor { return all(r.ForwardWith(x, in)) }, params...); err != nil {
					return fmt.Errorf("x %v: %w", place, err)
				}
			}
		}
		return nil
	})
}

// A batch that is divided, one sequence or more a rank, costs no communication forward, and one sum of the gradients
// of all parameters beside that of the loss.
func TestRNNCost(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(rnnCases) {
			if c.b < 2 {
				continue
			}
			r, x, in, params := c.build(mesh, batch()...)
			recorder := mesh.Comm().Record()
			var forward []comm.Event
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				y, _ := r.ForwardWith(x, in)
				forward = recorder.Stop()
				recorder = mesh.Comm().Record()
				return y.Square().Sum(nil, false)
			}, params...)
			further := recorder.Stop()
			if err != nil {
				return err
			}
			if len(forward) != 0 || len(further) > 2 {
				return fmt.Errorf("%s: %d calls forward and %d afterwards", name, len(forward), len(further))
			}
		}
		return nil
	})
}

// Recomputed, with dropout between its layers, it has the same gradients; in training others than without dropout.
func TestRNNRecomputed(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		step := func(dropout float64, recompute bool) ([]float32, error) {
			config := nn.RNNConfig{In: 3, Hidden: 4, Layers: 2, Bias: true, Dropout: dropout, Seed: 5}
			r := nn.NewLSTM(nn.NewInit(mesh, 1), config)
			x := wave(mesh, 1, []int{3, 4, 3}, batch()...)
			mesh.StartKeys(1)
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				if recompute {
					return dtensor.Recompute(r.Forward, x).Square().Sum(nil, false)
				}
				return r.Forward(x).Square().Sum(nil, false)
			}, nn.Tensors(r.Params())...)
			var list []float32
			for _, g := range grads {
				list = append(list, tensor.ToSlice[float32](g.Dense().Full())...)
			}
			return list, err
		}
		plain, err := step(0, false)
		if err != nil {
			return err
		}
		dropped, err := step(0.5, false)
		if err != nil {
			return err
		}
		again, err := step(0.5, true)
		if err != nil {
			return err
		}
		if near(dropped, plain) || !near(again, dropped) {
			return fmt.Errorf("without dropout %v, with it %v, recomputed %v", plain, dropped, again)
		}
		return nil
	})
}

// The parameters have PyTorch's names.
func TestRNNNames(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		var names []string
		r := nn.NewLSTM(nn.NewInit(mesh, 1), nn.RNNConfig{In: 3, Hidden: 2, Layers: 2, Bias: true, Bidirectional: true})
		for name, p := range r.Params() {
			names = append(names, fmt.Sprint(name, p.Shape()))
		}
		want := strings.Split("weight_ih_l0[8 3],weight_hh_l0[8 2],bias_ih_l0[8],bias_hh_l0[8],"+
			"weight_ih_l0_reverse[8 3],weight_hh_l0_reverse[8 2],bias_ih_l0_reverse[8],bias_hh_l0_reverse[8],"+
			"weight_ih_l1[8 4],weight_hh_l1[8 2],bias_ih_l1[8],bias_hh_l1[8],"+
			"weight_ih_l1_reverse[8 4],weight_hh_l1_reverse[8 2],bias_ih_l1_reverse[8],bias_hh_l1_reverse[8]", ",")
		if !slices.Equal(names, want) {
			return fmt.Errorf("the parameters are %v, want %v", names, want)
		}
		return nil
	})
}

func TestRNNRefusals(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		r := nn.NewGRU(nn.NewInit(mesh, 1), nn.RNNConfig{In: 3, Hidden: 2})
		put := func(shape ...int) *dtensor.Tensor { return wave(mesh, 1, shape, mesh.Every(whole)...) }
		for want, f := range inOrder(map[string]func(){
			"nn: NewLSTM: ":                       func() { nn.NewLSTM(nn.NewInit(mesh, 1), nn.RNNConfig{In: 3}) },
			"nn: RNN.Forward: [2, 4] ":            func() { r.Forward(put(2, 4)) },
			"nn: RNN.Forward: [2, 3, 4] ":         func() { r.Forward(put(2, 3, 4)) },
			"nn: RNN.Forward: [2, 0, 3] ":         func() { r.Forward(put(2, 0, 3)) },
			"nn: RNN.Forward: the state is":       func() { r.ForwardWith(put(2, 4, 3), nn.RNNInput{State: nn.RNNState{H: put(2, 2, 2)}}) },
			"nn: RNN.Forward: Lengths is float32": func() { r.ForwardWith(put(2, 4, 3), nn.RNNInput{Lengths: put(2)}) },
		}) {
			if err := dtensor.Try(ctx, mesh, f); err == nil || !strings.HasPrefix(err.Error(), want) {
				return fmt.Errorf("got %v, want %q", err, want)
			}
		}
		return nil
	})
}
