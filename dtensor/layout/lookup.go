package layout

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// Lookup returns the rule of taking rows of a table by ids: an embedding, or an
// index_select. The inputs are the table and the ids; along dim of the table, of which
// the rows are taken, stand the dimensions of the ids in the result.
//
// Sharding the table along dim leaves the result MaskPartial, since each row has
// one owner; sharding another dimension of the table, or one of the ids, shards
// the result. A table that is Partial stays so if the result is no larger.
//
// It returns an error if dim is out of range.
func Lookup(name string, table []int, dim int, ids []int) (*Rule, error) {
	dim, err := dimIn("Lookup: "+name, table, dim)
	if err != nil {
		return nil, err
	}
	r := &Rule{name: name, contract: MaskPartial(table, dim)}
	rows := r.input(table)
	taken := r.input(ids)
	r.output(slices.Concat(rows[:dim], taken, rows[dim+1:]))
	r.copies()
	return r, nil
}

// copies adds the rows of an operator whose results are elements of its first input, at places that the second one says: what
// is Partial stays so. A result that is larger than the input is not reduced instead of it.
func (r *Rule) copies() {
	if ints.Product(r.outShape[0]) > ints.Product(r.inShape[0]) {
		return
	}
	for _, op := range []ReduceOp{Sum, Avg, Prod, Min, Max} {
		row := r.replicated()
		row.In[0], row.Out[0] = Partial(op), Partial(op)
		r.partials = append(r.partials, row)
	}
}

// Gather returns the rule of torch.gather: the result has the shape of the index,
// and its element at an index is the input's at the same index, but along dim at the one
// that the index tensor holds. Sharding the input along dim leaves the result
// MaskPartial; sharding another dimension, in both inputs alike, shards the result, if
// it is of the same size in both. An input that is Partial stays so if the result is no larger.
//
// It returns an error if dim is out of range, the numbers of dimensions differ, or
// the index is larger than the input in another dimension.
func Gather(name string, input []int, dim int, index []int) (*Rule, error) {
	dim, err := dimIn("Gather: "+name, input, dim)
	if err != nil {
		return nil, err
	}
	if len(input) != len(index) {
		return nil, fmt.Errorf("layout: Gather: %s: the input of shape %v has %d dimensions and the index of shape %v has %d; they must be equal",
			name, input, len(input), index, len(index))
	}
	r := &Rule{name: name, contract: MaskPartial(input, dim)}
	from := r.input(input)
	at := r.input(index)
	for d := range at {
		switch {
		case d == dim:
		case index[d] > input[d]:
			return nil, fmt.Errorf("layout: Gather: %s: index shape %v is larger than input shape %v in dim %d; narrow it", name, index, input, d)
		case index[d] == input[d]:
			at[d] = from[d]
		default:
			from[d] = 0
			r.whole |= 1 << at[d]
		}
	}
	r.output(slices.Clone(at))
	r.copies()
	return r, nil
}

// Scatter returns the rule of writing along a dimension: the result has the shape of the
// input, and its element at an index of src is src's, but along dim at the one that the
// index tensor holds. The inputs are the input, the index and src, which has the shape of
// the index. The index is whole along dim, for of several places with one index the
// last is written. Sharding the input along dim shards the result; so does sharding
// another dimension in all inputs alike, if it is of the same size in all.
//
// It returns an error where Gather does.
func Scatter(name string, input []int, dim int, index []int) (*Rule, error) {
	r, err := Gather(name, input, dim, index)
	if err != nil {
		return nil, err
	}
	if dim < 0 {
		dim += len(input)
	}
	from, at := r.in[0], r.in[1]
	r.whole |= 1 << at[dim]
	r.in, r.inShape = append(r.in, slices.Clone(at)), append(r.inShape, slices.Clone(index))
	r.out, r.outShape, r.partials = nil, nil, nil
	r.output(slices.Clone(from))
	for d, l := range from {
		if l == 0 {
			r.outShape[0][d] = input[d]
		}
	}
	return r, nil
}
