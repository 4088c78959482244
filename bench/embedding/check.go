package main

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// check compares the result with the rows of the whole table, bit by bit. It checks
// the gradient with checkCounts.
func (l *lookup) check(ids []int64) error {
	if err := l.checkForward(ids); err != nil {
		return err
	}
	grad, err := l.both()
	if err != nil {
		return err
	}
	return checkCounts(grad, l.table, ids)
}

// checkCounts checks the gradient of a table with a seed of ones: the gradient of an id's row
// must be the number of times that the id occurs.
func checkCounts(grad dtensor.Grad, table *dtensor.Tensor, ids []int64) error {
	rows, ok := grad.Rows()
	if !ok {
		return fmt.Errorf("the gradient of a table of %d rows is dense", table.Dim(0))
	}
	rows = rows.Coalesce()
	count := map[int64]float32{}
	for _, id := range ids {
		count[id]++
	}
	offset, _ := table.Offset()
	lo, hi := int64(offset[0]), int64(offset[0]+table.LocalShape()[0])
	for id := range count {
		if id < lo || id >= hi {
			delete(count, id)
		}
	}
	index, values := tensor.Data[int64](rows.Index), tensor.Data[float32](rows.Values)
	dim := rows.Values.Dim(1)
	if len(index) != len(count) {
		return fmt.Errorf("the gradient has %d rows, want %d", len(index), len(count))
	}
	for i, id := range index {
		for _, v := range values[i*dim : (i+1)*dim] {
			if v != count[id] {
				return fmt.Errorf("the gradient of row %d is %v, want %v", id, v, count[id])
			}
		}
	}
	return nil
}

func (l *lookup) checkForward(ids []int64) (err error) {
	tryErr := dtensor.Try(l.b.Context(), l.b.Mesh, func() {
		whole := dtensor.Normal(l.b.Mesh, dtensor.Key{Seed: 3}, 0, 1, l.table.Shape(), layout.Replicate()).Local()
		got := l.forward()
		offset, _ := got.Offset()
		local := got.Local()
		n, d := local.Dim(0), local.Dim(1)
		for i := range n {
			row := ids[offset[0]+i]
			want := tensor.Data[float32](whole)[int(row)*l.size.dim+offset[1]:][:d]
			for j, v := range tensor.Data[float32](local)[i*d : (i+1)*d] {
				if math.Float32bits(v) != math.Float32bits(want[j]) {
					err = fmt.Errorf("the row of id %d has %v at feature %d, want %v", row, v, offset[1]+j, want[j])
					return
				}
			}
		}
	})
	if tryErr != nil {
		return tryErr
	}
	return err
}
