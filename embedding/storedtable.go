package embedding

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Resident returns the rows that are in memory: what to make an optimizer of. It is Weight, or
// of a table with a Store a tensor of those rows that its Cache has room for. Which they are
// changes all the time.
func (t *Table) Resident() *dtensor.Tensor {
	if t.stored != nil {
		return t.stored.resident
	}
	return t.weight
}

// Follow makes what an optimizer of Resident remembers of the rows go with them to the disk and
// back. It is to be an optimizer of this table alone. A table with a Store needs it before Fuse
// and before the first lookup; of any other Follow only notes what State lists.
//
// It throws an *Error for an optimizer that remembers something else than numbers of each row.
func (t *Table) Follow(state iter.Seq2[string, *dtensor.Tensor]) {
	const op = "Follow"
	s := t.stored
	if s != nil && (s.followed || s.rows != nil && s.rows.Used()) {
		refuse(op, "%s follows an optimizer already, or rows of it have been looked up or loaded; call Follow once and before", s.name)
	}
	t.state = nil
	fields := 1
	for name, x := range state {
		if s == nil {
			t.state = append(t.state, namedState{name, x})
			continue
		}
		r := s.resident
		byRow := x.NDim() > 0 && x.Mesh() == r.Mesh() && x.Dim(0) == r.Dim(0)
		places := s.weight.Placements()
		for axis, p := range r.Placements() {
			switch its := x.Placement(axis); {
			case its.IsReplicate() && !p.Shards(0): // a number of a row, which all ranks with parts of it have
				places[axis] = its
			case its != p:
				byRow = false
			}
		}
		switch {
		case !strings.HasSuffix(name, ".0"):
			refuse(op, "%s: %q is of another parameter; make an optimizer of this table alone", s.name, name)
		case byRow:
			if s.rows != nil {
				local := x.Local()
				width := local.Bytes() / s.slots
				begin := like(bytesOf(local)[:width])
				if strings.HasPrefix(name, "master.") {
					begin = widened
				}
				s.rows.AddField(bytesOf(local), width, begin)
			}
			x.MarkExcerpt(s.name)
			shape := append([]int{s.weight.Dim(0)}, x.Shape()[1:]...)
			rowBytes := x.DType().Size() * ints.Product(shape[1:])
			x = x.Mesh().WrapStored(op, storedField{s, fields, rowBytes}, s.name+" has its rows on a disk, and "+name+" with them", x.DType(), shape,
				places...)
			fields++
		case x.Numel() != 1:
			refuse(op, "%s: %q is %v, not of rows as Resident is, %v; make a RowAdagrad, Adagrad, SparseAdam or SGD of Resident", s.name, name, x, r)
		}
		t.state = append(t.state, namedState{name, x})
	}
	if s != nil {
		s.followed = true
	}
}

// like returns what makes the first row of a field as this one is, nil for zeros.
func like(row []byte) func(first, data []byte) {
	if !slices.ContainsFunc(row, func(b byte) bool { return b != 0 }) {
		return nil
	}
	row = slices.Clone(row)
	return func(_, data []byte) { copy(data, row) }
}

// A namedState is what an optimizer remembers of a table.
type namedState struct {
	name   string
	tensor *dtensor.Tensor
}

// State lists what Follow was given, of all rows of the table, for checkpoints:
//
//	state.AddTensors("users.", table.Params())
//	state.AddTensors("users.", table.State())
//
// Checkpoints of tables with a Store and without have the same tensors.
func (t *Table) State() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for _, s := range t.state {
			if !yield(s.name, s.tensor) {
				return
			}
		}
	}
}

// prefetchOp is what errors call a Prefetch.
const prefetchOp = "Prefetch"

// Prefetch begins to read those rows from the disk that ids name and that are not in memory,
// so that a lookup of these ids in the next step finds them there. Call it before the forward
// pass of this step; the disk is read while it computes.
//
//	next := batch(step + 1)
//	table.Prefetch(next)
//	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return loss(table.Lookup(ids)) }, table.Param())
//	ids = next
//
// A lookup of the same ids uses what Prefetch has found out about them and about their rows, of the last two batches
// that were prefetched, and if that is so on all ranks does not exchange them again; it takes some eighty bytes an id to remember.
//
// It communicates as a lookup does up to the replies, and throws for bad ids as a lookup does. It
// does nothing for a table without a Store.
func (t *Table) Prefetch(ids *dtensor.Tensor) {
	if t.stored == nil {
		return
	}
	const op = prefetchOp
	t.stored.ahead.turn()
	s := t.settings(op)
	checkIDs(op, t.weight, ids, s)
	p := rolesOf(op, t.weight, ids, s)
	scope := p.mesh.Device().Open()
	defer scope.Close()
	at := ids.Redistribute(p.ids...)
	if !p.mesh.Inside() {
		return
	}
	l := newLookup(p, s, t.weight, at, false)
	rows := l.x.prefetched(len(l.requests) > 0, func() []int64 { return tensor.ToSlice[int64](l.distinct().Index) })
	t.stored.prefetch(rows)
}

// prefetched returns the rows of the one table that this rank is to bring into memory: those that
// are requested of it, or its own.
func (x *exchange) prefetched(requests bool, own func() []int64) []int64 {
	if !requests {
		return own()
	}
	x.request()
	return x.requested(0)
}

// Prefetch begins to read the rows of a batch that tables with a Store have on a disk; see Table.Prefetch. It asks for the keys of
// Dynamic tables too, which changes nothing of them, so that a lookup of the batch need not exchange any ids.
func (c *Collection) Prefetch(j *Jagged) {
	if c.asks == nil || !c.mesh.Inside() {
		return
	}
	const op = prefetchOp
	for t, table := range c.tables {
		if c.ahead[t].turn(); table.stored != nil {
			table.stored.ahead.turn()
		}
	}
	scope := c.mesh.Device().Open()
	defer scope.Close()
	if c.mesh.SameBits() {
		j = j.expanded().gathered()
	}
	v := c.newRequest(op, j, c.columns(op, j), false)
	for t, table := range c.tables {
		if table.stored != nil {
			table.stored.prefetch(v.requested(t))
		}
	}
}

// settings are those of the table's own options.
func (t *Table) settings(op string) settings {
	s := t.options.check(op, t.weight)
	s.stored = t.stored
	return s
}

// StoreStats are what the Store and the Cache of a table have done on all ranks, since it was made.
type StoreStats struct {
	Rows  int // of the table
	Slots int // for how many rows there is room in memory

	Wanted       int // distinct rows that lookups wanted of their owners, or parts of them where columns are divided
	Hits         int // those that were in memory
	Prefetched   int // rows that Prefetch has read
	PrefetchHits int // those that a lookup then wanted
	BytesRead    int
	BytesWritten int
}

// HitRate returns Hits/Wanted, 0 if nothing was wanted.
func (s StoreStats) HitRate() float64 { return float64(s.Hits) / float64(max(s.Wanted, 1)) }

// String prints them on a line.
func (s StoreStats) String() string {
	return fmt.Sprintf("%d of %d rows in memory, %.1f%% of %d wanted rows found there, %d prefetched and %d of them used, "+
		"%.1f MB read, %.1f MB written",
		s.Slots, s.Rows, 100*s.HitRate(), s.Wanted, s.Prefetched, s.PrefetchHits, float64(s.BytesRead)/1e6, float64(s.BytesWritten)/1e6)
}

// StoreStats returns the statistics of the table's Store; zeros if it has none and on a rank outside
// the mesh. It is collective.
func (t *Table) StoreStats() StoreStats {
	if t.stored == nil || !t.weight.Mesh().Inside() {
		return StoreStats{}
	}
	n := make([]int64, 6)
	if s := t.stored.rows; s != nil {
		its := s.Stats()
		for i, v := range []int{its.Wanted, its.Hits, its.Prefetched, its.Ahead, its.BytesRead, its.BytesWritten} {
			n[i] = int64(v)
		}
	}
	m := t.weight.Mesh()
	m.Do(m.Comm(), comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(n), Src: comm.Of(n), Cause: "StoreStats"})
	return StoreStats{Rows: t.weight.Dim(0), Slots: t.stored.resident.Dim(0), Wanted: int(n[0]), Hits: int(n[1]), Prefetched: int(n[2]),
		PrefetchHits: int(n[3]), BytesRead: int(n[4]), BytesWritten: int(n[5])}
}
