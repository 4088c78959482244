package layout

import "fmt"

// A View is what an operator that only renames elements comes to: the layout to bring
// the input to, which is its own wherever possible, and the layout of the result. With
// the input in that layout every rank's part of the result is the same operator on its
// own part, and nothing is communicated.
type View struct {
	In, Out Layout
}

// Permute returns the layout of a tensor whose dimension i is dimension dims[i] of the
// input. Every placement survives.
//
// It returns an error if dims is no permutation of the input's dimensions.
func Permute(in Layout, dims ...int) (View, error) {
	order := make([]int, len(dims))
	where := make([]int, in.NDim()) // in the result, of each dimension of the input
	for d := range where {
		where[d] = -1
	}
	for i, d := range dims {
		if d < 0 {
			d += in.NDim()
		}
		if d < 0 || d >= in.NDim() || where[d] >= 0 {
			return View{}, fmt.Errorf("layout: Permute: dims %v are no permutation of the %d dimensions of %v; name each once", dims, in.NDim(), in)
		}
		order[i], where[d] = d, i
	}
	if len(dims) != in.NDim() {
		return View{}, fmt.Errorf("layout: Permute: %d dims %v for the %d dimensions of %v; name each once", len(dims), dims, in.NDim(), in)
	}
	shape := make([]int, len(order))
	for i, d := range order {
		shape[i] = in.Dim(d)
	}
	places := in.Placements()
	for i, p := range places {
		if d, ok := p.Dim(); ok {
			places[i] = p.WithDim(where[d])
		}
	}
	out, err := New(in.Axes(), shape, places...)
	return View{in, out}, err
}

// Expand returns the layout of a tensor repeated along dimensions of size 1, and along
// new ones in front, to a shape. A shard of a repeated dimension becomes R; everything
// else survives.
//
// It returns an error if the input cannot be repeated to the shape.
func Expand(in Layout, shape []int) (View, error) {
	lead := len(shape) - in.NDim()
	if lead < 0 {
		return View{}, fmt.Errorf("layout: Expand: %v to shape %v: too few dimensions; give at least %d", in, shape, in.NDim())
	}
	for d := range in.NDim() {
		if n := in.Dim(d); n != 1 && n != shape[lead+d] {
			return View{}, fmt.Errorf("layout: Expand: %v to shape %v: dim %d is %d, not 1, and cannot become %d", in, shape, d, n, shape[lead+d])
		}
	}
	before, after := in.Placements(), in.Placements()
	for i, p := range before {
		if d, ok := p.Dim(); ok {
			if in.Dim(d) != shape[lead+d] {
				before[i], after[i] = Replicate(), Replicate()
				continue
			}
			after[i] = p.WithDim(lead + d)
		}
	}
	return newView(in, before, shape, after)
}

// Narrow returns the layout of the length elements from start on of a dimension. A
// shard of that dimension survives as explicit sizes, those of the elements that each
// rank has of them, unless the sizes are torch.chunk's; it becomes R only where
// several axes shard the dimension so that no one list of sizes says what is left.
//
// It returns an error if dim or the range is out of range.
func Narrow(in Layout, dim, start, length int) (View, error) {
	dim, err := dimIn("Narrow", in.Shape(), dim)
	if err != nil {
		return View{}, err
	}
	if start < 0 || length < 0 || start+length > in.Dim(dim) {
		return View{}, fmt.Errorf("layout: Narrow: start %d and length %d are out of range for dim %d of %v, which has %d elements", start,
			length, dim, in, in.Dim(dim))
	}
	shape := in.Shape()
	shape[dim] = length
	v := newViewer(in, shape)
	v.size = func(in, _ Layout, coord []int, _ int) int {
		at, n := in.Span(coord, dim)
		return max(0, min(at+n, start+length)-max(at, start))
	}
	v.same = func(in, out Layout, coord []int) bool {
		_, n := out.Span(coord, dim)
		return n == v.size(in, out, coord, dim)
	}
	for i, p := range in.Placements() {
		if p.Shards(dim) {
			v.keep(i, p, []int{dim})
		} else {
			v.before[i], v.after[i] = p, p
		}
	}
	return newView(in, v.before, shape, v.after)
}

// newView returns a view between two lists of placements.
func newView(in Layout, before []Placement, shape []int, after []Placement) (View, error) {
	need, err := in.With(before...)
	if err != nil {
		return View{}, err
	}
	out, err := New(in.Axes(), shape, after...)
	return View{need, out}, err
}
