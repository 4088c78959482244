package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// TestLookupShards looks up replicated and sharded ids in a table whose boxes ranks have
// in any number, and compares with the loop.
func TestLookupShards(t *testing.T) {
	boxes := [][4]int{{0, 0, 6, 2}, {0, 2, 4, 3}, {4, 2, 2, 1}, {4, 3, 2, 2}, {6, 0, 1, 5}, {7, 0, 0, 5}}
	for _, mesh := range [][]int{{1}, {2}, {3}, {2, 2}} {
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			var numbers []float32
			for _, v := range meshtest.Numbers(7*5, 1, 1) {
				numbers = append(numbers, float32(v))
			}
			whole := tensor.FromSlice(m.Device(), numbers, 7, 5)
			ids := someIDs(8, 7, 3)
			want := lookUp(floats(dtensor.Distribute(m, whole, m.Every(replicate)...)), 5, ids)
			for _, owners := range [][]int{{0, 0, 1, 2, 1, 0}, {0, 0, 0, 0, 0, 0}, {3, 2, 1, 0, 3, 2}} {
				var mine []dtensor.LocalShard
				for i, b := range boxes {
					if owners[i]%m.Size() == m.Comm().Rank() {
						data := tensor.New(m.Device(), tensor.Float32, b[2], b[3])
						tensor.CopyBox(data, []int{0, 0}, whole, b[:2], b[2:])
						mine = append(mine, dtensor.LocalShard{Data: data, Offset: [2]int{b[0], b[1]}})
					}
				}
				table, err := dtensor.NewLocalShards(m, tensor.Float32, [2]int{7, 5}, mine...)
				if err != nil {
					return err
				}
				if got := table.Stride(); got != [2]int{5, 1} {
					return fmt.Errorf("the stride is %v", got)
				}
				for _, at := range meshtest.Combinations(len(mesh), replicate, shard0) {
					y := embedding.LookupShards(table, meshtest.Place(m, ids, []int{4, 2}, at...), embedding.Options{})
					if got := fmt.Sprint(y.Shape(), y.Stride()); got != "[4 2 5] [10 5 1]" {
						return errors.New(got)
					}
					for _, p := range y.Placements() {
						if !p.IsPartial() {
							return fmt.Errorf("the result is %v", y)
						}
					}
					if err := close32(fmt.Sprint(owners, at), y.Full(), want); err != nil {
						return err
					}
				}
				if err := trainShards(ctx, m, table, ids, numbers[:35]); err != nil {
					return fmt.Errorf("%v: %w", owners, err)
				}
				// Each of these is refused on every rank, and the next lookup works.
				for _, c := range []struct {
					says string
					f    func()
				}{
					{"id 7 at [1 0]", func() {
						embedding.LookupShards(table, meshtest.Place(m, []int64{0, 6, 7, 1}, []int{2, 2}, m.Every(shard0)...), embedding.Options{})
					}},
					{"MaxNorm is set", func() {
						embedding.LookupShards(table, meshtest.Place(m, ids, []int{8}, m.Every(replicate)...), embedding.Options{MaxNorm: new(1.0)})
					}},
					{"use int64 or int32", func() {
						embedding.LookupShards(table, meshtest.Place(m, numbers, []int{35}, m.Every(replicate)...), embedding.Options{})
					}},
				} {
					if err := dtensor.Try(ctx, m, c.f); err == nil || !strings.Contains(err.Error(), c.says) ||
						!strings.HasPrefix(err.Error(), "embedding: LookupShards") {
						return fmt.Errorf("got %v, want %q", err, c.says)
					}
				}
			}
			return nil
		})
	}
}

// trainShards compares the gradient of a table of shards with the loop and changes the
// table by it.
func trainShards(ctx context.Context, m *dtensor.Mesh, table *dtensor.LocalShards, ids []int64, was []float32) error {
	param := table.Param()
	gy := meshtest.Numbers(8*5, 7, 1)
	seed := dtensor.Distribute(m, tensor.Cast(tensor.FromSlice(m.Device(), gy, 8, 5), tensor.Float32), m.Every(replicate)...)
	for _, o := range []embedding.Options{{}, {PaddingIdx: new(-4), ScaleGradByFreq: true}} {
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			x := meshtest.Place(m, ids, []int{8}, m.Every(replicate)...)
			return embedding.LookupShards(table, x, o).Mul(seed).Sum(nil, false)
		}, param)
		if err != nil {
			return err
		}
		padding := -1
		if o.PaddingIdx != nil {
			padding = 3
		}
		want := gradOf(7, 5, ids, gy, padding, o.ScaleGradByFreq)
		rows, sparse := grads[0].Rows()
		if !sparse {
			return errors.New("the gradient is dense")
		}
		flat, at := rows.Dense().Local(), 0
		flat = flat.Reshape(flat.Numel())
		tensor.AddTo(param.Local(), rows.Dense().Local()) // a step
		for _, s := range table.Shards() {
			k, w := s.Data.Dim(0), s.Data.Dim(1)
			var part, moved []float64
			for i := range k * w {
				e := (s.Offset[0]+i/w)*5 + s.Offset[1] + i%w
				part = append(part, want[e])
				moved = append(moved, float64(was[e])+want[e])
			}
			if err := close32("gradient", tensor.Narrow(flat, 0, at, k*w), part); err != nil {
				return err
			}
			if err := close32("after a step", s.Data, moved); err != nil {
				return err
			}
			at += k * w
		}
		tensor.AddTo(param.Local(), tensor.Unary(kernel.OpNeg, rows.Dense().Local()))
	}
	return nil
}
