package dtensor

import (
	"fmt"
	"slices"
	"strings"
)

// Einsum returns the product of two tensors, or the sum of one, that an
// equation names: "bij,bjk->bik". A letter that the result lacks is summed
// over; without "->" the result has the letters that occur once, sorted. It is
// made of Sum, Permute, Reshape and MatMul, and has their layouts and
// gradients. A letter may not occur twice in one operand.
//
// It throws a *LayoutError for an equation that cannot be read or does not fit
// the shapes.
func Einsum(equation string, ts ...*Tensor) *Tensor {
	left, out, explicit := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(ts) || len(ts) < 1 || len(ts) > 2 {
		refuse("Einsum", fmt.Sprintf("%q has %d operands, %d are given", equation, len(terms), len(ts)), "give one or two")
	}
	sameMesh("Einsum", ts...)
	if !explicit {
		out = oncers(left)
	}
	sizes := map[rune]int{}
	for i, term := range terms {
		ts[i].checkTerm(equation, term, sizes)
	}
	for _, l := range out {
		if _, ok := sizes[l]; !ok || strings.Count(out, string(l)) > 1 {
			refuse("Einsum", fmt.Sprintf("letter %c of the result of %q is in no operand, or is there twice", l, equation), "")
		}
	}
	a, la := ts[0].sumLetters(terms[0], out+strings.Join(terms[1:], ""))
	if len(ts) == 1 {
		return a.inOrder(la, out)
	}
	b, lb := ts[1].sumLetters(terms[1], out+terms[0])
	// Letters are in the batch (everywhere), contracted (not in the result), or in one operand.
	has := strings.ContainsRune
	pick := func(from string, keep func(l rune) bool) string {
		return strings.Map(func(l rune) rune {
			if keep(l) {
				return l
			}
			return -1
		}, from)
	}
	batch := pick(la, func(l rune) bool { return has(lb, l) && has(out, l) })
	inner := pick(la, func(l rune) bool { return has(lb, l) && !has(out, l) })
	rows := pick(la, func(l rune) bool { return !has(lb, l) })
	cols := pick(lb, func(l rune) bool { return !has(la, l) })
	shape := func(letters ...string) []int {
		var s []int
		for _, group := range letters {
			for _, l := range group {
				s = append(s, sizes[l])
			}
		}
		return s
	}
	m, k, n := product(shape(rows)), product(shape(inner)), product(shape(cols))
	x := a.inOrder(la, batch+rows+inner).Reshape(append(shape(batch), m, k)...)
	y := b.inOrder(lb, batch+inner+cols).Reshape(append(shape(batch), k, n)...)
	return x.MatMul(y).Reshape(shape(batch, rows, cols)...).inOrder(batch+rows+cols, out)
}

// oncers returns the letters that occur once, sorted.
func oncers(left string) string {
	var out []rune
	for _, l := range left {
		if l != ',' && strings.Count(left, string(l)) == 1 {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return string(out)
}

// checkTerm notes the sizes of the letters of an operand.
func (t *Tensor) checkTerm(equation, term string, sizes map[rune]int) {
	if len(term) != t.NDim() {
		refuse("Einsum", fmt.Sprintf("%q of %q has %d letters, the operand %d dimensions", term, equation, len(term), t.NDim()), "", operand("operand", t))
	}
	for d, l := range term {
		n, seen := sizes[l]
		if seen && n != t.spec.shape[d] || strings.Count(term, string(l)) > 1 {
			refuse("Einsum", fmt.Sprintf("letter %c of %q has the sizes %d and %d, or is twice in %q", l, equation, n, t.spec.shape[d], term), "", operand("operand", t))
		}
		sizes[l] = t.spec.shape[d]
	}
}

// sumLetters sums over the letters that nobody else has.
func (t *Tensor) sumLetters(term, used string) (*Tensor, string) {
	var dims []int
	rest := ""
	for d, l := range term {
		if strings.ContainsRune(used, l) {
			rest += string(l)
		} else {
			dims = append(dims, d)
		}
	}
	if len(dims) == 0 {
		return t, term
	}
	return t.Sum(dims, false), rest
}

// inOrder permutes the dimensions from one order of letters to another.
func (t *Tensor) inOrder(from, to string) *Tensor {
	if from == to {
		return t
	}
	order := make([]int, 0, len(to))
	for _, l := range to {
		order = append(order, strings.IndexRune(from, l))
	}
	return t.Permute(order...)
}
