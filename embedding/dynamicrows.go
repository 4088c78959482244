package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/keytable"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/tensor"
)

// Lost rows are what first rows were written over, of a tensor of rows.
type lostRows struct{ of, index, values *tensor.Tensor }

// begin writes the first rows of keys that have just been given one, and those of what
// follows them.
func (d *Dynamic) begin(added []keytable.Entry) {
	if len(added) == 0 {
		return
	}
	first, _ := d.own()
	dev, dim := d.mesh().Device(), d.config.Dim
	const piece = 1024 // rows at a time
	for len(added) > 0 {
		n := min(len(added), piece)
		scope := dev.Open()
		index, rows := tensor.New(dev, tensor.Int64, n), tensor.New(dev, tensor.Float32, n, dim)
		tensor.Edit(index, func(index []int64) {
			for i, e := range added[:n] {
				index[i] = int64(d.keys.Row(e.Hash, e.Slot) - first)
			}
		})
		tensor.Edit(rows, func(rows []float32) {
			words := make([]uint32, dim)
			for i, e := range added[:n] {
				philox.Key{Seed: d.config.Seed, Stream: uint64(e.Hash.Key())}.Words(words, 0)
				philox.Normals(rows[i*dim:][:dim], words, 0, d.config.Std)
			}
		})
		first := tensor.Cast(rows, d.config.DType)
		d.write(d.table.weight.Local(), index, first)
		for _, f := range d.follows {
			switch its := f.tensor.Local(); {
			case !f.byRow:
			case f.first == nil:
				d.write(byRows(its), index, tensor.Cast(first, its.DType()))
			default:
				d.write(byRows(its), index, tensor.TakeRows(f.first, tensor.Zeros(dev, tensor.Int64, n), 0))
			}
		}
		scope.Close()
		added = added[n:]
	}
}

// write writes rows of new keys, and keeps what they take the place of while keys that have lost theirs may yet get them back.
func (d *Dynamic) write(of, index, values *tensor.Tensor) {
	if d.noting && d.keys.Evicted() {
		d.lost = append(d.lost, lostRows{of, index.Persist(), tensor.TakeRows(of, index, 0).Persist()})
	}
	tensor.PutRows(of, tensor.Rows{Index: index, Values: values})
}

// note begins to note what keys change, if a ValueAndGrad is in progress.
func (d *Dynamic) note() {
	if !d.noting && dtensor.AtEnd(d.mesh(), d.end) {
		d.noting = true
		d.keys.Begin()
	}
}

// end takes back what the keys of a ValueAndGrad have changed if it has failed.
func (d *Dynamic) end(err error) {
	if !d.noting {
		return
	}
	if err == nil {
		d.keys.Forget()
	} else {
		d.keys.Undo()
	}
	for _, l := range slices.Backward(d.lost) {
		if err != nil {
			tensor.PutRows(l.of, tensor.Rows{Index: l.index, Values: l.values})
		}
		l.values.Free()
	}
	for _, l := range d.lost {
		l.index.Free()
	}
	d.noting, d.lost = false, nil
}

// byRows returns a tensor as rows: its first dimension by all others.
func byRows(x *tensor.Tensor) *tensor.Tensor {
	return x.Reshape(x.Dim(0), ints.Product(x.Shape()[1:]))
}
