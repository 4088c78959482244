// Command step measures one step of training: an embedding, two linear layers
// with a GELU between, a linear head, cross-entropy, all gradients and SGD.
//
//	gorun -np 2 ./bench/step                    a table
//	gorun -np 2 ./bench/step -dtype bfloat16    parameters, activations and gradients of bfloat16
//	gorun -np 2 ./bench/step -json              a line of JSON for each case
//	gorun -np 2 ./bench/step -same-bits 16      and what gorun --same-bits costs
//
// 2048 tokens of 32768, 256 features, 1024 hidden ones, no biases, learning rate
// 0.1, in tensor parallel: the embedding by rows, the first layer and the head by
// columns, the second by rows. "step" keeps the logits, divided by classes;
// "step fused" never makes them (loss.LinearCrossEntropy). "loss1" and "loss2" are
// the losses of the first two steps: the same for every number of ranks, up to rounding.
// "gflops" counts the products of all ranks. "same_bits" is the time of a step with same bits over that
// of one without, the median of pairs that take turns; "same_bits_calls" is what such a step calls.
//
// What it costs over MPI that ranks compare calls and watch each other, in turns with and without:
//
//	go build -o bin/step ./bench/step
//	for i in 1 2 3 4 5; do for d in 0 '' '' 0; do
//		GORUN_DEBUG=$d mpirun -x GORUN_DEBUG -np 2 bin/step -json -match 'step fused' -time 2s
//	done; done
//
// Time with by time without, of 10 such rounds: 0.97 to 1.04, median 1.003 (2 cores, Open MPI 4.1.4).
package main

import (
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() {
	dt, pairs := measure.DTypeFlag(), flag.Int("same-bits", 0, "measure what same bits cost too, in so many pairs of steps")
	measure.Main(func(b *measure.Bench) error { return run(b, *dt, size{V: 32768, T: 2048, D: 256, H: 1024}, *pairs) })
}

// size is a vocabulary of V tokens, T positions, D features and H hidden features.
type size struct{ V, T, D, H int }

// model is the parameters and a batch.
type model struct {
	table          *embedding.Table // [V, D] S(0)
	up, down, head *dtensor.Tensor  // [H, D] S(0), [D, H] S(1), [V, D] S(0)
	ids, targets   *dtensor.Tensor  // [T] R
	optimizer      *optim.SGD
	params         []*dtensor.Tensor
}

// newModel draws parameters of a type as torch.nn does: normal rows of the table, and
// weights between ±1/√inputs. bfloat16 parameters have no float32 copies.
func newModel(mesh *dtensor.Mesh, dt tensor.DType, s size) *model {
	S := layout.Shard
	weight := func(seed uint64, out, in int, p layout.Placement) *dtensor.Tensor {
		bound := 1 / math.Sqrt(float64(in))
		return dtensor.Uniform(mesh, dtensor.Key{Seed: seed}, -bound, bound, []int{out, in}, p).Cast(dt)
	}
	m := &model{
		table: embedding.NewTable(mesh, embedding.Config{Name: "tokens", Rows: s.V, Dim: s.D, DType: dt,
			Layout: embedding.RowWise("tp"), Key: dtensor.Key{Seed: 1}}),
		up:   weight(2, s.H, s.D, S(0)),
		down: weight(3, s.D, s.H, S(1)),
		head: weight(4, s.V, s.D, S(0)),
	}
	rng := rand.New(rand.NewPCG(9, 0))
	tokens := func() *dtensor.Tensor {
		t := make([]int64, s.T)
		for i := range t {
			t[i] = rng.Int64N(int64(s.V))
		}
		return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), t, s.T), layout.Replicate())
	}
	m.ids, m.targets = tokens(), tokens()
	m.params = []*dtensor.Tensor{m.table.Weight(), m.up, m.down, m.head}
	m.optimizer = optim.NewSGD(m.params, optim.SGDConfig{NoMaster: true})
	return m
}

// loss is the forward pass.
func (m *model) loss(fused bool) *dtensor.Tensor {
	h := m.table.Lookup(m.ids).Reduced()                         // [T, D] MaskP → R
	h = h.Linear(m.up, nil).Gelu().Linear(m.down, nil).Reduced() // [T, H] S(1), [T, D] P(sum) → R
	if fused {
		return loss.LinearCrossEntropy(h, m.head, m.targets, loss.Options{})
	}
	return loss.CrossEntropy(h.Linear(m.head, nil), m.targets, loss.Options{}) // [T, V] S(1) → [] R
}

func run(b *measure.Bench, dt tensor.DType, s size, pairs int) error {
	for _, c := range []struct {
		name  string
		fused bool
	}{{"step", false}, {"step fused", true}} {
		if !b.Wants(c.name) {
			continue
		}
		if err := measureModel(b, c.name, newModel(b.Mesh, dt, s), c.fused, s, pairs); err != nil {
			return err
		}
	}
	return nil
}

func measureModel(b *measure.Bench, name string, m *model, fused bool, s size, pairs int) error {
	var losses []float64
	step := func() error {
		value, grads, err := dtensor.ValueAndGrad(b.Context(), func() *dtensor.Tensor { return m.loss(fused) }, m.params...)
		if err != nil {
			return err
		}
		if len(losses) < 2 {
			losses = append(losses, value.Local().Item())
		}
		return m.optimizer.Step(grads, 0.1)
	}
	made, err := b.Calls(step)
	if err != nil {
		return err
	}
	var same []measure.Field
	if pairs > 0 && b.Wants(name) {
		if same, err = sameBits(b, step, pairs); err != nil {
			return err
		}
	}
	return b.CaseErr(name, step, func(t measure.Timing) []measure.Field {
		fields := []measure.Field{
			measure.Rate("gflops", 6*s.T*(2*s.D*s.H+s.D*s.V), t), {Name: "calls_made", Value: made},
			{Name: "loss1", Value: losses[0]}, {Name: "loss2", Value: losses[1]},
		}
		fields = append(fields, same...)
		gradients := 0
		for _, p := range m.params[1:] {
			gradients += p.Local().Bytes()
		}
		memory, err := b.Memory(step)
		if err != nil {
			return fields // the communicator is dead: the next case says so
		}
		return append(fields, memory.Fields(gradients)...)
	})
}

// sameBits measures what same bits cost a step.
func sameBits(b *measure.Bench, step func() error, pairs int) ([]measure.Field, error) {
	was := b.Mesh.SameBits()
	defer b.Mesh.SetSameBits(was)
	timed := func(on bool) (seconds float64, err error) {
		b.Mesh.SetSameBits(on)
		start := time.Now()
		scope := b.Mesh.Device().Open()
		defer scope.Close()
		err = step()
		return time.Since(start).Seconds(), err
	}
	var ratios []float64
	for pair := range pairs + 1 {
		first, err := timed(pair%2 == 0)
		second, err2 := timed(pair%2 != 0)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		if pair%2 != 0 {
			first, second = second, first
		}
		if pair > 0 { // the first one makes the plans
			ratios = append(ratios, first/second)
		}
	}
	slices.Sort(ratios)
	b.Mesh.SetSameBits(true)
	calls, err := b.Calls(step)
	median := (ratios[(pairs-1)/2] + ratios[pairs/2]) / 2
	return []measure.Field{{Name: "same_bits", Value: median}, {Name: "same_bits_calls", Value: calls}}, err
}
