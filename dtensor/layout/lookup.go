package layout

import (
	"fmt"
	"slices"
)

// Lookup returns the rule of taking rows of a table by ids: an embedding, or an
// index_select. The inputs are the table and the ids; along dim of the table, of which
// the rows are taken, stand the dimensions of the ids in the result.
//
// Sharding the table along dim leaves the result MaskPartial, since each row has
// one owner; sharding another dimension of the table, or one of the ids, shards
// the result.
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
	return r, nil
}

// Gather returns the rule of torch.gather: the result has the shape of the index,
// and its element at an index is the input's at the same index, but along dim at the one
// that the index tensor holds. Sharding the input along dim leaves the result
// MaskPartial; sharding another dimension, in both inputs alike, shards the result, if
// it is of the same size in both.
//
// It returns an error if dim is out of range, the numbers of dimensions differ, or
// the index is larger than the input in another dimension.
func Gather(name string, input []int, dim int, index []int) (*Rule, error) {
	dim, err := dimIn("Gather: "+name, input, dim)
	if err != nil {
		return nil, err
	}
	if len(input) != len(index) {
		return nil, fmt.Errorf("layout: Gather: %s: the input of shape %v has %d dimensions and the index of shape %v has %d; they must be equal", name, input, len(input), index, len(index))
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
	return r, nil
}
