package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits the gradients of 2 and of 4 micro-batches have the bits of those of the batch on
// one rank, whether ranks have nodes of its sums or not: of products, biases, norms, tables and
// what is added to each sample, one used twice.
func TestMicroBatchesHaveTheSameBits(t *testing.T) {
	const batch, tokens, width, vocab = 4, 131, 6, 11 // 131: each sample is a leaf of a product
	R, S := layout.Replicate(), layout.Shard
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64} {
		var want [][]float64
		for _, shape := range [][]int{{1}, {2}, {3}, {4}, {2, 2}} {
			var mine [][]float64
			onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				normal := func(stream uint64, shape []int, p layout.Placement) T {
					return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, m.Every(p)...).Cast(dt)
				}
				x := normal(1, []int{batch, tokens, width}, R)
				ids := make([]int64, batch*tokens)
				for i := range ids {
					ids[i] = int64(i * i % vocab)
				}
				params := []T{normal(2, []int{width, width}, S(0)), normal(3, []int{width}, R), normal(4, []int{width}, R), normal(5, []int{width}, R),
					normal(6, []int{tokens, width}, R), normal(7, []int{vocab, width}, R), normal(8, []int{vocab, width}, R)}
				w, bias, gain, shift, positions, table, head := params[0], params[1], params[2], params[3], params[4], params[5], params[6]
				first := want
				for _, parts := range []int{1, 2, 4} {
					value, grads, err := dtensor.Accumulate(ctx, parts, func(i int) T {
						n := batch / parts
						rows := take(table, ids[i*n*tokens:(i+1)*n*tokens]).Reshape(n, tokens, width)
						h := x.Narrow(0, i*n, n).Redistribute(m.Every(S(0))...).Add(positions).Add(rows).LayerNorm(gain, shift, 1e-6)
						h = h.Linear(w, bias).Tanh().RMSNorm(gain, 1e-6).Linear(head, nil).MatMul(head)
						return h.Square().Sum(nil, false)
					}, params...)
					if err != nil {
						return err
					}
					got := [][]float64{tensor.ToSlice[float64](tensor.Cast(value.Full(), tensor.Float64))}
					for i, g := range grads {
						rows, ok := g.Rows()
						if ok != (i == 5) {
							return fmt.Errorf("the gradient of parameter %d is one of rows: %v", i, ok)
						}
						err := dtensor.Try(ctx, m, func() {
							if ok {
								g = dtensor.Sparse(rows.Coalesce())
							}
							got = append(got, tensor.ToSlice[float64](tensor.Cast(g.Dense().Full(), tensor.Float64)))
						})
						if err != nil {
							return err
						}
					}
					if m.Comm().Rank() == 0 && mine == nil {
						mine = got
					}
					if first == nil {
						first = got
					}
					for i := range first {
						if k := differ(got[i], first[i]); k >= 0 {
							return fmt.Errorf("%v, mesh %v, %d micro-batches: %d: element %d is %v, want %v", dt, m, parts, i, k, got[i][k], first[i][k])
						}
					}
				}
				return nil
			})
			if want == nil {
				want = mine
			}
		}
	}
}

// differ returns the first element whose bits differ, -1 if none does.
func differ(a, b []float64) int {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			return i
		}
	}
	return -1
}
