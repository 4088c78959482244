package criteo

import (
	"fmt"
	"slices"

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
	return d.Part(mesh, v, lines).Batch()
}

// A Part is this rank's part of a batch in memory that no device has.
type Part struct {
	mesh           *dtensor.Mesh
	lines          int // of the whole batch
	counts, labels []float32
	lengths        []int
	rows           []int64
}

// Part reads what Batch puts on the mesh. Unlike Batch, it may run beside the program, as in data.Prefetch:
//
//	ahead := data.Prefetch(0, 1, func(step int) (*criteo.Part, error) { return log.Part(mesh, v, order.Batch(step)), nil })
//	...
//	part, err := ahead.Next()
//	...
//	counts, labels, ids := part.Batch()
func (d *Data) Part(mesh *dtensor.Mesh, v *Vocabulary, lines []int) *Part {
	p := &Part{mesh: mesh, lines: len(lines)}
	if !mesh.Inside() {
		return p
	}
	l, err := layout.New(mesh.LayoutAxes(), []int{len(lines)}, mesh.Every(layout.Shard(0))...)
	dtensor.Check(err)
	first, n := l.Span(mesh.Coord(), 0)
	mine := lines[first : first+n]
	p.counts, p.labels = make([]float32, 0, n*Dense), make([]float32, 0, n)
	for _, line := range mine {
		p.counts, p.labels = append(p.counts, d.Counts[line*Dense:(line+1)*Dense]...), append(p.labels, d.Labels[line])
	}
	p.lengths, p.rows = slices.Repeat([]int{1}, n*Categorical), make([]int64, 0, n*Categorical)
	for f := range Categorical {
		for _, line := range mine {
			p.rows = append(p.rows, v.Row(f, d.Codes[line*Categorical+f]))
		}
	}
	return p
}

// Lines returns how many lines the whole batch has.
func (p *Part) Lines() int { return p.lines }

// Batch puts the part on the mesh, as Data.Batch does.
func (p *Part) Batch() (counts, labels *dtensor.Tensor, ids *embedding.Jagged) {
	place := p.mesh.Every(layout.Shard(0))
	put := func(values []float32, shape ...int) *dtensor.Tensor {
		x := dtensor.Zeros(p.mesh, tensor.Float32, shape, place...)
		if p.mesh.Inside() {
			tensor.Edit(x.Local(), func(to []float32) { copy(to, values) })
		}
		return x
	}
	names := make([]string, Categorical)
	for f := range names {
		names[f] = Feature(f)
	}
	ids, err := embedding.NewJagged(p.mesh, names, p.lines, p.lengths, p.rows, nil, place...)
	dtensor.Check(err)
	return put(p.counts, p.lines, Dense), put(p.labels, p.lines), ids
}
