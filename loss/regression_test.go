package loss_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// The values and gradients of these losses are compared with PyTorch's by
// internal/conformance.

// A loss of elements that are sharded makes one collective of a number, and None none;
// InfoNCE of vectors divided over the batch gathers the keys once, and their gradients
// come back by one more.
func TestRegressionCost(t *testing.T) {
	meshtest.On(t, []int{4}, func(ctx context.Context, m *dtensor.Mesh) error {
		put := func(seed float64) *dtensor.Tensor {
			return meshtest.Place(m, meshtest.Numbers(24, seed, 1), []int{6, 4}, layout.Shard(0))
		}
		x, y := put(1), put(2)
		for _, c := range []struct {
			name             string
			f                func() *dtensor.Tensor
			forward, further int
		}{
			{"MSE", func() *dtensor.Tensor { return loss.MSE(x, y, loss.Mean) }, 1, 0},
			{"MSE None", func() *dtensor.Tensor { return loss.MSE(x, y, loss.None).Sum(nil, false) }, 0, 1},
			{"Huber", func() *dtensor.Tensor { return loss.Huber(x, y, 0.5, loss.Sum) }, 1, 0},
			{"KL", func() *dtensor.Tensor { return loss.KL(x, y, loss.KLOptions{LogTarget: true, BatchMean: true}) }, 1, 0},
			{"GaussianNLL", func() *dtensor.Tensor { return loss.GaussianNLL(x, y, y.Square(), loss.GaussianNLLOptions{}) }, 1, 0},
			{"OfProbabilities", func() *dtensor.Tensor { return loss.BinaryCrossEntropyOfProbabilities(x.Sigmoid(), y, loss.Sum) }, 1, 0},
			{"CosineEmbedding", func() *dtensor.Tensor {
				return loss.CosineEmbedding(x, y, dtensor.Full(m, tensor.Int64, 1, []int{6}, layout.Replicate()), 0, loss.Mean)
			}, 1, 0},
			{"InfoNCE", func() *dtensor.Tensor { return loss.InfoNCE(x, y, loss.InfoNCEOptions{}) }, 2, 1},
		} {
			record := m.Comm().Record()
			var forward int
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				out := c.f()
				forward = len(record.Stop())
				record = m.Comm().Record()
				return out
			}, x, y)
			further := len(record.Stop())
			if err != nil || forward != c.forward || further != c.further {
				return fmt.Errorf("%s: %d collectives and %d afterwards, want %d and %d; %v", c.name, forward, further, c.forward, c.further, err)
			}
		}
		return nil
	})
}

// What does not fit is an *Error on every rank, and the ranks go on.
func TestRegressionRefusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		put := func(shape ...int) *dtensor.Tensor {
			return dtensor.Full(m, tensor.Float32, 1, shape, layout.Shard(0))
		}
		x := put(4, 3)
		for _, c := range []struct {
			want string
			f    func()
		}{
			{"MSE: the operands are", func() { loss.MSE(x, put(4), loss.Mean) }},
			{"L1: the operands are", func() { loss.L1(x, x.Cast(tensor.Float64), loss.Mean) }},
			{"Cast one of them", func() { loss.L1(x.Cast(tensor.Int64), x.Cast(tensor.Int64), loss.Mean) }},
			{"Reduction is 7", func() { loss.MSE(x, x, 7) }},
			{"delta is 0", func() { loss.Huber(x, x, 0, loss.Mean) }},
			{"Temperature is -1", func() { loss.InfoNCE(x, x, loss.InfoNCEOptions{Temperature: -1}) }},
			{"InfoNCE: the queries are", func() { loss.InfoNCE(put(4), put(4), loss.InfoNCEOptions{}) }},
			{"KL: BatchMean of operands", func() { loss.KL(x.Mean(nil, false), x.Mean(nil, false), loss.KLOptions{BatchMean: true}) }},
			{"TripletMargin: the anchors", func() { y := x.Mean(nil, false); loss.TripletMargin(y, y, y, 1, loss.Mean) }},
			{"PoissonNLL: the operands", func() { loss.PoissonNLL(x, put(4), loss.PoissonNLLOptions{}) }},
			{"GaussianNLL: the operands", func() { loss.GaussianNLL(x, x, put(4, 1), loss.GaussianNLLOptions{}) }},
			{"Eps is -1", func() { loss.GaussianNLL(x, x, x, loss.GaussianNLLOptions{Eps: -1}) }},
			{"SoftMargin: the operands", func() { loss.SoftMargin(x, put(3), loss.Mean) }},
			{"HingeEmbedding: the operands", func() { loss.HingeEmbedding(x, put(3), 1, loss.Mean) }},
			{"CosineEmbedding: the operands are", func() { y := x.Mean(nil, false); loss.CosineEmbedding(y, y, y, 0, loss.Mean) }},
			{"CosineEmbedding: the operands are", func() { loss.CosineEmbedding(x, x, x, 0, loss.Mean) }},
			{"MultiMargin: the scores", func() { loss.MultiMargin(put(4), put(4).Cast(tensor.Int64), loss.MultiMarginOptions{}) }},
			{"one class for each row", func() { loss.MultiMargin(x, put(4), loss.MultiMarginOptions{}) }},
			{"one class for each row", func() { loss.MultiMargin(x, put(3).Cast(tensor.Int64), loss.MultiMarginOptions{}) }},
			{"one factor for each class", func() {
				loss.MultiMargin(x, put(4).Cast(tensor.Int64), loss.MultiMarginOptions{Weight: put(4)})
			}},
			{"MultiLabelMargin: the scores", func() { loss.MultiLabelMargin(put(4, 3, 2), put(4, 3, 2).Cast(tensor.Int64), loss.Sum) }},
			{"as many numbers as scores", func() { loss.MultiLabelMargin(x, put(4, 2).Cast(tensor.Int64), loss.Sum) }},
			{"WithPosWeight: the operands", func() { loss.BinaryCrossEntropyWithPosWeight(x, put(4), put(3), loss.Mean) }},
			{"OfProbabilities: the operands", func() { loss.BinaryCrossEntropyOfProbabilities(x, put(4), loss.Mean) }},
			{"MarginRanking: the operands ", func() { loss.MarginRanking(x, x, put(4), 1, loss.Mean) }},
		} {
			err := dtensor.Try(ctx, m, c.f)
			var refused *loss.Error
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want an error with %q", err, c.want)
			}
		}
		return nil
	})
}

// A target that is no class is an error on every rank. Where all have its row the ranks go on.
func TestMultiMarginOfNoClass(t *testing.T) {
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, place := range []layout.Placement{shard1, replicate, shard0} {
			x := meshtest.Place(m, meshtest.Numbers(15, 1, 1), []int{5, 3}, place)
			for _, last := range []int64{-1, 3, 2} {
				targets := meshtest.Place(m, []int64{0, 1, 2, 0, last}, []int{5}, replicate)
				err := dtensor.Try(ctx, m, func() { loss.MultiMargin(x, targets, loss.MultiMarginOptions{}) })
				var out *tensor.IndexError
				if errors.As(err, &out) != (last != 2) || last == 2 && err != nil {
					return fmt.Errorf("%v: target %d: %v", place, last, err)
				}
				if last != 2 && place == shard0 {
					return nil // the communicator has ended
				}
			}
		}
		return nil
	})
}
