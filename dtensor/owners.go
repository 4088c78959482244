package dtensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// owners tells which rank owns each row of a MaskPartial tensor. Ranks that
// share all coordinates but those of the masked axes have the same ids, so each
// of them knows what all own.
type owners struct {
	ids  *tensor.Tensor                        // one id a row, before it was shifted; nil: nobody knows
	span func(coord []int) (start, length int) // the ids of rows that the rank at coord owns

	set   axisSet // what place was computed for
	place []int32 // place[row] is the owner's place in the group over set; nil until asked for
}

// OwnedBy tells the mask who owns its rows, which lets a reduction send rows
// instead of sums: row i is row ids[i] of dimension dim of a table, and its owner
// is who has that in the table's layout. ids are in range, the same on the ranks
// of the masked axes, and must not change for as long as the mask is used. It
// returns b.
func (b *MaskBuffer) OwnedBy(table layout.Layout, dim int, ids *tensor.Tensor) *MaskBuffer {
	return b.ownedBy(func(coord []int) (start, length int) { return table.Span(coord, dim) }, ids)
}

func (b *MaskBuffer) ownedBy(span func(coord []int) (start, length int), ids *tensor.Tensor) *MaskBuffer {
	b.owners = owners{ids: ids, span: span}
	return b
}

// routed returns the layout from which t, a MaskPartial tensor, is
// redistributed: its own if the rows come from their owners, else that with
// Partial(Sum). An axis of one rank masks nothing.
func (t *Tensor) routed() *spec {
	t.mask.check("Redistribute")
	if t.mask.owners.ids == nil {
		return t.spec.unmasked()
	}
	for axis, p := range t.spec.placements {
		if p.IsMask() && t.spec.mesh.axes[axis].Size > 1 {
			return t.spec
		}
	}
	return t.spec.unmasked()
}

// places returns the owner of each row, as its place in the group over set.
func (o *owners) places(m *Mesh, set axisSet) []int32 {
	if o.place != nil && o.set == set {
		return o.place
	}
	o.set, o.place = set, make([]int32, o.ids.Numel())
	ids := o.ids
	if ids.DType() != tensor.Int64 {
		ids = tensor.Cast(ids, tensor.Int64)
	}
	o.within(m, set).Find(o.place, tensor.Read[int64](ids))
	runtime.KeepAlive(ids)
	return o.place
}

// within returns who owns which ids, by places in the group over set.
func (o *owners) within(m *Mesh, set axisSet) *layout.Owners {
	list := &layout.Owners{}
	for p := range m.Size() {
		coord := m.pure.Coord(p)
		place := 0
		for axis, c := range coord {
			if set.has(axis) {
				place = place*m.axes[axis].Size + c
			}
		}
		start, length := o.span(coord)
		list.Add(start, length, place)
	}
	return list
}

// rows returns this rank's shard after the step, with rows from their owners:
// each sends every other member of the group those of its rows that lie in the
// member's block, in order. All know how many these are.
//
// Where the block is all of local and spare says that the other rows of local
// may be written to, they are filled in there.
func (s *step) rows(mask *MaskBuffer, local *tensor.Tensor, spare bool) *tensor.Tensor {
	place := mask.owners.places(s.from.mesh, s.set)
	n := len(place)
	dims := leading(local.Shape(), n) // the dimensions of the rows; those of the columns follow
	me, size := int32(s.group.Rank()), s.group.Size()
	all := s.everywhere() && size > 2

	index, sendCounts := s.outgoing(local.Shape(), dims, place, all)
	src := s.packRows(local, dims, n, index, sendCounts, all)
	owner, width, recvCounts := s.incoming(local.Shape(), dims, place, all)
	dev := local.Device()
	got := tensor.New(dev, local.DType(), sum(recvCounts))
	call := comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(got), Src: BufferOf(src), DstCounts: recvCounts, SrcCounts: sendCounts}
	if all {
		call.Kind, call.SrcCounts = comm.AllGatherVKind, nil
	}
	s.do(s.from.mesh, call)
	runtime.KeepAlive(src)

	dst := local
	if whole := slices.Equal(s.to.local, s.from.local); !whole || !spare {
		dst = tensor.New(dev, local.DType(), s.to.local...)
		s.ownRows(dst, local, dims, place, me)
	}
	if got.Numel() > 0 {
		at := tensor.FromSlice(dev, slotsOf(owner, me, size, all), len(owner))
		tensor.TakeRowsTo(dst, got.Reshape(got.Numel()/width, width), at, 0, false)
		at.Free()
	}
	got.Free()
	return dst
}

// outgoing returns the rows that this rank sends, member after member, and how many
// elements go to each: to all the same rows, once, if everywhere.
func (s *step) outgoing(shape []int, dims int, place []int32, everywhere bool) (index []int64, counts []int) {
	me := s.group.Rank()
	index, counts = make([]int64, 0, len(place)), make([]int, s.group.Size())
	for i := range s.send {
		box := &s.send[i]
		if everywhere && i > 0 {
			break
		}
		if box.Peer == me && !everywhere {
			continue
		}
		before := len(index)
		eachRow(box.Size[:dims], box.Src[:dims], shape, func(row int) {
			if place[row] == int32(me) {
				index = append(index, int64(row))
			}
		})
		counts[box.Peer] = (len(index) - before) * product(box.Size[dims:])
	}
	return index, counts
}

// incoming returns the owner of each row of this rank's block, the elements of a
// row there, and how many elements come from each member: its own come to it too
// if everywhere.
func (s *step) incoming(shape []int, dims int, place []int32, everywhere bool) (owner []int32, width int, counts []int) {
	me := int32(s.group.Rank())
	width, counts = 1, make([]int, s.group.Size())
	if len(s.recv) == 0 {
		return nil, width, counts
	}
	box := &s.recv[0] // the same from every member: they have the same rows
	width = product(box.Size[dims:])
	owner = make([]int32, 0, product(box.Size[:dims]))
	eachRow(box.Size[:dims], box.Src[:dims], shape, func(row int) {
		owner = append(owner, place[row])
		if place[row] != me || everywhere {
			counts[place[row]] += width
		}
	})
	return owner, width, counts
}

// ownRows copies to dst the rows of its block that this rank owns.
func (s *step) ownRows(dst, local *tensor.Tensor, dims int, place []int32, me int32) {
	if dst.Numel() == 0 {
		return
	}
	box := &s.recv[0]
	width := local.Numel() / len(place)
	if product(box.Size[dims:]) < width { // columns are cut
		all, size := make([]int, local.NDim()), slices.Clone(local.Shape())
		copy(all[dims:], box.Src[dims:])
		copy(size[dims:], box.Size[dims:])
		cut := tensor.New(local.Device(), local.DType(), size...)
		tensor.CopyBox(cut, make([]int, len(size)), local, all, size)
		local, width = cut, cut.Numel()/len(place)
	}
	var index []int64
	eachRow(box.Size[:dims], box.Src[:dims], local.Shape(), func(row int) {
		if place[row] != me {
			row = -1
		}
		index = append(index, int64(row))
	})
	at := tensor.FromSlice(dst.Device(), index, len(index))
	tensor.TakeRowsTo(dst, local.Reshape(len(place), width), at, 0, false)
	at.Free()
}

// everywhere reports whether every member of the group gets all rows.
func (s *step) everywhere() bool {
	for axis := range s.to.placements {
		if s.set.has(axis) && !s.to.placements[axis].IsReplicate() {
			return false
		}
	}
	return true
}

// packRows returns the rows that index names, cut to the columns of the member
// that they go to; to everywhere once.
func (s *step) packRows(local *tensor.Tensor, dims, n int, index []int64, counts []int, everywhere bool) *tensor.Tensor {
	if len(index) == 0 || local.Numel() == 0 {
		return tensor.New(local.Device(), local.DType(), 0)
	}
	width := local.Numel() / n
	at := tensor.FromSlice(local.Device(), index, len(index))
	rows := tensor.TakeRows(local.Reshape(n, width), at, 0)
	at.Free()
	whole := everywhere || sum(counts) == len(index)*width
	if whole {
		return rows
	}
	flat := tensor.New(local.Device(), local.DType(), sum(counts))
	columns := local.Shape()[dims:]
	first, to := 0, 0
	for i := range s.send {
		box := &s.send[i]
		size := slices.Concat([]int{0}, box.Size[dims:])
		size[0] = counts[box.Peer] / product(size[1:])
		if size[0] > 0 {
			part := tensor.Narrow(rows, 0, first, size[0]).Reshape(slices.Concat(size[:1], columns)...)
			tensor.PackBox(flat, to, part, slices.Concat([]int{0}, box.Src[dims:]), size)
		}
		first += size[0]
		to += counts[box.Peer]
	}
	rows.Free()
	return flat
}

// slotsOf returns where each row of a block is among the rows that came, which
// are sorted by owner: -1 for those of this rank. With own its rows came too.
func slotsOf(owner []int32, me int32, size int, own bool) []int64 {
	next := make([]int64, size+1)
	for _, p := range owner {
		if p != me || own {
			next[p+1]++
		}
	}
	for p := range size {
		next[p+1] += next[p]
	}
	slots := make([]int64, len(owner))
	for i, p := range owner {
		slots[i] = next[p]
		if p == me {
			slots[i] = -1
		}
		next[p]++
	}
	return slots
}

// leading returns how many dimensions, from the first, have n elements together.
func leading(shape []int, n int) int {
	have := 1
	for d, size := range shape {
		if have == n {
			return d
		}
		have *= size
	}
	return len(shape)
}

func product(sizes []int) int {
	n := 1
	for _, s := range sizes {
		n *= s
	}
	return n
}

// eachRow calls f with the number of every row in a box of the leading
// dimensions of shape, in order.
func eachRow(size, start, shape []int, f func(row int)) {
	if len(size) == 0 {
		f(0)
		return
	}
	var walk func(d, base int)
	walk = func(d, base int) {
		for i := range size[d] {
			row := base*shape[d] + start[d] + i
			if d == len(size)-1 {
				f(row)
			} else {
				walk(d+1, row)
			}
		}
	}
	walk(0, 0)
}
