package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A travel takes distinct ids to the ranks that have their rows, the rows back,
// and later the gradients of the rows to where they came from. It runs over the
// axes that shard both the rows and the ids; member r is rank r of their group.
type travel struct {
	group    *comm.Comm
	owners   layout.Owners
	ends     []int          // where the rows of each member end, ascending
	sent     []int          // sent[r] distinct ids go to member r, in the order of uniq.Index
	received []int          // received[r] ids come from member r
	asked    *tensor.Tensor // the ids that came, [Σ received], counted from this rank's first row
}

func newTravel(l *lookup) *travel {
	g := l.group(l.exchange...)
	size := g.Size()
	list := make([]int, 3*size)
	t := &travel{group: g, ends: list[:size], sent: list[size : 2*size], received: list[2*size:]}
	coord := slices.Clone(l.mesh.Coord())
	for r := range size {
		l.locate(coord, r)
		start, n := l.weight.Layout().Span(coord, 0)
		t.owners.Add(start, n, r)
		t.ends[r] = start + n
	}
	return t
}

// locate enters in a coordinate of this rank where on the axes of the exchange
// member r is.
func (p *plan) locate(coord []int, r int) {
	for i := len(p.exchange) - 1; i >= 0; i-- {
		size := p.mesh.Axes()[p.exchange[i]].Size
		coord[p.exchange[i]] = r % size
		r /= size
	}
}

// address finds the distinct ids of the rows that the members have, and how
// many go to each. Ids of rows that other ranks of masked axes have stay behind.
func (t *travel) address(l *lookup) {
	ids := l.ids
	if len(l.masked) > 0 {
		whole := tensor.Cast(ids, tensor.Int64)
		near, owner := newList[int64](ids.Device(), ids.Numel()), newList[int32](ids.Device(), ids.Numel())
		copy(near.elems, tensor.Read[int64](whole))
		runtime.KeepAlive(whole)
		t.owners.Find(owner.elems, near.elems)
		for i, r := range owner.elems {
			if r < 0 {
				near.elems[i] = -1
			}
		}
		owner.free()
		ids = near.tensor(ids.Device(), ids.Numel()).Reshape(ids.Shape()...)
	}
	u := tensor.Unique(ids, 0, l.weight.Dim(0))
	l.uniq = &u
	index := tensor.Read[int64](u.Index)
	at := 0
	for r := range t.sent {
		end, _ := slices.BinarySearch(index, int64(t.ends[r]))
		t.sent[r] = end - at
		at = end
	}
	runtime.KeepAlive(u.Index)
}

// send takes the ids to their owners.
func (l *lookup) send() {
	t := l.travel
	t.asked = tensor.New(l.ids.Device(), tensor.Int64, sum(t.received))
	l.mesh.Do(t.group, comm.Call{Kind: comm.AllToAllVKind, Dst: dtensor.BufferOf(t.asked), Src: dtensor.BufferOf(l.uniq.Index),
		DstCounts: t.received, SrcCounts: t.sent, Cause: l.op + ": ids"})
	t.asked = tensor.AddScalar(t.asked, -float64(l.lo))
	runtime.KeepAlive(l.uniq.Index)
}

// fetch brings the rows back and puts each where its ids are.
func (l *lookup) fetch() *tensor.Tensor {
	t, dev, d := l.travel, l.table.Device(), l.table.Dim(1)
	rows := tensor.TakeRows(l.table, t.asked, 0)
	got := tensor.New(dev, l.table.DType(), sum(t.sent), d)
	l.mesh.Do(t.group, comm.Call{Kind: comm.AllToAllVKind, Dst: dtensor.BufferOf(got), Src: dtensor.BufferOf(rows),
		DstCounts: scaled(t.sent, d), SrcCounts: scaled(t.received, d), Cause: l.op + ": rows"})
	rows.Free()
	defer got.Free()
	return tensor.TakeRows(got, l.uniq.Slot.Reshape(l.ids.Shape()...), 0)
}

// giveBack takes the gradients [U, w] of the rows that were fetched to their
// owners and returns those of this rank's rows.
func (l *lookup) giveBack(values *tensor.Tensor) tensor.Rows {
	t, w := l.travel, values.Dim(1)
	got := tensor.New(values.Device(), values.DType(), sum(t.received), w)
	l.mesh.Do(t.group, comm.Call{Kind: comm.AllToAllVKind, Dst: dtensor.BufferOf(got), Src: dtensor.BufferOf(values),
		DstCounts: scaled(t.received, w), SrcCounts: scaled(t.sent, w), Cause: l.op + ": gradients of rows"})
	runtime.KeepAlive(values)
	defer got.Free()
	return tensor.Coalesce(t.asked, got, l.n)
}

func sum(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// scaled returns counts of rows as counts of elements.
func scaled(counts []int, width int) []int {
	s := make([]int, len(counts))
	for i, c := range counts {
		s[i] = c * width
	}
	return s
}
