package loss_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// A ranking is the k largest of whole logits [n, c] as loops.
type ranking struct {
	n, c, k int
	logits  []float64
	classes []int64 // [n, k]
}

func newRanking(n, c, k int, logits []float64) *ranking {
	r := &ranking{n, c, k, logits, nil}
	for i := range n {
		row, order := logits[i*c:(i+1)*c], make([]int64, c)
		for j := range order {
			order[j] = int64(j)
		}
		slices.SortStableFunc(order, func(a, b int64) int {
			x, y := row[a], row[b]
			switch {
			case x > y || x != x && y == y:
				return -1
			case x < y || x == x && y != y:
				return 1
			}
			return 0
		})
		r.classes = append(r.classes, order[:k]...)
	}
	return r
}

// values are those of the classes, and grad is the gradient of the logits for gy.
func (r *ranking) values(gy []float64) (values, grad []float64) {
	grad = make([]float64, len(r.logits))
	for i, class := range r.classes {
		at := i/r.k*r.c + int(class)
		values = append(values, r.logits[at])
		grad[at] += gy[i]
	}
	return values, grad
}

// check compares TopK, its gradient, and Argmax of the logits in the given shape,
// type and layout, and counts what they communicate.
func (r *ranking) check(ctx context.Context, m *dtensor.Mesh, dt tensor.DType, shape []int, places []layout.Placement) error {
	gy := meshtest.Numbers(r.n*r.k, 5, 1)
	if dt == tensor.BFloat16 {
		gy = halves(gy)
	}
	want, wantGrad := r.values(gy)
	x := dtensor.Distribute(m, tensor.Cast(tensor.FromSlice(m.Device(), r.logits, shape...), dt), places...)
	results := append(slices.Clone(shape[:len(shape)-1]), r.k)
	g := dtensor.Distribute(m, tensor.Cast(tensor.FromSlice(m.Device(), gy, results...), dt), make([]layout.Placement, len(places))...)
	over := slices.Clone(places) // of [n, c]
	for axis, p := range over {
		if p.IsShard() && len(shape) == 1 {
			over[axis] = p.WithDim(1)
		}
	}
	ranks := ranksOf(m, r.n, over)
	ranks.positions = false // they have nothing to do with each other
	var failed error
	record := m.Comm().Record()
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		values, classes := loss.TopK(x, r.k)
		failed = near("values", values.Full(), want, 0)
		if got := tensor.ToSlice[int64](classes.Full()); !slices.Equal(got, r.classes) {
			failed = fmt.Errorf("classes %v, want %v", got, r.classes)
		}
		if failed == nil {
			failed = classes.CheckLocals(ctx)
		}
		return values.Mul(g).Sum(nil, false)
	}, x)
	events := record.Stop()
	if err != nil || failed != nil {
		return fmt.Errorf("%v %v", err, failed)
	}
	if err := near("gradient", grads[0].Dense().Full(), wantGrad, 1e-7); err != nil {
		return err
	}
	if err := ranks.check(events, "TopK", r.k*16); err != nil {
		return err
	}
	record = m.Comm().Record()
	first := loss.Argmax(x)
	events = record.Stop()
	got, all := tensor.ToSlice[int64](first.Full()), tensor.ToSlice[int64](x.Argmax(-1, false).Full())
	for i, class := range got {
		if want := r.classes[i*r.k]; class != want || all[i] != want {
			return fmt.Errorf("position %d: class %d is the largest, or %d of all together, want %d", i, class, all[i], want)
		}
	}
	return ranks.check(events, "Argmax", 16)
}
