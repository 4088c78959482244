package dtensor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// counted returns what f communicates on this rank.
func counted(m *dtensor.Mesh, f func()) comm.Stats {
	r := m.Comm().Record()
	f()
	r.Stop()
	return r.Stats()
}

// expect throws unless f makes exactly the calls in want.
func expect(m *dtensor.Mesh, what, want string, f func()) {
	s := counted(m, f)
	got := ""
	for k, n := range s.Kinds {
		if n.Calls > 0 {
			got += fmt.Sprintf(" %v×%d", comm.Kind(k), n.Calls)
		}
	}
	if got != want {
		failf("%s: communicates%s, want%s (%v)", what, got, want, s.Causes)
	}
}

// What operators communicate is counted.
func TestCounts(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		R, S, P := layout.Replicate(), layout.Shard, layout.Partial(layout.Sum)
		full := func(p layout.Placement, shape ...int) T { return dtensor.Full(m, tensor.Float32, 1, shape, p) }
		return dtensor.Try(ctx, m, func() {
			x, up, down := full(R, 4, 8), full(S(0), 16, 8), full(S(1), 8, 16)
			sharded, rows := full(S(0), 4, 8), full(S(0), 4, 6, 8)
			for _, c := range []struct {
				what, want string
				f          func()
			}{
				{"column-parallel linear", "", func() { x.Linear(up, full(S(0), 16)) }},
				{"row-parallel linear", "", func() { full(S(1), 4, 16).Linear(down, full(R, 8)) }},
				{"MLP", " AllReduce×1", func() { x.Linear(up, nil).Gelu().Linear(down, nil).Reduced() }},
				{"views", "", func() {
					rows.Reshape(24, 8).Reshape(4, 48).Transpose(0, 1).Unsqueeze(0).Squeeze(0)
					rows.Narrow(0, 1, 2).Narrow(2, 3, 3)
					full(S(2), 2, 3, 8).Reshape(2, 3, 4, 2).Transpose(1, 2)
					full(P, 4, 8).Reshape(32).Reshape(8, 4).Transpose(0, 1)
				}},
				{"element-wise", "", func() { sharded.Add(x).Mul(sharded).Gelu().Scale(2).Sub(full(R, 8)) }},
				{"partial sums", "", func() { full(P, 4).Add(full(P, 4)).Scale(2).Mul(full(R, 4)).Neg().Sum(nil, false) }},
				{"picks of partial ones", "", func() {
					sum, less := full(P, 4, 4), full(layout.Partial(layout.Max), 4, 4)
					where, row := full(R, 4).CompareScalar(kernel.OpGt, 0), full(R, 2).Cast(tensor.Int64)
					where.Where(sum, sum).MaskedFill(where, 2).Tril(0).Flip(0).IndexSelect(0, row)
					where.Where(less, full(R)).MaskedFill(where, 0).Triu(0).Gather(0, row.Reshape(1, 2))
					sum.IndexPut([]T{row}, full(P, 2, 4), false)
				}},
				{"attention by heads", "", func() {
					dtensor.ScaledDotProductAttention(full(S(1), 1, 4, 3, 2), full(S(1), 1, 4, 3, 2), full(S(1), 1, 4, 3, 2), true)
				}},
				{"norm of rows", "", func() { sharded.LayerNorm(full(R, 8), full(R, 8), 1e-5).RMSNorm(full(R, 8), 1e-6).Softmax(1) }},
				{"logsumexp over a shard", " AllReduce×2", func() { full(S(1), 4, 8).LogSumExp([]int{1}, false).Reduced() }},
				{"softmax over a shard", " AllReduce×2", func() { full(S(1), 4, 8).Softmax(1) }},
				{"its logarithm", " AllReduce×2", func() { full(S(1), 4, 8).LogSoftmax(1) }},
				{"S to R", " AllGatherV×1", func() { sharded.Redistribute(R) }},
				{"S to S", " AllToAllV×1", func() { sharded.Redistribute(S(1)) }},
				{"P to S", " ReduceScatterV×1", func() { full(P, 4, 8).Redistribute(S(1)) }},
				{"R to S and P", "", func() { x.Redistribute(S(0)); x.Redistribute(P) }},
				{"index_select of a shard", " AllReduce×1", func() { sharded.IndexSelect(0, full(R, 3).Cast(tensor.Int64)).Reduced() }},
			} {
				expect(m, c.what, c.want, c.f)
			}
			step := func(params ...T) func() {
				return func() {
					_, _, err := dtensor.ValueAndGrad(ctx, func() T {
						return x.Linear(up, nil).Gelu().Linear(down, nil).Reduced().Square().Sum(nil, false)
					}, params...)
					if err != nil {
						failf("%w", err)
					}
				}
			}
			expect(m, "gradients of the weights of an MLP", " AllReduce×1", step(up, down))
			expect(m, "and of its input", " AllReduce×2", step(up, down, x))
		})
	})
}

// In data parallelism the gradients of all parameters are one collective.
func TestGradientBucket(t *testing.T) {
	onMesh(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		R, S := layout.Replicate(), layout.Shard
		return dtensor.Try(ctx, m, func() {
			x := dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{6, 4}, S(0), R)
			w := dtensor.Normal(m, dtensor.Key{Stream: 2}, 0, 1, []int{8, 4}, R, S(0))
			v := dtensor.Normal(m, dtensor.Key{Stream: 3}, 0, 1, []int{4, 8}, R, S(1))
			b := dtensor.Normal(m, dtensor.Key{Stream: 4}, 0, 1, []int{4}, R, R)
			// Forward: the row-parallel result over tp, the loss over dp. Backward: one of all gradients over dp.
			expect(m, "a step", " AllReduce×3", func() {
				_, _, err := dtensor.ValueAndGrad(ctx, func() T {
					return x.Linear(w, nil).Relu().Linear(v, b).Redistribute(S(0), R).Square().Mean(nil, false)
				}, w, v, b)
				if err != nil {
					failf("%w", err)
				}
			})
		})
	})
}

// Gradients of sharded parameters that are sums over the axis that shards them
// are scattered in one collective, and are what they would be one at a time.
func TestScatterBucket(t *testing.T) {
	for _, mesh := range [][]int{{2}, {3}, {2, 2}} {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			R, S := layout.Replicate(), layout.Shard
			n := len(mesh)
			x := dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{7, 5}, []layout.Placement{S(0), R}[:n]...)
			var params, whole []T
			for i, c := range []struct {
				shape []int
				place layout.Placement
			}{{[]int{8, 5}, S(0)}, {[]int{4, 8}, S(1)}, {[]int{4}, S(0)}, {[]int{1, 4}, S(0)}} {
				key := dtensor.Key{Stream: uint64(i + 2)}
				params = append(params, dtensor.Normal(m, key, 0, 1, c.shape, []layout.Placement{c.place, R}[:n]...))
				whole = append(whole, dtensor.Normal(m, key, 0, 1, c.shape, []layout.Placement{R, R}[:n]...))
			}
			// Parameters are gathered before use, as in fully sharded data parallelism.
			step := func(p []T) []dtensor.Grad {
				_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
					full := make([]T, len(p))
					for i := range p {
						full[i] = p[i].Redistribute([]layout.Placement{R, R}[:n]...)
					}
					return x.Linear(full[0], nil).Tanh().Linear(full[1], full[2]).Mul(full[3]).Square().Sum(nil, false)
				}, p...)
				if err != nil {
					failf("%w", err)
				}
				return grads
			}
			return dtensor.Try(ctx, m, func() {
				want := step(whole)
				record := m.Comm().Record()
				got := step(params)
				record.Stop()
				if calls := record.Stats().Kinds[comm.ReduceScatterVKind].Calls; n == 1 && calls != 1 {
					failf("%d reduce-scatters, want 1", calls)
				}
				for i := range got {
					if err := gradLayout(params[i], got[i].Dense()); err != nil {
						failf("%w", err)
					}
					if err := (&opCase{}).equal(got[i].Dense().Full(), want[i].Dense().Full()); err != nil {
						failf("gradient %d: %w", i, err)
					}
				}
			})
		})
	}
}
