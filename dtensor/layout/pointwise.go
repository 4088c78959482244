package layout

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// A Law says what a pointwise operator does to the addends of a partial input.
type Law uint8

// The laws. x and y are inputs, r is one that is replicated.
const (
	// Opaque: partial inputs are reduced first.
	Opaque Law = iota
	// Adds: Σxᵢ + Σyᵢ = Σ(xᵢ + yᵢ), of averages too; max(xᵢ) + r = max(xᵢ + r). Any
	// number of inputs.
	Adds
	// AddsWrapping: as Adds, but for sums alone: where x + r wraps, as integers do, it may fall as x
	// rises. Any number of inputs.
	AddsWrapping
	// Subtracts: as Adds, for two inputs; r - max(xᵢ) = min(r - xᵢ).
	Subtracts
	// Multiplies: r·Σxᵢ = Σ r·xᵢ for a finite r, and Πxᵢ·Πyᵢ = Π xᵢ·yᵢ. (Where r is infinite
	// an addend of 0 makes the sum of the products NaN.)
	Multiplies
	// Divides: of two inputs. Σxᵢ/r is not the sum of xᵢ/r where r is 0 (1/0 is infinite, but
	// 1/0 + 0/0 and 2/0 - 1/0 are no numbers), so only a MaskPartial, whose every element has
	// one owner, is divided as it is, by one number.
	Divides
	// Weighs: Σxᵢ·f(r) = Σ xᵢ·f(r) for a function f without poles, of two inputs.
	Weighs
	// Maximizes: of maxima, and of minima with what is replicated.
	Maximizes
	// Minimizes: of minima, and of maxima with what is replicated.
	Minimizes
	// Scales: one input is multiplied by a finite number; a MaskPartial stays one.
	Scales
	// Negates: -Σxᵢ = Σ -xᵢ, and -max(xᵢ) = min(-xᵢ). One input.
	Negates
	// Monotone: f(max(xᵢ)) = max(f(xᵢ)) as f never falls. One input.
	Monotone
	// MonotoneAbove: as Monotone, but f has values from some number on only, as a square
	// root. Of a minimum all xᵢ lie above it, of a maximum they need not. One input.
	MonotoneAbove
	// Casts: as Monotone; of a MaskPartial it stays one. One input.
	Casts
	// Selects: of three inputs. Where the first one, which is replicated, picks elements of the other two, the sum, product,
	// minimum or maximum of what the ranks pick is the pick of these. (Not the average: where one of them is replicated, as a
	// number that is filled in, n times it may be infinite.)
	Selects
)

// Pointwise returns the rule of an operator that works element by element on inputs
// of shapes that are broadcast against each other. Every dimension of the result can
// be sharded; an input in which it is broadcast is R.
//
// It returns an error if the shapes do not broadcast or the law is for another
// number of inputs.
func Pointwise(name string, law Law, shapes ...[]int) (*Rule, error) {
	if want := law.inputs(); want > 0 && want != len(shapes) {
		return nil, fmt.Errorf("layout: Pointwise: %s: its law takes %d inputs, but there are %d", name, want, len(shapes))
	}
	r := &Rule{name: name}
	ndim := 0
	for _, s := range shapes {
		ndim = max(ndim, len(s))
	}
	if ndim > maxLetters {
		return nil, fmt.Errorf("layout: Pointwise: %s: %d dimensions; %d are the most", name, ndim, maxLetters)
	}
	letters := make([]letter, ndim)
	for d := range letters {
		letters[d] = letter(d + 1)
	}
	for _, s := range shapes {
		r.in = append(r.in, slices.Clone(letters[ndim-len(s):]))
		r.inShape = append(r.inShape, slices.Clone(s))
	}
	r.out = [][]letter{letters}
	dim := func(l letter) string { return fmt.Sprintf("dim %d of the result", l-1) }
	if err := r.measure(dim, func(int, letter) bool { return true }); err != nil {
		return nil, fmt.Errorf("layout: Pointwise: %s: shapes %v do not broadcast: %w", name, shapes, err)
	}
	r.obey(law)
	return r, nil
}

// inputs returns how many inputs an operator with this law has, 0 for any number.
func (law Law) inputs() int {
	switch law {
	case Subtracts, Divides, Weighs:
		return 2
	case Scales, Negates, Monotone, MonotoneAbove, Casts:
		return 1
	case Selects:
		return 3
	}
	return 0
}

// obey adds the rows that a law allows.
func (r *Rule) obey(law Law) {
	n := len(r.in)
	one := func(i int, op, out ReduceOp) {
		row := r.replicated()
		row.In[i], row.Out[0] = Partial(op), Partial(out)
		r.partials = append(r.partials, row)
	}
	switch law {
	case Adds, Subtracts, AddsWrapping:
		r.allPartial(Sum)
		r.allPartial(Avg)
		if law == AddsWrapping {
			return
		}
		for i := range n {
			if i == 1 && law == Subtracts {
				one(i, Min, Max)
				one(i, Max, Min)
				continue
			}
			one(i, Min, Min)
			one(i, Max, Max)
		}
	case Multiplies:
		for i := range n {
			one(i, Sum, Sum)
			one(i, Avg, Avg)
		}
		r.allPartial(Prod)
		// Multiplying by one number keeps a mask.
		r.mask = n == 2 && ints.Product(r.inShape[1]) == 1 && ints.Product(r.inShape[0]) == ints.Product(r.outShape[0])
	case Weighs:
		one(0, Sum, Sum)
		one(0, Avg, Avg)
	case Divides:
		r.mask = ints.Product(r.inShape[1]) == 1 && ints.Product(r.inShape[0]) == ints.Product(r.outShape[0])
	case Maximizes, Minimizes:
		if law == Maximizes {
			r.allPartial(Max)
		} else {
			r.allPartial(Min)
		}
		if n > 1 {
			for i := range n {
				one(i, Min, Min)
				one(i, Max, Max)
			}
		}
	case Scales:
		r.allPartial(Sum)
		r.allPartial(Avg)
		r.mask = true
	case Negates:
		r.allPartial(Sum)
		r.allPartial(Avg)
		one(0, Min, Max)
		one(0, Max, Min)
		r.mask = true
	case MonotoneAbove:
		r.allPartial(Min)
	case Monotone, Casts:
		r.allPartial(Min)
		r.allPartial(Max)
		r.mask = law == Casts
	case Selects:
		for _, op := range []ReduceOp{Sum, Prod, Min, Max} {
			r.allPartial(op)
			r.partials[len(r.partials)-1].In[0] = Replicate()
		}
	}
}

// allPartial adds the row in which all inputs and the result are Partial(op).
func (r *Rule) allPartial(op ReduceOp) {
	row := r.replicated()
	for i := range row.In {
		row.In[i] = Partial(op)
	}
	row.Out[0] = Partial(op)
	r.partials = append(r.partials, row)
}
