package dtensor

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Item returns the value of a tensor of one element, the same on every rank: it
// is brought to Replicate first, so a Partial one is reduced. Every rank of the
// mesh calls it, but one rank alone may ask a replicated tensor, such as the value
// of ValueAndGrad. On a rank outside the mesh it returns NaN. Item throws a
// *LayoutError for a tensor that does not have one element.
func (t *Tensor) Item() float64 {
	if t.Numel() != 1 {
		refuse("Item", fmt.Sprintf("the tensor has %d elements", t.Numel()), "take Sum or Mean of it, or read Full", operand("input", t))
	}
	if t.spec.mesh.outside() {
		return math.NaN()
	}
	return t.to(t.spec.replicated(), "Item").local.Item()
}

// GatherTo returns the whole tensor on the rank at one position of the mesh,
// and nil on all others. Every rank of the mesh calls it. A Partial tensor is
// reduced before; each element is sent once.
func (t *Tensor) GatherTo(position int) *tensor.Tensor {
	m := t.spec.mesh
	if position < 0 || position >= m.Size() {
		refuse("GatherTo", fmt.Sprintf("position %d is not in the mesh, which has 0 to %d", position, m.Size()-1), "", operand("input", t))
	}
	t = t.Reduced().inBlocks("GatherTo")
	if m.outside() {
		return nil
	}
	root := m.all.Rank() == position
	call := comm.Call{Kind: comm.GatherVKind, Root: position, Cause: "GatherTo"}
	if t.spec.layout.Owner(m.coord) {
		call.Src = BufferOf(t.local)
	} else {
		call.Src = comm.Buffer{DType: t.DType()}
	}
	var flat *tensor.Tensor
	if root {
		call.DstCounts = make([]int, m.Size())
		for p := range call.DstCounts {
			if c := m.pure.Coord(p); t.spec.layout.Owner(c) {
				call.DstCounts[p] = t.spec.layout.LocalNumel(c)
			}
		}
		flat = tensor.New(m.eng.dev, t.DType(), ints.Sum(call.DstCounts))
		call.Dst = BufferOf(flat)
	}
	m.Do(m.all, call)
	if !root {
		return nil
	}
	whole := tensor.New(m.eng.dev, t.DType(), t.spec.shape...)
	at := 0
	for p, n := range call.DstCounts {
		if c := m.pure.Coord(p); n > 0 {
			tensor.UnpackBox(whole, t.spec.layout.Offset(c), flat, at, t.spec.layout.LocalShape(c))
			at += n
		}
	}
	return whole
}
