package embedding

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// LookupShards returns the rows that ids name of a table of which each rank holds any
// number of shards, of rows or of columns.
//
//	table [V, D]   ids [...]   →   [..., D]
//
// The result is P(sum) on every axis of the mesh: each element is on the rank that has it,
// and one redistribution brings it elsewhere. Nothing is communicated, but to replicate
// ids that are not, and the gradient of the result where it is not replicated. A MaxNorm
// is refused.
//
// The table is trained by its Param, whose gradient is a dtensor.Rows:
//
//	value, grads, err := dtensor.ValueAndGrad(ctx, forward, table.Param(), head)
//
// Its numbers are those of Lookup in the whole table, for each row of a shard as many
// rows of Param as its columns make.
//
// LookupShards throws as Lookup does.
func LookupShards(table *dtensor.LocalShards, ids *dtensor.Tensor, o Options) *dtensor.Tensor {
	const op = "LookupShards"
	mesh, size := table.Mesh(), table.Shape()
	name := fmt.Sprintf("the table of shards %v", size)
	if o.Table != "" {
		name = fmt.Sprintf("table %q", o.Table)
	}
	switch dt := table.DType(); {
	case !dt.Float():
		refuse(op, "%s holds %v; Cast it to a type of floating-point numbers", name, dt)
	case ids.DType() != tensor.Int64 && ids.DType() != tensor.Int32:
		refuse(op, "the ids for %s are %v; use int64 or int32", name, ids)
	case ids.Mesh() != mesh:
		refuse(op, "the ids are on mesh %v and %s on another, %v; move one of them", ids.Mesh(), name, mesh)
	case o.MaxNorm != nil:
		refuse(op, "MaxNorm is set for %s; a lookup does not change shards, so Distribute it", name)
	}
	var set settings
	if !set.setPadding(o.PaddingIdx, size[0]) {
		refuse(op, badPadding, *o.PaddingIdx, -size[0], size[0], name)
	}
	at := ids.Redistribute(mesh.Every(layout.Replicate())...)
	shape, places := append(slices.Clone(ids.Shape()), size[1]), mesh.Every(layout.Partial(layout.Sum))
	if !mesh.Inside() {
		return mesh.Wrap(op, tensor.New(mesh.Device(), table.DType(), 0), nil, false, shape, places...)
	}
	if pos, id, ok := tensor.CheckIndex(at.Local(), size[0]); !ok { // all ranks have the same ids
		fault.Throw(&IDError{Op: op, Table: name, ID: int64(id), Position: tensor.UnravelIndex(pos, ids.Shape()), Rows: size[0]})
	}
	n := at.Local().Numel()
	rows := at.Local().Reshape(n)
	out := tensor.Zeros(mesh.Device(), table.DType(), n, size[1])
	for _, shard := range table.Shards() {
		k, w := shard.Data.Dim(0), shard.Data.Dim(1)
		switch {
		case k*w == 0:
		case w == size[1]:
			tensor.TakeRowsTo(out, shard.Data, rows, shard.Offset[0], false)
		default:
			part, whole := tensor.TakeRows(shard.Data, rows, shard.Offset[0]), tensor.Zeros(mesh.Device(), table.DType(), n, size[1])
			tensor.UnpackBox(whole, []int{0, shard.Offset[1]}, part.Reshape(n*w), 0, []int{n, w})
			tensor.AddTo(out, whole)
			part.Free()
			whole.Free()
		}
	}
	y := mesh.Wrap(op, out.Reshape(shape...), nil, false, shape, places...)
	if !table.Tracked() {
		return y
	}
	param := table.Param()
	return dtensor.Record(op, y, []*dtensor.Tensor{param}, func(gy *dtensor.Tensor) []dtensor.Grad {
		dy := tensor.Widen(gy.Redistribute(reduced(places)...).Local().Reshape(n, size[1]))
		return []dtensor.Grad{dtensor.Sparse(shardsGrad(table, param, rows, dy, set.padding, o.ScaleGradByFreq))}
	})
}

// shardsGrad returns the gradient of param, which holds the elements of the table, for
// the gradient dy [n, D] of the rows that ids [n] name.
func shardsGrad(table *dtensor.LocalShards, param *dtensor.Tensor, ids, dy *tensor.Tensor, padding int, byFrequency bool) *dtensor.Rows {
	width, row := param.Dim(1), firstRow(param)
	index := []*tensor.Tensor{tensor.New(dy.Device(), tensor.Int64, 0)}
	values := []*tensor.Tensor{tensor.New(dy.Device(), dy.DType(), 0, width)}
	for _, shard := range table.Shards() {
		k, w := shard.Data.Dim(0), shard.Data.Dim(1)
		if k*w == 0 {
			continue
		}
		u := without(tensor.Unique(ids, shard.Offset[0], k), padding-shard.Offset[0])
		sums := u.SumRows(tensor.Narrow(dy, 1, shard.Offset[1], w))
		if byFrequency {
			sums.Values = tensor.Binary(kernel.OpDiv, sums.Values, tensor.Cast(u.Count(), dy.DType()).Reshape(u.Index.Numel(), 1))
		}
		parts := w / width // rows of param that make a row of the shard
		var at []int64
		for _, i := range tensor.ToSlice[int64](sums.Index) {
			for part := range parts {
				at = append(at, int64(row+int(i)*parts+part))
			}
		}
		index = append(index, tensor.FromSlice(dy.Device(), at, len(at)))
		values = append(values, sums.Values.Reshape(len(at), width))
		row += k * parts
	}
	return dtensor.NewRows(param, tensor.Cat(0, index...), tensor.Cast(tensor.Cat(0, values...), param.DType()))
}
