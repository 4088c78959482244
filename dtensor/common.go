package dtensor

import (
	"sync"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A common is what all ranks work out alike, from layouts alone. Ranks that are goroutines of one
// process have one, so that the first that asks works it out for all. A mesh remembers what it came
// to for its own rank: see Mesh.rules and Mesh.plans.
type common struct {
	plans   once[commonPlan, *layout.Plan]
	choices once[commonRule, *layout.Choice]
	views   once[commonRule, layout.View]
	owners  once[commonOwners, *layout.Owners]
}

// commonPlan is planKey without what is of one rank.
type commonPlan struct {
	from, to layout.Layout
	size     int
}

// commonRule is ruleKey without what is of one rank, and the operands' types.
type commonRule struct {
	op    string
	attr  [3]int
	nodes bool
	in    [maxOperands]layout.Layout
	types [maxOperands]tensor.DType
}

// commonOwners says of which rows owners tells: see owners.
type commonOwners struct {
	table layout.Layout
	dim   int
	set   axisSet
}

type commonKey struct{}

func commonOf(c *comm.Comm) *common {
	return c.Internals().Common(commonKey{}, func() any { return new(common) }).(*common)
}

// common returns the key without what is of one rank; ts are the operands.
func (k *ruleKey) common(ts ...*Tensor) commonRule {
	c := commonRule{op: k.op, attr: k.attr, nodes: k.nodes}
	for i, s := range k.in {
		if s != nil {
			c.in[i] = s.layout
		}
	}
	for i, t := range ts {
		c.types[i] = t.DType()
	}
	return c
}

// plan returns the plan of a redistribution.
func (c *common) plan(key commonPlan) (*layout.Plan, error) {
	w := c.plans.of(key)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.value, w.err = layout.NewPlan(key.from, key.to, key.size, layout.Costs{})
		w.done = true
	}
	return w.value, w.err
}

// A once holds what was worked out for keys. It may be used by several goroutines.
type once[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]*worked[V]
}

// worked is what was worked out for a key. Who works holds the lock, and the others wait for it: no function is handed
// over, as that would have the closures of operators allocated in every call.
type worked[V any] struct {
	mu    sync.Mutex
	done  bool
	value V
	err   error
}

// of returns what was worked out for key, or is to be.
func (o *once[K, V]) of(key K) *worked[V] {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, ok := o.all[key]
	if !ok {
		if o.all == nil || len(o.all) >= maxSpecs {
			o.all = map[K]*worked[V]{}
		}
		w = new(worked[V])
		o.all[key] = w
	}
	return w
}
