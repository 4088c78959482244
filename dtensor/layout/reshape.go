package layout

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// Reshape returns the layout of a tensor of another shape with the same elements in
// row-major order. A size of -1 stands for whatever is left.
//
// A shard survives if what each rank holds, in row-major order, is a shard of the
// result: blocks of rows of a dimension that is split or merged with those to its
// right, as long as the blocks are whole rows of the new shape. It is a chunk of some
// dimension of the result where possible, else explicit sizes. A shard that does not
// survive becomes that of another dimension that does, by an all-to-all, or else R.
// Partial placements survive.
//
// Reshape returns an error if the shape has another number of elements or more than
// one -1.
func Reshape(in Layout, shape []int) (View, error) {
	shape, err := inferShape(in, shape)
	if err != nil {
		return View{}, err
	}
	v := newViewer(in, shape)
	v.same = func(in, out Layout, coord []int) bool {
		var a, b [12]run
		return slices.Equal(appendRuns(a[:0], in, coord), appendRuns(b[:0], out, coord))
	}
	v.size = func(in, out Layout, coord []int, d int) int {
		n := out.LocalNumel(coord)
		if n == 0 {
			return 0
		}
		_, length := out.Span(coord, d)
		return in.LocalNumel(coord) * length / n
	}
	dims := ints.Range(len(shape))
	for i := range v.axes.Len() {
		p := in.Placement(i)
		if !p.IsShard() {
			v.before[i], v.after[i] = p, p
		} else if !v.keep(i, p, dims) {
			v.trade(i, in, dims)
		}
	}
	return newView(in, v.before, shape, v.after)
}

// trade places on an axis the shard of some dimension that no axis shards, in the input
// or by now, and that survives; if there is none, the axis is left R.
func (v *viewer) trade(axis int, in Layout, dims []int) {
	placed := append(in.Placements(), v.before...)
	for d, size := range v.from {
		taken := slices.ContainsFunc(placed, func(q Placement) bool { return q.Shards(d) })
		if !taken && size >= v.axes.Size(axis) && v.keep(axis, Shard(d), dims) {
			return
		}
	}
}

// inferShape returns the shape with -1 replaced.
func inferShape(in Layout, shape []int) ([]int, error) {
	shape = slices.Clone(shape)
	open, n := -1, 1
	for d, s := range shape {
		switch {
		case s == -1 && open < 0:
			open = d
		case s < 0:
			return nil, fmt.Errorf("layout: Reshape: %v to shape %v: size %d in dim %d; one size can be -1, the others are 0 or more", in, shape, s,
				d)
		default:
			n *= s
		}
	}
	total := in.Numel()
	if open >= 0 && n > 0 && total%n == 0 {
		shape[open] = total / n
		n = total
	} else if open >= 0 {
		return nil, fmt.Errorf("layout: Reshape: %v to shape %v: %d elements cannot be divided by %d to find dim %d", in, shape, total, n, open)
	}
	if n != total {
		return nil, fmt.Errorf("layout: Reshape: %v to shape %v: %d elements cannot become %d", in, shape, total, n)
	}
	return shape, nil
}

// A run is one loop of an enumeration: n times, stride apart.
type run struct{ n, stride int }

// appendRuns appends the canonical description of the elements that the rank at coord
// holds, as numbers in row-major order of the global tensor: where they start, then
// the loops over them from the innermost on. Loops of one turn are left out and
// loops that continue each other are one, so two boxes, be they of different shapes,
// enumerate the same numbers in the same order if and only if their descriptions are
// the same.
func appendRuns(dst []run, l Layout, coord []int) []run {
	start, stride := 0, 1
	dst = append(dst, run{})
	for d := l.NDim() - 1; d >= 0; d-- {
		at, n := l.Span(coord, d)
		if n == 0 {
			return append(dst[:0], run{n: -1}) // nothing, wherever it is
		}
		start += at * stride
		if last := len(dst) - 1; n > 1 {
			if last > 0 && dst[last].n*dst[last].stride == stride {
				dst[last].n *= n
			} else {
				dst = append(dst, run{n, stride})
			}
		}
		stride *= l.Dim(d)
	}
	dst[0] = run{0, start}
	return dst
}
