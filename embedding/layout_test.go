package embedding_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
)

// TestLayouts holds the placements and names of layouts, and that lookups in a
// table of each are those of the loop, for replicated and sharded ids.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		layout       embedding.Layout
		places, name string
	}{
		{embedding.Replicated(), "[R R]", "data-parallel"},
		{embedding.RowWise("b"), "[R S(0)]", "row-wise over b"},
		{embedding.RowWise("a", "b"), "[S(0) S(0)]", "row-wise over a,b"},
		{embedding.RowWiseSizes("b", 1, 0, 6), "[R S(0)[1 0 6]]", "row-wise over b"},
		{embedding.RowCyclic("b"), "[R C(0)]", "row-wise in turn over b"},
		{embedding.RowCyclic("a"), "[C(0) R]", "row-wise in turn over a"},
		{embedding.RowWiseOn("b", 2, 0), "[R S(0)[4 0 3]]", "row-wise over b on ranks [0 2]"},
		{embedding.TableWise("b", 1), "[R S(0)[0 7 0]]", "table-wise on rank 1 of b"},
		{embedding.TableWise("a", 1), "[S(0)[0 7] R]", "table-wise on rank 1 of a"},
		{embedding.ColumnWise("b"), "[R S(1)]", "column-wise over b"},
		{embedding.ColumnWiseOn("b", 1, 2), "[R S(1)[0 3 2]]", "column-wise over b on ranks [1 2]"},
		{embedding.ColumnWiseOn("b", 2, 0, 0), "[R S(1)[4 0 1]]", "column-wise over b on ranks [0 0 2]"},
		{embedding.ColumnWiseOn("a", 1, 1), "[S(1)[0 5] R]", "column-wise over a on ranks [1 1]"},
		{embedding.RowWiseOn("b", 2, 0, 2), "[R S(0)[3 0 4]]", "row-wise over b on ranks [0 2 2]"},
		{embedding.Grid("b", "a"), "[S(1) S(0)]", "grid, rows over b and columns over a"},
	} {
		meshtest.On(t, []int{2, 3}, func(ctx context.Context, m *dtensor.Mesh) error {
			table := embedding.NewTable(m, embedding.Config{Rows: 7, Dim: 5, Layout: c.layout})
			if got := fmt.Sprint(table.Weight().Placements()); got != c.places || c.layout.String() != c.name {
				return fmt.Errorf("%v has placements %s, want %s and %s", c.layout, got, c.name, c.places)
			}
			ids := someIDs(4, 7, 3)
			want := lookUp(floats(table.Weight().Redistribute(replicate, replicate)), 5, ids)
			for _, at := range meshtest.Combinations(2, one(replicate)...) {
				for _, p := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
					for axis, sharded := range p {
						if at[axis] = replicate; sharded {
							at[axis] = shard0
						}
					}
					if err := close32(fmt.Sprint(c.layout, at), table.Lookup(meshtest.Place(m, ids, []int{4}, at...)).Full(), want); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, c := range []struct {
			layout embedding.Layout
			says   string
		}{
			{embedding.TableWise("a", 2), `axis "a" has no rank 2`},
			{embedding.RowWiseOn("a", -1, 0), `axis "a" has no rank -1`},
			{embedding.RowWise("z"), `no axis "z"`},
			{embedding.Grid("a", "a"), `axis "a" is named twice`},
		} {
			err := dtensor.Try(ctx, m, func() { c.layout.Placements(m, 7, 5) })
			if err == nil || !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
		}
		return nil
	})
}
