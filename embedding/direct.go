package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// LookupAs is Lookup and Redistribute in one: the rows of a row-wise table go
// from the table to the ranks that are to have them, without a tensor of all
// local rows between, and so do their gradients.
//
//	weight     ids     to      communication                        gradient
//	S(0)       R       R       1 of the rows                        none
//	S(0)       R       S(0)    1 of the rows, to those who keep it  1 of the rows' gradients, to the owners
//	S(1)       R       R       1 of the rows' parts                 none
//	R,S(0)     S(0),R  S(0),R  a status and a count, 1 of the rows  1 of ids and rows
//
// Values and gradients are those of Lookup(weight, ids, o).Redistribute(to...),
// to the bit, and all other layouts are looked up so. It throws as these do.
func LookupAs(weight, ids *dtensor.Tensor, o Options, to ...layout.Placement) *dtensor.Tensor {
	return (&Table{weight: weight, options: o}).LookupAs(ids, to...)
}

// LookupAs returns the rows that ids name in the given placements; see the
// function LookupAs.
func (t *Table) LookupAs(ids *dtensor.Tensor, to ...layout.Placement) *dtensor.Tensor {
	const op = "LookupAs"
	weight := t.weight
	s := t.options.check(op, weight)
	checkIDs(op, weight, ids, s)
	p := planFor(op, weight, ids, s)
	masked, columns := p.direct(weight, ids, s, to), p.wholeRows(weight, s, to)
	if !masked && !columns || !p.mesh.Inside() {
		return t.lookUp(ids).Redistribute(to...)
	}
	shape := append(slices.Clone(ids.Shape()), weight.Dim(1))
	at := ids.Redistribute(p.ids...)
	input := t.input()
	l := newLookup(p, s, weight, at, dtensor.Tracked(input))
	if columns {
		w := newWholes(l)
		out := p.mesh.Wrap(op, w.forward(), nil, false, shape, to...)
		return dtensor.Record(op, out, []*dtensor.Tensor{input}, func(gy *dtensor.Tensor) []dtensor.Grad {
			return []dtensor.Grad{t.take(w.backward(gy.Redistribute(to...).Local()))}
		})
	}
	d := newDirect(l, ids.Shape(), to)
	out := p.mesh.Wrap(op, d.forward(), nil, false, shape, to...)
	return dtensor.Record(op, out, []*dtensor.Tensor{input}, func(gy *dtensor.Tensor) []dtensor.Grad {
		if d.block == nil {
			return []dtensor.Grad{t.take(d.lookup.backward(gy))}
		}
		return []dtensor.Grad{t.take(d.backward(gy.Redistribute(to...).Local()))}
	})
}

// direct reports whether rows can go straight from the table to where they are
// to be: one axis masks them and replicates or shards them by their first
// dimension, and nothing else changes.
func (p *plan) direct(weight, ids *dtensor.Tensor, s settings, to []layout.Placement) bool {
	if len(p.masked) != 1 || len(p.exchange)+len(p.columns) > 0 || p.premasked || s.renorm || ids.NDim() == 0 ||
		len(to) != len(p.result) || !slices.Equal(p.weight, weight.Placements()) {
		return false
	}
	for axis, place := range to {
		switch {
		case axis != p.masked[0]:
			if place != p.result[axis] {
				return false
			}
		case place.IsReplicate():
		case place != layout.Shard(0), shardsFirst(p.result):
			return false
		}
	}
	return true
}

// shardsFirst reports whether some axis shards the first dimension.
func shardsFirst(places []layout.Placement) bool {
	return slices.ContainsFunc(places, func(p layout.Placement) bool { return p.Shards(0) })
}

// A direct is a lookup whose rows go straight to the members of a group that
// are to have them. All members have the same ids.
type direct struct {
	*lookup
	group *comm.Comm
	me    int
	local *tensor.Tensor // the ids as int64
	list  []int64        // they
	owner list[int32]    // of each: the member that has its row
	block []int          // member r is to have rows block[r] to block[r+1]; nil: each is to have all
	part  []int          // the shape of what this rank is to have
}

func newDirect(l *lookup, shape []int, to []layout.Placement) *direct {
	axis := l.masked[0]
	g := l.group(axis)
	d := &direct{lookup: l, group: g, me: g.Rank(), part: append(slices.Clone(l.ids.Shape()), l.table.Dim(1))}
	d.local = tensor.Cast(l.ids, tensor.Int64)
	d.list = tensor.Read[int64](d.local)
	d.findOwners(axis)
	if to[axis].IsReplicate() {
		return d
	}
	inner := len(d.list) / max(shape[0], 1)
	d.block = make([]int, 1, g.Size()+1)
	for r, n := range layout.ChunkSizes(shape[0], g.Size()) {
		d.block = append(d.block, d.block[r]+n*inner)
		if r == d.me {
			d.part[0] = n
		}
	}
	return d
}

// findOwners fills in owner.
func (d *direct) findOwners(axis int) {
	coord := slices.Clone(d.mesh.Coord())
	var owners layout.Owners
	for r := range d.group.Size() {
		coord[axis] = r
		start, n := d.weight.Layout().Span(coord, 0)
		owners.Add(start, n, r)
	}
	d.owner = newList[int32](d.table.Device(), len(d.list))
	owners.Find(d.owner.elems, d.list)
}

// rowsOf returns the rows that a member is to have: lo to hi.
func (d *direct) rowsOf(member int) (lo, hi int) {
	if d.block == nil {
		return 0, len(d.list)
	}
	return d.block[member], d.block[member+1]
}

// owns is 1 if this rank has the row of id i, else 0.
func (d *direct) owns(i int) int {
	if int(d.owner.elems[i]) == d.me {
		return 1
	}
	return 0
}

// forward returns the rows that this rank is to have.
func (d *direct) forward() *tensor.Tensor {
	dev, width, size := d.table.Device(), d.table.Dim(1), d.group.Size()
	lo, hi := d.rowsOf(d.me)
	// Where the rows are that come, by owner, in order; what this rank has it takes itself.
	receive, slot := make([]int, size), newList[int32](dev, hi-lo)
	for _, o := range d.owner.elems[lo:hi] {
		receive[o]++
	}
	all := d.block == nil && size > 2 // the same rows to everybody: one gather, this rank's among them
	if !all {
		receive[d.me] = 0
	}
	next := starts(receive)
	for i, o := range d.owner.elems[lo:hi] { // who owns a row cannot be foreseen: no jumps here and below
		at := int32(next[o])
		next[o]++
		if int(o) == d.me {
			at = -1
		}
		slot.elems[i] = at
	}
	// What goes, by member.
	send := make([]int, size)
	rows, n := newList[int64](dev, len(d.list)), 0
	for m := range size {
		from, to := d.rowsOf(m)
		if m == d.me && !all {
			continue
		}
		before := n
		for i := from; i < to; i++ {
			rows.elems[n] = d.list[i]
			n += d.owns(i)
		}
		if send[m] = n - before; all {
			break
		}
	}
	src := tensor.TakeRows(d.table, rows.tensor(dev, n), d.base)
	rows.free()
	got := tensor.New(dev, d.table.DType(), sum(receive), width)
	call := comm.Call{Kind: comm.AllToAllVKind, Dst: dtensor.BufferOf(got), Src: dtensor.BufferOf(src),
		DstCounts: scaled(receive, width), SrcCounts: scaled(send, width), Cause: d.op + ": rows"}
	if all {
		call.Kind, call.SrcCounts = comm.AllGatherVKind, nil
	}
	d.mesh.Do(d.group, call)
	src.Free()
	out := tensor.New(dev, d.table.DType(), d.part...)
	tensor.TakeRowsTo(out, d.table, tensor.Narrow(d.ids.Reshape(len(d.list)), 0, lo, hi-lo), d.base, false)
	tensor.TakeRowsTo(out, got, slot.tensor(dev, hi-lo), 0, false)
	slot.free()
	got.Free()
	return out
}

// backward returns the gradient of the table for the gradient dy of the rows that
// this rank has: each goes to the owner of its row.
func (d *direct) backward(dy *tensor.Tensor) *dtensor.Rows {
	dev, width, size := dy.Device(), d.table.Dim(1), d.group.Size()
	lo, hi := d.rowsOf(d.me)
	dy = dy.Reshape(hi-lo, width)
	send, receive := make([]int, size), make([]int, size)
	for _, o := range d.owner.elems[lo:hi] {
		send[o]++
	}
	own := send[d.me]
	// The values are those of this rank, which need not travel, then those that come
	// in the order of the members; where says which of them id i of this rank's rows has.
	ids, where, n := newList[int64](dev, len(d.list)), newList[int32](dev, len(d.list)), 0
	come := own
	for m := range size {
		from, to := d.rowsOf(m)
		at, before := come, n
		if m == d.me {
			at = 0
		}
		for i := from; i < to; i++ {
			ids.elems[n], where.elems[n] = d.list[i], int32(at+n-before)
			n += d.owns(i)
		}
		if m != d.me {
			receive[m] = n - before
			come += n - before
		}
	}
	send[d.me] = 0
	order := d.ownFirst(own, send)
	at := order.tensor(dev, hi-lo)
	values := tensor.New(dev, dy.DType(), n, width)
	tensor.TakeRowsTo(tensor.Narrow(values, 0, 0, own), dy, tensor.Narrow(at, 0, 0, own), 0, false)
	src := tensor.TakeRows(dy, tensor.Narrow(at, 0, own, hi-lo-own), 0)
	got := tensor.Narrow(values, 0, own, n-own)
	d.mesh.Do(d.group, comm.Call{Kind: comm.AllToAllVKind, Dst: dtensor.BufferOf(got), Src: dtensor.BufferOf(src),
		DstCounts: scaled(receive, width), SrcCounts: scaled(send, width), Cause: d.op + ": gradients of rows"})
	runtime.KeepAlive(values)
	src.Free()
	order.free()
	u := tensor.Unique(ids.tensor(dev, n), d.base, d.n)
	tensor.Edit(u.Order, func(sorted []int32) {
		for i, k := range sorted {
			sorted[i] = where.elems[k]
		}
	})
	where.free()
	if d.stays() {
		u = without(u, d.s.padding-d.lo)
	}
	rows := sumWide(u, values)
	values.Free()
	return d.gradient(rows, u)
}

// ownFirst returns the order in which the rows that this rank has leave it: its own
// first, of which there are own, then by owner, of which each gets send.
func (d *direct) ownFirst(own int, send []int) list[int32] {
	next := starts(send)
	for m := range next {
		next[m] += own
	}
	next[d.me] = 0
	lo, hi := d.rowsOf(d.me)
	order := newList[int32](d.table.Device(), hi-lo)
	for i, o := range d.owner.elems[lo:hi] {
		order.elems[next[o]] = int32(i)
		next[o]++
	}
	return order
}

// starts returns where each of some parts begins if they lie one after the other.
func starts(counts []int) []int {
	at := make([]int, len(counts))
	for i := 1; i < len(counts); i++ {
		at[i] = at[i-1] + counts[i-1]
	}
	return at
}
