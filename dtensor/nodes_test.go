package dtensor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// nodeCases are operators with sums of which ranks have nodes.
var nodeCases = []opCase{
	{name: "MatMul", shapes: [][][]int{{{4, 512}, {512, 6}}, {{512, 4}, {4, 3}}, {{2, 3, 512}, {2, 512, 5}}, {{3, 1024}, {1024}}},
		f: two(T.MatMul)},
	{name: "Linear", shapes: [][][]int{{{4, 512}, {6, 512}, {6}}, {{4, 128, 3}, {6, 3}, {6}}, {{4, 131, 3}, {512, 3}, {512}},
		{{512}, {4, 512}, {4}}},
		f: func(in []T) T { return in[0].Linear(in[1], in[2]) }},
	{name: "MatMul at leaves", shapes: [][][]int{{{3, 2048}, {2048, 4}}, {{2, 3, 1024}, {2, 1024, 5}}}, f: two(T.MatMul)},
	{name: "Linear at leaves", shapes: [][][]int{{{4, 2048}, {3, 2048}, {3}}, {{8, 128, 3}, {6, 3}, {6}}, {{16, 131, 3}, {6, 3}, {6}},
		{{2, 5, 3}, {2048, 3}, {2048}}},
		f: func(in []T) T { return in[0].Linear(in[1], in[2]) }},
	{name: "two Linear", shapes: [][][]int{{{4, 128, 4}, {512, 4}, {4, 512}}},
		f: func(in []T) T { return in[0].Add(in[0].Linear(in[1], nil).Gelu().Linear(in[2], nil)) }},
	{name: "Linear twice", shapes: [][][]int{{{4, 131, 3}, {512, 3}}}, f: func(in []T) T { // the input and the weight are used twice
		return in[0].Linear(in[1], nil).Add(in[0].Square().Linear(in[1], nil).Tanh())
	}},
	{name: "Linears of one", shapes: [][][]int{{{4, 6, 5}, {512, 5}, {256, 5}, {128, 5}}, {{3, 5}, {6, 5}, {4, 5}, {2, 5}},
		{{4, 3}, {1536, 3}, {384, 3}, {384, 3}}, {{3, 2}, {0, 2}, {0, 2}, {0, 2}}}, f: func(in []T) T { // of a parameter, and of another
		sum := func(x T) T {
			q, k, v := x.Linear(in[1], nil), x.Linear(in[2], nil), x.Linear(in[3], nil)
			return q.Square().Sum([]int{-1}, true).Add(k.Gelu().Sum([]int{-1}, true)).Add(v.Tanh().Sum([]int{-1}, true)).Add(x)
		}
		return sum(in[0]).Add(sum(in[0].Tanh()))
	}},
	{name: "Sum first", shapes: [][][]int{{{4, 8}}, {{12, 3}}, {{4, 5, 6}}, {{12, 1}}, {{8, 2}}},
		f: one(func(x T) T { return x.Sum([]int{0}, false) })},
	{name: "Sum two", shapes: [][][]int{{{4, 5, 6}}, {{12, 3, 1}}}, f: one(func(x T) T { return x.Sum([]int{0, 1}, true) })},
	{name: "Sum", shapes: [][][]int{{{4, 5, 6}}, {{12, 3}}, {{16}}}, f: one(func(x T) T { return x.Sum(nil, false) })},
	{name: "Sum last", shapes: [][][]int{{{5, 8}}, {{3, 12}}, {{3, 4, 8}}, {{1, 16}}}, f: one(func(x T) T { return x.Sum([]int{-1}, false) })},
	{name: "Sum middle", shapes: [][][]int{{{3, 8, 5}}, {{2, 12, 1}}}, f: one(func(x T) T { return x.Sum([]int{1}, true) })},
	{name: "Mean", shapes: [][][]int{{{4, 5, 6}}, {{12, 3}}, {{16}}}, f: one(func(x T) T { return x.Mean(nil, false) })},
	{name: "Mean first", shapes: [][][]int{{{12, 5, 6}}}, f: one(func(x T) T { return x.Mean([]int{0}, false) })},
	{name: "LayerNorm", shapes: [][][]int{{{4, 8}, {8}, {8}}, {{4, 3, 5}, {5}, {5}}},
		f: func(in []T) T { return in[0].LayerNorm(in[1], in[2], 1e-5) }},
	{name: "LayerNorm at leaves", shapes: [][][]int{{{16, 3, 5}, {5}, {5}}, {{24, 5}, {5}, {5}}},
		f: func(in []T) T { return in[0].LayerNorm(in[1], in[2], 1e-5) }},
	{name: "RMSNorm", shapes: [][][]int{{{4, 3, 5}, {5}}, {{8, 3, 5}, {5}}}, f: two(func(x, w T) T { return x.RMSNorm(w, 1e-6) })},
	{name: "Add", shapes: [][][]int{{{4, 3, 5}, {5}}, {{12, 5}, {1, 5}}}, f: two(func(x, y T) T { return x.Add(y) })},
	{name: "Reshape", shapes: [][][]int{{{4, 131, 3}, {3, 128}, {128, 4}}}, // a view of what is a sum of nodes
		f: func(in []T) T { return in[0].Linear(in[1].Transpose(0, 1), in[2].Reshape(512).Narrow(0, 0, 128)) }},
}

// With SameBits ranks that have nodes of sums make the sum that one rank makes.
func TestNodesHaveTheSameBits(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		for _, c := range nodeCases {
			grids := testenv.Fewer([][]int{{2}, {3}, {2, 2}, {3, 2}, {7}}, 2)
			if *fullTime > 0 {
				grids = append(grids, []int{4}, []int{5}, []int{8})
			}
			if dt != tensor.Float32 {
				c, grids = c.of(dt), testenv.Fewer([][]int{{2}, {4}}, 0)
			}
			for _, shape := range grids {
				onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
					m.SetSameBits(true)
					for _, shapes := range c.shapes {
						if err := c.checkBits(ctx, m, shapes); err != nil {
							return fmt.Errorf("%s, %v, shapes %v, mesh %v: %w", c.name, dt, shapes, m, err)
						}
					}
					return nil
				})
			}
		}
	}
}

// With SameBits what is computed twice, and what is scattered at once, has the same bits.
func TestRecomputedNodesHaveTheSameBits(t *testing.T) {
	const batch, tokens, width = 4, 64, 256
	R, S := layout.Replicate(), layout.Shard
	var want [][]float64
	for _, p := range []layout.Placement{R, S(0), S(1)} { // of the weights
		for _, grid := range testenv.Fewer([][]int{{1}, {2}, {3}, {4}}, 0, 2) {
			onMesh(t, grid, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				normal := func(stream uint64, p layout.Placement, shape ...int) T {
					return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, m.Every(p)...)
				}
				x := normal(1, S(0), batch, tokens, width)
				params := []T{normal(2, p, 2*width, width), normal(3, p, width, 2*width), normal(4, R, width), normal(5, R, tokens+1, width)}
				block := func(h T) T {
					h = h.Add(params[3].Narrow(0, 1, tokens)).RMSNorm(params[2], 1e-6)
					return h.Linear(params[0].Redistribute(m.Every(R)...), nil).Tanh().Linear(params[1], nil).Reduced().Add(h)
				}
				for way, f := range []func(func(T) T, T) T{func(f func(T) T, h T) T { return f(h) }, dtensor.Recompute, dtensor.ScatterGradients} {
					value, grads, err := dtensor.ValueAndGrad(ctx, func() T {
						h := x.Add(params[2])
						for range 2 {
							h = f(block, h)
						}
						return h.Square().Mean(nil, false)
					}, params...)
					if err != nil {
						return fmt.Errorf("way %d, mesh %v: %w", way, m, err)
					}
					got := [][]float64{{value.Item()}}
					for _, g := range grads {
						got = append(got, tensor.ToSlice[float64](tensor.Cast(g.Dense().Full(), tensor.Float64)))
					}
					if m.Size() == 1 && want == nil {
						want = got
					}
					for i := range want {
						if k := differ(got[i], want[i]); k >= 0 {
							return fmt.Errorf("way %d, mesh %v, weights %v: %d: element %d is %v, want %v", way, m, p, i, k, got[i][k], want[i][k])
						}
					}
				}
				return nil
			})
		}
	}
}

// With SameBits a step of training over ranks that have nodes makes the calls that it makes
// without: an all-gather of two ranks' nodes takes the place of an all-reduce, over four ranks two
// calls that move what it moves do. All gradients of the batch are in one of them.
func TestNodesAreAddedAtOnce(t *testing.T) {
	const batch, tokens, width = 4, 128, 256
	const parameters = 4 * (2*width*width + 2*width + width*2*width + 2*width) // bytes
	R, S := layout.Replicate(), layout.Shard
	type places = []layout.Placement
	for _, c := range []struct {
		grid          []int
		batch         places
		up, down      places
		without, with string
		gradients     int // bytes of the parameters whose gradients are sums over the batch
	}{
		// The loss and the gradients.
		{[]int{2}, places{S(0)}, places{R}, places{R}, "AllReduce×2", "AllGather×2", parameters},
		{[]int{4}, places{S(0)}, places{R}, places{R}, "AllReduce×2", "AllGather×1, AllGatherV×1, AllToAllV×1", parameters},
		// And what the second weight gives, and the gradient of what the first is given.
		{[]int{2, 2}, places{S(0), R}, places{R, S(0)}, places{R, S(1)}, "AllReduce×4", "AllGather×4", parameters/2 + 4*width},
	} {
		for _, same := range []bool{false, true} {
			onMesh(t, c.grid, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(same)
				normal := func(stream uint64, p places, shape ...int) T {
					return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, p...)
				}
				whole := m.Every(R)
				x := normal(1, c.batch, batch, tokens, width)
				params := []T{normal(2, c.up, 2*width, width), normal(3, c.up, 2*width), normal(4, c.down, width, 2*width),
					normal(5, whole, width), normal(6, whole, width)}
				record := m.Comm().Record()
				_, _, err := dtensor.ValueAndGrad(ctx, func() T {
					h := x.LayerNorm(params[3], params[4], 1e-5).Linear(params[0], params[1]).Gelu()
					return x.Add(h.Linear(params[2], nil).Reduced()).Square().Sum(nil, false)
				}, params...)
				record.Stop()
				if err != nil {
					return err
				}
				stats, want := record.Stats(), c.without
				if same {
					want = c.with
				}
				if got := stats.Calls(); got != want {
					return fmt.Errorf("mesh %v, same bits %v: the calls are %s, want %s: %v", m, same, got, want, stats.Causes)
				}
				most := 0 // that a call hands in
				for cause, n := range stats.Causes {
					if cause.Cause == "ValueAndGrad: parameter gradients" {
						most = max(most, n.Bytes)
					}
				}
				if most != c.gradients {
					return fmt.Errorf("mesh %v, same bits %v: %d bytes of gradients are added up, want %d: %v", m, same, most, c.gradients, stats.Causes)
				}
				return nil
			})
		}
	}
}

// With SameBits ranks that are no power of two have one or two nodes of a product, cut at leaves, and hand in at most twice
// the bytes of the sum, which an all-reduce takes: no rank computes what another does.
func TestNodesAtLeavesAreAddedUp(t *testing.T) {
	const rows, inner, out = 64, 2048, 64
	for _, ranks := range []int{3, 5, 6, 7} {
		onMesh(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			normal := func(stream uint64, p layout.Placement, shape ...int) T {
				return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, p)
			}
			x, w := normal(1, layout.Shard(1), rows, inner), normal(2, layout.Shard(1), out, inner)
			dy, x0 := normal(3, layout.Shard(0), inner, out), normal(4, layout.Shard(0), inner, rows)
			record := m.Comm().Record()
			err := dtensor.Try(ctx, m, func() {
				x.Linear(w, nil)
				dy.Transpose(0, 1).MatMul(x0)
			})
			record.Stop()
			if err != nil {
				return err
			}
			for _, cause := range []string{"Linear", "MatMul"} {
				nodes, sums := 0, 0
				for by, n := range record.Stats().Causes {
					switch {
					case by.Cause != cause:
					case by.Kind == comm.AllToAllVKind:
						nodes += n.Bytes
					default:
						sums += n.Bytes
					}
				}
				if most := 4 * rows * out; nodes+sums > 2*most || sums > (most+ranks)/ranks+4 || nodes == 0 || sums == 0 {
					return fmt.Errorf("mesh %v, %s: %d bytes of nodes and %d of sums, of %d: %v", m, cause, nodes, sums, most, record.Stats().Causes)
				}
			}
			return nil
		})
	}
}

// With SameBits such ranks add up nodes of the gradient of a bias too, of rows that were moved once, for the weight.
func TestBiasAtLeavesIsAddedUp(t *testing.T) {
	const rows, in, out = 2048, 8, 16
	for _, ranks := range []int{3, 5, 6, 7} {
		onMesh(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			normal := func(stream uint64, p layout.Placement, shape ...int) T {
				return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, p)
			}
			x, w, bias := normal(1, layout.Shard(0), rows, in), normal(2, layout.Replicate(), out, in), normal(3, layout.Replicate(), out)
			record := m.Comm().Record()
			_, _, err := dtensor.ValueAndGrad(ctx, func() T { return x.Linear(w, bias).Square().Sum(nil, false) }, w, bias)
			record.Stop()
			if err != nil {
				return err
			}
			moves := 0
			for by, n := range record.Stats().Causes {
				if by.Kind == comm.AllToAllVKind {
					moves += n.Calls
				}
			}
			if moves != 2 { // of dy and of x; of the output the loss needs the sum of each row
				return fmt.Errorf("mesh %v: %d moves, want 2: %v", m, moves, record.Stats().Causes)
			}
			return nil
		})
	}
}

// With SameBits such ranks move a weight with few inputs, so that the outputs of Linear are cut at leaves. A weight with many inputs, and
// one in a layout of its own, stay.
func TestOutputsAreCutAtLeaves(t *testing.T) {
	const out = 2048
	for ranks, at := range map[int]string{3: "S(1)[768 768 512]", 5: "S(1)[512 384 384 384 384]", 4: "S(1)"} {
		onMesh(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			own := make([]int, ranks)
			own[0], own[1] = out-100, 100
			for _, c := range []struct {
				rows, in int
				p        layout.Placement
				want     string
			}{{64, 8, layout.Shard(0), at}, {8, 64, layout.Shard(0), "S(1)"},
				{64, 8, layout.ShardSizes(0, own...), layout.ShardSizes(1, own...).String()}} {
				x := dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{c.rows, c.in}, layout.Replicate())
				y := x.Linear(dtensor.Normal(m, dtensor.Key{Stream: 2}, 0, 1, []int{out, c.in}, c.p), nil)
				if got := y.Placements()[0].String(); got != c.want {
					return fmt.Errorf("mesh %v: %v of %v, want %s", m, y, c, c.want)
				}
			}
			return nil
		})
	}
}

// A rule that was found without SameBits does not serve with it: sums of other ranks' parts are refused then.
func TestRulesKnowTheMode(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{4, 4}, layout.Replicate())
		for _, same := range []bool{false, true} {
			m.SetSameBits(same)
			for i, op := range []func(y T) T{T.Neg, func(y T) T { return y.Add(y) }} {
				if err := dtensor.Try(ctx, m, func() { op(x.Redistribute(layout.Partial(layout.Sum))) }); (err != nil) != same {
					return fmt.Errorf("same bits %v, operator %d: %v", same, i, err)
				}
			}
		}
		return nil
	})
}

// With SameBits a sum of all elements whose columns are divided moves as many numbers as there are rows, and one number of each node
// of the rows.
func TestSumsOfColumnsMoveNumbers(t *testing.T) {
	R, S := layout.Replicate(), layout.Shard
	for _, c := range []struct {
		grid   []int
		places []layout.Placement
		calls  string
		bytes  int
	}{
		{[]int{2}, []layout.Placement{S(1)}, "AllGather×1", 4 * 12}, {[]int{4}, []layout.Placement{S(1)}, "AllGather×1", 4 * 12},
		{[]int{2, 2}, []layout.Placement{S(0), S(1)}, "AllGather×2", 4*6 + 4}, {[]int{2}, []layout.Placement{S(0)}, "AllGather×1", 4},
		{[]int{2, 2}, []layout.Placement{R, S(1)}, "AllGather×1", 4 * 12},
	} {
		onMesh(t, c.grid, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			x := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{12, 64}, c.places...)
			record := m.Comm().Record()
			err := dtensor.Try(ctx, m, func() { x.Mean(nil, false).Item() })
			record.Stop()
			if err != nil {
				return err
			}
			if stats := record.Stats(); stats.Calls() != c.calls || stats.Total().Bytes != c.bytes {
				return fmt.Errorf("mesh %v, %v: %s of %d bytes, want %s of %d: %v", m, x, stats.Calls(), stats.Total().Bytes, c.calls, c.bytes,
					stats.Causes)
			}
			return nil
		})
	}
}

// With SameBits a sum whose terms lie at leaves is a node or two of each rank, which go to all in one call.
func TestSumsAtLeavesAreAddedUp(t *testing.T) {
	const out = 5
	for ranks, rows := range map[int]int{3: 8, 6: 16} {
		onMesh(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			x := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{rows, out}, layout.Shard(0))
			record := m.Comm().Record()
			err := dtensor.Try(ctx, m, func() { x.Sum([]int{0}, false) })
			record.Stop()
			if err != nil {
				return err
			}
			if stats := record.Stats(); stats.Calls() != "AllGatherV×1" || stats.Total().Bytes > 2*4*out {
				return fmt.Errorf("mesh %v: %s: %v", m, stats.Calls(), stats.Causes)
			}
			return nil
		})
	}
}
