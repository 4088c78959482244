// Command loss measures the cross-entropy of logits that are divided over the
// ranks by classes, and the product with the weight fused with it.
//
//	gorun -np 2 ./bench/loss                    a table
//	gorun -np 2 ./bench/loss -dtype bfloat16    logits, hidden and weight of bfloat16
//	gorun -np 2 ./bench/loss -json              a line of JSON for each case
//
// "cross-entropy/2048x131072/both" is the mean over 2048 positions and 131072
// classes with the gradient of the logits, "linear/…" the loss of the product of
// a hidden [positions, 768] and a weight [classes, 768] with both gradients, and
// "linear unfused/…" the same with the logits in memory. "gbs" counts the bytes
// that a cross-entropy has to move: the logits read once, and for "both" read
// twice and the gradient written. "gflops" counts the products, of all ranks together.
// "results_mib" is the size of the gradients, and "beyond_mib" is "arena_mib" less that.
// "loss" is the loss, the same number for every number of ranks.
package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() {
	dt := measure.DTypeFlag()
	measure.Main(func(b *measure.Bench) error {
		err := crossEntropy(b, *dt, []size{{1024, 32768}, {2048, 50304}, {2048, 131072}})
		if err != nil {
			return err
		}
		return linear(b, *dt, []size{{1024, 32768}, {2048, 131072}}, 768)
	})
}

// size is a number of positions and of classes.
type size struct{ positions, classes int }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.positions, s.classes) }

// targets returns random classes, [positions].
func (s size) targets(mesh *dtensor.Mesh) *dtensor.Tensor {
	rng := rand.New(rand.NewPCG(5, 0))
	y := make([]int64, s.positions)
	for i := range y {
		y[i] = rng.Int64N(int64(s.classes))
	}
	return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), y, s.positions), layout.Replicate())
}

// crossEntropy measures the loss of logits that are in memory.
func crossEntropy(b *measure.Bench, dt tensor.DType, sizes []size) error {
	for _, s := range sizes {
		name := "cross-entropy/" + s.String()
		if !b.Wants(name+"/forward") && !b.Wants(name+"/both") {
			continue
		}
		x := dtensor.Normal(b.Mesh, dtensor.Key{Seed: 100}, 0, 1, []int{s.positions, s.classes}, layout.Shard(1)).Cast(dt)
		y := s.targets(b.Mesh)
		f := func() *dtensor.Tensor { return loss.CrossEntropy(x, y, loss.Options{}) }
		bytes := x.Local().Bytes()
		figures := func(passes int) func(measure.Timing) []measure.Field {
			return func(t measure.Timing) []measure.Field {
				return []measure.Field{measure.Rate("gbs", passes*bytes, t), {Name: "logits_mib", Value: float64(bytes) / (1 << 20)}}
			}
		}
		err := phases(b, name, f, []*dtensor.Tensor{x}, figures(1), figures(3))
		x.Local().Free()
		if err != nil {
			return err
		}
	}
	return nil
}

// linear measures the loss of a product, fused and not.
func linear(b *measure.Bench, dt tensor.DType, sizes []size, width int) error {
	for _, s := range sizes {
		name := "/" + s.String()
		if !b.Wants("linear"+name+"/both") && !b.Wants("linear unfused"+name+"/both") {
			continue
		}
		h := dtensor.Normal(b.Mesh, dtensor.Key{Seed: 1}, 0, 1, []int{s.positions, width}, layout.Replicate()).Cast(dt)
		w := dtensor.Normal(b.Mesh, dtensor.Key{Seed: 2}, 0, 0.02, []int{s.classes, width}, layout.Shard(0)).Cast(dt)
		y := s.targets(b.Mesh)
		fused := func() *dtensor.Tensor { return loss.LinearCrossEntropy(h, w, y, loss.Options{}) }
		unfused := func() *dtensor.Tensor { return loss.CrossEntropy(h.Linear(w, nil), y, loss.Options{}) }
		figures := func(products int) func(t measure.Timing) []measure.Field {
			return func(t measure.Timing) []measure.Field {
				return []measure.Field{measure.Rate("gflops", 2*products*s.positions*s.classes*width, t)}
			}
		}
		err := phases(b, "linear"+name, fused, []*dtensor.Tensor{h, w}, figures(1), figures(3))
		if err == nil && s.positions*s.classes < 1<<27 { // larger ones need too much memory
			err = phases(b, "linear unfused"+name, unfused, []*dtensor.Tensor{h, w}, figures(1), figures(3))
		}
		h.Local().Free()
		w.Local().Free()
		if err != nil {
			return err
		}
	}
	return nil
}

// phases measures f forward, and with the gradients by params.
func phases(b *measure.Bench, name string, f func() *dtensor.Tensor, params []*dtensor.Tensor,
	forwardFigures, bothFigures func(measure.Timing) []measure.Field) error {
	var last float64
	forward := func() error {
		return dtensor.Try(b.Context(), b.Mesh, func() { last = f().Reduced().Local().Item() })
	}
	both := func() error {
		value, _, err := dtensor.ValueAndGrad(b.Context(), f, params...)
		if err == nil {
			last = value.Local().Item()
		}
		return err
	}
	gradients := 0
	for _, p := range params {
		gradients += p.Local().Bytes()
	}
	for _, c := range []struct {
		phase   string
		run     func() error
		figures func(measure.Timing) []measure.Field
		results int // bytes
	}{{"forward", forward, forwardFigures, 0}, {"both", both, bothFigures, gradients}} {
		if !b.Wants(name + "/" + c.phase) {
			continue
		}
		made, err := b.Calls(c.run)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", name, c.phase, err)
		}
		err = b.CaseErr(name+"/"+c.phase, c.run, func(t measure.Timing) []measure.Field {
			fields := append(c.figures(t), measure.Field{Name: "calls_made", Value: made}, measure.Field{Name: "loss", Value: last})
			m, err := b.Memory(c.run)
			if err != nil {
				return fields // the communicator is dead: the next case says so
			}
			beyond := float64(m.Arena-c.results) / (1 << 20)
			return append(append(fields, m.Fields(c.results)...), measure.Field{Name: "beyond_mib", Value: beyond})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
