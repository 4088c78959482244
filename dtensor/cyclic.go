package dtensor

import (
	"runtime"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Rows that a layout.ShardCyclic deals out lie in no block, and plans and rules know
// blocks alone. So operators compute on blocks, and what is in turn is brought to
// blocks first, or from blocks after, by one all-to-all along its axis.

// blocks returns the layout of s with blocks of rows in place of rows dealt out in turn.
func (s *spec) blocks() *spec {
	if s.cyclic < 0 {
		return s
	}
	return s.mesh.specOf(s.layout.Blocks())
}

// inBlocks returns t with blocks of rows in place of rows dealt out in turn.
func (t *Tensor) inBlocks(cause string) *Tensor {
	s := t.spec.blocks()
	if s == t.spec {
		return t
	}
	out := (&Tensor{spec: s, node: t.node}).of(t.from)
	m := s.mesh
	if m.outside() {
		out.local = m.empty(s, t.DType()).local
		return out
	}
	d := m.dealing(t.spec)
	got := d.swap(t.local, s.local[0], d.toBlocks, cause)
	start, n := s.offset[0], s.local[0]
	at := make([]int, d.n) // where the next row of each rank is in got
	for r := 1; r < d.n; r++ {
		at[r] = at[r-1] + d.rows(r-1, d.me)
	}
	order := index.New[int64](m.eng.dev, n)
	for i := range order.Elems {
		r := (start + i) % d.n
		order.Elems[i] = int64(at[r])
		at[r]++
	}
	out.local = tensor.IndexSelect(got, 0, order.Tensor(m.eng.dev, n))
	return out
}

// inTurn returns t, which has blocks of rows or on the axis all of them, in the layout s,
// which deals them out in turn and differs in nothing else.
func (t *Tensor) inTurn(s *spec, cause string) *Tensor {
	out := (&Tensor{spec: s, node: t.node}).of(t.from)
	m := s.mesh
	if m.outside() {
		out.local = m.empty(s, t.DType()).local
		return out
	}
	d := m.dealing(s)
	start, n := t.spec.offset[0], t.spec.local[0]
	whole := t.spec.placements[s.cyclic].IsReplicate()
	order, at := index.New[int64](m.eng.dev, n), 0
	for r := range d.n {
		if whole && r != d.me {
			continue
		}
		for row := start + (r-start%d.n+d.n)%d.n; row < start+n; row += d.n {
			order.Elems[at] = int64(row - start)
			at++
		}
	}
	out.local = tensor.IndexSelect(t.local, 0, order.Tensor(m.eng.dev, at))
	if !whole {
		out.local = d.swap(out.local, s.local[0], d.toTurns, cause)
	}
	return out
}

// toCyclic is to where one of the layouts deals rows out in turn.
func (t *Tensor) toCyclic(s *spec, cause string) *Tensor {
	t = t.inBlocks(cause)
	if s.cyclic < 0 {
		return t.to(s, cause)
	}
	if t.spec.placements[s.cyclic].IsReplicate() { // each rank has the rows that it is to have
		whole := s.layout.Placements()
		whole[s.cyclic] = layout.Replicate()
		return t.to(s.with(cause, whole), cause).inTurn(s, cause)
	}
	return t.to(s.blocks(), cause).inTurn(s, cause)
}

// A dealing is how rows move between blocks and turns along one axis.
type dealing struct {
	m                 *Mesh
	axis, size        int                                // size: of dimension 0
	n, me             int                                // the ranks along the axis, and this one
	toBlocks, toTurns func(peer int) (send, receive int) // rows
}

func (m *Mesh) dealing(s *spec) *dealing {
	d := &dealing{m: m, axis: s.cyclic, size: s.shape[0], n: m.axes[s.cyclic].Size, me: m.coord[s.cyclic]}
	d.toBlocks = func(peer int) (send, receive int) { return d.rows(d.me, peer), d.rows(peer, d.me) }
	d.toTurns = func(peer int) (send, receive int) { return d.rows(peer, d.me), d.rows(d.me, peer) }
	return d
}

// rows returns how many of the rows of a rank in turn are in the block of another.
func (d *dealing) rows(turn, block int) int {
	chunk := ints.DivUp(d.size, d.n)
	before := func(row int) int { // the rows of turn below it
		return (min(row, d.size) - turn + d.n - 1) / d.n
	}
	return before((block+1)*chunk) - before(block*chunk)
}

// swap sends rows, which lie peer by peer, along the axis, and returns those that come.
func (d *dealing) swap(local *tensor.Tensor, rows int, counts func(peer int) (send, receive int), cause string) *tensor.Tensor {
	if d.n == 1 {
		return local
	}
	shape := append([]int{rows}, local.Shape()[1:]...)
	width := ints.Product(shape[1:])
	send, receive := make([]int, d.n), make([]int, d.n)
	for r := range d.n {
		send[r], receive[r] = counts(r)
		send[r] *= width
		receive[r] *= width
	}
	got := tensor.New(local.Device(), local.DType(), shape...)
	d.m.Do(d.m.groupOf(1<<d.axis), comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(got), Src: BufferOf(local),
		DstCounts: receive, SrcCounts: send, Cause: cause + ": rows in turn"})
	runtime.KeepAlive(local)
	return got
}

// indexed returns x, this rank's part of a layout, with the shape of a global tensor in
// which it is a block and that has the same elements at the same flat indices. offset is
// where it begins there. Rows dealt out in turn are a block of the columns if those of all
// ranks lie side by side.
func (s *spec) indexed(x *tensor.Tensor) (part *tensor.Tensor, shape, offset []int) {
	if s.cyclic < 0 {
		return x, s.shape, s.offset
	}
	n, r := s.mesh.axes[s.cyclic].Size, s.mesh.coord[s.cyclic]
	shape, offset = append([]int{}, s.shape...), append([]int{}, s.offset...)
	if len(shape) == 1 {
		x = x.Reshape(x.Dim(0), 1)
		shape, offset = append(shape, 1), append(offset, 0)
	}
	offset[0], offset[1] = 0, r*shape[1]+offset[1]
	shape[0], shape[1] = ints.DivUp(shape[0], n), n*shape[1]
	return x, shape, offset
}
