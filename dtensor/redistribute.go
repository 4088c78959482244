package dtensor

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Redistribute returns t in another layout: the same global tensor, divided
// among the ranks by the given placements, one for each mesh axis. It is
// planned from global facts, the same on every rank, and then carried out:
//
//	from → to       communication                  gradient
//	R → S(i)        none (a slice)                 all-gather
//	S(i) → R        all-gather                     slice; reduce-scatter if it is Partial
//	S(i) → S(j)     all-to-all                     all-to-all back
//	P → R           all-reduce                     none
//	P → S(i)        reduce-scatter                 all-gather
//	R → P           none: for sum and prod the     none
//	                first rank holds the value and
//	                the others the identity, for
//	                avg, min and max all hold it
//	R → MaskP       none (integer ids: those of    (ids have none)
//	                other ranks' rows are masked)
//	MaskP → R       all-gather of the rows that    none
//	                each owns (of two ranks an
//	                exchange)
//	MaskP → S(i)    all-to-all of them             all-gather
//	S(i),MaskP →    as from S(i) to R, for the     as there
//	R,MaskP         rows and for their mask
//	C(0) ↔ S(0)     all-to-all                     all-to-all back
//	R → C(0)        none (a slice)                 by S(0) to R
//	anything else   the cheapest sequence of these,
//	                or one exchange
//
// Where t is Partial its gradient is Replicate; it is never turned back into
// Partial. If the layout is t's own, Redistribute returns t.
//
// Redistribute throws a *LayoutError for a dim out of range, for a layout that cannot
// be made from t's, and for a Partial that t's type does not have: Bool has min and max
// alone, integers have no avg.
func (t *Tensor) Redistribute(placements ...layout.Placement) *Tensor {
	defer t.spec.mesh.Span("Redistribute").End()
	if slices.Equal(placements, t.spec.placements) { // without the search for the layout
		return t
	}
	return t.to(t.spec.with("Redistribute", placements), "Redistribute")
}

// Reduced returns t with Replicate where it is Partial or MaskPartial, as
// Redistribute does; t itself if it is neither.
func (t *Tensor) Reduced() *Tensor {
	defer t.spec.mesh.Span("Reduced").End()
	return t.to(t.spec.gradient(), "Reduced")
}

// to brings t to the layout s. cause says for which operator, for the counters
// of communication. The result stands for the same global tensor, so on a tape
// it is the same node as t: gradients are global and come in any layout.
func (t *Tensor) to(s *spec, cause string) *Tensor {
	if s == t.spec {
		return t
	}
	m := t.spec.mesh
	s.want(cause, t.DType())
	if t.spec.cyclic >= 0 || s.cyclic >= 0 {
		return t.toCyclic(s, cause)
	}
	out := (&Tensor{spec: s, node: t.node}).of(t.from)
	if m.outside() {
		out.local = m.empty(s, t.DType()).local
		return out
	}
	from, local := t.spec, t.local
	keeps := t.mask != nil && layout.KeepsMask(t.spec.layout, s.layout)
	switch {
	case keeps:
		out.mask, out.clean = t.mask.moved(t.spec, s, t.DType(), cause), t.clean
	case s.masked && !t.DType().Int():
		refuse(cause, fmt.Sprintf("only integer ids can go to %v, not %v", s, t.DType()), "redistribute the ids, and look rows up with them",
			operand("input", t))
	case t.mask != nil:
		if from = t.source(); from == t.spec {
			local = t.mask.unshift(local)
		} else {
			local = t.mask.restore(local, t.clean)
		}
	}
	if m.eng.observe != nil {
		m.eng.observe(from, s, local.DType().Size(), cause, false)
	}
	if axes := from.nodes(); bits.OnesCount16(uint16(axes)) > 1 { // a plan might add the nodes of one axis after the other
		local, from = m.addNodes(m.groupOf(axes), local, reason{cause, t.Facts(), t}), from.added(axes)
	}
	p := m.plan(from, s, local.DType().Size(), cause)
	for i := range p.steps {
		local = p.steps[i].run(t, local, out)
	}
	out.local = local
	if m.eng.detect && t.spec.partial && t.mask == nil && !s.partial {
		out.detect(sumOf(cause), t)
	}
	return out
}

// planKey names a redistribution.
type planKey struct {
	from, to *spec
	size     int // bytes of an element
	cause    string
}

// A plan is what this rank does in each step of a layout.Plan.
type plan struct{ steps []step }

// A step is one layout.Step on this rank.
type step struct {
	kind     layout.Kind
	from, to *spec
	op       layout.ReduceOp
	first    bool // this rank is the first of its group
	set      axisSet
	group    *comm.Comm
	cause    string
	facts    uint32 // a hash of from and to

	send, recv             []layout.Transfer
	sendCounts, recvCounts []int
	sendInPlace            bool // the source begins with the parts, one after another
	recvInPlace            bool // the destination is the parts, one after another
	sendRows, recvRows     int  // else, above 0: the parts are columns of a matrix with that many rows
}

// plan returns the cached plan of a redistribution.
func (m *Mesh) plan(from, to *spec, size int, cause string) *plan {
	key := planKey{from, to, size, cause}
	if p := m.plans.get(key.slot(), &key); p != nil {
		return p
	}
	lp, err := m.eng.common.plan(commonPlan{from.layout, to.layout, size})
	if err != nil {
		fault.Throw(misfit(cause, err))
	}
	p := &plan{steps: make([]step, 0, len(lp.Steps))}
	for i := range lp.Steps {
		p.steps = append(p.steps, m.compile(&lp.Steps[i], size, cause))
	}
	m.plans.put(key, p)
	return p
}

// compile works out what this rank does in a step on elements of size bytes.
func (m *Mesh) compile(ls *layout.Step, size int, cause string) step {
	s := step{kind: ls.Kind, from: m.specOf(ls.From), to: m.specOf(ls.To), op: ls.Op, cause: cause + ": " + ls.String()}
	s.facts = s.from.facts()*31 ^ s.to.facts()
	s.first = ls.Place(m.coord) == 0
	for _, a := range ls.Axes {
		s.set |= 1 << a
	}
	switch ls.Kind {
	case layout.Slice:
		// What stays is the box that this rank has before and after.
		s.send = []layout.Transfer{s.kept()}
	case layout.Rows:
		s.send, s.recv = ls.Sends(m.coord), ls.Recvs(m.coord)
	case layout.AllGather, layout.AllToAll, layout.Exchange, layout.ReduceScatter:
		s.send, s.recv = ls.Sends(m.coord), ls.Recvs(m.coord)
		s.sendCounts, s.recvCounts = ls.SendCounts(m.coord), ls.RecvCounts(m.coord)
		src, dst := func(t *layout.Transfer) []int { return t.Src }, func(t *layout.Transfer) []int { return t.Dst }
		s.sendInPlace, s.recvInPlace = inPlace(s.send, s.from.local, src), inPlace(s.recv, s.to.local, dst)
		s.sendRows, s.recvRows = columns(s.send, s.from.local, src, minRun/size), columns(s.recv, s.to.local, dst, minRun/size)
	}
	return s
}

// kept is the box of a Slice.
func (s *step) kept() layout.Transfer {
	t := layout.Transfer{Size: s.to.local, Global: s.to.offset, Dst: make([]int, len(s.to.local)), Src: make([]int, len(s.to.local))}
	for d := range t.Src {
		t.Src[d] = s.to.offset[d] - s.from.offset[d]
	}
	return t
}

// inPlace reports whether the boxes lie one after another, without gaps, in a
// row-major array of the given shape.
func inPlace(boxes []layout.Transfer, shape []int, start func(*layout.Transfer) []int) bool {
	next := 0
	for i := range boxes {
		at, ok := contiguous(boxes[i].Size, start(&boxes[i]), shape)
		if !ok || at != next {
			return false
		}
		next += boxes[i].Numel()
	}
	return true
}

// minRun is the least number of bytes of a row for which a part is read and written
// where it lies rather than packed: shorter runs cost more than they save.
const minRun = 256

// columns returns of how many rows a row-major array of the given shape is seen to be
// if the boxes are blocks of its columns, in order, which leave none out; 0 if they
// are not, or have fewer than least columns.
func columns(boxes []layout.Transfer, shape []int, start func(*layout.Transfer) []int, least int) int {
	split := 0 // the dimension that is divided
	for split < len(shape) && len(boxes) > 0 && boxes[0].Size[split] == shape[split] {
		split++
	}
	if len(boxes) == 0 || split == len(shape) {
		return 0
	}
	above, below := ints.Product(shape[:split]), ints.Product(shape[split+1:])
	next := 0
	for i := range boxes {
		b := &boxes[i]
		for d, n := range shape {
			if d != split && b.Size[d] != n {
				return 0
			}
		}
		if start(b)[split] != next || b.Size[split]*below < least {
			return 0
		}
		next += b.Size[split]
	}
	if next != shape[split] {
		return 0
	}
	return above
}

// contiguous returns the offset of a box in a row-major array; ok is false if
// the box has gaps there.
func contiguous(size, start, shape []int) (offset int, ok bool) {
	whole := true // all dimensions so far, from the last, are whole
	stride := 1
	for d := len(shape) - 1; d >= 0; d-- {
		if !whole && size[d] > 1 {
			return 0, false
		}
		whole = whole && size[d] == shape[d]
		offset += start[d] * stride
		stride *= shape[d]
	}
	return offset, true
}

// run carries out a step in redistributing t to out, on this rank's shard, and
// returns the new one.
func (s *step) run(t *Tensor, local *tensor.Tensor, out *Tensor) *tensor.Tensor {
	m := t.spec.mesh
	switch s.kind {
	case layout.Relabel:
		if s.to.localNumel == 0 {
			return tensor.New(m.eng.dev, local.DType(), s.to.local...)
		}
		return local
	case layout.Slice:
		return s.slice(local)
	case layout.Partition:
		return s.partition(local)
	case layout.Mask:
		shifted, mask := maskIDs(m, s.to, local)
		out.mask = mask
		return shifted
	}
	if s.group == nil {
		s.group = m.groupOf(s.set)
	}
	if s.kind == layout.Rows {
		// Rows of other ranks are unspecified in t, unless t is clean: then they are zeros.
		// Masked ids are not written to: a lookup with them reads all of them.
		return s.rows(t.mask, local, !t.clean && !t.DType().Int())
	}
	why := reason{s.cause, s.facts ^ t.from, t}
	if s.op == layout.Nodes && s.kind == layout.AllReduce {
		return m.addNodes(s.group, local, why)
	} else if s.op == layout.Nodes {
		return m.foldNodes(s.group, s.packed(local), oneEach(s.group), s.sendCounts, why).Reshape(s.to.local...)
	}
	dst := tensor.New(m.eng.dev, local.DType(), s.to.local...)
	switch s.kind {
	case layout.AllReduce:
		why.do(m, s.group, comm.Call{Kind: comm.AllReduceKind, Op: commOp(s.op), Dst: BufferOf(dst), Src: BufferOf(local)})
	case layout.ReduceScatter:
		src, rows := s.pack(local)
		why.do(m, s.group, comm.Call{Kind: comm.ReduceScatterVKind, Op: commOp(s.op), Dst: BufferOf(dst),
			Src: BufferOf(src).Slice(0, ints.Sum(s.sendCounts)), SrcCounts: s.sendCounts, SrcRows: rows})
		runtime.KeepAlive(src)
	case layout.AllGather:
		into, rows := s.staging(m, dst)
		why.do(m, s.group, comm.Call{Kind: comm.AllGatherVKind, Dst: BufferOf(into), Src: BufferOf(local), DstCounts: s.recvCounts,
			DstRows: rows})
		s.unpack(dst, into)
	default: // AllToAll, Exchange
		src, srcRows := s.pack(local)
		into, dstRows := s.staging(m, dst)
		why.do(m, s.group, comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(into), Src: BufferOf(src).Slice(0, ints.Sum(s.sendCounts)),
			DstCounts: s.recvCounts, SrcCounts: s.sendCounts, DstRows: dstRows, SrcRows: srcRows})
		s.unpack(dst, into)
		runtime.KeepAlive(src)
	}
	runtime.KeepAlive(local)
	return dst
}

// A reason is what a call has from the operator that makes it: see comm.Call.
type reason struct {
	cause   string
	facts   uint32
	subject fmt.Stringer
}

func (why reason) do(m *Mesh, g *comm.Comm, call comm.Call) {
	call.Cause, call.Facts, call.Subject = why.cause, why.facts, why.subject
	m.Do(g, call)
}

// slice returns the part of local that stays: a view where that is contiguous.
func (s *step) slice(local *tensor.Tensor) *tensor.Tensor {
	box := &s.send[0]
	if s.to.localNumel == 0 {
		return tensor.New(local.Device(), local.DType(), s.to.local...)
	}
	if at, ok := contiguous(box.Size, box.Src, s.from.local); ok {
		return tensor.Narrow(local.Reshape(local.Numel()), 0, at, box.Numel()).Reshape(s.to.local...)
	}
	dst := tensor.New(local.Device(), local.DType(), s.to.local...)
	tensor.CopyBox(dst, box.Dst, local, box.Src, box.Size)
	return dst
}

// partition returns this rank's addend of the value that all ranks hold.
func (s *step) partition(local *tensor.Tensor) *tensor.Tensor {
	switch {
	case s.first || s.op != layout.Sum && s.op != layout.Nodes && s.op != layout.Prod:
		return local
	case s.op == layout.Prod:
		return tensor.Full(local.Device(), local.DType(), 1, s.to.local...)
	}
	return tensor.Zeros(local.Device(), local.DType(), s.to.local...)
}

// pack returns the parts that go to the members of the group one after another, or
// local itself where that is what it holds or they are columns of its rows.
func (s *step) pack(local *tensor.Tensor) (flat *tensor.Tensor, rows int) {
	if !s.sendInPlace && s.sendRows > 0 && s.group.Internals().SupportsRows() {
		return local, s.sendRows
	}
	return s.packed(local), 0
}

// packed returns the parts that go to the members of the group one after another.
func (s *step) packed(local *tensor.Tensor) (flat *tensor.Tensor) {
	if s.sendInPlace {
		return local
	}
	flat = tensor.New(local.Device(), local.DType(), ints.Sum(s.sendCounts))
	at := 0
	for i := range s.send {
		box := &s.send[i]
		tensor.PackBox(flat, at, local, box.Src, box.Size)
		at += box.Numel()
	}
	return flat
}

// staging returns where the parts from the group arrive: dst itself if they
// lie one after another there, or are columns of its rows.
func (s *step) staging(m *Mesh, dst *tensor.Tensor) (into *tensor.Tensor, rows int) {
	switch {
	case s.recvInPlace:
		return dst, 0
	case s.recvRows > 0 && s.group.Internals().SupportsRows():
		return dst, s.recvRows
	}
	return tensor.New(m.eng.dev, dst.DType(), ints.Sum(s.recvCounts)), 0
}

// unpack puts the parts that arrived in their places.
func (s *step) unpack(dst, from *tensor.Tensor) {
	if dst == from {
		return
	}
	at := 0
	for i := range s.recv {
		box := &s.recv[i]
		tensor.UnpackBox(dst, box.Dst, from, at, box.Size)
		at += box.Numel()
	}
	from.Free()
}
