package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestLookupAsIsLookupAndRedistribute compares the two, to the bit, for every
// placement of table, ids and result, with same bits and without.
func TestLookupAsIsLookupAndRedistribute(t *testing.T) {
	for _, mesh := range meshes {
		for k, s := range slices.Concat(sizes, sizes) {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(k < len(sizes))
				for i, w := range meshtest.Combinations(len(mesh), replicate, shard0, shard1) {
					for j, at := range meshtest.Combinations(len(mesh), replicate, shard0) {
						for _, to := range meshtest.Combinations(len(mesh), replicate, shard0) {
							o := embedding.Options{ScaleGradByFreq: i%2 == 1}
							if j%2 == 0 && s.rows > 0 {
								o.PaddingIdx = new(0)
							}
							if err := checkDirect(ctx, m, double, s, w, at, to, o); err != nil {
								return fmt.Errorf("%v: weight %v, ids %v, to %v: %w", s, w, at, to, err)
							}
						}
					}
				}
				return nil
			})
		}
	}
}

func checkDirect(ctx context.Context, m *dtensor.Mesh, p precision, s size, weight, at, to []layout.Placement, o embedding.Options) error {
	n := 1
	for _, d := range s.ids {
		n *= d
	}
	w := p.place(m, meshtest.Numbers(s.rows*s.width, 1, 1), []int{s.rows, s.width}, weight...)
	x := meshtest.Place(m, someIDs(n, s.rows, 3), s.ids, at...)
	g := meshtest.Place(m, meshtest.Numbers(n*s.width, 2, 1), append(slices.Clone(s.ids), s.width), to...)
	run := func(f func() *dtensor.Tensor) (value []float64, index []int64, grad []float64, err error) {
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := f()
			value = meshtest.Values(y.Local())
			return y.Cast(tensor.Float64).Mul(g).Sum(nil, false)
		}, w)
		if err != nil {
			return nil, nil, nil, err
		}
		rows, ok := grads[0].Rows()
		if !ok {
			return nil, nil, nil, errors.New("the gradient is not sparse")
		}
		return value, tensor.ToSlice[int64](rows.Index), meshtest.Values(rows.Values), nil
	}
	want, wantIndex, wantGrad, err := run(func() *dtensor.Tensor { return embedding.Lookup(w, x, o).Redistribute(to...) })
	if err != nil {
		return err
	}
	got, index, grad, err := run(func() *dtensor.Tensor { return embedding.LookupAs(w, x, o, to...) })
	switch {
	case err != nil:
		return err
	case !slices.Equal(got, want):
		return fmt.Errorf("value %v, want %v", got, want)
	case !slices.Equal(index, wantIndex):
		return fmt.Errorf("gradient of rows %v, want %v", index, wantIndex)
	case !slices.Equal(grad, wantGrad):
		return fmt.Errorf("gradient %v, want %v", grad, wantGrad)
	}
	return nil
}

// TestLookupAsCommunicates one exchange forward, and one backward from Shard, in
// which only rows for others are sent.
func TestLookupAsCommunicates(t *testing.T) {
	for _, c := range []struct {
		ranks             int
		weight, to        layout.Placement
		forward, backward string // of the first rank, which owns ids 0 and 1 of 8
	}{
		{2, shard0, replicate, "AllToAllV 96", ""},          // 6 of the 8 ids are below 4, of 16 bytes each
		{2, shard0, shard0, "AllToAllV 32", "AllToAllV 32"}, // 2 of those are in the other's half; their gradients come back
		{4, shard0, replicate, "AllGatherV 64", ""},         // 4 ids are below 2
		{4, shard0, shard0, "AllToAllV 32", "AllToAllV 32"}, // 2 of them in the second quarter
		{2, shard1, replicate, "AllGatherV 64", ""},         // half of each of the 8 rows
		{4, shard1, replicate, "AllGatherV 32", ""},         // a quarter
	} {
		meshtest.On(t, []int{c.ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			w := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{8, 4}, c.weight)
			x := meshtest.Place(m, []int64{0, 1, 1, 0, 2, 7, 3, 5}, []int{8}, replicate)
			record := m.Comm().Record()
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				y := embedding.LookupAs(w, x, embedding.Options{}, c.to)
				return y.Mul(y).Sum(nil, false)
			}, w)
			if err != nil {
				return err
			}
			var forward, backward []string
			for i, e := range record.Stop() {
				switch {
				case !strings.HasPrefix(e.Cause, "LookupAs") && !strings.HasPrefix(e.Cause, "Redistribute"):
				case i == 0:
					forward = append(forward, fmt.Sprintf("%v %d", e.Kind, e.Bytes))
				default:
					backward = append(backward, fmt.Sprintf("%v %d", e.Kind, e.Bytes))
				}
			}
			if m.Comm().Rank() == 0 && (strings.Join(forward, ", ") != c.forward || strings.Join(backward, ", ") != c.backward) {
				return fmt.Errorf("%d ranks, table %v, to %v: %q forward and %q backward, want %q and %q", c.ranks, c.weight, c.to, forward, backward,
					c.forward, c.backward)
			}
			return nil
		})
	}
}
