package loss_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// calls is what one rank communicates, as "kind bytes" in order.
func calls(events []comm.Event) string {
	var list []string
	for _, e := range events {
		list = append(list, fmt.Sprintf("%v %d", e.Kind, e.Bytes))
	}
	return strings.Join(list, ", ")
}

// TestCommunication: one collective over the classes, one over the positions,
// none backward. 8 positions of 16 bytes each are 128 bytes; two ranks gather
// them, more reduce them.
func TestCommunication(t *testing.T) {
	for _, c := range []struct {
		name            string
		mesh            []int
		logits, targets []layout.Placement
		o               loss.Options
		forward         string
	}{
		{"replicated", []int{2}, one(replicate), one(replicate), loss.Options{}, ""},
		{"classes over 2", []int{2}, one(shard1), one(replicate), loss.Options{}, "AllGather 128"},
		{"classes over 4", []int{4}, one(shard1), one(replicate), loss.Options{}, "AllReduce 128"},
		{"smoothing and z-loss", []int{2}, one(shard1), one(replicate), loss.Options{LabelSmoothing: 0.1, ZLoss: 0.1}, "AllGather 128"},
		{"none", []int{2}, one(shard1), one(replicate), loss.Options{Reduction: loss.None}, "AllGather 128"},
		{"positions", []int{2}, one(shard0), one(shard0), loss.Options{}, "AllReduce 32"},
		{"positions, none", []int{2}, one(shard0), one(shard0), loss.Options{Reduction: loss.None}, "AllReduce 32"},
		{"positions and classes", []int{2, 2}, two(shard0, shard1), two(shard0, replicate), loss.Options{}, "AllGather 64, AllReduce 32"},
		{"classes over two axes", []int{2, 2}, two(shard1, shard1), two(replicate, replicate), loss.Options{}, "AllReduce 128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				const n, classes = 8, 6
				logits := make([]float32, n*classes)
				for i, v := range meshtest.Numbers(len(logits), 1, 2) {
					logits[i] = float32(v)
				}
				x := meshtest.Place(m, logits, []int{n, classes}, c.logits...)
				y := meshtest.Place(m, []int64{0, 1, 2, 3, 4, 5, 0, -100}, []int{n}, c.targets...)
				// The group of two axes is made when it is first needed.
				loss.CrossEntropy(x, y, c.o)
				var forward string
				record := m.Comm().Record()
				_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					l := loss.CrossEntropy(x, y, c.o)
					forward = calls(record.Events())
					return l.Sum(nil, false)
				}, x)
				if err != nil {
					return err
				}
				if forward != c.forward {
					return fmt.Errorf("forward communicates %q, want %q", forward, c.forward)
				}
				all := record.Stop()
				for i, e := range all {
					if i >= strings.Count(c.forward, ",")+1 && c.forward != "" && e.Cause != "ValueAndGrad: [] P(sum) → R" &&
						!strings.HasPrefix(e.Cause, "ValueAndGrad") {
						return fmt.Errorf("the gradient communicates: %v for %q", e.Kind, e.Cause)
					}
				}
				if g := grads[0].Dense(); fmt.Sprint(g.Placements()) != fmt.Sprint(x.Placements()) {
					return fmt.Errorf("the gradient is %v, the logits %v", g, x)
				}
				return nil
			})
		})
	}
}

func one(p layout.Placement) []layout.Placement    { return []layout.Placement{p} }
func two(p, q layout.Placement) []layout.Placement { return []layout.Placement{p, q} }

// TestMemory: beside logits and gradient a step holds less than 1 % of the
// logits, whatever their number of classes, and of bfloat16 256 KiB that are widened.
func TestMemory(t *testing.T) {
	const n = 64
	for i, classes := range []int{1 << 14, 50304, 40001, 50304} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			x, most := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{n, classes}, shard1), 0
			if i == 3 {
				x, most = dtensor.Zeros(m, tensor.BFloat16, []int{n, classes}, shard1), 256<<10
			}
			y := dtensor.Zeros(m, tensor.Int64, []int{n}, replicate)
			bytes, before := x.Local().Bytes(), m.Device().Stats().Live
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss.CrossEntropy(x, y, loss.Options{}) }, x)
			if err != nil {
				return err
			}
			used := m.Device().Stats().HighWater
			if extra := used - before - bytes; extra > bytes/100+most {
				return fmt.Errorf("%d bytes at most were in use, %d before, for logits of %d and gradients %v: %d too many", used, before, bytes,
					grads[0].Dense(), extra)
			}
			return nil
		})
	}
}

// TestLinearMemory: beside the two gradients the fused loss holds at most its workspace,
// where the logits are 256 MiB. The sizes of bfloat16 are such that it adds up as much
// of both gradients in float32 as it ever does.
func TestLinearMemory(t *testing.T) {
	type question struct {
		dt                        tensor.DType
		positions, classes, width int
		workspace, most           int
	}
	for i, c := range testenv.Fewer([]question{
		{tensor.Float32, 512, 131072, 64, 64 << 20, 64 << 20}, {tensor.Float32, 512, 131072, 64, 64 << 20, 64 << 20},
		{tensor.BFloat16, 8192, 1170, 1792, 64 << 20, 64 << 20}, {tensor.BFloat16, 2048, 8192, 64, 64 << 20, 64 << 20},
		{tensor.Float32, 512, 65536, 8, 100 << 20, 100 << 20}, {tensor.Float64, 256, 65536, 8, 20 << 20, 20 << 20},
		{tensor.BFloat16, 2048, 8192, 64, 40 << 20, 40 << 20}, {tensor.BFloat16, 2048, 16384, 64, 160 << 20, 160 << 20},
		{tensor.BFloat16, 2048, 65536, 8, 0, 512 << 20}, {tensor.Float32, 2048, 131072, 8, 0, 512 << 20}}, 3, 5) {
		meshtest.On(t, []int{1 + i%2}, func(ctx context.Context, m *dtensor.Mesh) error {
			h := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{c.positions, c.width}, replicate).Cast(c.dt)
			w := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1, []int{c.classes, c.width}, shard0).Cast(c.dt)
			y := dtensor.Zeros(m, tensor.Int64, []int{c.positions}, replicate)
			gradients, before := h.Local().Bytes()+w.Local().Bytes(), m.Device().Stats().Live
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				return loss.LinearCrossEntropy(h, w, y, loss.Options{Workspace: c.workspace})
			}, h, w)
			if err != nil {
				return err
			}
			if extra := m.Device().Stats().HighWater - before - gradients; extra > c.most {
				return fmt.Errorf("%d bytes beside gradients of %d, want at most %d", extra, gradients, c.most)
			}
			return nil
		})
	}
}

// TestBadTargets gives one rank, or all, a target that is no class: every rank
// gets the same error and the next batch works.
func TestBadTargets(t *testing.T) {
	for _, mesh := range [][]int{{1}, {2}, {4}, {2, 2}} {
		for _, lp := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
			for _, r := range []loss.Reduction{loss.Mean, loss.Sum, loss.None} {
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					whole := make([]layout.Placement, len(mesh))
					x := meshtest.Place(m, meshtest.Numbers(24, 1, 1), []int{4, 6}, lp...)
					w := meshtest.Place(m, meshtest.Numbers(18, 1, 1), []int{6, 3}, whole...)
					losses := map[string]func(y *dtensor.Tensor) *dtensor.Tensor{
						"CrossEntropy": func(y *dtensor.Tensor) *dtensor.Tensor { return loss.CrossEntropy(x, y, loss.Options{Reduction: r}) },
						"NLLLoss":      func(y *dtensor.Tensor) *dtensor.Tensor { return loss.NLLLoss(x, y, loss.Options{Reduction: r}) },
						"LinearCrossEntropy": func(y *dtensor.Tensor) *dtensor.Tensor {
							h := meshtest.Place(m, meshtest.Numbers(12, 1, 1), []int{4, 3}, whole...)
							return loss.LinearCrossEntropy(h, w, y, loss.Options{Reduction: loss.Mean})
						},
					}
					for _, name := range []string{"CrossEntropy", "NLLLoss", "LinearCrossEntropy"} { // in one order on all ranks
						f := losses[name]
						try := func(targets []int64) error {
							y := meshtest.Place(m, targets, []int{4}, whole...)
							_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return f(y).Sum(nil, false) }, x, w)
							return err
						}
						err := try([]int64{0, 5, 1, 6})
						var wrong *loss.TargetError
						want := fmt.Sprintf("loss: %s: target 6 at [3] is out of range [0, 6); give a class, or -100 to ignore the position", name)
						if !errors.As(err, &wrong) || wrong.Error() != want {
							return fmt.Errorf("logits %v: got %v, want %s", lp, err, want)
						}
						if err := try([]int64{0, -7, 9, 1}); err == nil || !strings.Contains(err.Error(), "target -7 at [1]") {
							return fmt.Errorf("logits %v: of two bad targets: %v", lp, err)
						}
						if err := try([]int64{0, 5, 1, -100}); err != nil {
							return fmt.Errorf("logits %v: the next batch: %w", lp, err)
						}
					}
					return nil
				})
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := meshtest.Place(m, meshtest.Numbers(12, 1, 1), []int{4, 3}, shard1)
		y := meshtest.Place(m, []int64{0, 1, 2, 0}, []int{4}, replicate)
		h, w := meshtest.Place(m, meshtest.Numbers(8, 1, 1), []int{4, 2}, replicate),
			meshtest.Place(m, meshtest.Numbers(6, 1, 1), []int{3, 2}, shard0)
		ce := func(x, y *dtensor.Tensor, o loss.Options) func() { return func() { loss.CrossEntropy(x, y, o) } }
		for want, f := range map[string]func(){
			"no dimension of classes":                    ce(x.Sum(nil, false), y, loss.Options{}),
			"are not float32, float64 or bfloat16; Cast": ce(y, y, loss.Options{}),
			"their shape must be [4]":                    ce(x, meshtest.Place(m, []int64{0}, []int{1}, replicate), loss.Options{}),
			"their shape must be [4 3], as numbers are ": ce(x, x.Sum([]int{1}, false), loss.Options{}),
			"dimension 1, not the last; Flatten(0, 1) b": ce(x.Reshape(2, 2, 3), y.Reshape(2, 2), loss.Options{}),
			"probabilities, but not float64 as logits":   ce(x, meshtest.Place(m, make([]float32, 12), []int{4, 3}, shard1), loss.Options{}),
			"Reduction is 7":                             ce(x, y, loss.Options{Reduction: 7}),
			"LabelSmoothing is 1.5":                      ce(x, y, loss.Options{LabelSmoothing: 1.5}),
			"Workspace is -1 bytes":                      ce(x, y, loss.Options{Workspace: -1}),
			"ZLoss is -1":                                ce(x, y, loss.Options{ZLoss: -1}),
			"give one float64 for each of the 3 classes": ce(x, y,
				loss.Options{Weight: meshtest.Place(m, meshtest.Numbers(4, 1, 1), []int{4}, replicate)}),
			"LabelSmoothing and ZLoss need": func() { loss.NLLLoss(x, y, loss.Options{ZLoss: 1}) },
			"targets are not classes":       func() { loss.LinearCrossEntropy(h, w, x, loss.Options{}) },
			"give [..., H] and [C, H]":      func() { loss.LinearCrossEntropy(x, w, y, loss.Options{}) },
		} {
			if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "loss: ") {
				return fmt.Errorf("got %v, want an error with %q", err, want)
			}
		}
		return comm.Barrier(ctx, m.Comm())
	})
}
