package embedding_test

import (
	"context"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits the bags of a collection and the gradients of its tables have the bits of
// one rank on every mesh, for samples that are divided unevenly or not at all.
func TestBagsHaveTheSameBits(t *testing.T) {
	var want []float64
	for _, c := range []struct {
		mesh   []int
		places []layout.Placement
	}{
		{[]int{1, 1}, nil},
		{[]int{2, 1}, []layout.Placement{layout.Shard(0), layout.Replicate()}},
		{[]int{1, 3}, []layout.Placement{layout.Replicate(), layout.Shard(0)}},
		{[]int{2, 2}, []layout.Placement{layout.Shard(0), layout.Shard(0)}},
		{[]int{2, 2}, []layout.Placement{layout.Shard(0), layout.Replicate()}},
		{[]int{1, 7}, []layout.Placement{layout.Replicate(), layout.Shard(0)}},
	} {
		var got []float64
		meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			numbers, err := bagsAndGradients(ctx, m, c.places)
			if err == nil && m.Comm().Rank() == 0 {
				got = numbers
			}
			return err
		})
		if want == nil {
			want = got
		}
		for i := range want {
			if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
				t.Fatalf("mesh %v, samples %v: number %d is %v, on one rank %v", c.mesh, c.places, i, got[i], want[i])
			}
		}
	}
}

// bagsAndGradients returns bags of weighted ids of two tables, and the tables' gradients.
func bagsAndGradients(ctx context.Context, m *dtensor.Mesh, places []layout.Placement) ([]float64, error) {
	const samples, width = 5, 4
	lengths := [][]int{{3, 0, 4, 1, 2}, {1, 1, 0, 5, 2}}
	c := embedding.NewCollection(m,
		embedding.CollectionTable{Features: []string{"x"}, Mode: embedding.Sum,
			Config: embedding.Config{Name: "x", Rows: 3, Dim: width, Layout: embedding.RowWise("b"), Std: 1}},
		embedding.CollectionTable{Features: []string{"y"}, Mode: embedding.Sum,
			Config: embedding.Config{Name: "y", Rows: 2, Dim: width, Layout: embedding.ColumnWise("b"), Key: dtensor.Key{Seed: 2}, Std: 1}})
	dtensor.Keep(c.Params()...)
	if places == nil {
		places = m.Every(layout.Replicate())
	}
	spread := dtensor.Zeros(m, tensor.Int64, []int{samples}, places...)
	offset, _ := spread.Offset()
	first, n := offset[0], spread.LocalShape()[0]
	var mine []int
	var ids []int64
	var weights []float32
	for f, of := range lengths {
		for s, count := range of {
			if s < first || s >= first+n {
				continue
			}
			mine = append(mine, count)
			for k := range count {
				ids = append(ids, int64((s+k)%(3-f)))
				weights = append(weights, float32(math.Sin(float64(10*s+k+f))))
			}
		}
	}
	j, err := embedding.NewJagged(m, []string{"x", "y"}, samples, mine, ids, weights, places...)
	if err != nil {
		return nil, err
	}
	var bags *dtensor.Tensor
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		bags = c.Bags(j).Values()
		dtensor.Keep(bags)
		return bags.Mul(bags.Sin()).Sum(nil, false)
	}, c.Params()...)
	if err != nil {
		return nil, err
	}
	numbers := tensor.ToSlice[float64](tensor.Cast(bags.Full(), tensor.Float64))
	for _, g := range grads {
		dense := g.Dense()
		if rows, ok := g.Rows(); ok {
			dense = rows.Dense()
		}
		numbers = append(numbers, tensor.ToSlice[float64](tensor.Cast(dense.Full(), tensor.Float64))...)
	}
	return numbers, nil
}
