package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A table in turn begins with the rows of any other, and an id that it has not is named as
// it was given.
func TestRowCyclicRowsAndErrors(t *testing.T) {
	meshtest.On(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		make := func(l embedding.Layout) *embedding.Table {
			padding := 6
			return embedding.NewTable(m, embedding.Config{Name: "words", Rows: 7, Dim: 3, Layout: l, PaddingIdx: &padding})
		}
		table, other := make(embedding.RowCyclic("b")), make(embedding.RowWise("b"))
		if err := near("rows", table.Weight().Full(), meshtest.Values(other.Weight().Full())); err != nil {
			return err
		}
		for _, id := range []int64{9, -1} {
			c := embedding.NewCollection(m, embedding.CollectionTable{Config: embedding.Config{Name: "words", Rows: 7, Dim: 3,
				Layout: embedding.RowCyclic("b")}, Features: []string{"f"}})
			for _, ids := range [][]int64{{3, id}, {3, 6}} {
				err := dtensor.Try(ctx, m, func() { table.Lookup(meshtest.Place(m, ids, []int{2}, shard0, replicate)) })
				var wrong *embedding.IDError
				if bad := ids[1] != 6; bad != errors.As(err, &wrong) || bad && (wrong.ID != id || wrong.Position[0] != 1) {
					return fmt.Errorf("Lookup: got %v, want id %d", err, id)
				}
				j, err := embedding.NewJagged(m, []string{"f"}, 1, []int{2}, ids, nil)
				if err != nil {
					return err
				}
				err = dtensor.Try(ctx, m, func() { c.Bags(j) })
				if bad := ids[1] != 6; bad != errors.As(err, &wrong) || bad && (wrong.ID != id || wrong.Position[1] != 1) {
					return fmt.Errorf("Bags: got %v, want id %d", err, id)
				}
			}
		}
		return nil
	})
}

// Of ids that are sorted by frequency the ranks of a table in turn serve about as many
// distinct rows each, while the first of a table in blocks serves most. Stats counts the
// bytes of the rows that a rank sends.
func TestRowCyclicIsBalanced(t *testing.T) {
	const rows, dim, batch = 200_000, 4, 4096
	for ranks, most := range map[int]float64{4: 3, 8: 5} {
		var worst []float64
		for _, l := range []embedding.Layout{embedding.RowWise("a"), embedding.RowCyclic("a")} {
			var served [8]float64
			meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
				table := embedding.NewTable(m, embedding.Config{Rows: rows, Dim: dim, Layout: l})
				zipf := rand.NewZipf(rand.New(rand.NewPCG(7, uint64(m.Coord()[0]))), 1.05, 1, rows-1)
				ids := make([]int64, batch)
				for i := range ids {
					ids[i] = int64(zipf.Uint64())
				}
				mine := tensor.FromSlice(m.Device(), ids, batch)
				table.Lookup(m.Wrap("ids", mine, nil, false, []int{ranks * batch}, layout.Shard(0)))
				stats := m.Group("a").Stats().Causes[comm.Cause{Kind: comm.AllToAllVKind, Cause: "Lookup: rows"}]
				served[m.Coord()[0]] = float64(stats.Bytes) / (4 * dim)
				return nil
			})
			total := 0.0
			for _, n := range served {
				total += n
			}
			worst = append(worst, slices.Max(served[:])*float64(ranks)/total)
		}
		t.Logf("%d ranks: the most of a rank is %.2f times the mean in blocks, %.2f in turn", ranks, worst[0], worst[1])
		if worst[0] < most || worst[1] > 1.1 {
			t.Errorf("%d ranks: the most of a rank is %.2f times the mean, want over %v in blocks and at most 1.1 in turn", ranks, worst, most)
		}
	}
}
