package dtensor

import (
	"context"
	"fmt"
	"hash/fnv"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/tensor"
)

// GatherTo returns the whole tensor on the rank at one position of the mesh,
// and nil on all others. Every rank of the mesh calls it. A Partial tensor is
// reduced before; each element travels once.
func (t *Tensor) GatherTo(position int) *tensor.Tensor {
	m := t.spec.mesh
	if position < 0 || position >= m.Size() {
		refuse("GatherTo", fmt.Sprintf("position %d is not in the mesh, which has 0 to %d", position, m.Size()-1), "", operand("input", t))
	}
	t = t.Reduced()
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
		flat = tensor.New(m.eng.dev, t.DType(), sum(call.DstCounts))
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

// CheckLocals compares the shards of t across the ranks of its mesh: those of
// ranks that should hold the same must be the same to the bit, and all must be
// of one type. It returns the same error on every rank, which names two that
// differ. It is one small collective.
func (t *Tensor) CheckLocals(ctx context.Context) error {
	m := t.spec.mesh
	if m.outside() {
		return nil
	}
	mine := []int64{int64(t.DType()), int64(digest(t.local))}
	all := make([]int64, 2*m.Size())
	if err := comm.AllGather(ctx, m.all, all, mine); err != nil {
		return err
	}
	first := map[string]int{} // the first position that holds a shard
	for p := range m.Size() {
		if all[2*p] != all[0] {
			return fmt.Errorf("dtensor: CheckLocals: %v: rank %d holds %v, rank %d %v; cast one of them", t.spec, m.ranks[0], tensor.DType(all[0]), m.ranks[p], tensor.DType(all[2*p]))
		}
		coord := m.pure.Coord(p)
		for axis, its := range t.spec.placements {
			if its.IsReplicate() {
				coord[axis] = 0
			}
		}
		key := fmt.Sprint(coord)
		q, seen := first[key]
		if !seen {
			first[key] = p
		} else if all[2*p+1] != all[2*q+1] {
			return fmt.Errorf("dtensor: CheckLocals: %v on mesh %v: ranks %d and %d should hold the same and do not; pass the same data on both, or shard it", t.spec, m, m.ranks[q], m.ranks[p])
		}
	}
	return nil
}

// digest is a hash of the bytes of a tensor that is the same in every process.
func digest(t *tensor.Tensor) uint64 {
	host := make([]byte, t.Bytes())
	if len(host) > 0 {
		t.Device().ToHost(unsafe.Pointer(&host[0]), t.Ptr(), len(host))
	}
	h := fnv.New64a()
	h.Write(host)
	return h.Sum64()
}
