package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A tape lists the recorded operators of one ValueAndGrad in the order in
// which they ran; walking it backwards is a topological order.
type tape struct {
	nodes     []*node
	slab      []node
	stacks    map[*node][]uintptr // where the operators were called, if anything below asks for it: see record
	early     *early              // sums gradients while run goes on; nil: they are summed in the end
	closed    bool                // f has returned; a tensor that still refers to the tape is a constant
	inside    int                 // how many Gradients run, one in another
	slopes    bool                // Gradients have run
	untrained bool                // it is of Gradients alone, outside of ValueAndGrad
}

// A node is one recorded operator, or one parameter, on a tape.
type node struct {
	*leaf   // nil: an operator made the value
	tape    *tape
	op      string
	spec    *spec // of the value that the node stands for
	back    func(gy *Tensor)
	grad    *Tensor      // the sum of the gradients that have arrived, float32 once bfloat16 ones are added; nil before the first
	dt      tensor.DType // of the gradients that arrive, the widest; of a parameter it may be narrower than the parameter's
	own     bool         // grad's buffer belongs to this node alone: it is added to in place
	view    bool         // back only moves elements, so that it may be handed nodes of sums
	cuts    bool         // back takes gradients whose shards are cut otherwise than those of the value
	narrows bool         // it casts a parameter to a narrow type
	twice   bool         // back can be recorded, see Gradients
	number  int32        // of the nodes of its tape
	reach   int32        // no node that it depends on has a higher number; its own number where that is not known
	second  *second      // nil: Gradients need nothing of it

	products []pendingProduct // that have arrived and are not in grad yet, see join
	pieces   []piece          // likewise, see joinPieces
}

// A leaf is what the node of a parameter has besides.
type leaf struct {
	apart bool // gradients that arrive are kept apart, in parts
	parts []*Tensor
	rows  []*Rows        // row-sparse gradients that have arrived
	used  int            // how many nodes the tape had when an operator first asked about it, 0: none has
	local *tensor.Tensor // the parameter's memory then
	was   uint32         // how often it had been changed
	sent  bool           // the sum of its gradients over the ranks has begun
}

func (t *tape) add(op string, s *spec, back func(gy *Tensor)) *node {
	s.mesh.eng.giveWay()
	if len(t.slab) == cap(t.slab) {
		t.slab = make([]node, 0, 64)
	}
	t.slab = append(t.slab, node{tape: t, op: op, spec: s, back: back, number: int32(len(t.nodes)), reach: int32(len(t.nodes))})
	n := &t.slab[len(t.slab)-1]
	if back == nil {
		n.leaf = &leaf{}
	}
	t.nodes = append(t.nodes, n)
	return n
}

// tracked reports whether t depends on a parameter of the ValueAndGrad that is
// running f now. It throws if t depends on one of an outer ValueAndGrad: the
// gradient of a gradient. In Gradients where nothing is recorded, as in the first
// run of a Recompute, what an outer one has made is constant.
func (t *Tensor) tracked() bool {
	if t.node == nil {
		return false
	}
	if n := t.node; n.leaf != nil && n.used == 0 {
		n.used, n.local, n.was = len(n.tape.nodes), t.local, t.local.Changes()
	}
	now := t.spec.mesh.eng.tape
	if now == nil || t.node.tape == now {
		return now != nil
	}
	if !t.node.tape.closed && !now.untrained {
		refuse("ValueAndGrad", "an operator inside uses the result of "+t.node.op+" of an enclosing ValueAndGrad",
			"for second derivatives use Gradients inside; else compute what is differentiated outside, or pass Detach of it",
			operand("input", t))
	}
	return false
}

// record makes out the result of an operator whose gradient is back. The
// caller has seen that an input is tracked. back receives the gradient of out
// and hands each input its part with accumulate; it runs with the tape off.
func (out *Tensor) record(op string, back func(gy *Tensor)) *Tensor {
	out.node = out.spec.mesh.eng.tape.add(op, out.spec, back)
	if eng := out.spec.mesh.eng; eng.detect || eng.observer != nil || eng.products != nil || eng.ops != nil {
		if out.node.tape.stacks == nil {
			out.node.tape.stacks = map[*node][]uintptr{}
		}
		out.node.tape.stacks[out.node] = callers()
		if eng.ops != nil {
			eng.ops.recorded(out.node, out)
		}
	}
	return out
}

// recordProduct is recordTwice of an operator whose gradient chooses the layouts of its operands itself.
func (out *Tensor) recordProduct(op string, back func(gy *Tensor)) {
	out.recordTwice(op, back).node.cuts = true
}

// recordView is recordTwice of an operator that only moves elements, and whose gradient does.
func (out *Tensor) recordView(op string, back func(gy *Tensor)) {
	out.recordTwice(op, back).node.view = true
}

// Detach returns t as a constant: the same data, on no tape.
func (t *Tensor) Detach() *Tensor {
	return &Tensor{spec: t.spec, local: t.local, mask: t.mask.Hold(), clean: t.clean, from: t.from}
}

// accumulate adds g to the gradient of t. It does nothing if t is a constant.
//
// Gradients are global tensors of t's shape, so any layout of g is right; what
// is kept is the sum. Contributions in one layout are added as they are, one
// Partial to another too; two layouts that differ are first settled. Those of
// bfloat16 are added in float32: see arrived.
func (t *Tensor) accumulate(g *Tensor) {
	n := t.node
	if n == nil || n.tape.closed {
		return
	}
	if n.second != nil && n.second.origin != nil { // t is another layout of it
		n.second.origin.accumulate(g)
		return
	}
	n.joinPieces()
	if t.again() {
		t.accumulateRecorded(g)
		return
	}
	if t.spec.mesh.eng.detect {
		g.detectGrad()
	}
	if ops := t.spec.mesh.eng.ops; ops != nil {
		ops.backward(t, g)
	}
	if n.back != nil && g.spec.nodes() != 0 && g.DType() != t.DType() {
		g = n.reduced(g).Cast(t.DType())
	}
	if n.leaf != nil {
		if n.sent {
			panic("dtensor: a gradient arrives at a parameter whose sum has begun: an operator has not asked whether it is tracked")
		}
		if n.apart {
			n.parts = append(n.parts, g)
			return
		}
	}
	if n.grad != nil && g.spec.mesh.eng.same { // the sum of nodes is no node of the sum
		if n.grad.spec.partial {
			n.grad, n.own = n.reduced(n.grad), false
		}
		if g.spec.partial {
			g = n.reduced(g)
		}
	}
	if dt := g.DType(); dt.Size() > n.dt.Size() {
		n.dt = dt
	}
	switch {
	case n.grad == nil:
		n.grad, n.own = g, false
	case n.grad.spec == g.spec && n.own:
		addInto(n.grad, g)
	case n.grad.spec == g.spec:
		n.grad, n.own = addWide(n.grad, g), true
	default:
		n.grad, n.own = addWide(n.settled(n.grad), n.settled(g)), true
	}
}

// arrived is the sum of the gradients that have arrived, rounded once to their type.
func (n *node) arrived() *Tensor { return n.grad.castPart(n.dt) }

// castPart returns a gradient in another type. Each rank casts what it has of a sum, which may stay Partial: it is
// rounded once on each rank and once more when the ranks' parts are added.
func (g *Tensor) castPart(dt tensor.DType) *Tensor {
	if dt == g.DType() {
		return g
	}
	if g.mask != nil || g.spec.mesh.eng.same {
		return g.Cast(dt)
	}
	return wrap(g.spec, tensor.Cast(g.local, dt)).of(g.from)
}

// addWide returns a + b, float32 if they are of bfloat16. It is not recorded.
func addWide(a, b *Tensor) *Tensor {
	wideA, wideB := a.castPart(a.DType().Wide()), b.castPart(b.DType().Wide())
	sum := wideA.Add(wideB)
	if wideA != a {
		wideA.local.Free()
	}
	if wideB != b {
		wideB.local.Free()
	}
	return sum
}

// addInto adds g to dst in place; they have one layout, and dst may be float32 where g
// is of bfloat16.
func addInto(dst, g *Tensor) {
	if dst.spec.mesh.outside() {
		return
	}
	wide := tensor.Cast(g.local, dst.DType())
	tensor.AddTo(dst.local, wide)
	if wide != g.local {
		wide.Free()
	}
}

// reduced brings a gradient of n to the layout of n's value, Replicate where that is Partial.
func (n *node) reduced(g *Tensor) *Tensor { return g.to(n.spec.gradient(), "gradient of "+n.op) }

// settled brings a gradient of n to the layout that n's operator wants:
//
//	value   gradient
//	S(i)    S(i)
//	P, MaskP R      (the reduction's gradient passes through; never back to Partial)
//	R       R, or P(sum) as it is: what uses it is linear in it, and it may
//	        yet be summed with others before it is reduced; P(nodes) is reduced
func (n *node) settled(g *Tensor) *Tensor {
	if n.spec == g.spec && !n.spec.partial || n.cuts && g.spec.mesh.eng.same && n.spec.shardsAlike(g.spec) {
		return g
	}
	if !g.spec.partial || !n.view && g.spec.nodes() != 0 { // nodes are added up before anything is computed from them
		return n.reduced(g)
	}
	var buf [maxAxes]layout.Placement
	want := buf[:len(n.spec.placements)]
	for i, p := range n.spec.placements {
		switch {
		case p.IsShard():
			want[i] = p
		case p.IsReplicate() && g.spec.placements[i].IsPartial():
			want[i] = g.spec.placements[i]
		default:
			want[i] = layout.Replicate()
		}
	}
	return g.to(g.spec.with(n.op, want), "gradient of "+n.op)
}

// shardsAlike reports whether two layouts without a Partial shard the same dimensions, however they cut them.
func (s *spec) shardsAlike(other *spec) bool {
	for axis, p := range s.placements {
		d, ok := p.Dim()
		if q := other.placements[axis]; q.IsPartial() || ok && !q.Shards(d) || !ok && (p.IsPartial() || q.IsShard()) {
			return false
		}
	}
	return true
}

// backward runs the tape from the value v, whose gradient is gy.
func (t *tape) backward(v, gy *Tensor) {
	if v.node == nil || v.node.tape != t {
		return
	}
	v.accumulate(gy)
	eng := v.spec.mesh.eng
	defer func() { eng.detecting = nil }()
	t.run(0)
}

// run hands on the gradients that have arrived at the nodes from first on.
func (t *tape) run(first int) {
	for i := len(t.nodes) - 1; i >= first; i-- {
		n := t.nodes[i]
		n.join()
		n.joinPieces()
		if n.grad != nil && n.back != nil {
			n.spec.mesh.eng.giveWay()
			n.handOn()
		}
		if t.early != nil && first == 0 {
			t.early.passed(i)
		}
	}
}

// handOn hands the gradient that has arrived at n on to what n was computed from.
func (n *node) handOn() {
	if eng := n.spec.mesh.eng; eng.observer != nil {
		defer eng.differentiate(n).end()
	}
	g := n.arrived()
	if !n.defers(g) {
		g = n.settled(g)
	}
	back := n.back
	n.grad, n.back = nil, nil // what they hold can go
	if eng := n.spec.mesh.eng; eng.detect || eng.products != nil || eng.ops != nil {
		eng.detecting = n
		if eng.ops != nil {
			eng.ops.handsOn(n, g)
		}
	}
	back(g)
}

// defers reports whether g, a gradient of n, goes to the parameter that n was cast from as it is, to be summed over the
// ranks in its narrow type together with those of other parameters.
func (n *node) defers(g *Tensor) bool {
	return n.narrows && g.spec.partial && g.mask == nil && !g.spec.mesh.eng.same
}

// Record makes out the result of an operator defined outside this package.
// backward receives the gradient of out, in out's layout (Replicate where that
// is Partial), and returns one gradient for each input, in any layout of the
// input's shape; the zero Grad is no gradient. It runs with the tape off, so it
// may use any operator, and what it computes with gy.Local() is right on every mesh.
//
// Record returns out, and records nothing if no input is tracked: an operator
// may ask Tracked first to spare what only the gradient needs.
func Record(op string, out *Tensor, inputs []*Tensor, backward func(gy *Tensor) []Grad) *Tensor {
	if backward == nil {
		refuse("Record", op+" has no backward", "give the function that returns the gradients of its inputs")
	}
	out.there(op).made(op, inputs...)
	if !Tracked(inputs...) {
		return out
	}
	want, reach := out.spec.gradient(), int32(0)
	for _, t := range inputs {
		if t != nil && t.node != nil && t.node.tape == out.spec.mesh.eng.tape {
			reach = max(reach, t.node.reach)
		}
	}
	out.record(op, func(gy *Tensor) {
		grads := backward(gy.to(want, "gradient of "+op))
		if len(grads) != len(inputs) {
			refuse("Record", fmt.Sprintf("backward of %s returned %d gradients for %d inputs", op, len(grads), len(inputs)),
				"return one for each, the zero Grad for an input that gets none")
		}
		for i, g := range grads {
			switch {
			case g.rows != nil:
				inputs[i].accumulateRows(op, g.rows)
			case g.dense != nil:
				if in := inputs[i]; !slices.Equal(g.dense.spec.shape, in.spec.shape) {
					refuse("Record", fmt.Sprintf("backward of %s returned a gradient of another shape for input %d", op, i),
						"return one of the input's shape, such as a sum over the dimensions that it was broadcast along",
						operand("input", in), operand("gradient", g.dense))
				}
				inputs[i].accumulate(g.dense)
			}
		}
	}).node.reach = reach
	return out
}

// Tracked reports whether an operator on these inputs has to be recorded:
// whether one of them depends on a parameter of the running ValueAndGrad.
func Tracked(inputs ...*Tensor) (tracked bool) {
	for _, t := range inputs { // all of them: each parameter learns that it is used
		if t != nil && t.tracked() {
			tracked = true
		}
	}
	return tracked
}

// accumulateRows adds a row-sparse gradient to t. It stays one if t is a parameter in
// its own layout; what t was computed from wants a dense gradient, and so does a
// parameter that t is another layout of.
func (t *Tensor) accumulateRows(op string, r *Rows) {
	n := t.node
	if n == nil || n.tape.closed {
		return
	}
	if n.leaf != nil && r.spec.layout != t.spec.layout {
		fault.Throw(&LayoutError{Op: op, Operands: []Operand{operand("parameter", t), {"rows", r.spec.String()}},
			Problem: "the row-sparse gradient has another layout than its parameter", Remedy: "make it with the parameter's layout"})
	}
	if n.leaf == nil || r.spec.layout != n.spec.gradient().layout {
		t.accumulate(r.Dense())
		return
	}
	if t.spec.mesh.eng.detect {
		r.detectGrad()
	}
	n.rows = append(n.rows, r)
}
