package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A rule is what a layout.Rule came to for some operand layouts: the layouts
// that the operands are brought to and those of the results.
type rule struct{ in, out []*spec }

// maxOperands is the largest number of operands of an operator whose rules are cached.
const maxOperands = 4

// A ruleKey names a rule: the operator, what else its rule depends on, and the
// operands' layouts.
type ruleKey struct {
	op   string
	attr [3]int
	same bool // see Mesh.SameBits
	in   [maxOperands]*spec
}

// keyOf returns the key of an operator on some operands.
func keyOf(op string, ts ...*Tensor) ruleKey {
	key := ruleKey{op: op, same: ts[0].spec.mesh.eng.same}
	for i, t := range ts {
		key.in[i] = t.spec
	}
	return key
}

// rule returns the cached rule of an operator, choosing it from the rule that
// declare returns. Its operands are ts; they are on this mesh. It throws a
// *LayoutError if declare returns an error.
func (m *Mesh) rule(key ruleKey, declare func() (*layout.Rule, error), ts ...*Tensor) *rule {
	key.same = m.eng.same
	if r, ok := m.rules[key]; ok {
		return r
	}
	return m.keepRule(key, m.choose(key.op, declare, ts))
}

// keepRule enters a rule into the table, which is bounded as that of specs is.
func (m *Mesh) keepRule(key ruleKey, r *rule) *rule {
	if len(m.rules) >= maxSpecs {
		clear(m.rules)
	}
	m.rules[key] = r
	return r
}

// choose finds the cheapest way to compute an operator on operands.
func (m *Mesh) choose(op string, declare func() (*layout.Rule, error), ts []*Tensor) *rule {
	declared, err := declare()
	layouts, sizes := make([]layout.Layout, len(ts)), make([]int, len(ts))
	for i, t := range ts {
		layouts[i], sizes[i] = t.spec.layout.Blocks(), t.DType().Size()
	}
	var c *layout.Choice
	if err == nil && m.eng.same && slices.ContainsFunc(ts, func(t *Tensor) bool { return t.DType().Float() }) {
		declared = declared.Unsplit()
	}
	if err == nil {
		c, err = declared.Choose(layouts, sizes, layout.Costs{})
	}
	if err != nil {
		e := misfit(op, err)
		for i, t := range ts {
			e.Operands = append(e.Operands, operand(string(rune('a'+i)), t))
		}
		fault.Throw(e)
	}
	r := &rule{}
	for _, l := range c.In {
		r.in = append(r.in, m.specOf(l))
	}
	for _, l := range c.Out {
		r.out = append(r.out, m.specOf(l))
	}
	return r
}

// pointwise declares an element-wise operator on operands that broadcast.
func pointwise(op string, law layout.Law, ts ...*Tensor) (*layout.Rule, error) {
	shapes := make([][]int, len(ts))
	for i, t := range ts {
		shapes[i] = t.spec.shape
	}
	return layout.Pointwise(op, law, shapes...)
}
