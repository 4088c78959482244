package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// viewRule returns the cached rule of an operator that only renames elements.
// declare gives its layouts; keepMask says that a MaskPartial input may stay one.
func (t *Tensor) viewRule(key ruleKey, keepMask bool, declare func(in layout.Layout) (layout.View, error)) *rule {
	m := t.spec.mesh
	key.in[0] = t.spec
	if r := m.rules.get(key.slot(), &key); r != nil {
		return r
	}
	v, err := t.view(&key, keepMask, declare)
	if err != nil {
		fault.Throw(misfit(key.op, err, operand("input", t)))
	}
	r := &rule{in: []*spec{m.specOf(v.In)}, out: []*spec{m.specOf(v.Out)}}
	m.rules.put(key, r)
	return r
}

// view returns the layouts of viewRule, worked out once for all ranks of the process.
func (t *Tensor) view(key *ruleKey, keepMask bool, declare func(in layout.Layout) (layout.View, error)) (layout.View, error) {
	w := t.spec.mesh.eng.common.views.of(key.common())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return w.value, w.err
	}
	in := t.spec.blocks()
	v, err := declare(in.layout)
	if err == nil && in.masked && (!keepMask || v.In != in.layout) { // masked rows stay where they are, or are reduced
		p := slices.Clone(in.placements)
		for i := range p {
			if p[i].IsMask() {
				p[i] = layout.Replicate()
			}
		}
		v, err = declare(in.with(key.op, p).layout)
	}
	w.value, w.err, w.done = v, err, true
	return v, err
}

// viewed makes the result of a view of in, whose local part f computes.
func (m *Mesh) viewed(r *rule, in *Tensor, f func(local *tensor.Tensor) *tensor.Tensor) *Tensor {
	out := &Tensor{spec: r.out[0], mask: in.mask.Hold(), clean: in.clean, from: in.from}
	if m.outside() {
		out.local = m.empty(r.out[0], in.DType()).local
	} else {
		out.local = f(in.local)
	}
	return out
}
