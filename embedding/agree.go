package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// The head of what a rank says of its ids before anything of them travels.
const (
	headAt     = iota // flat global position of its first bad id plus one, 0: none
	headID            // that id
	headCounts        // how many distinct ids it has, for each owner or in all
)

// agree checks the local ids. Where ranks have different ids they tell each
// other, in one exchange of a few numbers, whether all of them are good and how
// many will travel, so that all throw the same error or none.
func (l *lookup) agree(ids *dtensor.Tensor) {
	bad, at := int64(0), int64(0)
	if !l.premasked {
		if pos, id, ok := tensor.CheckIndex(l.ids, l.weight.Dim(0)); !ok {
			bad, at = int64(id), int64(globalIndex(ids, pos))+1
		}
	}
	axes := slices.Concat(l.exchange, l.replicated)
	if len(axes) == 0 {
		l.throwIfBad(ids, at, bad)
		return
	}
	slices.Sort(axes)
	head := make([]int64, headCounts, headCounts+l.mesh.Size())
	head[headAt], head[headID] = at, bad
	good := at == 0
	switch {
	case len(l.exchange) > 0:
		l.travel = newTravel(l)
		if good {
			l.travel.address(l)
		}
		for _, n := range l.travel.sent {
			head = append(head, int64(n))
		}
	case l.tracked || l.s.renorm:
		n := 0
		if good {
			n = l.distinct().Index.Numel()
		}
		head = append(head, int64(n))
	}
	g := l.group(axes...)
	all := make([]int64, g.Size()*len(head))
	l.mesh.Do(g, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(head), Cause: l.op + ": status and counts"})
	worst := head
	for r := range g.Size() {
		if its := all[r*len(head):]; its[headAt] != 0 && (worst[headAt] == 0 || its[headAt] < worst[headAt]) {
			worst = its
		}
	}
	l.throwIfBad(ids, worst[headAt], worst[headID])
	switch {
	case l.travel != nil:
		// Member r of the exchange has this rank's coordinates on the other axes.
		coord := slices.Clone(l.mesh.Coord())
		for r := range l.travel.received {
			l.locate(coord, r)
			its := all[position(l.mesh, axes, coord)*len(head):]
			l.travel.received[r] = int(its[headCounts+l.travel.group.Rank()])
		}
	case len(head) > headCounts:
		for r := range g.Size() {
			l.counts = append(l.counts, int(all[r*len(head)+headCounts]))
		}
	}
}

// throwIfBad throws the error about a bad id at a flat global position, counted
// from 1; 0: none.
func (l *lookup) throwIfBad(ids *dtensor.Tensor, position, id int64) {
	if position == 0 {
		return
	}
	shape := ids.Shape()
	at := make([]int, len(shape))
	flat := int(position - 1)
	for d := len(shape) - 1; d >= 0; d-- {
		at[d] = flat % shape[d]
		flat /= shape[d]
	}
	fault.Throw(&IDError{Op: l.op, Table: l.s.table(), ID: id, Position: at, Rows: l.weight.Dim(0)})
}

// globalIndex returns the flat index in t of the local element at flat index i.
func globalIndex(t *dtensor.Tensor, i int) int {
	shape, local := t.Shape(), t.Local().Shape()
	offset, _ := t.Offset()
	flat, stride := 0, 1
	for d := len(shape) - 1; d >= 0; d-- {
		flat += (offset[d] + i%local[d]) * stride
		i /= local[d]
		stride *= shape[d]
	}
	return flat
}

// position returns the rank in the group over axes of the rank at coord.
func position(m *dtensor.Mesh, axes, coord []int) int {
	p := 0
	for _, a := range axes {
		p = p*m.Axes()[a].Size + coord[a]
	}
	return p
}
