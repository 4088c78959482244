package dtensor

import (
	"fmt"
	"runtime"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// fromSub is what to do with tensors on a mesh and on its Sub.
const fromSub = "make both meshes with NewMeshOf from one communicator; from a mesh to its Sub, replicate the tensor on the other " +
	"axes and give its Local to FromLocal"

// To returns t on another mesh: the same global tensor, divided among that
// mesh's ranks by the placements. Both meshes must have been made from one
// communicator, and all its ranks call To, those outside both meshes too: it is
// one exchange over it, in which each byte that a rank needs and does not hold
// reaches it once. A Partial tensor is reduced before. The gradient crosses
// back.
//
// To throws a *LayoutError if the meshes come from different communicators, as a mesh and its
// Sub do: on another Sub other ranks may have another tensor. There FromLocal takes the Local
// of a tensor that is replicated on the axes that Sub leaves out.
func (t *Tensor) To(mesh *Mesh, placements ...layout.Placement) *Tensor {
	s := mesh.mustSpec("To", t.spec.shape, placements)
	if mesh == t.spec.mesh {
		return t.to(s, "To")
	}
	if mesh.parent != t.spec.mesh.parent {
		refuse("To", fmt.Sprintf("mesh %v and mesh %v were made from different communicators", t.spec.mesh, mesh),
			fromSub, operand("input", t))
	}
	in, base := t.to(t.spec.gradient().blocks(), "To"), s.gradient().blocks()
	out := cross(in, base).to(s, "To")
	if t.tracked() {
		out.recordTwice("To", func(gy *Tensor) {
			in.accumulate(gy.to(base, "ToGrad").To(in.spec.mesh, in.spec.placements...))
		})
	}
	return out
}

// cross carries a tensor that is not Partial to a layout of another mesh.
func cross(t *Tensor, to *spec) *Tensor {
	from, parent := t.spec, to.mesh.parent
	x, err := layout.Across(from.layout, to.layout, from.mesh.ranks, to.mesh.ranks)
	if err != nil {
		fault.Throw(misfit("To", err, operand("input", t)))
	}
	place := make(map[int]int, parent.Size()) // in the parent, of a world rank
	for r := range parent.Size() {
		place[parent.WorldRank(r)] = r
	}
	me := parent.WorldRank(parent.Rank())
	dev, dt := to.mesh.eng.dev, t.DType()
	sends, sendCounts := byPlace(x.Sends(me), place)
	recvs, recvCounts := byPlace(x.Recvs(me), place)
	src, dst := tensor.New(dev, dt, ints.Sum(sendCounts)), tensor.New(dev, dt, ints.Sum(recvCounts))
	at := 0
	for _, boxes := range sends {
		for i := range boxes {
			tensor.PackBox(src, at, t.local, boxes[i].Src, boxes[i].Size)
			at += boxes[i].Numel()
		}
	}
	call := comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(dst), Src: BufferOf(src), DstCounts: recvCounts, SrcCounts: sendCounts,
		Cause: "To: another mesh"}
	to.mesh.Do(parent, call)
	out := tensor.New(dev, dt, to.local...)
	at = 0
	for _, boxes := range recvs {
		for i := range boxes {
			tensor.UnpackBox(out, boxes[i].Dst, dst, at, boxes[i].Size)
			at += boxes[i].Numel()
		}
	}
	runtime.KeepAlive(src)
	return wrap(to, out)
}

// byPlace sorts transfers by the peer's place in a communicator, and counts
// the elements for each.
func byPlace(list []layout.Transfer, place map[int]int) (boxes [][]layout.Transfer, counts []int) {
	boxes, counts = make([][]layout.Transfer, len(place)), make([]int, len(place))
	for _, t := range list {
		r := place[t.Peer]
		boxes[r] = append(boxes[r], t)
		counts[r] += t.Numel()
	}
	return boxes, counts
}
