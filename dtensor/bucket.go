package dtensor

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A bucket brings dense gradients to their parameters' layouts. Those that
// only have to be summed over some axes are packed by element type and axes,
// and each pack is one all-reduce.
type bucket struct {
	packs []pack
	taken map[unsafe.Pointer]bool // memory of gradients that are handed out
}

// A pack is gradients that are summed over the same axes.
type pack struct {
	mesh *Mesh
	axes axisSet
	dt   tensor.DType
	list []pending
}

type pending struct {
	dst  **Tensor
	g    *Tensor
	want *spec
}

// add promises to set *dst to g in the layout want.
func (b *bucket) add(dst **Tensor, g *Tensor, want *spec) {
	axes, ok := sumAxes(g.spec, want)
	if !ok || axes == 0 || want.mesh.outside() {
		*dst = b.distinct(g.to(want, "parameter gradient").Detach())
		return
	}
	for i := range b.packs {
		if p := &b.packs[i]; p.mesh == want.mesh && p.axes == axes && p.dt == g.DType() {
			p.list = append(p.list, pending{dst, g, want})
			return
		}
	}
	b.packs = append(b.packs, pack{want.mesh, axes, g.DType(), []pending{{dst, g, want}}})
}

// sumAxes returns the axes, of more than one rank, on which from is Partial(Sum) and to Replicate; ok
// is false if the two differ in anything else.
func sumAxes(from, to *spec) (axes axisSet, ok bool) {
	for i, p := range from.placements {
		switch {
		case p == to.placements[i] || from.mesh.axes[i].Size == 1:
		case p == layout.Partial(layout.Sum) && to.placements[i].IsReplicate():
			axes |= 1 << i
		default:
			return 0, false
		}
	}
	return axes, true
}

// distinct returns g, or a copy of it if another parameter has the same memory
// for its gradient: callers scale gradients in place.
func (b *bucket) distinct(g *Tensor) *Tensor {
	if g.local.Numel() == 0 {
		return g
	}
	if b.taken == nil {
		b.taken = map[unsafe.Pointer]bool{}
	}
	if p := g.local.Ptr(); b.taken[p] {
		g = wrap(g.spec, tensor.Clone(g.local))
	}
	b.taken[g.local.Ptr()] = true
	return g
}

// reduce keeps the promises.
func (b *bucket) reduce() {
	for i := range b.packs {
		b.packs[i].reduce()
	}
}

func (p *pack) reduce() {
	total := 0
	for _, e := range p.list {
		total += e.g.local.Numel()
	}
	flat := tensor.New(p.mesh.eng.dev, p.dt, total)
	at := 0
	for _, e := range p.list {
		n := e.g.local.Numel()
		part := tensor.Narrow(flat, 0, at, n)
		tensor.Copy(part, e.g.local.Reshape(n))
		*e.dst = wrap(e.want, part.Reshape(e.want.local...))
		at += n
	}
	call := comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: bufferOf(flat), Src: bufferOf(flat), Cause: "ValueAndGrad: parameter gradients"}
	if err := p.mesh.groupOf(p.axes).Do(p.mesh.eng.ctx, call); err != nil {
		fault.Throw(err)
	}
}
