package embedding

import (
	"runtime"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/tensor"
)

// servedIDs checks ids for a table and returns them as numbers of its rows rank by rank,
// which is how lookups and gradients count them: other numbers than the ids where the
// layout deals rows out in turn. pos and id are the first that the table does not have.
func servedIDs(weight *dtensor.Tensor, ids *tensor.Tensor) (rows *tensor.Tensor, pos, id int, bad bool) {
	size := weight.Dim(0)
	pos, id, good := tensor.CheckIndex(ids, size)
	l := weight.Layout()
	axis := l.Cyclic()
	if !good || axis < 0 {
		return ids, pos, id, !good
	}
	dev, n := ids.Device(), ids.Numel()
	ranks := int64(l.Axes().Size(axis))
	whole, rest := int64(size)/ranks, int64(size)%ranks
	list, from := index.New[int64](dev, n), tensor.Cast(ids, tensor.Int64)
	for i, id := range tensor.Read[int64](from) {
		rank := id % ranks
		list.Elems[i] = rank*whole + min(rank, rest) + id/ranks
	}
	runtime.KeepAlive(from)
	return list.Tensor(dev, n).Reshape(ids.Shape()...), 0, 0, false
}
