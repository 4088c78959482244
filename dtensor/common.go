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

// A once holds what was worked out for keys. It may be used by several goroutines: one works, the
// others wait for it.
type once[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]func() (V, error)
}

// get returns what work returned for key when it was asked for first.
func (o *once[K, V]) get(key K, work func() (V, error)) (V, error) {
	o.mu.Lock()
	f, ok := o.all[key]
	if !ok {
		if o.all == nil || len(o.all) >= maxSpecs {
			o.all = map[K]func() (V, error){}
		}
		f = sync.OnceValues(work)
		o.all[key] = f
	}
	o.mu.Unlock()
	return f()
}
