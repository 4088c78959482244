package layout

import (
	"fmt"
	"slices"
	"strings"
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
	fail := func(format string, args ...any) (*Rule, error) {
		return nil, fmt.Errorf("layout: Contraction: %s: %s: %s", name, equation, fmt.Sprintf(format, args...))
	}
	left, result, ok := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	if !ok {
		return fail("no result; write -> and the letters of the result")
	}
	terms := strings.Split(left, ",")
	if len(terms) != len(shapes) {
		return fail("%d operands for %d shapes", len(terms), len(shapes))
	}
	r := &Rule{name: name, contract: Partial(Sum)}
	batch := 0
	for i, term := range terms {
		if rest, found := strings.CutPrefix(term, "..."); found {
			batch = max(batch, len(shapes[i])-len(rest))
		}
	}
	alphabet := map[rune]letter{}
	var names []string
	spell := func(term string, ndim int) ([]letter, error) {
		var letters []letter
		rest, found := strings.CutPrefix(term, "...")
		if found {
			n := ndim - len(rest)
			for i := batch - n; i < batch; i++ {
				letters = append(letters, letter(1+i))
			}
		}
		for _, c := range rest {
			if c < 'A' || c > 'z' || c > 'Z' && c < 'a' {
				return nil, fmt.Errorf("%q is not a letter", c)
			}
			l, known := alphabet[c]
			if !known {
				l = letter(1 + batch + len(alphabet))
				alphabet[c] = l
				names = append(names, string(c))
			}
			if slices.Contains(letters, l) {
				return nil, fmt.Errorf("letter %c is twice in %s; take the diagonal first", c, term)
			}
			letters = append(letters, l)
		}
		if len(letters) != ndim {
			return nil, fmt.Errorf("%s has %d letters for %d dimensions", term, len(letters), ndim)
		}
		return letters, nil
	}
	for i, term := range terms {
		if batch < 0 || len(shapes[i]) < len(strings.TrimPrefix(term, "...")) {
			return fail("operand %d, %s, has more letters than its shape %v has dimensions", i, term, shapes[i])
		}
		letters, err := spell(term, len(shapes[i]))
		if err != nil {
			return fail("operand %d of shape %v: %v", i, shapes[i], err)
		}
		r.in = append(r.in, letters)
		r.inShape = append(r.inShape, slices.Clone(shapes[i]))
	}
	known := len(alphabet)
	ndim := len(result)
	if rest, found := strings.CutPrefix(result, "..."); found {
		ndim = batch + len(rest)
	}
	out, err := spell(result, ndim)
	if err != nil {
		return fail("result: %v", err)
	}
	if len(alphabet) != known {
		return fail("letter %s of the result is in no operand", names[known])
	}
	if batch+len(alphabet) > maxLetters {
		return fail("%d indices; %d are the most", batch+len(alphabet), maxLetters)
	}
	r.out = [][]letter{out}
	for _, shape := range addends {
		if len(shape) > len(out) {
			return fail("addend of shape %v has more dimensions than the result", shape)
		}
		r.addends |= 1 << len(r.in)
		r.in = append(r.in, slices.Clone(out[len(out)-len(shape):]))
		r.inShape = append(r.inShape, slices.Clone(shape))
	}
	if err := r.measure(func(l letter) string {
		if int(l) <= batch {
			return fmt.Sprintf("batch dimension %d", l-1)
		}
		return "letter " + names[int(l)-1-batch]
	}, func(input int, l letter) bool { return int(l) <= batch || r.addends&(1<<input) != 0 }); err != nil {
		return fail("%v", err)
	}
	r.multilinear(len(terms))
	return r, nil
}

// measure sets the sizes of the letters and the shapes of the results. A dimension
// of size 1 may stand for any size where broadcast allows it for that input; it gets
// letter 0.
func (r *Rule) measure(name func(letter) string, broadcast func(input int, l letter) bool) error {
	var first [maxLetters + 1]int // 1 + the input that gave the size
	for i, letters := range r.in {
		for d, l := range letters {
			n := r.inShape[i][d]
			switch {
			case l == 0 || first[l] > 0 && n == r.size[l]:
			case first[l] == 0 || r.size[l] == 1 && broadcast(first[l]-1, l):
				r.size[l], first[l] = n, i+1
			case n != 1 || !broadcast(i, l):
				j := first[l] - 1
				return fmt.Errorf("%s is %d in input %d of shape %v, but %d in input %d of shape %v; make them equal",
					name(l), r.size[l], j, r.inShape[j], n, i, r.inShape[i])
			}
		}
	}
	for i, letters := range r.in {
		for d, l := range letters {
			if r.inShape[i][d] != r.size[l] {
				letters[d] = 0
			}
		}
	}
	for _, letters := range r.out {
		shape := make([]int, len(letters))
		for d, l := range letters {
			shape[d] = r.size[l]
		}
		r.outShape = append(r.outShape, shape)
	}
	return nil
}

// multilinear adds the rows in which one of the first n inputs is Partial with a
// linear reduction and the others are R, addends excepted, which are Partial too. It
// leaves out inputs smaller than the result: those are better reduced first.
func (r *Rule) multilinear(n int) {
	for i := range n {
		if product(r.inShape[i]) < product(r.outShape[0]) {
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

// product returns the number of elements of a shape.
func product(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}
