package loss_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
)

// A linear is a question about the logits hidden·headᵀ.
type linear struct {
	question
	width        int
	hidden, head []float64 // [n, width], [c, width]
	loss         func(hidden, weight, targets *dtensor.Tensor, o loss.Options) *dtensor.Tensor
}

func newLinear(q *question, width int, hidden, head []float64) *linear {
	l := &linear{*q, width, hidden, head, loss.LinearCrossEntropy}
	l.logits = make([]float64, q.n*q.c)
	for i := range q.n {
		for c := range q.c {
			for k := range width {
				l.logits[i*q.c+c] += hidden[i*width+k] * head[c*width+k]
			}
		}
	}
	return l
}

// gradients are those of hidden and head, as loops.
func (l *linear) gradients(dLogits []float64) (hidden, head []float64) {
	hidden, head = make([]float64, len(l.hidden)), make([]float64, len(l.head))
	for i := range l.n {
		for c := range l.c {
			for k := range l.width {
				hidden[i*l.width+k] += dLogits[i*l.c+c] * l.head[c*l.width+k]
				head[c*l.width+k] += dLogits[i*l.c+c] * l.hidden[i*l.width+k]
			}
		}
	}
	return hidden, head
}

// check runs the question in the given layouts, in float64, with its n positions
// in the given shape, and counts what it communicates.
func (l *linear) check(ctx context.Context, m *dtensor.Mesh, shape []int, hidden, head, targets, weight []layout.Placement) error {
	gy, g := l.gradient(m)
	want, dLogits := l.answer(gy)
	wantHidden, wantHead := l.gradients(dLogits)
	h := meshtest.Place(m, l.hidden, append(slices.Clone(shape), l.width), hidden...)
	w := meshtest.Place(m, l.head, []int{l.c, l.width}, head...)
	y := meshtest.Place(m, l.targets, shape, targets...)
	if l.reduction == loss.None {
		g = g.Reshape(shape...)
	}
	grads, events, err := graded(ctx, m, g, want, func() *dtensor.Tensor {
		return l.loss(h, w, y, l.options(m, weight...))
	}, h, w)
	if err != nil {
		return err
	}
	if err := near("gradient of hidden", grads[0].Dense().Full(), wantHidden, 1e-10); err != nil {
		return err
	}
	if err := near("gradient of head", grads[1].Dense().Full(), wantHead, 1e-10); err != nil {
		return err
	}
	if l.reduction == loss.None {
		return nil // the product and CrossEntropy, see there
	}
	var r ranks
	places := make([]layout.Placement, len(hidden)) // of the positions
	for axis, a := range m.Axes() {
		d, sharded := hidden[axis].Dim()
		switch {
		case head[axis].Shards(0):
			r.classes = r.classes || a.Size > 1
		case sharded && d < len(shape):
			r.positions = r.positions || a.Size > 1
			places[axis] = hidden[axis]
		}
	}
	layout.Refit(places, hidden)
	r.local = meshtest.Place(m, l.targets, shape, places...).Local().Numel()
	return r.check(events, "LinearCrossEntropy", 4*8)
}

// TestLinearTiles has so many classes that the workspace does not hold the logits of all positions. Loss and gradients are
// those of loops over the few numbers that the rows of head repeat: in tiles of classes, and with same bits in tiles of
// positions.
func TestLinearTiles(t *testing.T) {
	const n, classes = 5, 5 << 20
	hidden, values := []float32{1, -2, 0.5, 3, -1}, []float32{0.5, -1, 2, 0, 1.5, -0.25, 1}
	targets := []int64{classes - 1, 0, 17, -100, 5}
	const used = 4
	period := len(values)
	head := make([]float32, classes)
	for c := range head {
		head[c] = values[c%period]
	}
	want, wantHidden := 0.0, make([]float64, n)
	ofClass, ofTarget := make([]float64, period), map[int64]float64{} // the gradient of head
	for i, h := range hidden {
		if targets[i] < 0 {
			continue
		}
		sum, mean := 0.0, 0.0
		shares := make([]float64, period)
		for k, v := range values {
			shares[k] = math.Exp(float64(h * v))
			times := float64((classes - k + period - 1) / period)
			sum += times * shares[k]
			mean += times * shares[k] * float64(v)
		}
		x := float64(head[targets[i]])
		want += (math.Log(sum) - float64(h)*x) / used
		wantHidden[i] = (mean/sum - x) / used
		for k := range shares {
			ofClass[k] += float64(h) * shares[k] / sum / used
		}
		ofTarget[targets[i]] -= float64(h) / used
	}
	wantHead := make([]float64, classes)
	for c := range wantHead {
		wantHead[c] = ofClass[c%period] + ofTarget[int64(c)]
	}
	for _, c := range []struct {
		ranks, calls int
		same         bool
	}{{ranks: 1}, {ranks: 2, calls: 1}, {ranks: 1, same: true}, {ranks: 2, calls: 3, same: true}} {
		meshtest.On(t, []int{c.ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(c.same)
			h, w := meshtest.Place(m, hidden, []int{n, 1}, replicate), meshtest.Place(m, head, []int{classes, 1}, shard0)
			y := meshtest.Place(m, targets, []int{n}, replicate)
			record := m.Comm().Record()
			l, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				return loss.LinearCrossEntropy(h, w, y, loss.Options{Workspace: 64 << 20})
			}, h, w)
			if err != nil {
				return err
			}
			if calls, _ := meshtest.Calls(record.Stop(), "LinearCrossEntropy: classes"); calls != c.calls {
				return fmt.Errorf("%d collectives, want %d", calls, c.calls)
			}
			if err := meshtest.Near("loss", l.Full(), []float64{want}, 1e-5, 0); err != nil {
				return err
			}
			// Sums of millions of float32.
			if err := meshtest.Near("gradient of hidden", grads[0].Dense().Full(), wantHidden, 1e-4, 2e-5); err != nil {
				return err
			}
			return meshtest.Near("gradient of head", grads[1].Dense().Full(), wantHead, 1e-4, 1e-12)
		})
	}
}
