package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// Contraction returns the rule of a product of tensors that an einsum equation
// names, such as "bmk,bkn->bmn": letters of the result can be sharded in all
// operands alike; a letter that the result lacks is summed over, and sharding it leaves
// P(sum). A leading "..." stands for any number of batch dimensions, which are aligned
// from the right and broadcast.
//
// An operand may be P(sum) or P(avg) with the others R, where the result is no
// larger than it, for a contraction is linear in each operand.
//
// addends are shapes of further inputs that are added to the result by broadcasting,
// such as a bias. They become P(sum) where the result does.
//
// Contraction returns an error if the equation cannot be read or does not fit the
// shapes.
func Contraction(name, equation string, shapes [][]int, addends ...[]int) (*Rule, error) {
	r, err := indexed("Contraction", name, equation, shapes, addends)
	if err != nil {
		return nil, err
	}
	r.contract = Partial(Sum)
	r.terms = 1
	for _, l := range r.in[0] {
		if l == 0 || slices.Contains(r.out[0], l) {
			continue
		}
		if r.terms *= r.size[l]; r.spine == 0 {
			r.spine = l
		}
	}
	r.multilinear(len(shapes))
	return r, nil
}

// Indexed returns the rule of an operator that works on indices as an equation names
// them, of which none in whole may be sharded: scaled dot-product attention with a causal
// mask is "bhqd,bhkd,bhke->bhqe" with "qkd" whole. Every letter that the result lacks
// must be whole. The equation is that of Contraction.
func Indexed(name, equation, whole string, shapes ...[]int) (*Rule, error) {
	r, err := indexed("Indexed", name, equation, shapes, nil)
	if err != nil {
		return nil, err
	}
	for _, c := range whole {
		found := false
		for i, term := range strings.Split(strings.ReplaceAll(strings.Split(equation, "->")[0], " ", ""), ",") {
			letters := strings.TrimPrefix(term, "...")
			if d := strings.IndexRune(letters, c); d >= 0 {
				r.whole |= 1 << r.in[i][len(r.in[i])-len(letters)+d]
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("layout: Indexed: %s: %s: letter %c is whole, but in no operand", name, equation, c)
		}
	}
	for _, l := range r.letters() {
		if !slices.Contains(r.out[0], l) {
			return nil, fmt.Errorf("layout: Indexed: %s: %s: the result lacks an index that is not whole; name it in whole (%q now)", name, equation,
				whole)
		}
	}
	return r, nil
}

// multilinear adds the rows in which one of the first n inputs is Partial with a
// linear reduction and the others are R, addends excepted, which are Partial too. It
// leaves out inputs smaller than the result: those are better reduced first.
func (r *Rule) multilinear(n int) {
	for i := range n {
		if ints.Product(r.inShape[i]) < ints.Product(r.outShape[0]) {
			continue
		}
		for _, op := range []ReduceOp{Sum, Avg} {
			row := r.replicated()
			row.Out[0] = Partial(op)
			for j := range r.in {
				if j == i || r.addends&(1<<j) != 0 {
					row.In[j] = Partial(op)
				}
			}
			r.partials = append(r.partials, row)
		}
	}
}
