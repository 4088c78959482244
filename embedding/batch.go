package embedding

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A batchLookup is one lookup of a batch in all tables of a collection on one rank.
type batchLookup struct {
	exchange
	c     *Collection
	j     *Jagged
	at    []int          // of each feature in the batch
	first [][]int        // by table: where the ids of each of its features begin among them
	count [][]int64      // [feature][rank of batch] ids, where the op needs them
	got   *tensor.Tensor // the rows that have come, see replies
}

// newLookup checks this rank's ids, with the other ranks where they have others.
// counted says that they are to know how many ids each has.
func (c *Collection) newLookup(op string, j *Jagged, at []int, counted bool) *batchLookup {
	v := c.newRequest(op, j, at, counted)
	if slices.ContainsFunc(c.settings, func(s settings) bool { return s.renorm }) {
		v.renormalize(v.requestedRows())
	}
	v.fetch(false, v.requested)
	v.findKeys()
	v.got = v.replies()
	return v
}

// newRequest is newLookup up to the requests.
func (c *Collection) newRequest(op string, j *Jagged, at []int, counted bool) *batchLookup {
	v := &batchLookup{c: c, j: j, at: at}
	v.exchange = exchange{route: c.routeFor(j), op: op, mesh: c.mesh, dtype: c.dtype, tables: make([]part, len(c.tables)),
		asks: c.asks, facts: c.facts, subject: c}
	bad := make([]int64, badSize)
	for t, table := range c.tables {
		w, d := table.weight, c.keys[t]
		v.tables[t] = part{settings: &c.settings[t], weight: w, local: w.Local(), row: firstRow(w), width: w.Dim(1), dynamic: d}
		var parts []*tensor.Tensor
		first, n := make([]int, len(c.of[t])), 0
		for i, f := range c.of[t] {
			part := j.idsOf(at[f])
			first[i] = n
			n += part.Numel()
			if d == nil {
				its, pos, id, wrong := servedIDs(w, part)
				if part = its; wrong {
					v.blame(bad, f, pos, id)
				}
			}
			parts = append(parts, part)
		}
		if len(parts) == 0 {
			parts = append(parts, tensor.New(c.mesh.Device(), tensor.Int64, 0))
		}
		v.first = append(v.first, first)
		if d == nil {
			v.distinct = append(v.distinct, table.stored.distinct(join(parts), 0, w.Dim(0), op))
			continue
		}
		var ahead *aheads
		if c.asks != nil {
			ahead = &c.ahead[t]
		}
		unique := func(keys *tensor.Tensor, _, _ int) distinct { return distinctKeys(keys) }
		v.setKeys(t, ahead.distinct(join(parts), 0, 0, op, unique), op != prefetchOp && dtensor.Tracked(table.input()))
		v.countLists(t)
	}
	v.agree(bad, counted)
	v.request()
	return v
}

// countLists has a key of dynamic table t count as often as samples have it, also where they share lists.
func (v *batchLookup) countLists(t int) {
	keys := v.tables[t].keys
	if !keys.counted || !slices.ContainsFunc(v.c.of[t], func(f int) bool { return v.j.inverse[v.at[f]] != nil }) {
		return
	}
	slot := tensor.Read[int32](v.distinct[t].Slot)
	keys.counts = make([]int64, keys.Index.Numel())
	for i, f := range v.c.of[t] {
		lengths, at := v.j.lengthsOf(v.at[f]), v.first[t][i]
		samples := make([]int64, len(lengths)) // of each list
		for list := range samples {
			samples[list] = 1
		}
		if inverse := v.j.inverse[v.at[f]]; inverse != nil {
			clear(samples)
			for _, list := range inverse {
				samples[list]++
			}
		}
		for list, n := range lengths {
			for _, k := range slot[at : at+n] {
				keys.counts[k] += samples[list]
			}
			at += n
		}
	}
	runtime.KeepAlive(v.distinct[t].Slot)
}

// What a rank says of its worst id.
const (
	badFeature = iota // its feature plus one, 0: none is bad
	badSample
	badAt // in the sample's list
	badID
	badSize
)

// blame notes the bad id at a position among this rank's ids of feature f, if
// no earlier feature has one.
func (v *batchLookup) blame(bad []int64, f, pos, id int) {
	if bad[badFeature] != 0 && bad[badFeature] <= int64(f+1) {
		return
	}
	start, _ := v.j.batch.Span(v.c.mesh.Coord(), 0)
	for s, n := range v.j.lengthsOf(v.at[f]) {
		if pos < n {
			if inverse := v.j.inverse[v.at[f]]; inverse != nil { // the first sample with this list
				s = slices.Index(inverse, s)
			}
			copy(bad, []int64{int64(f + 1), int64(start + s), int64(pos), int64(id)})
			return
		}
		pos -= n
	}
}

// agree tells the ranks with other samples whether this rank's ids are good, how many
// rows it requests, and if counted how many ids it has. So all throw the same error or
// none.
func (v *batchLookup) agree(bad []int64, counted bool) {
	head := v.appendCounts(bad)
	if counted {
		for _, at := range v.at {
			head = append(head, int64(v.j.idsOf(at).Numel()))
		}
	}
	all, worst := v.exchange.agree(head, badSize)
	if worst != nil {
		f := v.c.features[worst[badFeature]-1]
		fault.Throw(&IDError{Op: v.op, Table: fmt.Sprintf("feature %q in table %q", f.name, v.c.nameOf(f.table)), ID: worst[badID],
			Position: []int{int(worst[badSample]), int(worst[badAt])}, Rows: v.c.tables[f.table].weight.Dim(0)})
	}
	v.setCounts(all, len(head), badSize)
	if counted {
		v.count = make([][]int64, len(v.at))
		for its := range slices.Chunk(all, len(head)) {
			for f := range v.at {
				v.count[f] = append(v.count[f], its[len(head)-len(v.at)+f])
			}
		}
	}
}
