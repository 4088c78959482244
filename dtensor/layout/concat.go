package layout

import (
	"fmt"
	"slices"
)

// Concatenation returns the rule of joining tensors along a dimension: that dimension
// must not be sharded, the others can be, and any reduction of all inputs passes
// through.
//
// It returns an error if dim is out of range or the shapes differ in another dimension.
func Concatenation(name string, dim int, shapes ...[]int) (*Rule, error) {
	if len(shapes) == 0 {
		return nil, fmt.Errorf("layout: Concatenation: %s: nothing to join; give at least one tensor", name)
	}
	dim, err := dimIn("Concatenation: "+name, shapes[0], dim)
	if err != nil {
		return nil, err
	}
	r := &Rule{name: name}
	first := r.input(shapes[0])
	total := shapes[0][dim]
	for i, s := range shapes[1:] {
		rest := slices.Clone(s)
		if len(s) == len(shapes[0]) {
			rest[dim] = shapes[0][dim]
			total += s[dim]
		}
		if !slices.Equal(rest, shapes[0]) {
			return nil, fmt.Errorf("layout: Concatenation: %s: input %d has shape %v and input 0 has %v; they may differ in dim %d alone", name, i+1,
				s, shapes[0], dim)
		}
		r.in = append(r.in, slices.Clone(first))
		r.inShape = append(r.inShape, slices.Clone(s))
	}
	for _, in := range r.in {
		in[dim] = 0
	}
	out := slices.Clone(shapes[0])
	out[dim] = total
	r.out, r.outShape = [][]letter{slices.Clone(r.in[0])}, [][]int{out}
	for op := range reduceOps {
		r.allPartial(op)
	}
	return r, nil
}
