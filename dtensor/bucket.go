package dtensor

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// A bucket brings dense gradients to their parameters' layouts. Those that
// only have to be summed over some axes are packed by element type and axes,
// and each pack is one all-reduce; so are those that are summed and scattered,
// and each pack of them is one reduce-scatter.
type bucket struct {
	order order // of the parameters
	packs []pack
	taken map[unsafe.Pointer]bool // memory of gradients that were returned
}

// A pack is gradients that are summed over the same axes.
type pack struct {
	packKey
	order order // of the bucket
	list  []pending
}

type packKey struct {
	mesh    *Mesh
	axes    axisSet
	dt      tensor.DType
	scatter bool            // each rank gets its shard of the sums
	op      layout.ReduceOp // Sum or Nodes
}

type pending struct {
	dst  **Tensor
	g    *Tensor
	want *spec
	step *step // the reduce-scatter of this gradient alone
}

// An order is a hash of the parameters' numbers, in the order in which operators first used them. It differs between ranks that
// have the parameters in other orders, as from a loop over a map, though their shapes are the same.
type order uint32

func orderOf(params []*Tensor) (h order) {
	numbers := make([]int, len(params))
	for i := range numbers {
		numbers[i] = i
	}
	slices.SortStableFunc(numbers, func(a, b int) int { return params[a].node.used - params[b].node.used })
	for _, i := range numbers {
		h = h*31 + order(i)
	}
	return h
}

func (h order) String() string { return fmt.Sprintf("parameters in the order %08x", uint32(h)) }

// to returns the gradient g in the layout want. Calls for it carry the order.
func (h order) to(g *Tensor, want *spec) *Tensor {
	ordered := *g
	ordered.from ^= uint32(h)
	out := ordered.to(want, bucketCause).Detach()
	out.from = 0 // the layouts of gradients are not Partial
	return out
}

// maxOrders is how many orders a mesh remembers.
const maxOrders = 64

// compare has the ranks of the mesh compare the order, where they have not done so before, with same bits: there operators may add
// up all gradients, and no call says of which parameter.
func (h order) compare(m *Mesh) {
	if !m.eng.same || m.outside() || m.Size() == 1 || slices.Contains(m.orders, h) {
		return
	}
	m.Do(m.all, comm.Call{Kind: comm.BarrierKind, Cause: "ValueAndGrad: order of parameters", Facts: uint32(h), Subject: h, Check: true})
	if len(m.orders) == maxOrders {
		m.orders = m.orders[:0]
	}
	m.orders = append(m.orders, h)
}

// add sets *dst to g in the layout want, now or in reduce.
func (b *bucket) add(dst **Tensor, g *Tensor, want *spec) {
	if b.pack(dst, g, want) == nil {
		*dst = b.distinct(b.order.to(g, want))
	}
}

// pack adds g to a pack whose sums will set *dst to g in the layout want, and returns the pack; nil, and
// nothing is done, if g needs something else than a sum.
func (b *bucket) pack(dst **Tensor, g *Tensor, want *spec) *pack {
	item := pending{dst: dst, g: g, want: want}
	key := packKey{mesh: want.mesh, dt: g.DType()}
	ok := g.spec.cyclic >= 0 || want.cyclic >= 0 // these have no plan
	if !ok {
		key.axes, key.op, ok = sumAxes(g.spec, want)
	}
	if !ok {
		item.step, key.scatter = scatterStep(g, want)
		if key.scatter {
			key.axes, key.op = item.step.set, item.step.op
		}
	}
	if key.axes == 0 || want.mesh.outside() {
		return nil
	}
	at := slices.IndexFunc(b.packs, func(p pack) bool { return p.packKey == key })
	if at < 0 {
		at = len(b.packs)
		b.packs = append(b.packs, pack{packKey: key, order: b.order})
	}
	p := &b.packs[at]
	p.list = append(p.list, item)
	return p
}

const (
	bucketCause = "parameter gradient"
	packCause   = "ValueAndGrad: parameter gradients"
)

// scatterStep returns the reduce-scatter of sums that brings g to the layout
// want; ok is false if its plan is not that alone.
func scatterStep(g *Tensor, want *spec) (s *step, ok bool) {
	if g.spec.mesh.outside() || g.spec.masked {
		return nil, false
	}
	p := want.mesh.plan(g.spec, want, g.DType().Size(), bucketCause)
	if len(p.steps) != 1 || p.steps[0].kind != layout.ReduceScatter || p.steps[0].op != layout.Sum && p.steps[0].op != layout.Nodes {
		return nil, false
	}
	return &p.steps[0], true
}

// sumAxes returns the axes, of more than one rank, on which from is Partial(Sum), or
// Partial(Nodes), and to Replicate; ok is false if the two differ in anything else.
func sumAxes(from, to *spec) (axes axisSet, op layout.ReduceOp, ok bool) {
	if from.nodes() != 0 {
		op = layout.Nodes
	}
	for i, p := range from.placements {
		switch {
		case p == to.placements[i] || from.mesh.axes[i].Size == 1:
		case p == layout.Partial(op) && to.placements[i].IsReplicate():
			axes |= 1 << i
		default:
			return 0, 0, false
		}
	}
	return axes, op, true
}

// distinct returns g, or a copy of it if another parameter has the same memory
// for its gradient: callers scale gradients in place.
func (b *bucket) distinct(g *Tensor) *Tensor {
	if g.local.Numel() == 0 {
		return g
	}
	if b.taken == nil {
		b.taken = map[unsafe.Pointer]bool{}
	}
	if p := g.local.Ptr(); b.taken[p] {
		g = wrap(g.spec, tensor.Clone(g.local))
	}
	b.taken[g.local.Ptr()] = true
	return g
}

// reduce sets what add left for it.
func (b *bucket) reduce() {
	for i := range b.packs {
		b.packs[i].reduce()
	}
}

// reduce makes the sums of a pack. Its gradients are views of one result; a
// gradient that is alone is read where it lies.
func (p *pack) reduce() {
	if len(p.list) == 1 && p.scatter {
		e := &p.list[0]
		*e.dst = p.order.to(e.g, e.want)
		return
	}
	p.handOut(p.sums(p.total()))
}

// bytes returns how many bytes of gradients a pack has.
func (p *pack) bytes() (n int) {
	for _, e := range p.list {
		n += e.g.local.Numel() * p.dt.Size()
	}
	return n
}

// facts returns a hash of the gradients of a pack, their layouts and the order of the parameters.
func (p *pack) facts() uint32 {
	h := uint32(p.order)
	for _, e := range p.list {
		h = h*31 ^ e.g.Facts()*31 ^ e.want.facts()
	}
	return h
}

// total returns how many elements the sums of a pack have, before they are made.
func (p *pack) total() (n int) {
	for _, e := range p.list {
		n += e.want.localNumel
		if eng := p.mesh.eng; eng.observe != nil {
			eng.observe(e.g.spec, e.want, p.dt.Size(), packCause, true)
		}
	}
	return n
}

// handOut sets the gradients of a pack to its sums.
func (p *pack) handOut(flat *tensor.Tensor) {
	at := 0
	for _, e := range p.list {
		n := e.want.localNumel
		*e.dst = wrap(e.want, tensor.Narrow(flat, 0, at, n).Reshape(e.want.local...))
		at += n
	}
	for _, e := range p.list {
		runtime.KeepAlive(e.g.local)
	}
}

// sums returns the sums of a pack, one after another, as many elements as total.
func (p *pack) sums(total int) *tensor.Tensor {
	group := p.mesh.groupOf(p.axes)
	src, counts := p.joined(total)
	if p.scatter {
		defer src.Free()
	}
	switch {
	case p.op == layout.Nodes && p.scatter:
		return p.mesh.foldNodes(group, src, oneEach(group), counts, reason{cause: packCause, facts: p.facts()})
	case p.op == layout.Nodes:
		return p.mesh.addNodes(group, src.Reshape(total), reason{cause: packCause, facts: p.facts()})
	}
	flat, call := p.call(src, counts, total)
	p.mesh.Do(group, call)
	return flat
}

// joined returns the gradients of a pack one after another; where the sums are scattered, what each member of the
// group gets, member after member, and how much.
func (p *pack) joined(total int) (src *tensor.Tensor, counts []int) {
	switch {
	case p.scatter:
		return p.scattered()
	case len(p.list) == 1:
		return p.list[0].g.local, nil
	}
	src = tensor.New(p.mesh.eng.dev, p.dt, total)
	at := 0
	for _, e := range p.list {
		n := e.g.local.Numel()
		tensor.Copy(tensor.Narrow(src, 0, at, n), e.g.local.Reshape(n))
		at += n
	}
	return src, nil
}

// call returns the collective that sums what joined has returned, and where the sums will be.
func (p *pack) call(src *tensor.Tensor, counts []int, total int) (flat *tensor.Tensor, call comm.Call) {
	flat = src // where the gradients of one pack were put together, their sums come
	if p.scatter || len(p.list) == 1 {
		flat = tensor.New(p.mesh.eng.dev, p.dt, total)
	}
	call = comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: BufferOf(flat), Src: BufferOf(src), Cause: packCause, Facts: p.facts()}
	if p.scatter {
		call.Kind, call.SrcCounts = comm.ReduceScatterVKind, counts
	}
	return flat, call
}

// scattered returns what each member of the group gets of each gradient,
// member after member, and how much each gets.
func (p *pack) scattered() (src *tensor.Tensor, counts []int) {
	counts = make([]int, len(p.list[0].step.sendCounts))
	for _, e := range p.list {
		for r, n := range e.step.sendCounts {
			counts[r] += n
		}
	}
	src = tensor.New(p.mesh.eng.dev, p.dt, ints.Sum(counts))
	at := ints.Starts(counts) // where the next box for each member goes
	for _, e := range p.list {
		for i := range e.step.send {
			box := &e.step.send[i]
			tensor.PackBox(src, at[box.Peer], e.g.local, box.Src, box.Size)
			at[box.Peer] += box.Numel()
		}
	}
	return src, counts
}
