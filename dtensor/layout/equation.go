package layout

import (
	"fmt"
	"slices"
	"strings"
)

// A speller gives letters to the dimensions that the terms of an equation name.
type speller struct {
	batch int // how many dimensions "..." stands for at most; they have the letters 1 to batch
	names []rune
}

// spell returns the letters of a term for an operand of ndim dimensions.
func (s *speller) spell(term string, ndim int) ([]letter, error) {
	var letters []letter
	rest, dots := strings.CutPrefix(term, "...")
	if dots {
		for i := s.batch - (ndim - len(rest)); i < s.batch; i++ {
			letters = append(letters, letter(1+i))
		}
	}
	for _, c := range rest {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			return nil, fmt.Errorf("%q is not a letter", c)
		}
		i := slices.Index(s.names, c)
		if i < 0 {
			i = len(s.names)
			s.names = append(s.names, c)
		}
		l := letter(1 + s.batch + i)
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

// name returns what a letter is called in an error.
func (s *speller) name(l letter) string {
	if int(l) <= s.batch {
		return fmt.Sprintf("batch dimension %d", l-1)
	}
	return fmt.Sprintf("letter %c", s.names[int(l)-1-s.batch])
}

// indexed returns the rule whose indices an equation names, without its Partial rows.
// caller and name are for errors.
func indexed(caller, name, equation string, shapes, addends [][]int) (*Rule, error) {
	fail := func(format string, args ...any) (*Rule, error) {
		return nil, fmt.Errorf("layout: %s: %s: %s: %s", caller, name, equation, fmt.Sprintf(format, args...))
	}
	left, result, ok := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	if !ok {
		return fail("no result; write -> and the letters of the result")
	}
	terms := strings.Split(left, ",")
	if len(terms) != len(shapes) {
		return fail("%d operands for %d shapes", len(terms), len(shapes))
	}
	r := &Rule{name: name}
	var s speller
	for i, term := range terms {
		rest, dots := strings.CutPrefix(term, "...")
		if len(rest) > len(shapes[i]) {
			return fail("operand %d, %s, has more letters than its shape %v has dimensions", i, term, shapes[i])
		}
		if dots {
			s.batch = max(s.batch, len(shapes[i])-len(rest))
		}
	}
	for i, term := range terms {
		letters, err := s.spell(term, len(shapes[i]))
		if err != nil {
			return fail("operand %d of shape %v: %v", i, shapes[i], err)
		}
		r.in = append(r.in, letters)
		r.inShape = append(r.inShape, slices.Clone(shapes[i]))
	}
	known := len(s.names)
	ndim := len(result)
	if rest, dots := strings.CutPrefix(result, "..."); dots {
		ndim = s.batch + len(rest)
	}
	out, err := s.spell(result, ndim)
	if err != nil {
		return fail("result: %v", err)
	}
	if len(s.names) != known {
		return fail("letter %c of the result is in no operand", s.names[known])
	}
	if n := s.batch + known; n > maxLetters {
		return fail("%d indices; %d are the most", n, maxLetters)
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
	broadcast := func(input int, l letter) bool { return int(l) <= s.batch || r.addends&(1<<input) != 0 }
	if err := r.measure(s.name, broadcast); err != nil {
		return fail("%v", err)
	}
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
