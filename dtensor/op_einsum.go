package dtensor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Einsum returns the product of tensors that an equation names, as torch.einsum does:
// "bij,bjk->bik". A letter that the result lacks is summed over; a letter that an
// operand has twice takes its diagonal; "..." stands for any further dimensions, which
// are aligned from the right. A dimension of size 1 is repeated where another operand
// is larger. Without "->" the result has the dimensions of "..." and then the letters
// that occur once, sorted.
//
// Of more than two operands those two are multiplied first whose product is smallest
// beside them. Einsum is made of Sum, Permute, Reshape, IndexSelect and MatMul, and has
// their layouts, types and gradients.
//
// It throws a *LayoutError for an equation that cannot be read or does not fit
// the shapes.
func Einsum(equation string, ts ...*Tensor) *Tensor {
	left, out, explicit := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(ts) {
		refuse("Einsum", fmt.Sprintf("%q has %d operands, %d are given", equation, len(terms), len(ts)), "give one tensor for each")
	}
	sameMesh("Einsum", ts...)
	dots := 0
	for i, term := range terms {
		dots = max(dots, ts[i].checkTerm(equation, term))
	}
	const batch = "01234567" // what the dimensions of "..." are called
	for i, term := range terms {
		own := ts[i].NDim() - len(strings.ReplaceAll(term, "...", ""))
		terms[i] = strings.Replace(term, "...", batch[dots-own*strings.Count(term, "..."):dots], 1)
	}
	if explicit {
		out = strings.Replace(out, "...", batch[:dots], 1)
	} else {
		out = batch[:dots] + oncers(left)
	}
	sizes := map[rune]int{}
	for i, term := range terms {
		for d, l := range term {
			n, seen := sizes[l]
			if size := ts[i].spec.shape[d]; !seen || n == 1 {
				sizes[l] = size
			} else if size != n && size != 1 {
				refuse("Einsum", fmt.Sprintf("letter %c of %q has the sizes %d and %d", l, equation, n, size),
					"", operand("operand", ts[i]))
			}
		}
	}
	for _, l := range out {
		if _, ok := sizes[l]; !ok || strings.Count(out, string(l)) > 1 {
			refuse("Einsum", fmt.Sprintf("letter %c of the result of %q is in no operand, or is there twice", l, equation), "")
		}
	}
	factors := make([]factor, len(ts))
	for i, t := range ts {
		factors[i] = factor{t, terms[i]}.diagonal().distinct(sizes)
	}
	for len(factors) > 1 {
		i, j := cheapest(factors, out, sizes)
		a, b := factors[i], factors[j]
		factors = slices.Delete(slices.Delete(factors, j, j+1), i, i+1)
		factors = append(factors, a.times(b, used(factors, out), sizes))
	}
	last := factors[0].only(out)
	return last.inOrder(out)
}

// checkTerm throws unless t has the dimensions that a term names, and returns how many
// "..." stands for.
func (t *Tensor) checkTerm(equation, term string) (dots int) {
	letters := strings.Replace(term, "...", "", 1)
	if i := strings.IndexFunc(letters, func(l rune) bool { return !('a' <= l && l <= 'z' || 'A' <= l && l <= 'Z') }); i >= 0 {
		refuse("Einsum", fmt.Sprintf("%q of %q has %q, which is no letter", term, equation, letters[i]), "", operand("operand", t))
	}
	if dots = t.NDim() - len(letters); dots < 0 || dots > 0 && letters == term {
		refuse("Einsum", fmt.Sprintf("%q of %q has %d letters, the operand %d dimensions", term, equation, len(letters), t.NDim()),
			"", operand("operand", t))
	}
	return dots
}

// oncers returns the letters that occur once, sorted.
func oncers(left string) string {
	var out []rune
	for _, l := range left {
		if l != ',' && l != '.' && strings.Count(left, string(l)) == 1 {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return string(out)
}

// A factor is an operand of Einsum with a letter for each dimension.
type factor struct {
	t       *Tensor
	letters string
}

// diagonal returns f with each letter once.
func (f factor) diagonal() factor {
	for d, l := range f.letters {
		again := strings.IndexRune(f.letters[d+1:], l)
		if again < 0 {
			continue
		}
		again += d + 1
		n := f.t.spec.shape[d]
		if n != f.t.spec.shape[again] {
			refuse("Einsum", fmt.Sprintf("letter %c has the sizes %d and %d", l, n, f.t.spec.shape[again]), "", operand("operand", f.t))
		}
		order := []int{d, again}
		for k := range f.letters {
			if k != d && k != again {
				order = append(order, k)
			}
		}
		rest := f.letters[:d] + f.letters[d+1:again] + f.letters[again+1:]
		t := f.t.Permute(order...)
		at := make([]int64, n)
		for i := range at {
			at[i] = int64(i * (n + 1))
		}
		m := t.spec.mesh
		index := m.constant("Einsum", tensor.FromSlice(m.eng.dev, at, n))
		t = t.Reshape(slices.Concat([]int{n * n}, t.spec.shape[2:])...).IndexSelect(0, index)
		return factor{t, string(l) + rest}.diagonal()
	}
	return f
}

// distinct returns f without the dimensions that are repeated for other operands.
func (f factor) distinct(sizes map[rune]int) factor {
	var shape []int
	letters := ""
	for d, l := range f.letters {
		if n := f.t.spec.shape[d]; n == sizes[l] {
			shape = append(shape, n)
			letters += string(l)
		}
	}
	return factor{f.t.Reshape(shape...), letters}
}

// used returns the letters that the result or a factor has.
func used(factors []factor, out string) string {
	for _, f := range factors {
		out += f.letters
	}
	return out
}

// cheapest returns the two factors, the first one first, whose product has the fewest
// elements beside those of the two.
func cheapest(factors []factor, out string, sizes map[rune]int) (i, j int) {
	elements := func(letters string) float64 {
		n := 1.0
		for _, l := range letters {
			n *= float64(sizes[l])
		}
		return n
	}
	i, j = 0, 1
	least := 0.0
	for b := range factors {
		for a := range b {
			others := slices.Delete(slices.Delete(slices.Clone(factors), b, b+1), a, a+1)
			keep := used(others, out)
			x, y := factors[a].letters, factors[b].letters
			product := lettersOf(x, func(l rune) bool { return strings.ContainsRune(keep, l) }) +
				lettersOf(y, func(l rune) bool { return strings.ContainsRune(keep, l) && !strings.ContainsRune(x, l) })
			if more := elements(product) - elements(x) - elements(y); a == 0 && b == 1 || more < least {
				i, j, least = a, b, more
			}
		}
	}
	return i, j
}

// lettersOf returns the letters that are to be kept, in order.
func lettersOf(from string, keep func(l rune) bool) string {
	return strings.Map(func(l rune) rune {
		if keep(l) {
			return l
		}
		return -1
	}, from)
}

// only sums over the letters that are not used.
func (f factor) only(used string) factor {
	var dims []int
	rest := ""
	for d, l := range f.letters {
		if strings.ContainsRune(used, l) {
			rest += string(l)
		} else {
			dims = append(dims, d)
		}
	}
	if len(dims) == 0 {
		return f
	}
	return factor{f.t.Sum(dims, false), rest}
}

// times returns the product of two factors, summed over what is not used after it.
func (f factor) times(g factor, used string, sizes map[rune]int) factor {
	has := strings.ContainsRune
	f, g = f.only(used+g.letters), g.only(used+f.letters)
	la, lb := f.letters, g.letters
	// Letters are in the batch (in both and used), contracted (in both alone), or in one.
	batch := lettersOf(la, func(l rune) bool { return has(lb, l) && has(used, l) })
	inner := lettersOf(la, func(l rune) bool { return has(lb, l) && !has(used, l) })
	rows := lettersOf(la, func(l rune) bool { return !has(lb, l) })
	cols := lettersOf(lb, func(l rune) bool { return !has(la, l) })
	shape := func(letters ...string) []int {
		var s []int
		for _, group := range letters {
			for _, l := range group {
				s = append(s, sizes[l])
			}
		}
		return s
	}
	m, k, n := ints.Product(shape(rows)), ints.Product(shape(inner)), ints.Product(shape(cols))
	x := f.inOrder(batch + rows + inner).Reshape(append(shape(batch), m, k)...)
	y := g.inOrder(batch + inner + cols).Reshape(append(shape(batch), k, n)...)
	return factor{x.MatMul(y).Reshape(shape(batch, rows, cols)...), batch + rows + cols}
}

// inOrder permutes the dimensions into an order of letters.
func (f factor) inOrder(to string) *Tensor {
	if f.letters == to {
		return f.t
	}
	order := make([]int, 0, len(to))
	for _, l := range to {
		order = append(order, strings.IndexRune(f.letters, l))
	}
	return f.t.Permute(order...)
}
