package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A MaskBuffer is the mask of MaskPartial tensors: which rows this rank does
// not own. Each row of such a tensor has exactly one owner among the ranks of
// the masked axes; what the others hold there is unspecified and never seen.
//
// The mask belongs to the tensors that carry it, not to the placement: masked
// ids and the rows looked up with them share one, each holding it, and it goes
// with its last holder. A tensor can be reduced any number of times.
type MaskBuffer struct {
	masked  *tensor.Tensor // Bool [rows]: true where another rank owns the row
	shift   int            // what was subtracted from ids
	holders int
	owners  owners // who owns each row, if that is known
}

// NewMask returns a mask held by the caller. masked is a Bool tensor with one
// element for each row of the tensors that will carry it, true where another
// rank owns the row; shift is what was subtracted from ids to get positions in
// the rank's own part. It throws a *LayoutError if masked is not Bool.
func NewMask(masked *tensor.Tensor, shift int) *MaskBuffer {
	if masked.DType() != tensor.Bool {
		refuse("NewMask", fmt.Sprintf("the mask holds %v", masked.DType()), "make it with a comparison")
	}
	return &MaskBuffer{masked: masked, shift: shift, holders: 1}
}

// Masked returns the Bool tensor, true where another rank owns the row. It
// throws if the last holder has released the mask.
func (b *MaskBuffer) Masked() *tensor.Tensor {
	b.check("Masked")
	return b.masked
}

// Holders returns how many hold the mask: 0 after the last Release.
func (b *MaskBuffer) Holders() int {
	if b == nil {
		return 0
	}
	return b.holders
}

// Hold adds a holder and returns b.
func (b *MaskBuffer) Hold() *MaskBuffer {
	if b != nil {
		b.check("Hold")
		b.holders++
	}
	return b
}

// Release gives up one hold; with the last one the mask's memory goes back. A
// release without a hold throws. Holders need not release: a mask that nothing
// refers to is collected, or goes with its scope.
func (b *MaskBuffer) Release() {
	if b == nil {
		return
	}
	b.check("Release")
	if b.holders--; b.holders == 0 {
		b.masked.Free()
		b.masked, b.owners = nil, owners{}
	}
}

func (b *MaskBuffer) check(op string) {
	if b.holders < 1 {
		refuse("MaskBuffer."+op, "the mask was released by its last holder before", "Hold it for as long as it is used")
	}
}

// keep lets the mask outlive a scope.
func (b *MaskBuffer) keep(s *tensor.Scope) {
	if b != nil {
		s.Keep(b.masked, b.owners.ids)
	}
}

// apply returns x with zeros in the rows that are not owned, x itself if they
// are there already. It does not change x.
func (b *MaskBuffer) apply(x *tensor.Tensor, clean bool) *tensor.Tensor {
	b.check("apply")
	if clean || x.Numel() == 0 {
		return x
	}
	rows := b.masked.Numel()
	return tensor.MaskedFill(x.Reshape(rows, x.Numel()/rows), b.masked.Reshape(rows, 1), 0).Reshape(x.Shape()...)
}

// restore returns this rank's addend of the value that x stands for: ids are
// shifted back.
func (b *MaskBuffer) restore(x *tensor.Tensor, clean bool) *tensor.Tensor {
	if y := b.unshift(x); y != x {
		x, clean = y, false
	}
	return b.apply(x, clean)
}

// unshift returns ids as they were before they were shifted, and anything else
// as it is.
func (b *MaskBuffer) unshift(x *tensor.Tensor) *tensor.Tensor {
	if b.shift != 0 && x.DType().Int() {
		return tensor.AddScalar(x, float64(b.shift))
	}
	return x
}

// moved returns the mask of a MaskPartial tensor of type dt that goes from one layout
// to another in which it keeps its mask; see layout.KeepsMask. The caller is a holder.
func (b *MaskBuffer) moved(from, to *spec, dt tensor.DType, cause string) *MaskBuffer {
	b.check(cause)
	rows, after := from.maskRows(dt, cause), to.maskRows(dt, cause)
	if rows == after {
		return b.Hold()
	}
	move := func(x *tensor.Tensor) *tensor.Tensor {
		return wrap(rows, x.Reshape(rows.local...)).to(after, cause).local.Reshape(after.localNumel)
	}
	if b.owners.ids == nil {
		return NewMask(move(b.masked), b.shift)
	}
	ids := move(b.owners.ids)
	start, length := b.owners.span(from.mesh.coord)
	_, masked := ownIDs(ids, start, length)
	return NewMask(masked, b.shift).OwnedBy(b.owners.table, b.owners.dim, ids)
}

// maskRows returns the layout of the rows of a MaskPartial tensor of type dt: its first
// dimensions, with Replicate where the columns or nothing are sharded. A row is as wide
// as a row of the table; ids are rows of one element.
func (s *spec) maskRows(dt tensor.DType, cause string) *spec {
	var columns []int
	for _, p := range s.placements {
		if table, dim, ok := p.Offset(); ok && !dt.Int() {
			columns = slices.Delete(table, dim, dim+1)
			break
		}
	}
	dims := len(s.shape) - len(columns)
	if dims < 0 || !slices.Equal(s.shape[dims:], columns) { // reshaped
		width := 1
		for dims = len(s.shape); dims > 0 && width != ints.Product(columns); dims-- {
			width *= s.shape[dims-1]
		}
	}
	places := slices.Clone(s.placements)
	for i, p := range places {
		if d, ok := p.Dim(); !ok || d >= dims {
			places[i] = layout.Replicate()
		}
	}
	return s.mesh.mustSpec(cause, s.shape[:dims], places)
}

// addends returns how parts combine of which one rank has the element and the others
// have zero: truths have no sum.
func addends(dt tensor.DType) layout.ReduceOp {
	if dt == tensor.Bool {
		return layout.Max
	}
	return layout.Sum
}

// unmasked returns the layout with Partial(op) for MaskPartial.
func (s *spec) unmasked(op layout.ReduceOp) *spec {
	p := s.layout.Placements()
	for i := range p {
		if p[i].IsMask() {
			p[i] = layout.Partial(op)
		}
	}
	return s.with("MaskPartial", p)
}

// maskIDs shifts replicated ids to this rank's rows of the table that the
// layout's MaskPartial describes, and masks those of other ranks:
//
//	own = start <= id < start+length;  id = own ? id-start : 0
//
// Ids that no rank owns throw.
func maskIDs(m *Mesh, to *spec, ids *tensor.Tensor) (*tensor.Tensor, *MaskBuffer) {
	start, length, _ := layout.MaskRange(to.layout, m.coord)
	if ids.Numel() > 0 {
		rows := tableRows(to)
		low, high := tensor.Reduce(kernel.OpAmin, ids, nil, false).Item(), tensor.Reduce(kernel.OpAmax, ids, nil, false).Item()
		if low < 0 || int(high) >= rows {
			bad := low
			if low >= 0 {
				bad = high
			}
			err := &LayoutError{Op: "Redistribute", Problem: fmt.Sprintf("id %d is out of range [0, %d)", int(bad), rows),
				Remedy: "give ids of rows that the table has"}
			if anyShard(to) {
				m.abort(err) // other ranks have other ids
			}
			fault.Throw(err)
		}
	}
	shifted, masked := ownIDs(ids, start, length)
	return shifted, NewMask(masked.Reshape(masked.Numel()), start).OwnedBy(to.layout, ofMask, ids)
}

// ownIDs returns ids counted from start, and which of them are not among the length ids
// from there on; these become positions that there are, or 0.
func ownIDs(ids *tensor.Tensor, start, length int) (shifted, masked *tensor.Tensor) {
	if length == 0 {
		return tensor.ZerosLike(ids), tensor.Full(ids.Device(), tensor.Bool, 1, ids.Shape()...)
	}
	own := tensor.Clamp(ids, float64(start), float64(start+length-1))
	return tensor.AddScalar(own, -float64(start)), tensor.Compare(kernel.OpNe, ids, own)
}

// tableRows is the number of rows of the table that a MaskPartial layout is for.
func tableRows(s *spec) int {
	for _, p := range s.placements {
		if shape, dim, ok := p.Offset(); ok {
			return shape[dim]
		}
	}
	return 0
}

func anyShard(s *spec) bool { return slices.ContainsFunc(s.placements, layout.Placement.IsShard) }
