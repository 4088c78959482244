package embedding_test

import (
	"fmt"
	"maps"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
)

// A tally is how often an operator and its gradient communicate, by cause.
type tally map[string]int

// check compares the collectives of an operator with t. It returns an error, too,
// if one of them takes more than so many bytes on this rank.
func (t tally) check(events []comm.Event, op string, most int) error {
	got := tally{}
	for _, e := range events {
		if cause, ok := strings.CutPrefix(e.Cause, op+": "); ok {
			got[cause]++
			if e.Bytes > most {
				return fmt.Errorf("%d bytes of %s, want at most %d", e.Bytes, cause, most)
			}
		}
	}
	if !maps.Equal(got, t) {
		return fmt.Errorf("communicates %v, want %v", got, t)
	}
	return nil
}

// add counts the causes once more if they apply.
func (t tally) add(applies bool, causes ...string) {
	for _, c := range causes {
		if applies {
			t[c]++
		}
	}
}

// lookupTally is what a lookup and its gradient come to, from the layouts.
func lookupTally(m *dtensor.Mesh, weight, ids []layout.Placement, norms bool) tally {
	var exchange, replicated, columns bool
	for axis, a := range m.Axes() {
		w, at := weight[axis], ids[axis]
		switch {
		case a.Size == 1:
		case w.Shards(1):
			columns = true
		case w.Shards(0):
			exchange = exchange || at.IsShard()
		case at.IsShard():
			replicated = true
		}
	}
	t := tally{}
	t.add(exchange || replicated, "status and counts")
	t.add(exchange, "ids", "rows", "gradients of rows")
	t.add(replicated, "gradients of replicas")
	t.add(replicated && exchange, "counts of replicas") // how many rows were asked for is not known before
	t.add(norms && columns, "norms of rows")
	t.add(norms && replicated, "ids of replicas")
	t.add(norms && replicated && exchange, "counts of replicas")
	return t
}

// bagTally is what Bag and its gradient come to. kept says which axes keep the
// bags sharded.
func bagTally(m *dtensor.Mesh, weight []layout.Placement, kept []bool, mode embedding.Mode, norms bool) tally {
	var masked, replicated, columns bool
	for axis, a := range m.Axes() {
		many, w := a.Size > 1, weight[axis]
		masked = masked || many && w.Shards(0)
		columns = columns || many && w.Shards(1)
		replicated = replicated || many && kept[axis]
	}
	t := tally{}
	t.add(replicated, "status and counts", "counts of replicas", "gradients of replicas")
	t.add(masked && mode == embedding.Max, "maxima")
	t.add(norms && columns, "norms of rows")
	t.add(norms && replicated, "ids of replicas")
	return t
}

// bagsTally is what the Bags of a collection and their gradient come to.
func (sh *shelf) bagsTally(m *dtensor.Mesh, samples []layout.Placement) tally {
	var batch, some uint
	copies := map[uint]bool{}                           // sets of axes that replicate tables
	normed, sums := map[uint]bool{}, map[[2]uint]bool{} // of tables with norms
	for axis, p := range samples {
		if p.IsShard() && m.Axes()[axis].Size > 1 {
			batch |= 1 << axis
		}
	}
	for _, table := range sh.tables {
		var sharded, wide uint
		for axis, p := range table.Layout.Placements(m, table.Rows, table.Dim) {
			if m.Axes()[axis].Size == 1 {
				continue
			}
			if p.IsShard() {
				sharded |= 1 << axis
			}
			if p.Shards(1) {
				wide |= 1 << axis
			}
		}
		some |= sharded
		copies[batch&^sharded] = true
		if table.MaxNorm != nil {
			normed[batch&^sharded] = true
			most := uint(0) // the largest element is another reduction than a sum
			if table.NormType != nil && *table.NormType > 1e9 {
				most = 1
			}
			sums[[2]uint{wide, most}] = true
		}
	}
	t := tally{}
	t.add(batch != 0, "status and counts")
	t.add(batch&some != 0, "ids", "gradients of rows")
	t.add(some != 0, "rows")
	for set := range copies {
		t.add(set != 0, "counts of replicas", "gradients of replicas")
	}
	for set := range normed {
		t.add(set != 0, "counts of replicas", "ids of replicas")
	}
	for set := range sums {
		t.add(set[0] != 0, "norms of rows")
	}
	return t
}
