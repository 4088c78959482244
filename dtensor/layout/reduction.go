package layout

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// Reduction returns the rule of a reduction of dimensions: Sum, Prod, Min or Max.
// Sharding a reduced dimension leaves a Partial result; sharding another one keeps it.
// The reduced dimensions are left out of the result, or are of size 1 if keepDim is
// set. No dims stand for all.
//
// There is no rule for Avg: the mean of uneven shards is not the mean of their means.
// Sum, and divide by the global count.
//
// Reduction returns an error if a dim is out of range or named twice, or op is Avg.
func Reduction(name string, op ReduceOp, shape, dims []int, keepDim bool) (*Rule, error) {
	if op == Avg {
		return nil, fmt.Errorf("layout: Reduction: %s: the average of averages of uneven shards is not the average; sum and divide by the count",
			name)
	}
	reduced, err := dimSet("Reduction: "+name, shape, dims)
	if err != nil {
		return nil, err
	}
	if len(dims) == 0 {
		for d := range reduced {
			reduced[d] = true
		}
	}
	r := &Rule{name: name, contract: Partial(op)}
	in := r.input(shape)
	var out []letter
	if first := slices.Index(reduced, true); first >= 0 && op == Sum {
		last := first
		for last < len(reduced) && reduced[last] {
			last++
		}
		if !slices.Contains(reduced[last:], true) { // one run of dimensions
			r.terms, r.tail, r.spine = ints.Product(shape[first:last]), len(shape)-last, in[first]
		}
	}
	for d, l := range in {
		switch {
		case !reduced[d]:
			out = append(out, l)
		case keepDim:
			out = append(out, 0)
		}
	}
	r.output(out)
	carried := []ReduceOp{op}
	if op == Sum {
		carried = []ReduceOp{Sum, Avg}
	}
	for _, op := range carried {
		r.partials = append(r.partials, Row{[]Placement{Partial(op)}, []Placement{Partial(op)}})
	}
	return r, nil
}

// Rowwise returns the rule of an operator that works on whole rows along some
// dimensions, such as a softmax or a norm: those must not be sharded, the others can
// be. The result has the shape of the first input; further inputs, such as the
// weight and the bias of a norm, are broadcast against it.
//
// It returns an error if a dim is out of range or named twice, or a shape does not
// broadcast.
func Rowwise(name string, dims []int, shape []int, others ...[]int) (*Rule, error) {
	r, err := Pointwise(name, Opaque, slices.Concat([][]int{shape}, others)...)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(r.outShape[0], shape) {
		return nil, fmt.Errorf("layout: Rowwise: %s: shapes %v broadcast to %v, not to the first, %v", name, others, r.outShape[0], shape)
	}
	whole, err := dimSet("Rowwise: "+name, shape, dims)
	if err != nil {
		return nil, err
	}
	for d, w := range whole {
		if w {
			r.whole |= 1 << r.out[0][d]
		}
	}
	return r, nil
}

// Summary returns the rule of an operator that turns each row along dim into
// results of other sizes along it, such as a top-k: dim must not be sharded. Each of the
// results has the given number of elements along dim; below 0 it lacks the dimension.
//
// It returns an error if dim is out of range.
func Summary(name string, shape []int, dim int, lengths ...int) (*Rule, error) {
	dim, err := dimIn("Summary: "+name, shape, dim)
	if err != nil {
		return nil, err
	}
	r := &Rule{name: name}
	in := r.input(shape)
	r.whole = 1 << in[dim]
	for _, n := range lengths {
		var out []letter
		var outShape []int
		for d, l := range in {
			switch {
			case d != dim:
				out, outShape = append(out, l), append(outShape, shape[d])
			case n >= 0:
				out, outShape = append(out, 0), append(outShape, n)
			}
		}
		r.out, r.outShape = append(r.out, out), append(r.outShape, outShape)
	}
	return r, nil
}

// input adds an input with letters of its own and returns them.
func (r *Rule) input(shape []int) []letter {
	letters := make([]letter, len(shape))
	next := letter(1)
	for _, in := range r.in {
		for _, l := range in {
			next = max(next, l+1)
		}
	}
	for d, n := range shape {
		letters[d] = next + letter(d)
		r.size[letters[d]] = n
	}
	r.in = append(r.in, letters)
	r.inShape = append(r.inShape, slices.Clone(shape))
	return letters
}

// output adds a result; a dimension of letter 0 is of size 1.
func (r *Rule) output(letters []letter) {
	shape := make([]int, len(letters))
	for d, l := range letters {
		shape[d] = 1
		if l != 0 {
			shape[d] = r.size[l]
		}
	}
	r.out, r.outShape = append(r.out, letters), append(r.outShape, shape)
}

// dimSet normalises a list of dimensions into a set; op names the caller.
func dimSet(op string, shape, dims []int) ([]bool, error) {
	set := make([]bool, len(shape))
	for _, d := range dims {
		i, err := dimIn(op, shape, d)
		if err != nil {
			return nil, err
		}
		if set[i] {
			return nil, fmt.Errorf("layout: %s: dim %d of shape %v is named twice in %v", op, d, shape, dims)
		}
		set[i] = true
	}
	return set, nil
}

// dimIn normalises a dimension that may count from the end; op names the caller.
func dimIn(op string, shape []int, dim int) (int, error) {
	if dim < -len(shape) || dim >= len(shape) {
		return 0, fmt.Errorf("layout: %s: dim %d is out of range for shape %v", op, dim, shape)
	}
	if dim < 0 {
		dim += len(shape)
	}
	return dim, nil
}
