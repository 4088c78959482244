package data

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Batch returns the rows first, first+1, … of a step's batch on a mesh, divided over one of
// its axes; "": none. Each rank makes only its own rows, with FillBatch. It throws an error if
// the mesh has no such axis. Where a second axis divides the batch too, as that of experts may, Redistribute cuts
// its rows out of these and communicates nothing.
//
//	ids [batch, context] S(0)   targets [batch, context] S(0)   on the axis; R on the others, int64
func (s *Sampler) Batch(mesh *dtensor.Mesh, axis string, step, first, batch int) (ids, targets *dtensor.Tensor) {
	return onMesh(mesh, axis, batch, s.context, func(row int, ids, targets []int64) { FillBatch(s, step, first+row, ids, targets) })
}

// Batch returns the windows first, first+1, … on a mesh, as Sampler.Batch does a step's
// and FillWindows fills them.
//
//	ids [batch, context] S(0)   targets [batch, context] S(0)   on the axis; R on the others, int64
func (w *Windows) Batch(mesh *dtensor.Mesh, axis string, first, batch int) (ids, targets *dtensor.Tensor) {
	if first < 0 {
		dtensor.Throw(fmt.Errorf("data: Batch: window %d; count windows from 0", first))
	}
	return onMesh(mesh, axis, batch, w.context, func(row int, ids, targets []int64) { FillWindows(w, first+row, ids, targets) })
}

// onMesh returns a batch on a mesh. It calls fill for this rank's rows, from row on.
func onMesh(mesh *dtensor.Mesh, axis string, batch, context int, fill func(row int, ids, targets []int64)) (ids, targets *dtensor.Tensor) {
	place := mesh.Every(layout.Replicate())
	if axis != "" {
		i, ok := mesh.Axis(axis)
		if !ok {
			dtensor.Throw(fmt.Errorf("data: Batch: the mesh %v has no axis %q; give the one that divides the batch", mesh, axis))
		}
		place[i] = layout.Shard(0)
	}
	shape := []int{batch, context}
	ids, targets = dtensor.Zeros(mesh, tensor.Int64, shape, place...), dtensor.Zeros(mesh, tensor.Int64, shape, place...)
	if offset, ok := ids.Offset(); ok {
		tensor.Edit(ids.Local(), func(x []int64) {
			tensor.Edit(targets.Local(), func(y []int64) { fill(offset[0], x, y) })
		})
	}
	return ids, targets
}
