package loss_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

var (
	replicate = layout.Replicate()
	shard0    = layout.Shard(0)
	shard1    = layout.Shard(1)
	shard2    = layout.Shard(2)
	partial   = layout.Partial(layout.Sum)
)

// onMesh runs f on every rank of a mesh of the given shape, axes a, b, ….
func onMesh(t *testing.T, shape []int, f func(ctx context.Context, m *dtensor.Mesh) error) {
	t.Helper()
	n := 1
	var axes []dtensor.Axis
	for i, size := range shape {
		axes = append(axes, dtensor.Axis{Name: string(rune('a' + i)), Size: size})
		n *= size
	}
	commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return err
		}
		var failed error
		if err := dtensor.Try(ctx, m, func() { failed = f(ctx, m) }); err != nil {
			return err
		}
		return failed
	})
}

// numbers returns n numbers between -size and size that look random.
func numbers(n int, seed, size float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = size * math.Sin(seed*7+float64(i*i)*1.3+float64(i))
	}
	return x
}

// place puts a whole tensor on the mesh.
func place[T tensor.Elem](m *dtensor.Mesh, data []T, shape []int, places ...layout.Placement) *dtensor.Tensor {
	return dtensor.Distribute(m, tensor.FromSlice(m.Device(), data, shape...), places...)
}

// combinations returns every way to place a tensor on the axes with the options.
func combinations(axes int, options ...layout.Placement) [][]layout.Placement {
	if axes == 0 {
		return [][]layout.Placement{nil}
	}
	var all [][]layout.Placement
	for _, rest := range combinations(axes-1, options...) {
		for _, o := range options {
			all = append(all, append(slices.Clone(rest), o))
		}
	}
	return all
}

// near compares a whole tensor with what it should be; NaN is near NaN.
func near(what string, t *tensor.Tensor, want []float64, tol float64) error {
	got := tensor.ToSlice[float64](tensor.Cast(t, tensor.Float64))
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) || math.Abs(g-w) <= tol*(1+math.Abs(w)) {
			continue
		}
		return fmt.Errorf("%s: element %d is %v, want %v", what, i, g, w)
	}
	return nil
}

// A question is a cross-entropy, whole: logits [N, C].
type question struct {
	n, c      int
	logits    []float64
	targets   []int64   // classes
	probs     []float64 // or probabilities, as the logits
	weight    []float64
	ignore    int64
	reduction loss.Reduction
	smoothing float64
	z         float64
}

// answer is the loss of each position and its gradient for gy as loops; with Mean
// and Sum one loss and gy one number.
func (q *question) answer(gy []float64) (out, grad []float64) {
	grad = make([]float64, q.n*q.c)
	losses := make([]float64, q.n)
	denom := 0.0
	for i := range q.n {
		x := q.logits[i*q.c : (i+1)*q.c]
		top := slices.Max(append([]float64{math.Inf(-1)}, x...))
		sum := 0.0
		for _, v := range x {
			sum += math.Exp(v - top)
		}
		if q.probs == nil && q.targets[i] == q.ignore {
			continue
		}
		share := make([]float64, q.c) // of each class in the target
		for c := range share {
			p := 0.0
			if q.probs != nil {
				p = q.probs[i*q.c+c]
			} else if int64(c) == q.targets[i] {
				p = 1
			}
			share[c] = (1-q.smoothing)*p + q.smoothing/float64(q.c)
			if q.weight != nil {
				share[c] *= q.weight[c]
			}
		}
		total := 0.0
		for c, s := range share {
			total += s
			if s != 0 {
				losses[i] += s * (top - x[c] + math.Log(sum))
			}
		}
		lse := top + math.Log(sum)
		losses[i] += q.z * lse * lse
		for c, v := range x {
			grad[i*q.c+c] = (total+2*q.z*lse)*math.Exp(v-top)/sum - share[c]
		}
		switch {
		case q.probs != nil || q.weight == nil:
			denom++
		default:
			denom += q.weight[q.targets[i]]
		}
	}
	if q.reduction == loss.None {
		for i := range grad {
			grad[i] *= gy[i/q.c]
		}
		return losses, grad
	}
	if q.reduction == loss.Sum {
		denom = 1
	}
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	for i := range grad {
		if grad[i] != 0 {
			grad[i] *= gy[0] / denom
		}
	}
	return []float64{sum / denom}, grad
}

// options places what Options need.
func (q *question) options(m *dtensor.Mesh, weight ...layout.Placement) loss.Options {
	o := loss.Options{IgnoreIndex: &q.ignore, Reduction: q.reduction, LabelSmoothing: q.smoothing, ZLoss: q.z}
	if q.weight != nil {
		o.Weight = place(m, q.weight, []int{q.c}, weight...)
	}
	return o
}

// gradient returns the gradient of a loss and a tensor of its layout's kind.
func (q *question) gradient(m *dtensor.Mesh) (gy []float64, t *dtensor.Tensor) {
	n := 1
	var shape []int
	if q.reduction == loss.None {
		n, shape = q.n, []int{q.n}
	}
	gy = numbers(n, 5, 1)
	return gy, place(m, gy, shape, make([]layout.Placement, len(m.Axes()))...)
}

// check runs the question in the given layouts, in float64.
func (q *question) check(ctx context.Context, m *dtensor.Mesh, logits, targets, weight []layout.Placement) error {
	gy, g := q.gradient(m)
	want, wantGrad := q.answer(gy)
	x := place(m, q.logits, []int{q.n, q.c}, logits...)
	var y *dtensor.Tensor
	if q.probs != nil {
		y = place(m, q.probs, []int{q.n, q.c}, targets...)
	} else {
		y = place(m, q.targets, []int{q.n}, targets...)
	}
	var failed error
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		l := loss.CrossEntropy(x, y, q.options(m, weight...))
		failed = near("loss", l.Full(), want, 1e-11)
		return l.Mul(g).Sum(nil, false)
	}, x)
	if err != nil || failed != nil {
		return fmt.Errorf("%v %v", err, failed)
	}
	dx := grads[0].Dense()
	for axis, p := range logits {
		if p.IsShard() && dx.Placements()[axis] != p {
			return fmt.Errorf("the gradient is %v, the logits %v", dx, x)
		}
	}
	return near("gradient", dx.Full(), wantGrad, 1e-11)
}

// values returns the elements of the whole tensor.
func values(t *dtensor.Tensor) []float64 {
	return tensor.ToSlice[float64](tensor.Cast(t.Full(), tensor.Float64))
}
