package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/pairwise"
)

// A rule is what a layout.Rule came to for some operand layouts: the layouts
// that the operands are brought to and those of the results.
type rule struct {
	in, out []*spec
	nodes   [][]int // see layout.Choice.Nodes
	along   int
}

// maxOperands is the largest number of operands of an operator whose rules are cached.
const maxOperands = 4

// A ruleKey names a rule: the operator, what else its rule depends on, and the
// operands' layouts.
type ruleKey struct {
	op    string
	attr  [3]int
	nodes bool // see Mesh.inNodes
	in    [maxOperands]*spec
}

// inNodes reports whether ranks may have parts of sums of some operands only if these are nodes:
// with SameBits, unless they are integers.
func (m *Mesh) inNodes(ts []*Tensor) bool { return m.eng.same && someFloat(ts) }

func someFloat(ts []*Tensor) bool {
	return slices.ContainsFunc(ts, func(t *Tensor) bool { return t.DType().Float() })
}

// keyOf returns the key of an operator on some operands.
func keyOf(op string, ts ...*Tensor) ruleKey {
	key := ruleKey{op: op, nodes: ts[0].spec.mesh.inNodes(ts)}
	for i, t := range ts {
		key.in[i] = t.spec
	}
	return key
}

// rule returns the cached rule of an operator, choosing it from the rule that
// declare returns. Its operands are ts; they are on this mesh. It throws a
// *LayoutError if declare returns an error.
func (m *Mesh) rule(key ruleKey, declare func() (*layout.Rule, error), ts ...*Tensor) *rule {
	key.nodes = m.inNodes(ts)
	if r := m.rules.get(key.slot(), &key); r != nil {
		return r
	}
	c, err := m.choice(key, declare, ts)
	r := m.chosen(key, c, err, ts)
	m.rules.put(key, r)
	return r
}

// choice is choose, once for all ranks of the process.
func (m *Mesh) choice(key ruleKey, declare func() (*layout.Rule, error), ts []*Tensor) (*layout.Choice, error) {
	w := m.eng.common.choices.of(key.common(ts...))
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.value, w.err = choose(key, declare, ts)
		w.done = true
	}
	return w.value, w.err
}

// choose finds the cheapest way to compute an operator on operands.
func choose(key ruleKey, declare func() (*layout.Rule, error), ts []*Tensor) (*layout.Choice, error) {
	declared, err := declare()
	if err != nil {
		return nil, err
	}
	layouts, sizes := make([]layout.Layout, len(ts)), make([]int, len(ts))
	for i, t := range ts {
		layouts[i], sizes[i] = t.spec.layout.Blocks(), t.DType().Size()
	}
	if key.nodes && declared.Inputs() == 1 {
		declared = declared.Nodes(1)
	} else if key.nodes {
		declared = declared.Nodes(pairwise.Least)
	}
	return declared.Choose(layouts, sizes, layout.Costs{})
}

// chosen returns what a choice is on this mesh, and throws err, the reason why there is none.
func (m *Mesh) chosen(key ruleKey, c *layout.Choice, err error, ts []*Tensor) *rule {
	if err != nil {
		e := misfit(key.op, err)
		for i, t := range ts {
			e.Operands = append(e.Operands, operand(string(rune('a'+i)), t))
		}
		fault.Throw(e)
	}
	r := &rule{nodes: c.Nodes, along: c.Along}
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
