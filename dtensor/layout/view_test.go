package layout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A view, applied by every rank to its own part of the input, gives its part of the
// result. The parts are lists of elements, named by their numbers in the input.
func TestViewEqualsItsTwin(t *testing.T) {
	eachCase(t, func(rnd *rand.Rand) error {
		if rnd.IntN(4) > 0 {
			return nil // a quarter of the cases is plenty
		}
		axes, shape := randomAxes(rnd), randomShape(rnd)
		switch rnd.IntN(4) {
		case 0:
			in := randomLayout(rnd, axes, shape, true)
			to := randomReshape(rnd, shape)
			v, err := Reshape(in, to)
			// Row-major order is all that counts: element e stays element e.
			return checkView(fmt.Sprintf("%v on %v reshaped to %v", in, axes, to), v, err,
				func(index []int) ([]int, bool) { return indexOf(element(v.In.Shape(), index), v.Out.Shape()), true })
		case 1:
			in := randomLayout(rnd, axes, shape, true)
			dims := rnd.Perm(len(shape))
			v, err := Permute(in, dims...)
			return checkView(fmt.Sprintf("%v on %v permuted to %v", in, axes, dims), v, err,
				func(index []int) ([]int, bool) {
					to := make([]int, len(dims))
					for i, d := range dims {
						to[i] = index[d]
					}
					return to, true
				})
		case 2:
			if len(shape) == 0 {
				return nil
			}
			in := randomLayout(rnd, axes, shape, true)
			dim := rnd.IntN(len(shape))
			start := rnd.IntN(shape[dim] + 1)
			length := rnd.IntN(shape[dim] - start + 1)
			v, err := Narrow(in, dim, start, length)
			return checkView(fmt.Sprintf("%v on %v narrowed to %d from %d of dim %d", in, axes, length, start, dim), v, err,
				func(index []int) ([]int, bool) {
					to := slices.Clone(index)
					to[dim] -= start
					return to, to[dim] >= 0 && to[dim] < length
				})
		}
		for d := range shape {
			if rnd.IntN(2) == 0 {
				shape[d] = 1
			}
		}
		in := randomLayout(rnd, axes, shape, true)
		to := slices.Clone(shape)
		for d := range to {
			if to[d] == 1 && rnd.IntN(2) == 0 {
				to[d] = rnd.IntN(4)
			}
		}
		to = slices.Concat([]int{2}[:rnd.IntN(2)], to)
		v, err := Expand(in, to)
		return checkExpanded(fmt.Sprintf("%v on %v expanded to %v", in, axes, to), v, err)
	})
}

// checkView checks a view that moves the element at an index of the input to another
// index of the result, or drops it. A rank holds its elements in row-major order, in
// which their numbers ascend; so equal sets are equal lists.
func checkView(name string, v View, err error, move func(index []int) (to []int, ok bool)) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for pos := range v.In.Axes().Count() {
		coord := v.In.Axes().Coord(pos)
		var got []int
		in := v.In.Shape()
		walk(in, v.In.Offset(coord), v.In.LocalShape(coord), func(e int) {
			if to, ok := move(indexOf(e, in)); ok {
				got = append(got, element(v.Out.Shape(), to))
			}
		})
		var want []int
		walk(v.Out.Shape(), v.Out.Offset(coord), v.Out.LocalShape(coord), func(e int) { want = append(want, e) })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: from %v to %v: position %v has %v, want %v", name, v.In, v.Out, coord, got, want)
		}
	}
	return samePartials(name, v)
}

// checkExpanded checks that every rank has, of each dimension that is not repeated,
// what it had, and of each that is, all.
func checkExpanded(name string, v View, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	lead := v.Out.NDim() - v.In.NDim()
	for pos := range v.In.Axes().Count() {
		coord := v.In.Axes().Coord(pos)
		for d := range v.Out.NDim() {
			at, n := v.Out.Span(coord, d)
			wantAt, wantN := 0, v.Out.Dim(d)
			if d >= lead && v.In.Dim(d-lead) == v.Out.Dim(d) {
				wantAt, wantN = v.In.Span(coord, d-lead)
			} else if d >= lead {
				if _, whole := v.In.Span(coord, d-lead); whole != 1 {
					return fmt.Errorf("%s: from %v: position %v lacks the element of dim %d to repeat", name, v.In, coord, d-lead)
				}
			}
			if at != wantAt || n != wantN {
				return fmt.Errorf("%s: to %v: position %v has %d from %d of dim %d, want %d from %d", name, v.Out, coord, n, at, d, wantN, wantAt)
			}
		}
	}
	return samePartials(name, v)
}

func samePartials(name string, v View) error {
	for i := range v.In.Axes().Len() {
		p, q := v.In.Placement(i), v.Out.Placement(i)
		if (p.IsPartial() || q.IsPartial()) && p != q {
			return fmt.Errorf("%s: %v becomes %v", name, p, q)
		}
	}
	return nil
}

// element returns the number of the element at an index.
func element(shape, index []int) int {
	e := 0
	for d := range shape {
		e = e*shape[d] + index[d]
	}
	return e
}

// indexOf returns the index of an element.
func indexOf(e int, shape []int) []int {
	index := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		index[d] = e % shape[d]
		e /= shape[d]
	}
	return index
}

// randomReshape returns a shape with the same number of elements.
func randomReshape(rnd *rand.Rand, shape []int) []int {
	n := numel(shape)
	if n == 0 {
		return [][]int{{0}, {0, 3}, {3, 0}, shape}[rnd.IntN(4)]
	}
	var to []int
	for n > 1 && len(to) < 4 {
		var divisors []int
		for d := 1; d <= n; d++ {
			if n%d == 0 {
				divisors = append(divisors, d)
			}
		}
		d := divisors[rnd.IntN(len(divisors))]
		to = append(to, d)
		n /= d
	}
	if n > 1 {
		to = append(to, n)
	}
	return to
}
