package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// Lookup returns the rows of weight that ids name.
//
//	weight [V, D]   ids [...]   →   [..., D]
//
//	weight     ids        result         communication               gradient
//	R          R          R              none                        none
//	S(0)       R          MaskP          none                        none
//	S(1)       R          S(last)        none                        none
//	R          S(d)       S(d)           a status and a count        1 of ids and rows
//	S(0)       S(d)       S(d)           counts, 1 of ids, 1 of rows 1 of rows
//	S(1)       S(d)       S(d)           ids, 1 all-to-all           1 all-to-all
//	R,S(0)     S(0),R     S(0),MaskP     a status and a count        1 of ids and rows
//	S(0),S(1)  R,R        MaskP,S(last)  none                        none
//
// Rows and features of a table may be sharded by any axes and in any sizes, ids
// on any of their dimensions. A table or ids that are Partial are reduced first;
// ids that are MaskP for a table of V rows are used as they are, and the result
// shares their mask. An axis of one rank counts as replicated.
//
// The gradient of weight is a dtensor.Rows of distinct rows in weight's layout.
//
// Lookup throws an *Error for a weight that is not [V, D] of floating-point
// numbers, ids that are not integers, and options out of their range; and an
// *IDError for an id that is not in [0, V), on every rank of the mesh, whichever
// rank holds it.
func Lookup(weight, ids *dtensor.Tensor, o Options) *dtensor.Tensor {
	return (&Table{weight: weight, options: o}).lookUp(ids)
}

func (t *Table) lookUp(ids *dtensor.Tensor) *dtensor.Tensor {
	const op = "Lookup"
	weight, o := t.weight, t.options
	s := o.check(op, weight)
	checkIDs(op, weight, ids, s)
	p := planFor(op, weight, ids, s)
	shape := append(append(make([]int, 0, ids.NDim()+1), ids.Shape()...), weight.Dim(1))
	table := p.place(s)
	at := ids.Redistribute(p.ids...)
	if !p.mesh.Inside() {
		empty := p.mesh.Wrap(op, tensor.New(p.mesh.Device(), weight.DType(), 0), nil, false, shape, p.result...)
		return empty.Redistribute(p.final...)
	}
	input := t.input()
	l := newLookup(p, s, table, at, dtensor.Tracked(input))
	local := l.forward()
	out := p.mesh.Wrap(op, local, l.mask, !l.carries, shape, p.result...)
	if l.tracked {
		out = dtensor.Record(op, out, []*dtensor.Tensor{input}, func(gy *dtensor.Tensor) []dtensor.Grad {
			return []dtensor.Grad{t.gradOf(table, l.backward(gy))}
		})
	}
	if !p.premasked {
		l.mask.Release() // out holds it
	}
	return out.Redistribute(p.final...)
}

// gradOf returns the gradient of what input returned, given that of the rows of
// table, which is the weight or what it was reduced to.
func (t *Table) gradOf(table *dtensor.Tensor, rows *dtensor.Rows) dtensor.Grad {
	if table != t.weight { // the rows have another layout than the weight
		return dtensor.Dense(rows.Dense())
	}
	return t.take(rows)
}

// A lookup is one call of Lookup on one rank: what its gradient needs is kept here.
type lookup struct {
	*plan
	s       settings
	weight  *dtensor.Tensor
	table   *tensor.Tensor // this rank's part of the table, [n, d]
	lo, n   int            // the rows that it holds: lo to lo+n
	ids     *tensor.Tensor // local ids
	base    int            // what local ids are counted from: lo is row ids-base of table
	mask    *dtensor.MaskBuffer
	tracked bool

	uniq   *tensor.Uniq // of the local ids: all if they travel, else those of this rank's rows; nil until asked for
	travel *travel      // of ids to the ranks that have their rows; nil if they do not
	counts []int        // distinct rows that each replica has; nil if not known
}

// newLookup checks the ids, with the other ranks where they have other ids.
func newLookup(p *plan, s settings, weight, ids *dtensor.Tensor, tracked bool) *lookup {
	offset, _ := weight.Offset()
	l := &lookup{plan: p, s: s, weight: weight, table: weight.Local(), lo: offset[0], ids: ids.Local(), tracked: tracked}
	l.n, l.base = l.table.Dim(0), l.lo
	if p.premasked { // checked when they were masked
		n := l.ids.Numel()
		l.base = 0
		l.ids = tensor.MaskedFill(l.ids.Reshape(n), ids.Mask().Masked().Reshape(n), -1).Reshape(l.ids.Shape()...)
		if p.carries {
			l.mask = ids.Mask()
		}
	}
	l.agree(ids)
	return l
}

// forward returns the local rows and sets the mask; without one there are zeros
// where the row belongs to another rank.
func (l *lookup) forward() *tensor.Tensor {
	if l.travel != nil {
		l.send()
	}
	if l.s.renorm {
		l.renormalize()
	}
	if l.carries && !l.premasked {
		l.mask = l.newMask().OwnedBy(l.weight.Layout(), 0, l.ids)
	}
	if l.travel != nil {
		return l.fetch()
	}
	rows := tensor.New(l.table.Device(), l.table.DType(), append(slices.Clone(l.ids.Shape()), l.table.Dim(1))...)
	tensor.TakeRowsTo(rows, l.table, l.ids, l.base, !l.carries) // rows that a mask covers are never read
	return rows
}

// newMask returns the mask of the local ids: true where the row belongs to
// another rank.
func (l *lookup) newMask() *dtensor.MaskBuffer {
	n := l.ids.Numel()
	switch {
	case l.travel != nil:
		return dtensor.NewMask(tensor.CompareScalar(tensor.OpLt, l.uniq.Slot, 0), 0)
	case l.n == 0:
		return dtensor.NewMask(tensor.Full(l.ids.Device(), tensor.Bool, 1, n), 0)
	}
	flat := l.ids.Reshape(n)
	own := tensor.Clamp(flat, float64(l.lo), float64(l.lo+l.n-1))
	defer own.Free()
	return dtensor.NewMask(tensor.Compare(tensor.OpNe, flat, own), 0)
}

// distinct returns the distinct local ids.
func (l *lookup) distinct() *tensor.Uniq {
	if l.uniq == nil {
		u := tensor.Unique(l.ids, l.base, l.n)
		l.uniq = &u
	}
	return l.uniq
}
