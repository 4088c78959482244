package layout

import (
	"fmt"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// kind is what a placement does to a tensor along one mesh axis.
type kind uint8

const (
	replicated kind = iota
	sharded         // list is empty: torch.chunk, or in turn; else the explicit sizes
	partial
	maskPartial // list is the offset shape, dim the offset dim
)

// A Placement says how the ranks along one mesh axis hold a tensor: each the
// whole of it (Replicate), each a block of one dimension (Shard, ShardSizes),
// or each an addend of it (Partial, MaskPartial).
//
// A Placement is an immutable value: == compares it and it can be a map key.
// The zero Placement is Replicate.
type Placement struct {
	kind   kind
	op     ReduceOp
	cyclic bool // of a shard: see ShardCyclic
	dim    int32
	list   intList
}

// Replicate is the placement in which every rank holds the whole tensor.
func Replicate() Placement { return Placement{} }

// Shard splits tensor dimension dim over the mesh axis as torch.chunk does:
// of a size s over n ranks each gets ceil(s/n), the last ones less or nothing.
// A negative dim counts from the last dimension; New normalises it.
func Shard(dim int) Placement { return Placement{kind: sharded, dim: clampDim(dim)} }

// ShardSizes splits tensor dimension dim into blocks of the given sizes, one
// for each rank of the mesh axis. Zeros are allowed. New checks that there are as
// many sizes as ranks and that they add up to the dimension. Without sizes it is Shard.
func ShardSizes(dim int, sizes ...int) Placement {
	return Placement{kind: sharded, dim: clampDim(dim), list: pack(sizes)}
}

// ShardCyclic deals the rows of a tensor, its dimension 0, out in turn: of n ranks rank r
// holds the rows r, r+n, r+2n, …, one after the other. It is for tables whose first rows
// are used most. No other axis shards dimension 0, and none is MaskPartial.
//
// Span and Offset of such a layout count the rows rank by rank, as the ranks hold them:
// see Served. A plan has no steps for it: package dtensor changes it to blocks, or blocks
// to it, beside the plan.
func ShardCyclic() Placement { return Placement{kind: sharded, cyclic: true} }

// Partial is the placement in which the tensor is the reduction by op of what
// the ranks hold.
func Partial(op ReduceOp) Placement { return Placement{kind: partial, op: op} }

// MaskPartial is Partial(Sum) of rows of which each has exactly one owner: what
// looking up ids in a row-sharded table gives. offsetShape is the global shape of
// the table and offsetDim the dimension of it that the mesh axis shards, so that
// every rank can tell which ids are its own. The mask itself belongs to the
// tensor, never to the placement.
func MaskPartial(offsetShape []int, offsetDim int) Placement {
	if offsetDim < 0 {
		offsetDim += len(offsetShape)
	}
	return Placement{kind: maskPartial, op: Sum, dim: clampDim(offsetDim), list: pack(offsetShape)}
}

// clampDim keeps a dimension within int32: anything outside is out of range for
// every tensor and stays so.
func clampDim(dim int) int32 { return int32(max(-1<<30, min(1<<30, dim))) }

// IsReplicate reports whether every rank holds the whole tensor.
func (p Placement) IsReplicate() bool { return p.kind == replicated }

// IsCyclic reports whether p is a ShardCyclic.
func (p Placement) IsCyclic() bool { return p.cyclic }

// IsShard reports whether p is a Shard, a ShardSizes or a ShardCyclic.
func (p Placement) IsShard() bool { return p.kind == sharded }

// IsPartial reports whether p is a Partial or a MaskPartial.
func (p Placement) IsPartial() bool { return p.kind == partial || p.kind == maskPartial }

// IsMask reports whether p is a MaskPartial.
func (p Placement) IsMask() bool { return p.kind == maskPartial }

// Shards reports whether p is a Shard, a ShardSizes or a ShardCyclic of tensor dimension dim.
func (p Placement) Shards(dim int) bool { return p.kind == sharded && int(p.dim) == dim }

// Dim returns the tensor dimension that p shards; ok is false for other placements.
func (p Placement) Dim() (dim int, ok bool) { return int(p.dim), p.kind == sharded }

// Sizes returns the explicit sizes of a ShardSizes in a fresh slice, nil for
// every other placement.
func (p Placement) Sizes() []int {
	if p.kind != sharded {
		return nil
	}
	return p.list.slice()
}

// Op returns the reduction of a Partial or MaskPartial; ok is false for other placements.
func (p Placement) Op() (op ReduceOp, ok bool) { return p.op, p.IsPartial() }

// Offset returns the offset shape, in a fresh slice, and the offset dim of a
// MaskPartial; ok is false for other placements.
func (p Placement) Offset() (shape []int, dim int, ok bool) {
	if p.kind != maskPartial {
		return nil, 0, false
	}
	return p.list.slice(), int(p.dim), true
}

// WithDim returns p sharding another dimension; a placement that is no shard is
// returned as it is.
func (p Placement) WithDim(dim int) Placement {
	if p.kind == sharded {
		p.dim = clampDim(dim)
	}
	return p
}

// normalize returns p with a negative dimension counted from the end of a tensor
// of ndim dimensions; ok is false if the dimension is out of range.
func (p Placement) normalize(ndim int) (normal Placement, ok bool) {
	if p.kind != sharded {
		return p, true
	}
	if d := int(p.dim); d < -ndim || d >= ndim {
		return p, false
	}
	if p.dim < 0 {
		p.dim += int32(ndim)
	}
	return p, true
}

// piece returns the block that the i-th of n ranks gets of size elements.
// The blocks of ranks 0 to n-1 follow each other and cover 0 to size.
func (p Placement) piece(size, n, i int) (offset, length int) {
	if p.kind != sharded {
		return 0, size
	}
	if p.list != "" {
		for j := range i {
			offset += p.list.at(j)
		}
		return offset, p.list.at(i)
	}
	if p.cyclic { // the first ranks have the rows that are left over
		whole, rest := size/n, size%n
		if offset = i*whole + min(i, rest); i < rest {
			whole++
		}
		return offset, whole
	}
	chunk := ints.DivUp(size, n)
	offset = min(size, i*chunk)
	return offset, min(chunk, size-offset)
}

// ChunkSizes returns the sizes of the blocks that torch.chunk makes of size
// elements for n ranks; those past the end are 0.
func ChunkSizes(size, n int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		_, sizes[i] = Shard(0).piece(size, n, i)
	}
	return sizes
}

// String returns the short form: R, S(0), S(0)[1 3 1 3], C(0) for a ShardCyclic, P(sum), MaskP.
func (p Placement) String() string {
	switch p.kind {
	case sharded:
		if p.cyclic {
			return fmt.Sprintf("C(%d)", p.dim)
		}
		if p.list != "" {
			return fmt.Sprintf("S(%d)%v", p.dim, p.list)
		}
		return fmt.Sprintf("S(%d)", p.dim)
	case partial:
		return fmt.Sprintf("P(%v)", p.op)
	case maskPartial:
		return "MaskP"
	}
	return "R"
}

// GoString returns the full form, which is what %#v prints:
// Replicate(), Shard(dim=0), ShardSizes(dim=0, sizes=[1 3 1 3]), ShardCyclic(), Partial(sum),
// MaskPartial(offset_shape=[10 29], offset_dim=0).
func (p Placement) GoString() string {
	switch p.kind {
	case sharded:
		if p.cyclic {
			return "ShardCyclic()"
		}
		if p.list != "" {
			return fmt.Sprintf("ShardSizes(dim=%d, sizes=%v)", p.dim, p.list)
		}
		return fmt.Sprintf("Shard(dim=%d)", p.dim)
	case partial:
		return fmt.Sprintf("Partial(%v)", p.op)
	case maskPartial:
		return fmt.Sprintf("MaskPartial(offset_shape=%v, offset_dim=%d)", p.list, p.dim)
	}
	return "Replicate()"
}
