package loss_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
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
	out, grad, _ = q.parts(gy)
	return out, grad
}

// parts is answer, and how large the two numbers together are whose difference each
// gradient is: the share of a class in the target, and its probability times a factor.
func (q *question) parts(gy []float64) (out, grad, sizes []float64) {
	grad, sizes = make([]float64, q.n*q.c), make([]float64, q.n*q.c)
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
			p := math.Exp(v-top) / sum
			grad[i*q.c+c] = (total+2*q.z*lse)*p - share[c]
			sizes[i*q.c+c] = (total+2*q.z*(1+math.Abs(lse)))*p + share[c]
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
			sizes[i] *= math.Abs(gy[i/q.c])
		}
		return losses, grad, sizes
	}
	if q.reduction == loss.Sum {
		denom = 1
	}
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	for i := range grad {
		if sizes[i] != 0 { // else the position is ignored
			grad[i] *= gy[0] / denom
			sizes[i] *= math.Abs(gy[0] / denom)
		}
	}
	return []float64{sum / denom}, grad, sizes
}

// options places what Options need.
func (q *question) options(m *dtensor.Mesh, weight ...layout.Placement) loss.Options {
	o := loss.Options{IgnoreIndex: &q.ignore, Reduction: q.reduction, LabelSmoothing: q.smoothing, ZLoss: q.z}
	if q.weight != nil {
		o.Weight = meshtest.Place(m, q.weight, []int{q.c}, weight...)
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
	gy = meshtest.Numbers(n, 5, 1)
	return gy, meshtest.Place(m, gy, shape, make([]layout.Placement, len(m.Axes()))...)
}

// check runs the question in the given layouts, in float64.
func (q *question) check(ctx context.Context, m *dtensor.Mesh, logits, targets, weight []layout.Placement) error {
	gy, g := q.gradient(m)
	want, wantGrad := q.answer(gy)
	x := meshtest.Place(m, q.logits, []int{q.n, q.c}, logits...)
	var y *dtensor.Tensor
	if q.probs != nil {
		y = meshtest.Place(m, q.probs, []int{q.n, q.c}, targets...)
	} else {
		y = meshtest.Place(m, q.targets, []int{q.n}, targets...)
	}
	grads, events, err := graded(ctx, m, g, want, func() *dtensor.Tensor {
		return loss.CrossEntropy(x, y, q.options(m, weight...))
	}, x)
	if err != nil {
		return err
	}
	dx := grads[0].Dense()
	for axis, p := range logits {
		if p.IsShard() && dx.Placements()[axis] != p {
			return fmt.Errorf("the gradient is %v, the logits %v", dx, x)
		}
	}
	if err := near("gradient", dx.Full(), wantGrad, 1e-11); err != nil {
		return err
	}
	r := ranksOf(m, q.n, logits)
	return r.check(events, "CrossEntropy", 4*8)
}

// graded compares the value of cost with want, and returns the gradients of params
// where cost's is g, and what was communicated.
func graded(ctx context.Context, m *dtensor.Mesh, g *dtensor.Tensor, want []float64, cost func() *dtensor.Tensor,
	params ...*dtensor.Tensor) ([]dtensor.Grad, []comm.Event, error) {
	var failed error
	record := m.Comm().Record()
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		l := cost()
		failed = near("loss", l.Full(), want, 1e-11)
		return l.Mul(g).Sum(nil, false)
	}, params...)
	return grads, record.Stop(), errors.Join(err, failed)
}

// ranks says between which ranks a loss has to communicate.
type ranks struct {
	classes, positions bool // several ranks share the classes of a position, or the positions
	local              int  // positions of this rank
}

// ranksOf returns the ranks of logits [n, C] in a layout: a Partial one is
// reduced, to shards of the classes if no axis shards them.
func ranksOf(m *dtensor.Mesh, n int, logits []layout.Placement) (r ranks) {
	places := make([]layout.Placement, len(logits)) // of the positions
	divided := slices.ContainsFunc(logits, func(p layout.Placement) bool { return p.Shards(1) })
	for axis, p := range logits {
		many := m.Axes()[axis].Size > 1
		switch {
		case p.Shards(0):
			places[axis] = p
			r.positions = r.positions || many
		case p.Shards(1), p.IsPartial() && !divided:
			divided = true
			r.classes = r.classes || many
		}
	}
	r.local = meshtest.Place(m, make([]int64, n), []int{n}, places...).Local().Numel()
	return r
}

// check returns an error unless a loss and its gradient made one collective over
// the classes, of so many bytes for each position, and one over the positions, of
// two numbers and a status: none where no other rank takes part.
func (r *ranks) check(events []comm.Event, op string, bytes int) error {
	classes, positions := 0, 0
	if r.classes && r.local > 0 {
		classes = 1
	}
	if r.positions {
		positions = 1
	}
	if n, b := meshtest.Calls(events, op+": classes"); n != classes || b != classes*r.local*bytes {
		return fmt.Errorf("%d collectives over the classes, of %d bytes, want %d of %d bytes each for %d positions", n, b, classes, bytes,
			r.local)
	}
	if n, b := meshtest.Calls(events, op+": positions"); n != positions || b != 32*positions {
		return fmt.Errorf("%d collectives over the positions, of %d bytes, want %d of 32", n, b, positions)
	}
	if n, _ := meshtest.Calls(events, op+":"); n != classes+positions {
		return fmt.Errorf("%d collectives, want %d", n, classes+positions)
	}
	return nil
}

// values returns the elements of the whole tensor.
func values(t *dtensor.Tensor) []float64 {
	return tensor.ToSlice[float64](tensor.Cast(t.Full(), tensor.Float64))
}

// near compares a whole tensor with what it should be.
func near(what string, t *tensor.Tensor, want []float64, tol float64) error {
	return meshtest.Near(what, t, want, tol, tol)
}
