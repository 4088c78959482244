package loss_test

import (
	"context"
	"fmt"
	"slices"

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
}

func newLinear(q *question, width int, hidden, head []float64) *linear {
	l := &linear{*q, width, hidden, head}
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
	var failed error
	record := m.Comm().Record()
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		out := loss.LinearCrossEntropy(h, w, y, l.options(m, weight...))
		failed = near("loss", out.Full(), want, 1e-11)
		return out.Mul(g).Sum(nil, false)
	}, h, w)
	events := record.Stop()
	if err != nil || failed != nil {
		return fmt.Errorf("%v %v", err, failed)
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
	r.local = meshtest.Place(m, l.targets, shape, places...).Local().Numel()
	return r.check(events, "LinearCrossEntropy", 4*8)
}
