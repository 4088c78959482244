package dtensor

// Recompute returns f(x) and forgets what f computed on the way: the gradient computes it
// again. It is activation checkpointing, torch.utils.checkpoint: a model whose layers go
// through it keeps the input of each layer instead of all that is inside, and takes
// a third more time, with f's communication made once more.
//
//	for _, b := range blocks {
//		h = dtensor.Recompute(b.Forward, h)
//	}
//
// f may use parameters and other tensors from outside. It has to compute the same both
// times; random numbers do if their keys come from NextKey, as those of nn.Dropout. What f
// passes to Keep outlives Recompute, not the ValueAndGrad around it. Outside of
// ValueAndGrad it is f(x).
func Recompute(f func(x *Tensor) *Tensor, x *Tensor) *Tensor {
	wantFunc("Recompute", f)
	eng := x.there("Recompute").spec.mesh.eng
	t := eng.tape
	if t == nil || t.untrained {
		return f(x)
	}
	keys := eng.keys
	var out *Tensor
	eng.nested(nil, firstRun, func() {
		out = f(x).Detach()
		keepTensors(eng.scope, out)
	})
	return out.recordComposed("Recompute", func(gy *Tensor) {
		after, first := eng.keys, len(t.nodes)
		eng.keys = keys
		defer func() { eng.keys = after }()
		eng.nested(t, secondRun, func() {
			y := f(x)
			eng.tape = nil // the backward pass is not recorded
			y.accumulate(gy)
			t.run(first)
			t.nodes = t.nodes[:first]
			for _, n := range t.nodes {
				n.scatter()
				n.keep(eng.scope)
			}
		})
	}, func() (y *Tensor) { // for Gradients, which keep what f computes
		after, run := eng.keys, eng.run
		eng.keys, eng.run = keys, secondRun
		defer func() { eng.keys, eng.run = after, run }()
		return f(x)
	})
}

// ScatterGradients returns f(x). When the gradient has passed f, the gradients of parameters that
// an axis divides are brought to their layouts at once: each rank then keeps its part of them.
// Without it that is done for all parameters together in the end, by one reduce-scatter, and until
// then each gradient takes as much memory as the whole parameter. See nn.Shard: it is ZeRO-2.
//
//	for _, b := range blocks {
//		h = dtensor.ScatterGradients(b.Forward, h)
//	}
//
// Outside of ValueAndGrad, or if x depends on no parameter, it is f(x) alone. Recompute scatters by itself.
func ScatterGradients(f func(x *Tensor) *Tensor, x *Tensor) *Tensor {
	wantFunc("ScatterGradients", f)
	if !Tracked(x) {
		return f(x)
	}
	t := x.spec.mesh.eng.tape
	return f(x.Detach().recordTwice("ScatterGradients", func(gy *Tensor) { // runs after all that f has recorded
		if !gy.again() {
			for _, n := range t.nodes {
				n.scatter()
			}
		}
		x.accumulate(gy)
	}))
}

// scatter brings the gradient of a parameter that is divided to its layout, if it is a sum
// that all ranks have a part of: the sum takes as much memory as the whole parameter.
func (n *node) scatter() {
	if n.leaf == nil {
		return
	}
	n.joinPieces()
	if n.grad != nil && n.scatters(n.grad) {
		n.grad, n.own = n.settled(n.grad), false
	}
	for k, g := range n.parts {
		if n.scatters(g) {
			n.parts[k] = n.settled(g)
		}
	}
}

// scatters reports whether an axis that divides n divides the sum of what the ranks hold of g.
func (n *node) scatters(g *Tensor) bool {
	for i, p := range n.spec.placements {
		if p.IsShard() && g.spec.placements[i].IsPartial() {
			return true
		}
	}
	return false
}

// Which run of its function a Recompute is in.
const (
	firstRun = 1 + iota
	secondRun
)

// nested runs f with a tape, or none, in a scope of its own, and then brings back what was.
func (e *engine) nested(t *tape, run int, f func()) {
	scope := e.dev.Open()
	defer scope.Close()
	defer e.enter()()
	e.tape, e.scope, e.run = t, scope, max(e.run, run)
	f()
}

// Replaying reports whether a Recompute runs its function for the second time: what a
// layer keeps of a pass, such as a running average, it has kept.
func (m *Mesh) Replaying() bool { return m.eng.run == secondRun }

func wantFunc(op string, f func(x *Tensor) *Tensor) {
	if f == nil {
		refuse(op, "the function is nil", "give the one that computes the layer")
	}
}
