package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
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
	defer t.weight.Mesh().Span("Lookup").End()
	const op = "Lookup"
	weight, s := t.weight, t.settings(op)
	checkIDs(op, weight, ids, s)
	p := rolesOf(op, weight, ids, s)
	shape := make([]int, ids.NDim()+1)
	for d := range ids.NDim() {
		shape[d] = ids.Dim(d)
	}
	shape[ids.NDim()] = weight.Dim(1)
	table := p.table(s)
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
		out = t.record(op, out, input, ids, p.premasked, func(gy *dtensor.Tensor) []dtensor.Grad {
			return []dtensor.Grad{t.gradOf(table, l.backward(gy))}
		})
	}
	if !p.premasked {
		l.mask.Release() // out holds it
	}
	if p.mesh.SameBits() && p.carries && !slices.Equal(p.result, p.final) { // the owners' rows, then this rank's part
		return out.Reduced().Redistribute(reduced(p.final)...)
	}
	return out.Redistribute(p.final...)
}

// record records out, the rows of input that ids name. dtensor.Gradients compute them by IndexSelect, where it has the same gradients.
func (t *Table) record(op string, out, input, ids *dtensor.Tensor, premasked bool, back func(gy *dtensor.Tensor) []dtensor.Grad,
) *dtensor.Tensor {
	inputs := []*dtensor.Tensor{input}
	if t.fused != nil || t.stored != nil || t.options.ScaleGradByFreq || premasked {
		return dtensor.Record(op, out, inputs, back)
	}
	return dtensor.RecordComposed(op, out, inputs, back, func() *dtensor.Tensor {
		rows := input.IndexSelect(0, ids.Reshape(ids.Numel())).Reshape(append(ids.Shape(), input.Dim(1))...)
		if p := t.options.PaddingIdx; p != nil {
			n := input.Dim(0)
			padded := ids.CompareScalar(kernel.OpEq, float64((*p+n)%n)).Unsqueeze(-1)
			rows = padded.Where(rows.Detach(), rows)
		}
		return rows
	})
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
	*roles
	x       exchange
	own     *part // of the table
	s       settings
	ids     *tensor.Tensor // local ids, as rows are served
	base    int            // what local ids are counted from: this rank's first row is row ids-base of local
	mask    *dtensor.MaskBuffer
	tracked bool

	uniq *tensor.Uniq // the distinct of the local ids whose rows this rank holds; nil before distinct
}

// newLookup checks the ids, with the other ranks where they have other ids.
func newLookup(p *roles, s settings, weight, ids *dtensor.Tensor, tracked bool) *lookup {
	l := &lookup{roles: p, s: s, ids: ids.Local(), tracked: tracked}
	local, row := weight.Local(), firstRow(weight)
	tables := []part{{settings: &l.s, weight: weight, local: local, row: row, width: local.Dim(1)}}
	l.x = exchange{route: noRoute, op: p.op, mesh: p.mesh, dtype: weight.DType(), tables: tables, facts: s.facts(), subject: &l.s}
	if l.own, l.base = &tables[0], row; s.stored != nil {
		l.x.asks = &s.stored.asks
	}
	if len(p.requests)+len(p.replicated) > 0 || s.renorm {
		requests := axisSet(p.requests)
		l.x.route = newRoute(p.mesh, []*dtensor.Tensor{weight}, requests|axisSet(p.replicated), requests, requests)
		for i := range l.x.requestPeers { // they have the same columns as this rank
			l.x.requestPeers[i].boxes[0].column = 0
		}
	}
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

// agree checks the local ids. Where ranks have different ids they tell each other, in
// one collective of a few numbers, whether all of them are good and how many rows they
// request, so that all throw the same error or none.
func (l *lookup) agree(ids *dtensor.Tensor) {
	const status = 2 // the flat global position of the first bad id plus one, and that id; or zeros
	numbers := make([]int64, status, status+max(1, len(l.x.requestPeers)))
	if !l.premasked {
		var bad bool
		var pos, id int
		if l.ids, pos, id, bad = servedIDs(l.own.weight, l.ids); bad {
			numbers[0], numbers[1] = int64(globalIndex(ids, pos))+1, int64(id)
		}
	}
	good := numbers[0] == 0
	switch {
	case len(l.requests) > 0:
		owned := l.ids
		if len(l.masked) > 0 {
			owned = l.x.ownedIDs(owned)
		}
		l.x.distinct = []tensor.Uniq{l.own.stored.distinct(owned, 0, l.own.weight.Dim(0), l.op)}
		numbers = l.x.appendCounts(numbers)
	case len(l.replicated) > 0 && (l.tracked || l.s.renorm):
		n := 0
		if good {
			n = l.distinct().Index.Numel()
		}
		numbers = append(numbers, int64(n))
	}
	all, bad := l.x.agree(numbers, status)
	if bad != nil {
		at := tensor.UnravelIndex(int(bad[0]-1), ids.Shape())
		fault.Throw(&IDError{Op: l.op, Table: l.s.table(), ID: bad[1], Position: at, Rows: l.own.weight.Dim(0)})
	}
	switch {
	case len(l.requests) > 0:
		l.x.setCounts(all, len(numbers), status)
	case len(numbers) > status:
		for its := range slices.Chunk(all, len(numbers)) {
			l.x.counts = append(l.x.counts, int(its[status]))
		}
	}
}

// globalIndex returns the flat index in t of the local element at flat index i.
func globalIndex(t *dtensor.Tensor, i int) int {
	offset, _ := t.Offset()
	return ints.IndexIn(t.Shape(), offset, t.Local().Shape(), i)
}

// renormalize applies MaxNorm to the rows that are looked up.
func (l *lookup) renormalize() {
	if len(l.requests) > 0 {
		l.x.renormalize(l.x.requestedRows())
	} else {
		l.x.renormalize([]tensor.Rows{{Index: l.distinct().Index}})
	}
}

// forward returns the local rows and sets the mask; without one there are zeros
// where the row belongs to another rank.
func (l *lookup) forward() *tensor.Tensor {
	if len(l.requests) > 0 {
		l.x.request()
	}
	if l.s.renorm {
		l.renormalize()
	}
	if l.carries && !l.premasked {
		l.mask = l.newMask().OwnedBy(l.own.weight.Layout(), 0, l.ids)
	}
	if len(l.requests) > 0 {
		l.x.fetch(false, l.x.requested)
		rows := l.x.reply()[0]
		defer rows.Free()
		return tensor.TakeRows(rows, l.x.distinct[0].Slot.Reshape(l.ids.Shape()...), 0)
	}
	if l.own.stored != nil {
		return l.takeOwn()
	}
	rows := tensor.New(l.own.local.Device(), l.own.local.DType(), append(slices.Clone(l.ids.Shape()), l.own.columns())...)
	tensor.TakeRowsTo(rows, l.own.local, l.ids, l.base, !l.carries) // rows that a mask covers are never read
	return rows
}

// newMask returns the mask of the local ids: true where the row belongs to
// another rank.
func (l *lookup) newMask() *dtensor.MaskBuffer {
	n := l.ids.Numel()
	switch {
	case len(l.requests) > 0:
		return dtensor.NewMask(tensor.CompareScalar(kernel.OpLt, l.x.distinct[0].Slot, 0), 0)
	case l.own.rows() == 0:
		return dtensor.NewMask(tensor.Full(l.ids.Device(), tensor.Bool, 1, n), 0)
	}
	flat := l.ids.Reshape(n)
	own := tensor.Clamp(flat, float64(l.own.row), float64(l.own.row+l.own.rows()-1))
	defer own.Free()
	return dtensor.NewMask(tensor.Compare(kernel.OpNe, flat, own), 0)
}

// distinct returns the distinct of the local ids whose rows this rank holds.
func (l *lookup) distinct() *tensor.Uniq {
	if l.uniq == nil {
		u := l.own.stored.distinct(l.ids, l.base, l.own.rows(), l.op)
		l.uniq = &u
	}
	return l.uniq
}

// backward returns the gradient of the table for the gradient gy of the result:
//
//	Values[i] = Σ gy[j] over all j with ids[j] == Index[i]
//
// without the padding row; with ScaleGradByFreq over the number of such j. That of
// bfloat16 is float32 until all have been added up, in messages too.
func (l *lookup) backward(gy *dtensor.Tensor) *dtensor.Rows {
	dy := gy.Redistribute(reduced(l.result)...).Local()
	if len(l.requests) > 0 {
		return l.x.backward([]*tensor.Tensor{dy})[0]
	}
	return l.gradient(*l.distinct(), dy)
}

// gradient returns the gradient of the table for that of each of the ids that u was made
// from.
func (l *lookup) gradient(u tensor.Uniq, dy *tensor.Tensor) *dtensor.Rows {
	if len(l.replicated) == 0 { // else the others count on the padding row
		u = without(u, l.own.padding-l.own.row)
	}
	return l.x.gradients([]tensor.Rows{l.own.sumRows(u, dy)})[0]
}
