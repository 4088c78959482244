package layout

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A Plan is the list of steps that changes the layout of a tensor. It is computed
// from global facts alone, so it is the same on every rank; it never asks which
// rank it runs on. It must not be modified and can be shared and cached: the
// arguments of NewPlan are comparable.
type Plan struct {
	From, To Layout
	// Steps are to be carried out in order: the From of the first is From, each
	// one's To is the next one's From, and the To of the last is To. There are none
	// if From is To.
	Steps []Step
	// Cost is the sum of the steps' costs.
	Cost time.Duration
}

// NewPlan returns the plan of least cost that takes a tensor, whose elements have
// elemBytes bytes each, from one layout to another of the same mesh and shape.
//
// Every pair of layouts has a plan:
//
//	from     to       one mesh axis
//	S(i)     R        all-gather
//	S(i)     S(j)     all-to-all
//	R        S(i)     slice (local)
//	P        R        all-reduce
//	P        S(i)     reduce-scatter
//	MaskP    R, S(i)  rows from their owners
//	R        P        partition (local); R → MaskP: mask (local)
//	P(a)     P(b)     through R
//	S(i)     P        through R
//
// On a mesh axis of one rank nothing is communicated. Steps of the same kind on
// several axes merge into one collective. Between layouts that are not partial one
// exchange always suffices, and it moves each byte that a rank lacks once; it serves
// where shards are nested in a way no simple step can undo, as in S(0),S(0) → R,S(0),
// and where explicit sizes change.
//
// The plan is the cheapest path under costs through all layouts that have on each
// axis the placement of from, that of to, R, or, where from is partial, a shard of
// one of the two largest dimensions.
//
// A MaskPartial tensor keeps its mask if to has the same MaskPartial placements: see
// KeepsMask. The steps then leave the masked axes alone, and what they do to the rows is
// to be done to the mask too. Otherwise the rows come from their owners, on all masked
// axes together and before anything else happens to them; whoever does not know the
// owners plans from Partial(Sum) instead, with zeros in the rows that a rank does not
// own. Ids are masked once, on all axes together, in the last step.
//
// NewPlan returns an error if the meshes or the shapes differ, see Across for the former,
// and for a ShardCyclic.
func NewPlan(from, to Layout, elemBytes int, costs Costs) (*Plan, error) {
	if from.Cyclic() >= 0 || to.Cyclic() >= 0 {
		return nil, fmt.Errorf("layout: NewPlan: %v to %v: a plan has no steps for rows that are dealt out in turn; plan with Blocks", from, to)
	}
	if from.Axes() != to.Axes() {
		return nil, fmt.Errorf("layout: NewPlan: from mesh %v to mesh %v: a plan stays on one mesh; use Across", from.Axes(), to.Axes())
	}
	if from.spec.Value().shape != to.spec.Value().shape {
		return nil, fmt.Errorf("layout: NewPlan: from shape %v to shape %v: a plan keeps the shape; reshape first", from.Shape(), to.Shape())
	}
	plan := &Plan{From: from, To: to}
	if from == to {
		return plan, nil
	}
	p := newPlanner(from, elemBytes, costs)
	p.toward(to)
	plan.Steps = p.steps(p.path())
	if n := len(plan.Steps); n > 0 {
		plan.Steps[0].From, plan.Steps[n-1].To = from, to
	} else {
		relabel := Step{Kind: Relabel, From: from, To: to}
		relabel.Axes = relabel.changes()
		plan.Steps = []Step{relabel}
	}
	for i := range plan.Steps {
		plan.Cost += plan.Steps[i].Cost
	}
	return plan, nil
}

// Collectives returns how many steps communicate.
func (p *Plan) Collectives() int {
	n := 0
	for i := range p.Steps {
		if !p.Steps[i].Kind.Local() {
			n++
		}
	}
	return n
}

// MaxBytes returns the sum over the steps of the most bytes that any rank receives.
func (p *Plan) MaxBytes() int {
	n := 0
	for i := range p.Steps {
		n += p.Steps[i].MaxBytes
	}
	return n
}

// String prints one line a step:
//
//  1. model: S(0) → R      all-gather
//  2. data:  R    → S(0)   slice
//
// A plan without steps prints "nothing to do".
func (p *Plan) String() string {
	if len(p.Steps) == 0 {
		return "nothing to do"
	}
	rows := make([][4]string, len(p.Steps))
	var width [3]int
	for i := range p.Steps {
		axes, from, to, what := p.Steps[i].describe()
		rows[i] = [4]string{axes + ":", from, to, what}
		for c := range width {
			width[c] = max(width[c], utf8.RuneCountInString(rows[i][c]))
		}
	}
	var b strings.Builder
	for i, r := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%d. %-*s %-*s → %-*s   %s", i+1, width[0], r[0], width[1], r[1], width[2], r[2], r[3])
	}
	return b.String()
}
