package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// OperatorDigests lists what operators do: see DigestOperators.
type OperatorDigests struct {
	mesh   *Mesh
	hash   func(t *Tensor) uint64
	list   []OperatorDigest
	spans  []int              // how long list was when each of the Spans began that are open
	busy   bool               // digests are computed, by operators
	paused bool               // what runs now is no operator of the program
	made   *Tensor            // the last result in list
	inputs map[*node][]uint64 // of the operators that are recorded
	gy     uint64             // the digest of the gradient that is handed on
}

// An OperatorDigest is one operator that has run, or one gradient that an operator has handed on to an operand.
type OperatorDigest struct {
	Op       string // "Linear"
	Line     string // that called it, "train/main.go:31"
	Backward bool   // Output is the gradient of an operand, and the first input that of the result; then come Op's operands
	Inputs   []uint64
	Output   uint64
}

// DigestOperators begins to list the operators on this mesh, until Take. hash is called for each operand and result, which are
// neither Partial nor cyclic, and returns a digest of what the rank holds. Sums over ranks are completed for it, which takes
// communication: it is for finding where two runs begin to differ, and slow. The list is the same for every layout and mesh. So what
// is part of an operator that is listed is not, nor what only moves elements, redistributes them, or is a gradient of rows.
// All ranks make the call.
func (m *Mesh) DigestOperators(hash func(t *Tensor) uint64) *OperatorDigests {
	m.eng.ops = &OperatorDigests{mesh: m, hash: hash, inputs: map[*node][]uint64{}}
	return m.eng.ops
}

// Take ends the list and returns it.
func (o *OperatorDigests) Take() []OperatorDigest {
	if o.mesh.eng.ops == o {
		o.mesh.eng.ops = nil
	}
	return o.list
}

// pause leaves operators out, gradients apart, until resume is called.
func (o *OperatorDigests) pause() (resume func()) {
	if o == nil {
		return func() {}
	}
	was := o.paused
	o.paused = true
	return func() { o.paused = was }
}

// begin notes that a Span begins.
func (o *OperatorDigests) begin() { o.spans = append(o.spans, len(o.list)) }

// end notes that the innermost one ends.
func (o *OperatorDigests) end() {
	if n := len(o.spans); n > 0 { // else it began before o
		o.spans = o.spans[:n-1]
	}
}

// digest returns the digest of t, brought to a layout that is not Partial and to the type of like: a gradient gets its type when it
// is added up.
func (o *OperatorDigests) digest(t, like *Tensor) uint64 {
	o.busy = true
	defer func() { o.busy = false }()
	t = t.Detach()
	if t.spec.partial {
		t = t.Reduced()
	}
	if t.spec.cyclic >= 0 {
		t = t.Redistribute(o.mesh.Every(layout.Replicate())...)
	}
	if t.DType() != like.DType() {
		t = t.Cast(like.DType())
	}
	return o.hash(t)
}

// forward lists an operator that has made out, in place of those that are part of it.
func (o *OperatorDigests) forward(op string, out *Tensor, operands []*Tensor) {
	if o.busy || o.paused || out.spec.mesh != o.mesh || o.mesh.eng.detecting != nil {
		return
	}
	if n := len(o.spans); n > 0 {
		o.list = o.list[:o.spans[n-1]]
	}
	d := OperatorDigest{Op: op, Line: stack.Line(callers(), "")}
	for _, t := range operands {
		if t != nil {
			d.Inputs = append(d.Inputs, o.digest(t, t))
		}
	}
	d.Output = o.digest(out, out)
	o.list, o.made = append(o.list, d), out
}

// recorded notes that n is the node of the operator that was listed last, if out is its result.
func (o *OperatorDigests) recorded(n *node, out *Tensor) {
	if o.made == out {
		o.inputs[n] = o.list[len(o.list)-1].Inputs
	}
}

// handsOn notes that n hands on the gradient g.
func (o *OperatorDigests) handsOn(n *node, g *Tensor) {
	if !n.view && g.spec.mesh == o.mesh {
		o.gy = o.digest(g, g)
	}
}

// backward lists a gradient that t gets from the operator that is differentiated.
func (o *OperatorDigests) backward(t, g *Tensor) {
	n := o.mesh.eng.detecting
	if o.busy || n == nil || n.view || g.spec.mesh != o.mesh {
		return
	}
	o.list = append(o.list, OperatorDigest{Op: n.op, Line: stack.Line(n.stack(), ""), Backward: true,
		Inputs: slices.Concat([]uint64{o.gy}, o.inputs[n]), Output: o.digest(g, t)})
}
