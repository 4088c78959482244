package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// wholeRows reports whether parts of rows of one size can go straight from the
// table to where whole rows are to be: one axis shards the columns and replicates
// the result, and nothing else changes.
func (p *plan) wholeRows(weight *dtensor.Tensor, s settings, to []layout.Placement) bool {
	if len(p.columns) != 1 || len(p.exchange)+len(p.masked) > 0 || s.renorm || len(to) != len(p.result) || !slices.Equal(p.weight, weight.Placements()) {
		return false
	}
	for axis, place := range to {
		switch {
		case axis != p.columns[0]:
			if place != p.result[axis] {
				return false
			}
		case !place.IsReplicate(), p.weight[axis] != layout.Shard(1), weight.Dim(1)%p.mesh.Axes()[axis].Size != 0:
			return false
		}
	}
	return true
}

// A wholes is a lookup in a table whose columns are sharded over a group, in
// parts of one size, whose members are all to have whole rows. A matrix of whole
// rows [N, D] is taken for one of parts [N·P, D/P], part i·P+m being member m's of
// row i, so that nothing is copied to put parts together or apart.
type wholes struct {
	*lookup
	group *comm.Comm
	ids   *tensor.Tensor // [N·P]: the id of each part that is this rank's, else -1
}

func newWholes(l *lookup) *wholes {
	w := &wholes{lookup: l, group: l.group(l.columns[0])}
	dev, ids := l.table.Device(), tensor.Cast(l.ids, tensor.Int64)
	size, me := w.group.Size(), w.group.Rank()
	parts := newList[int64](dev, ids.Numel()*size)
	for i := range parts.elems {
		parts.elems[i] = -1
	}
	for i, id := range tensor.Read[int64](ids) {
		parts.elems[i*size+me] = id
	}
	runtime.KeepAlive(ids)
	w.ids = parts.tensor(dev, len(parts.elems))
	return w
}

// forward returns the whole rows of the local ids.
func (w *wholes) forward() *tensor.Tensor {
	dev, dt, n, width := w.table.Device(), w.table.DType(), w.lookup.ids.Numel(), w.table.Dim(1)
	size, me := w.group.Size(), w.group.Rank()
	parts := tensor.New(dev, dt, size*n, width) // member after member
	call := comm.Call{Kind: comm.AllGatherVKind, Dst: dtensor.BufferOf(parts), DstCounts: slices.Repeat([]int{n * width}, size), Cause: w.op + ": columns"}
	mine := tensor.Narrow(parts, 0, me*n, n)
	if size == 2 { // this rank's need not travel
		other := 1 - me
		call.Kind, call.Dst = comm.AllToAllVKind, dtensor.BufferOf(tensor.Narrow(parts, 0, other*n, n))
		call.DstCounts[me] = 0
		call.SrcCounts = call.DstCounts
	} else {
		mine = tensor.New(dev, dt, n, width)
		defer mine.Free()
	}
	tensor.TakeRowsTo(mine, w.table, w.lookup.ids, w.base, true)
	call.Src = dtensor.BufferOf(mine)
	w.mesh.Do(w.group, call)
	order := newList[int32](dev, n*size)
	for i := range n {
		for m := range size {
			order.elems[i*size+m] = int32(m*n + i)
		}
	}
	out := tensor.New(dev, dt, append(slices.Clone(w.lookup.ids.Shape()), width*size)...)
	tensor.TakeRowsTo(out, parts, order.tensor(dev, n*size), 0, false)
	order.free()
	parts.Free()
	return out
}

// backward returns the gradient of the table for the gradient dy of whole rows.
func (w *wholes) backward(dy *tensor.Tensor) *dtensor.Rows {
	u := tensor.Unique(w.ids, w.base, w.n)
	if w.stays() {
		u = without(u, w.s.padding-w.lo)
	}
	return w.gradient(sumWide(u, dy.Reshape(w.ids.Numel(), w.table.Dim(1))), u)
}
