package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Tensor is one rank's part of a tensor that is spread over a mesh. It has a
// global shape and, for each axis of the mesh, a placement that says how its
// elements are divided along that axis. Printed, it is "float32 [4, 8] S(0),R".
//
// Operators are methods: value in, value out. They accept every placement and
// compute what the unsharded operator would; misuse throws a *LayoutError.
type Tensor struct {
	spec  *spec
	local *tensor.Tensor // this rank's shard, of shape spec.local
	node  *node          // on a tape, if the tensor is tracked
	mask  *MaskBuffer    // of a MaskPartial placement
	clean bool           // of a MaskPartial placement: rows that are not owned hold zeros
	from  uint32         // of a Partial placement: a hash of what the ranks' parts were made of, see Facts; 0: of nothing larger
	rows  *elsewhere     // nil: local has all rows, and they are of nothing larger
}

// there returns t. It throws if t is nil or the zero Tensor, as a forgotten argument or field is.
func (t *Tensor) there(op string) *Tensor {
	if t == nil || t.spec == nil {
		absent(op)
	}
	return t
}

// absent is apart so that there is inlined: every look at a tensor calls it.
//
//go:noinline
func absent(op string) {
	refuse(op, "the tensor is nil", "give one that an operator or a function of this package made")
}

// Mesh returns the mesh t is spread over.
func (t *Tensor) Mesh() *Mesh { return t.there("Mesh").spec.mesh }

// Shape returns the global sizes. The slice is the caller's, who may append to a part of it.
func (t *Tensor) Shape() []int { return slices.Clone(t.there("Shape").spec.shape) }

// Stride returns how far apart neighbours in each dimension of the global tensor are, in
// elements. All tensors are row-major, so it follows from the shape.
func (t *Tensor) Stride() []int {
	stride := make([]int, t.NDim())
	for d, n := t.NDim()-1, 1; d >= 0; d-- {
		stride[d] = n
		n *= max(t.spec.shape[d], 1)
	}
	return stride
}

// Dim returns the global size of a dimension; a negative one counts from the end.
func (t *Tensor) Dim(dim int) int { return t.spec.shape[t.dim("Dim", dim)] }

// NDim returns the number of dimensions.
func (t *Tensor) NDim() int { return len(t.there("NDim").spec.shape) }

// Numel returns the number of elements of the global tensor.
func (t *Tensor) Numel() int { return t.there("Numel").spec.numel }

// Placements returns one placement for each mesh axis. The slice is the caller's, who may change it.
func (t *Tensor) Placements() []layout.Placement {
	return slices.Clone(t.there("Placements").spec.placements)
}

// Placement returns the placement on one mesh axis, counted from 0.
func (t *Tensor) Placement(axis int) layout.Placement {
	p := t.there("Placement").spec.placements
	if axis < 0 || axis >= len(p) {
		refuse("Placement", fmt.Sprintf("axis %d is out of range [0, %d)", axis, len(p)), "", operand("input", t))
	}
	return p[axis]
}

// DType returns the element type.
func (t *Tensor) DType() tensor.DType { return t.there("DType").local.DType() }

// Mask returns the mask of a MaskPartial tensor, nil for any other.
func (t *Tensor) Mask() *MaskBuffer { return t.mask }

// String returns the type and layout, "float32 [4, 8] S(0),R", and the mesh if it
// has more than one rank.
func (t *Tensor) String() string { return t.DType().String() + " " + t.layoutString() }

func (t *Tensor) layoutString() string {
	s := t.spec.String()
	if t.spec.mesh.Size() > 1 {
		s += " on " + t.spec.mesh.String()
	}
	return s
}

// Local returns this rank's shard as it is, without copying: on a Partial axis
// this rank's contribution; of a MaskPartial tensor the rows of other ranks are
// unspecified. The caller must not write to it while others may read t.
func (t *Tensor) Local() *tensor.Tensor { return t.there("Local").local }

// ToLocal returns this rank's shard for use outside the layouts: what Local
// returns, except that rows of a MaskPartial tensor that this rank does not own
// are zero. On a rank outside the mesh it is empty.
func (t *Tensor) ToLocal() *tensor.Tensor {
	if t.mask != nil {
		return t.mask.apply(t.local, t.clean)
	}
	return t.local
}

// Offset returns the global index of the first element of this rank's shard, of rows
// dealt out in turn by layout.ShardCyclic as many as the ranks before have; ok is false
// on a rank outside the mesh. Do not modify it.
func (t *Tensor) Offset() (offset []int, ok bool) { return t.spec.offset, t.spec.offset != nil }

// Layout returns the layout as a value: shape and placements.
func (t *Tensor) Layout() layout.Layout { return t.there("Layout").spec.layout }

// Facts returns a hash of the global shape, the placements and the mesh, and of those of the tensors whose sums a Partial
// tensor holds. An operator that is defined outside this package puts it into its calls, see comm.Call, so that ranks whose
// tensors differ get an error.
func (t *Tensor) Facts() uint32 { return t.there("Facts").spec.facts() ^ t.from }

// LocalShape returns the shape of this rank's shard. The slice is the caller's.
func (t *Tensor) LocalShape() []int { return slices.Clone(t.spec.local) }

// FromLocal makes a tensor of the global shape from the shards that the ranks
// hold. local is not copied; its shape must be the one that the layout gives
// this rank: a chunk as torch.chunk makes it, or the size of a ShardSizes. On a
// rank outside the mesh its shape is ignored.
//
// A wrong local shape may be this rank's alone, so FromLocal returns an error
// where operators would throw. CheckLocals compares across ranks what each
// rank alone cannot see; with GORUN_CHECK=1 FromLocal does so itself, see
// CheckReplicas.
func FromLocal(mesh *Mesh, local *tensor.Tensor, shape []int, placements ...layout.Placement) (*Tensor, error) {
	t, err := fromLocal(mesh, local, shape, placements)
	return t, fault.Located(err)
}

func fromLocal(mesh *Mesh, local *tensor.Tensor, shape []int, placements []layout.Placement) (*Tensor, error) {
	s, err := mesh.newSpec(shape, placements)
	if err != nil {
		return nil, misfit("FromLocal", err)
	}
	switch {
	case local == nil:
		return nil, fmt.Errorf("dtensor: FromLocal: local is nil; pass this rank's shard, of shape %v", s.local)
	case s.masked:
		return nil, fmt.Errorf("dtensor: FromLocal: %v: a MaskPartial tensor has a mask; make it with Wrap", s)
	case s.accepts(local.DType()) != nil:
		return nil, fmt.Errorf("dtensor: FromLocal: %v: %v cannot be %w", s, local.DType(), s.accepts(local.DType()))
	case mesh.outside():
		return mesh.empty(s, local.DType()), nil
	case !slices.Equal(local.Shape(), s.local):
		return nil, fmt.Errorf("dtensor: FromLocal: %v on mesh %v: the local shape is %v, but the rank at %v holds %v of it; pass that, "+
			"or give the sizes with ShardSizes",
			s, mesh, local.Shape(), mesh.coord, s.local)
	}
	t := wrap(s, local)
	if mesh.eng.check && s.repeats() {
		if err := compare(mesh.eng.ctx, mesh, []shard{shardOf(t)},
			func(int) string { return t.DType().String() + " " + s.String() }); err != nil {
			return nil, fmt.Errorf("dtensor: FromLocal%s: %w", here(), err)
		}
	}
	return t, nil
}

// wrap makes the tensor of a spec around a local result.
func wrap(s *spec, local *tensor.Tensor) *Tensor { return &Tensor{spec: s, local: local} }

// of notes the facts of what t was made of, if it is Partial, and returns t.
func (t *Tensor) of(facts uint32) *Tensor {
	if t.spec.partial {
		t.from = facts
	}
	return t
}

// Wrap makes a tensor around the local result of an operator that is defined
// outside this package: FromLocal that throws, with a mask. mask is that of a
// MaskPartial result, which becomes one of its holders, and nil for any other;
// clean says that the rows which this rank does not own hold zeros already; if
// it does not, a reduction may write to these rows of local.
func (m *Mesh) Wrap(op string, local *tensor.Tensor, mask *MaskBuffer, clean bool, shape []int, placements ...layout.Placement) *Tensor {
	s := m.mustSpec(op, shape, placements)
	if s.masked != (mask != nil) && !m.outside() {
		refuse(op, fmt.Sprintf("a mask is given: %v, but the layout is MaskPartial: %v", mask != nil, s.masked),
			"give a mask with MaskPartial, and only then", Operand{"result", s.String()})
	}
	s.want(op, local.DType())
	if m.outside() {
		return m.empty(s, local.DType())
	}
	if !slices.Equal(local.Shape(), s.local) {
		refuse(op, fmt.Sprintf("the local result has shape %v, the layout gives this rank %v", local.Shape(), s.local), "",
			Operand{"result", s.String()})
	}
	t := wrap(s, local)
	t.mask, t.clean = mask.Hold(), clean
	return t
}
