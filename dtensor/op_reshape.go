package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// Reshape returns t with other sizes and the same elements in the same order.
// One size may be -1: what is left over.
//
// A sharded dimension stays where it is if it leads those that it is merged
// with or split into and no rank's part is cut: [B, T·C] S(1) → [B, T, C] S(1)
// if each part is a multiple of C, with explicit sizes if they are not those
// of torch.chunk. Nothing is communicated then, and nothing is copied.
// Otherwise the dimension that leads is sharded instead if that is possible,
// else none. Partial and MaskPartial stay as they are. The gradient is the
// reshape back.
//
// Reshape throws a *LayoutError if the sizes do not multiply to the number of
// elements.
func (t *Tensor) Reshape(shape ...int) *Tensor {
	m := t.spec.mesh
	var buf [maxDims]int
	shape = t.fillShape(buf[:0], shape)
	if slices.Equal(shape, t.spec.shape) {
		return t
	}
	target := m.mustSpec("Reshape", shape, make([]layout.Placement, len(m.axes)))
	key := ruleKey{op: "Reshape"}
	key.in[0], key.in[1] = t.spec, target
	r, ok := m.rules[key]
	if !ok {
		r = reshapeRule(t.spec, target)
		m.rules[key] = r
	}
	in := t.to(r.in[0], "Reshape")
	out := &Tensor{spec: r.out[0], mask: in.mask.Hold(), clean: in.clean}
	if m.outside() {
		out.local = m.empty(r.out[0], t.DType()).local
	} else {
		out.local = in.local.Reshape(r.out[0].local...)
	}
	if t.tracked() {
		back := t.spec.shape
		out.record("Reshape", func(gy *Tensor) { in.accumulate(gy.Reshape(back...)) })
	}
	return out
}

// fillShape appends the shape to dst with -1 replaced.
func (t *Tensor) fillShape(dst, shape []int) []int {
	n, open := 1, -1
	if len(shape) > maxDims {
		refuse("Reshape", fmt.Sprintf("%d dimensions: at most %d are supported", len(shape), maxDims), "", operand("input", t))
	}
	for i, size := range shape {
		switch {
		case size == -1 && open < 0:
			open = i
		case size < 0:
			refuse("Reshape", fmt.Sprintf("size %d of %v is negative", size, slices.Clone(shape)), "only one may be -1, for what is left over", operand("input", t))
		default:
			n *= size
		}
	}
	dst = append(dst, shape...)
	if open >= 0 {
		if n == 0 || t.spec.numel%n != 0 {
			refuse("Reshape", fmt.Sprintf("the sizes of %v multiply to %d, which does not divide %d", slices.Clone(shape), n, t.spec.numel), "", operand("input", t))
		}
		dst[open] = t.spec.numel / n
		n = t.spec.numel
	}
	if n != t.spec.numel {
		refuse("Reshape", fmt.Sprintf("%v has %d elements, the input %d", slices.Clone(shape), n, t.spec.numel), "", operand("input", t))
	}
	return dst
}

// reshapeRule finds the layouts of a reshape: the input's own if its shards
// can stay, else with the shards that cannot moved or given up.
func reshapeRule(from, target *spec) *rule {
	m := from.mesh
	in := slices.Clone(from.placements)
	out := make([]layout.Placement, len(in))
	for i, p := range in {
		if p.IsPartial() {
			out[i] = p
		}
	}
	lead := leadDims(from.shape, target.shape)
	for d := range from.shape {
		moved := shardAxes(in, d)
		if len(moved) == 0 {
			continue
		}
		if o, ok := lead[d]; ok && from.numel > 0 && stays(m, from.shape, target.shape, in, out, d, o) {
			continue
		}
		// Shard what leads d instead, if it is free and large enough.
		first, ok := before(lead, d)
		for _, axis := range moved {
			in[axis] = layout.Replicate()
		}
		if ok && len(moved) == 1 && from.numel > 0 && len(shardAxes(from.placements, first)) == 0 && from.shape[first] >= m.axes[moved[0]].Size {
			in[moved[0]] = layout.Shard(first)
			if !stays(m, from.shape, target.shape, in, out, first, lead[first]) {
				in[moved[0]] = layout.Replicate()
			}
		}
	}
	return &rule{in: []*spec{from.with("Reshape", in)}, out: []*spec{target.with("Reshape", out)}}
}

// shardAxes returns the mesh axes that shard dimension d.
func shardAxes(p []layout.Placement, d int) []int {
	var axes []int
	for i := range p {
		if p[i].Shards(d) {
			axes = append(axes, i)
		}
	}
	return axes
}

// leadDims pairs the dimensions of two shapes with the same number of elements
// that lead a group: the dimensions of from and of to are cut into the
// smallest groups of neighbours with equal products, and in each group the
// first dimension whose size is not 1 leads.
func leadDims(from, to []int) map[int]int {
	lead := map[int]int{}
	for i, j := 0, 0; i < len(from) && j < len(to); {
		a, b := i, j
		x, y := from[i], to[j]
		i, j = i+1, j+1
		for x != y {
			if x < y && i < len(from) {
				x *= from[i]
				i++
			} else if y < x && j < len(to) {
				y *= to[j]
				j++
			} else {
				return lead // sizes with 0, whose products meet nowhere
			}
		}
		for a < i && from[a] == 1 {
			a++
		}
		for b < j && to[b] == 1 {
			b++
		}
		if a < i && b < j {
			lead[a] = b
		}
	}
	return lead
}

// before returns the leading dimension of the group that d is in, if that is another.
func before(lead map[int]int, d int) (int, bool) {
	for first := d - 1; first >= 0; first-- {
		if _, ok := lead[first]; ok {
			return first, true
		}
	}
	return 0, false
}

// stays sets the placements out so that dimension o of to is divided as in
// divides dimension d of from, and reports whether that is possible: whether
// each part is whole in units of o.
func stays(m *Mesh, from, to []int, in, out []layout.Placement, d, o int) bool {
	unit := to[o] // elements of from[d] that make one of to[o], as a fraction
	if from[d] == 0 || unit == 0 {
		return false
	}
	axes := shardAxes(in, d)
	l, err := layout.New(m.pure, from, in...)
	if err != nil {
		return false
	}
	sizes := make([]int, m.axes[axes[len(axes)-1]].Size)
	coord := make([]int, len(m.axes))
	for pos := range m.pure.Count() {
		coord = m.pure.AppendCoord(coord[:0], pos)
		start, n := l.Span(coord, d)
		if start*unit%from[d] != 0 || n*unit%from[d] != 0 {
			return false
		}
		sizes[coord[axes[len(axes)-1]]] = n * unit / from[d]
	}
	was := slices.Clone(out)
	for _, axis := range axes {
		out[axis] = layout.Shard(o)
	}
	if len(axes) == 1 && !slices.Equal(sizes, layout.ChunkSizes(to[o], len(sizes))) {
		out[axes[0]] = layout.ShardSizes(o, sizes...)
	}
	if sameParts(m, l, to, out, d, o, unit, from[d]) {
		return true
	}
	copy(out, was)
	return false
}

// sameParts reports whether every position has in dimension o of out what it
// has in dimension d of l, scaled by unit/size.
func sameParts(m *Mesh, l layout.Layout, to []int, out []layout.Placement, d, o, unit, size int) bool {
	k, err := layout.New(m.pure, to, out...)
	if err != nil {
		return false
	}
	coord := make([]int, len(m.axes))
	for pos := range m.pure.Count() {
		coord = m.pure.AppendCoord(coord[:0], pos)
		start, n := l.Span(coord, d)
		otherStart, other := k.Span(coord, o)
		if other != n*unit/size || n > 0 && otherStart != start*unit/size {
			return false
		}
	}
	return true
}

// Unsqueeze inserts a dimension of size 1 before dimension dim, which may be
// NDim() or count from the end, -1 being last.
func (t *Tensor) Unsqueeze(dim int) *Tensor {
	if dim < -t.NDim()-1 || dim > t.NDim() {
		refuse("Unsqueeze", fmt.Sprintf("dim %d is out of range [%d, %d]", dim, -t.NDim()-1, t.NDim()), "", operand("input", t))
	}
	if dim < 0 {
		dim += t.NDim() + 1
	}
	return t.Reshape(slices.Insert(slices.Clone(t.spec.shape), dim, 1)...)
}

// Squeeze removes dimension dim, whose size is 1.
func (t *Tensor) Squeeze(dim int) *Tensor {
	dim = t.dim("Squeeze", dim)
	if t.spec.shape[dim] != 1 {
		refuse("Squeeze", fmt.Sprintf("dim %d has size %d, not 1", dim, t.spec.shape[dim]), "", operand("input", t))
	}
	return t.Reshape(slices.Delete(slices.Clone(t.spec.shape), dim, dim+1)...)
}

// Flatten merges dimensions from to to, both included.
func (t *Tensor) Flatten(from, to int) *Tensor {
	from, to = t.dim("Flatten", from), t.dim("Flatten", to)
	if from > to {
		refuse("Flatten", fmt.Sprintf("dim %d comes after dim %d", from, to), "give the first one first", operand("input", t))
	}
	shape := slices.Clone(t.spec.shape[:from+1])
	for _, size := range t.spec.shape[from+1 : to+1] {
		shape[from] *= size
	}
	return t.Reshape(append(shape, t.spec.shape[to+1:]...)...)
}
