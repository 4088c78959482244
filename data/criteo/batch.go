package criteo

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/tensor"
)

// Feature returns the name of category f in a Batch: "C1" for the first.
func Feature(f int) string { return fmt.Sprint("C", f+1) }

// Keys returns the categories of lines as keys of one embedding.Dynamic, [B, 26] int64
// S(0) over all axes: of a category and its code, so that equal codes of two categories are
// two keys. A missing one has a key too.
func (d *Data) Keys(mesh *dtensor.Mesh, lines []int) *dtensor.Tensor {
	keys := dtensor.Zeros(mesh, tensor.Int64, []int{len(lines), Categorical}, mesh.Every(layout.Shard(0))...)
	if offset, ok := keys.Offset(); ok {
		mine := lines[offset[0] : offset[0]+keys.LocalShape()[0]]
		tensor.Edit(keys.Local(), func(x []int64) {
			for i, line := range mine {
				for f := range Categorical {
					x[i*Categorical+f] = int64(f)<<33 | (d.Codes[line*Categorical+f] - Missing)
				}
			}
		})
	}
	return keys
}

// Batch puts lines of d on a mesh, divided over all of its axes: their counts, their labels,
// and for each category, named by Feature, the rows of its table that v assigns. A rank makes
// only its own part.
//
//	counts [B, 13] S(0)   labels [B] S(0)   ids: B samples S(0) of 26 features
func (d *Data) Batch(mesh *dtensor.Mesh, v *Vocabulary, lines []int) (counts, labels *dtensor.Tensor, ids *embedding.Jagged) {
	place := mesh.Every(layout.Shard(0))
	counts = dtensor.Zeros(mesh, tensor.Float32, []int{len(lines), Dense}, place...)
	labels = dtensor.Zeros(mesh, tensor.Float32, []int{len(lines)}, place...)
	var mine []int // of lines
	if offset, ok := labels.Offset(); ok {
		mine = lines[offset[0] : offset[0]+labels.LocalShape()[0]]
		tensor.Edit(counts.Local(), func(x []float32) {
			for i, line := range mine {
				copy(x[i*Dense:], d.Counts[line*Dense:(line+1)*Dense])
			}
		})
		tensor.Edit(labels.Local(), func(y []float32) {
			for i, line := range mine {
				y[i] = d.Labels[line]
			}
		})
	}
	names := make([]string, Categorical)
	lengths, rows := make([]int, 0, len(mine)*Categorical), make([]int64, 0, len(mine)*Categorical)
	for f := range Categorical {
		names[f] = Feature(f)
		for _, line := range mine {
			lengths, rows = append(lengths, 1), append(rows, v.Row(f, d.Codes[line*Categorical+f]))
		}
	}
	ids, err := embedding.NewJagged(mesh, names, len(lines), lengths, rows, nil, place...)
	dtensor.Check(err)
	return counts, labels, ids
}
