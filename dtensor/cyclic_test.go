package dtensor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Random numbers and counts are those of the global index where rows are dealt out in
// turn too, and nothing is communicated to make them.
func TestCyclicIsMadeByGlobalIndex(t *testing.T) {
	for _, mesh := range [][]int{{1}, {3}, {4}, {2, 2}} {
		onMesh(t, mesh, func(_ context.Context, m *dtensor.Mesh) error {
			for _, shape := range [][]int{{7, 4}, {8, 4}, {2, 4}, {0, 4}, {9}, {5, 2, 3}} {
				places := m.Every(layout.Replicate())
				places[0] = layout.ShardCyclic()
				if len(mesh) > 1 && len(shape) > 1 {
					places[1] = layout.Shard(1)
				}
				for _, c := range []struct {
					name string
					made func(shape []int, p ...layout.Placement) *dtensor.Tensor
				}{
					{"Normal", func(shape []int, p ...layout.Placement) *dtensor.Tensor {
						return dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1, shape, p...)
					}},
					{"Uniform", func(shape []int, p ...layout.Placement) *dtensor.Tensor {
						return dtensor.Uniform(m, dtensor.Key{Seed: 1}, 0, 1, shape, p...)
					}},
					{"Dropout", func(shape []int, p ...layout.Placement) *dtensor.Tensor {
						return dtensor.Full(m, tensor.Float32, 1, shape, p...).Dropout(0.5, dtensor.Key{Seed: 2})
					}},
					{"Arange", func(shape []int, p ...layout.Placement) *dtensor.Tensor {
						if len(shape) > 1 {
							return dtensor.Zeros(m, tensor.Float32, shape, p...)
						}
						return dtensor.Arange(m, tensor.Float32, 3, shape[0], p...)
					}},
				} {
					name, made := c.name, c.made
					record := m.Comm().Record()
					dealt := made(shape, places...)
					if e := record.Stop(); len(e) > 0 && name != "Dropout" {
						return fmt.Errorf("%s%v: communicates %v", name, shape, e)
					}
					got := tensor.ToSlice[float32](dealt.Full())
					want := tensor.ToSlice[float32](made(shape, m.Every(layout.Replicate())...).Local())
					if !slices.Equal(got, want) {
						return fmt.Errorf("%s%v: %v, want %v", name, shape, got, want)
					}
				}
			}
			return nil
		})
	}
}

// From blocks to turns and back each row is sent once, and from a whole tensor none.
func TestCyclicMovesEachRowOnce(t *testing.T) {
	onMesh(t, []int{4}, func(_ context.Context, m *dtensor.Mesh) error {
		const rows, width = 10, 3
		moved := func(from, to layout.Placement) (kinds []comm.Kind, bytes int) {
			x := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{rows, width}, from)
			record := m.Comm().Record()
			x.Redistribute(to)
			for _, e := range record.Stop() {
				if e.Kind != comm.SplitKind {
					kinds, bytes = append(kinds, e.Kind), bytes+e.Bytes
				}
			}
			return kinds, bytes
		}
		held := m.Coord()[0]
		for _, c := range []struct {
			from, to layout.Placement
			rows     int // that this rank hands in; -1: nothing is sent
		}{
			{layout.Shard(0), layout.ShardCyclic(), []int{3, 3, 3, 1}[held]},
			{layout.ShardCyclic(), layout.Shard(0), []int{3, 3, 2, 2}[held]},
			{layout.Replicate(), layout.ShardCyclic(), -1},
		} {
			kinds, bytes := moved(c.from, c.to)
			if c.rows < 0 && len(kinds) > 0 || c.rows >= 0 && (len(kinds) != 1 || bytes != c.rows*width*4) {
				return fmt.Errorf("%v → %v: %v of %d bytes, want %d rows", c.from, c.to, kinds, bytes, c.rows)
			}
		}
		return nil
	})
}

// A parameter whose rows are dealt out has its gradient in its layout, dense or of rows.
func TestCyclicGradients(t *testing.T) {
	onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		w := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{7, 2}, layout.ShardCyclic())
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return w.Mul(w).Sum(nil, false) }, w)
		if err != nil {
			return err
		}
		g := grads[0].Dense()
		if g.Layout() != w.Layout() {
			return fmt.Errorf("the gradient is %v", g)
		}
		want := tensor.ToSlice[float32](w.Local())
		for i, x := range tensor.ToSlice[float32](g.Local()) {
			if x != 2*want[i] {
				return fmt.Errorf("element %d of the gradient is %v, want %v", i, x, 2*want[i])
			}
		}
		l := w.Layout()
		for row := range 7 {
			rank := row % 3
			start, n := l.Span([]int{rank}, 0)
			if at := l.Served(row); at != start+row/3 || row/3 >= n {
				return fmt.Errorf("row %d is served as %d; rank %d has %d from %d on", row, at, rank, n, start)
			}
		}
		return nil
	})
}
