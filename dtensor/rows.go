package dtensor

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Rows is a row-sparse gradient of a parameter: some rows of a tensor that is
// zero elsewhere. It has the parameter's layout: each rank has those of the
// rows that its shard holds, cut to its columns, and ranks that hold the same
// shard have the same Rows.
type Rows struct {
	Index  *tensor.Tensor // int64 [n]: global row numbers, see layout.Layout.Served, in any order; one may appear twice, the rows then add up
	Values *tensor.Tensor // [n, …]: the rows, with the local sizes of the other dimensions
	spec   *spec

	distinct bool // it is known that no row appears twice
}

// NewRows returns a row-sparse gradient of the parameter like. It throws a
// *LayoutError if the sizes do not fit.
func NewRows(like *Tensor, index, values *tensor.Tensor) *Rows {
	s := like.spec.gradient()
	if index.DType() != tensor.Int64 || index.NDim() != 1 || values.NDim() != len(s.shape) || values.Dim(0) != index.Numel() ||
		!slices.Equal(values.Shape()[1:], s.local[1:]) {
		refuse("NewRows", fmt.Sprintf("index %v%v and values %v%v are not [n] int64 and [n, %v]", index.DType(), index.Shape(), values.DType(),
			values.Shape(), s.local[1:]),
			"give one local row for each global row number", operand("parameter", like))
	}
	return &Rows{Index: index, Values: values, spec: s}
}

// NewDistinctRows is NewRows for row numbers of which the caller knows that none appears twice.
func NewDistinctRows(like *Tensor, index, values *tensor.Tensor) *Rows {
	r := NewRows(like, index, values)
	r.distinct = true
	return r
}

// String prints the layout that the gradient would have as a dense tensor.
func (r *Rows) String() string {
	return fmt.Sprintf("%d rows of %v", r.Index.Numel(), r.spec)
}

// Dense returns the gradient as a tensor, zero where there is no row.
func (r *Rows) Dense() *Tensor {
	return r.addTo(filled(r.spec, r.Values.DType(), 0))
}

// addTo adds the rows to dst, which has their layout, in order, and returns it.
func (r *Rows) addTo(dst *Tensor) *Tensor {
	if !r.spec.mesh.outside() && r.Index.Numel() > 0 {
		tensor.IndexAddTo(dst.local, 0, r.local(), r.Values)
	}
	return dst
}

// local returns the row numbers counted from this rank's first row.
func (r *Rows) local() *tensor.Tensor {
	return tensor.AddScalar(r.Index, -float64(r.spec.offset[0]))
}

// Coalesce returns the same gradient with ascending, distinct row numbers. Rows
// that appear several times are added up in the order in which they appear. It
// throws a *tensor.IndexError for a row that the parameter does not have.
func (r *Rows) Coalesce() *Rows {
	if r.ascending() {
		return r
	}
	n, shape := r.Index.Numel(), slices.Clone(r.Values.Shape())
	if at, row, ok := tensor.CheckIndex(r.Index, r.spec.shape[0]); !ok {
		fault.Throw(&tensor.IndexError{Op: "Coalesce", Position: at, Value: row, Size: r.spec.shape[0]})
	}
	rows := tensor.Coalesce(r.Index, r.Values.Reshape(n, ints.Product(shape[1:])), 0, r.spec.shape[0])
	shape[0] = rows.Index.Numel()
	return &Rows{Index: rows.Index, Values: rows.Values.Reshape(shape...), spec: r.spec}
}

// Distinct is Coalesce for who does not care about the order: it returns r if that is known to have no row twice.
func (r *Rows) Distinct() *Rows {
	if r.distinct {
		return r
	}
	return r.Coalesce()
}

// WholeRows returns rows of a tensor whose elements axes of the mesh shard, gathered over these axes:
//
//	parts [n, …] with the local sizes of the other dimensions of t   →   [n, …] with the global ones
//
// Ranks along these axes have parts of the same rows. It returns parts if no axis shards the elements of a row.
func WholeRows(t *Tensor, parts *tensor.Tensor) *tensor.Tensor {
	var names []string
	var places []layout.Placement
	for axis, a := range t.Mesh().Axes() {
		if p := t.Placement(axis); a.Size > 1 && p.IsShard() && !p.Shards(0) {
			names, places = append(names, a.Name), append(places, p)
		}
	}
	if len(names) == 0 {
		return parts
	}
	shape, local := t.Shape(), t.LocalShape()
	shape[0], local[0] = parts.Dim(0), parts.Dim(0)
	mesh := t.Mesh().Sub(names...)
	whole := mesh.Wrap("WholeRows", parts.Reshape(local...), nil, false, shape, places...)
	return whole.Redistribute(mesh.Every(layout.Replicate())...).Local()
}

// ascending reports whether each row number is larger than the one before.
func (r *Rows) ascending() bool {
	defer runtime.KeepAlive(r)
	index := tensor.Read[int64](r.Index)
	for i := 1; i < len(index); i++ {
		if index[i] <= index[i-1] {
			return false
		}
	}
	return true
}

// SumRows returns the sum of gradients of one parameter, at least one, added up as
// ValueAndGrad does: by Coalesce of all, in the order given, with same bits one by one. A single one it
// returns as it is.
func SumRows(list ...*Rows) *Rows {
	if len(list) == 1 {
		return list[0]
	}
	if !list[0].spec.mesh.SameBits() {
		return joinRows(list...).Coalesce()
	}
	sum := list[0].Coalesce() // the order must not depend on how many rows a rank has
	for _, r := range list[1:] {
		sum = joinRows(sum, r.Coalesce()).Coalesce()
	}
	return sum
}

// joinRows returns the rows of gradients of one parameter, one gradient after the other.
func joinRows(list ...*Rows) *Rows {
	index, values := make([]*tensor.Tensor, len(list)), make([]*tensor.Tensor, len(list))
	for i, r := range list {
		index[i], values[i] = r.Index, r.Values
	}
	return &Rows{Index: tensor.Cat(0, index...), Values: tensor.Cat(0, values...), spec: list[0].spec}
}
