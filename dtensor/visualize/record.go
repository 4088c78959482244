package visualize

import (
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/observe"
)

// Record puts pictures of named tensors, such as nn.Params, into the job's report (gorun
// --report). Package train does so for its parameters. The first rank of a tensor's mesh
// records it for all; without a report Record does nothing.
func Record(tensors iter.Seq2[string, *dtensor.Tensor]) {
	for name, t := range tensors {
		mesh := t.Mesh()
		observer := observe.Of(mesh.Parent().Internals().Attr)
		if observer == nil || forecast.Of(mesh.Parent().Internals().Attr) != nil { // a plan has no report
			return
		}
		if !mesh.Inside() || mesh.Comm().Rank() != 0 {
			continue
		}
		p := Tensor(t)
		l := observe.Layout{Name: name, Title: p.Title, Type: t.DType().String(), Bytes: t.Numel() * t.DType().Size(), Shape: p.Shape}
		for _, r := range p.Regions {
			l.Regions = append(l.Regions, observe.Region{Offset: r.Offset, Size: r.Size, Label: r.Label})
		}
		observer.Layout(&l)
	}
}
