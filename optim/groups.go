package optim

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Group is some of a program's parameters with settings of their own.
type Group struct {
	Params []*dtensor.Tensor
	// New makes the group's optimizer, for instance optim.With(optim.NewAdamW, optim.AdamWConfig{}).
	New func(params []*dtensor.Tensor) Optimizer
	// Rate is multiplied with the rate of each step; 0 stands for 1.
	Rate float64
}

// With returns the function that makes an optimizer with a configuration, as a Group and embedding.FusedOptimizer take it:
//
//	optim.With(optim.NewAdamW, optim.AdamWConfig{WeightDecay: 0.1})
func With[C any, O Optimizer](make func(params []*dtensor.Tensor, config C) O, config C) func(params []*dtensor.Tensor) Optimizer {
	return func(params []*dtensor.Tensor) Optimizer { return make(params, config) }
}

// Groups is one optimizer of parameters that differ in their settings: with and without
// weight decay, with rates of their own, with other optimizers. Its gradients and the
// names of its State are in the order of all parameters, so that a checkpoint does not
// depend on how they are grouped, as long as each keeps its kind of optimizer.
type Groups struct {
	count  int
	groups []member
}

type member struct {
	Optimizer
	rate  float64
	index []int // of its parameters among all
}

// NewGroups returns an optimizer for params, each of which is in exactly one group. It
// throws an error that names a parameter for which that is not so.
func NewGroups(params []*dtensor.Tensor, groups ...Group) *Groups {
	g := &Groups{count: len(params)}
	in := make([]int, len(params)) // the group of each parameter, from 1
	for n, group := range groups {
		if group.New == nil {
			fault.Throw(fmt.Errorf("optim: NewGroups: group %d has no New; give the function that makes its optimizer", n))
		}
		if !validRate(group.Rate) {
			fault.Throw(fmt.Errorf("optim: NewGroups: the Rate of group %d is %v; give a finite number that is not negative", n, group.Rate))
		}
		m := member{Optimizer: group.New(group.Params), rate: group.Rate}
		if m.rate == 0 {
			m.rate = 1
		}
		for k, p := range group.Params {
			i := slices.Index(params, p)
			switch {
			case i < 0:
				fault.Throw(fmt.Errorf("optim: NewGroups: parameter %d of group %d, %v, is not among all parameters; add it to them", k, n, p))
			case in[i] != 0:
				fault.Throw(fmt.Errorf("optim: NewGroups: parameter %d, %v, is in groups %d and %d; leave it in one", i, p, in[i]-1, n))
			}
			in[i] = n + 1
			m.index = append(m.index, i)
		}
		g.groups = append(g.groups, m)
	}
	if i := slices.Index(in, 0); i >= 0 {
		fault.Throw(fmt.Errorf("optim: NewGroups: parameter %d, %v, is in no group; add it to one", i, params[i]))
	}
	return g
}

// Step makes one step of every group; see Optimizer.
func (g *Groups) Step(grads []dtensor.Grad, lr float64) error {
	if len(grads) != g.count {
		return fault.Located(fmt.Errorf("optim: Groups.Step: %d gradients for %d parameters; "+
			"pass what ValueAndGrad returned for the same list", len(grads), g.count))
	}
	if !validRate(lr) { // before a group has stepped
		return fault.Located(fmt.Errorf("optim: Groups.Step: "+badRate, lr))
	}
	for n, m := range g.groups {
		own := make([]dtensor.Grad, len(m.index))
		for k, i := range m.index {
			own[k] = grads[i]
		}
		if err := m.Step(own, lr*m.rate); err != nil {
			return fmt.Errorf("optim: group %d: %w", n, err)
		}
	}
	return nil
}

// State lists the states of the groups' optimizers, each under the number of its parameter
// among all.
func (g *Groups) State() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for _, m := range g.groups {
			for name, t := range m.State() {
				kind, number, _ := strings.Cut(name, ".")
				if k, err := strconv.Atoi(number); err == nil && k < len(m.index) {
					name = kind + "." + strconv.Itoa(m.index[k])
				}
				if !yield(name, t) {
					return
				}
			}
		}
	}
}

// scaleGradients calls scaleGradients of each group.
func (g *Groups) scaleGradients(factor float64) bool {
	for _, m := range g.groups {
		if s, ok := m.Optimizer.(gradientScaler); !ok || !s.scaleGradients(factor) {
			return false
		}
	}
	return true
}
