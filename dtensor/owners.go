package dtensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// owners tells which rank owns each row of a MaskPartial tensor. Ranks that
// share all coordinates but those of the masked axes have the same ids, so each
// of them knows what all own.
type owners struct {
	ids   *tensor.Tensor // one id a row, before it was shifted; nil: nobody knows
	table layout.Layout
	dim   int // whose index the ids are; ofMask: the table is that of the layout's MaskPartial

	set    axisSet // what member was computed for
	member []int32 // by row: the owner, as a member of the group over set; nil before members
}

// OwnedBy tells the mask who owns its rows, which lets a reduction send rows
// instead of sums: row i is row ids[i] of dimension dim of a table, and its owner
// is who has that in the table's layout. ids are in range, the same on the ranks
// of the masked axes, and must not change for as long as the mask is used. It
// returns b.
func (b *MaskBuffer) OwnedBy(table layout.Layout, dim int, ids *tensor.Tensor) *MaskBuffer {
	b.owners = owners{ids: ids, table: table, dim: dim}
	return b
}

// ofMask stands for the dimension of a MaskPartial.
const ofMask = -1

// span returns the ids of rows that the rank at coord owns.
func (o *owners) span(coord []int) (start, length int) {
	if o.dim == ofMask {
		start, length, _ = layout.MaskRange(o.table, coord)
		return start, length
	}
	return o.table.Span(coord, o.dim)
}

// source returns the layout from which t, a MaskPartial tensor, is
// redistributed: its own if the rows come from their owners, else that with
// Partial(Sum). An axis of one rank masks nothing.
func (t *Tensor) source() *spec {
	t.mask.check("Redistribute")
	for axis, p := range t.spec.placements {
		if t.mask.owners.ids != nil && p.IsMask() && t.spec.mesh.axes[axis].Size > 1 {
			return t.spec
		}
	}
	return t.spec.unmasked(addends(t.DType()))
}

// members returns the owner of each row, as a member of the group over set.
func (o *owners) members(m *Mesh, set axisSet) []int32 {
	if o.member != nil && o.set == set {
		return o.member
	}
	spans := o.spans(m, set)
	o.set, o.member = set, make([]int32, o.ids.Numel())
	ids := tensor.Cast(o.ids, tensor.Int64)
	spans.Find(o.member, tensor.Read[int64](ids))
	runtime.KeepAlive(ids)
	return o.member
}

// spans returns which rows each member of a group over set owns, worked out once for all ranks of the process.
func (o *owners) spans(m *Mesh, set axisSet) *layout.Owners {
	w := m.eng.common.owners.of(commonOwners{o.table, o.dim, set})
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.value, w.done = new(layout.Owners), true
		for p := range m.Size() {
			coord := m.pure.Coord(p)
			start, length := o.span(coord)
			w.value.Add(start, length, m.rankIn(set, coord))
		}
	}
	return w.value
}

// rows returns this rank's shard after the step, with rows from their owners.
//
// Where the block is all of local and spare says that the other rows of local
// may be written to, they are filled in there.
func (s *step) rows(mask *MaskBuffer, local *tensor.Tensor, spare bool) *tensor.Tensor {
	owner := mask.owners.members(s.from.mesh, s.set)
	positions := index.New[int64](local.Device(), len(owner))
	for i := range positions.Elems {
		positions.Elems[i] = int64(i)
	}
	r := s.ownerReplies(local.Shape(), owner, positions.Elems)
	out, whole := local, slices.Equal(s.to.local, s.from.local)
	if !whole || !spare {
		out = tensor.New(local.Device(), local.DType(), s.to.local...)
	}
	flat := local.Reshape(len(r.list), local.Numel()/max(len(r.list), 1))
	r.Forward(out, flat, 0, out == local)
	positions.Free()
	return out
}

// ownerReplies returns the exchange of the rows of a tensor of the given local shape, of
// owners by position. They are numbered by their positions.
func (s *step) ownerReplies(shape []int, owner []int32, positions []int64) *OwnerReplies {
	r := &OwnerReplies{mesh: s.from.mesh, group: s.group, step: s.cause, me: s.group.Rank(), owner: owner, list: positions,
		keeps: make([][]span, s.group.Size())}
	r.all = s.everywhere() && s.group.Size() > 2
	dims := leading(shape, len(owner)) // the dimensions of the rows; those of the columns follow
	r.columns = shape[dims:]
	keeps := make([]span, 0, len(s.send))
	for i := range s.send {
		box := &s.send[i]
		first := len(keeps)
		keeps = appendSpans(keeps, box.Size[:dims], box.Src[:dims], shape[:dims])
		r.keeps[box.Peer] = keeps[first:]
		if !slices.Equal(box.Size[dims:], r.columns) && r.parts == nil {
			r.parts = s.columnParts(dims)
		}
	}
	return r
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

// columnParts returns which columns of the rows each member gets.
func (s *step) columnParts(dims int) []rowPart {
	parts := make([]rowPart, s.group.Size())
	for i := range s.send {
		box := &s.send[i]
		parts[box.Peer] = rowPart{box.Src[dims:], box.Size[dims:]}
	}
	return parts
}

// appendSpans appends the positions of a box of a list of the given shape, ascending.
func appendSpans(list []span, size, start, shape []int) []span {
	if at, ok := contiguous(size, start, shape); ok {
		return append(list, span{at, at + ints.Product(size)})
	}
	for i := range size[0] {
		inner := ints.Product(shape[1:]) * (start[0] + i)
		first := len(list)
		list = appendSpans(list, size[1:], start[1:], shape[1:])
		for k := first; k < len(list); k++ {
			list[k].begin += inner
			list[k].end += inner
		}
	}
	return list
}
