package layout

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unique"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// A Layout is a global shape and one placement for each axis of a mesh. It says
// what every rank of the mesh holds.
//
// Where several mesh axes shard the same tensor dimension, an axis further to the
// right shards what the ones to its left left over.
//
// A Layout is an immutable value as small as a pointer: == compares what it says
// and it is a fast map key. Make one with New; of the zero Layout only String can
// be called.
type Layout struct{ spec unique.Handle[spec] }

// spec is what a Layout says, packed so that it is comparable.
type spec struct {
	axes   Axes
	shape  intList
	places string // see packPlacements
}

// New returns the layout of a tensor of the given global shape on a mesh with the
// given axes, one placement for each. Negative dimensions are normalised.
//
// It returns an error if a size is negative, the number of placements is not the
// number of axes, a dim is out of range, the sizes of a ShardSizes do not fit, or
// the reductions of two Partial axes cannot be exchanged.
func New(axes Axes, shape []int, placements ...Placement) (Layout, error) {
	for d, s := range shape {
		if s < 0 {
			return Layout{}, fmt.Errorf("layout: New: shape %v has size %d in dim %d; sizes are 0 or more", shape, s, d)
		}
	}
	if len(placements) != axes.Len() {
		return Layout{}, fmt.Errorf("layout: New: %s (%s) for mesh %v; give one for each axis",
			ints.Counted(len(placements), "placement"), FormatPlacements(placements), axes)
	}
	normal := make([]Placement, len(placements))
	for i, p := range placements {
		n, ok := p.normalize(len(shape))
		if !ok {
			d, _ := p.Dim()
			remedy := fmt.Sprintf("use a dim from %d to %d", -len(shape), len(shape)-1)
			if len(shape) == 0 {
				remedy = "a scalar can only be replicated or partial"
			}
			return Layout{}, fmt.Errorf("layout: New: %v on axis %s of mesh %v: dim %d is out of range for shape %v; %s",
				p, axes.Name(i), axes, d, shape, remedy)
		}
		normal[i] = n
	}
	if err := validate(axes, shape, normal); err != nil {
		return Layout{}, err
	}
	return intern(axes, pack(shape), normal), nil
}

// Refit makes chunks of explicit sizes in places that divide what axes to the left left
// over in from, where one of these no longer shards the dimension.
func Refit(places, from []Placement) {
	for axis, p := range places {
		dim, ok := p.Dim()
		if !ok || p == Shard(dim) {
			continue
		}
		for left := range axis {
			if from[left].Shards(dim) && !places[left].Shards(dim) {
				places[axis] = Shard(dim)
			}
		}
	}
}

// intern makes a Layout of parts known to be valid.
func intern(axes Axes, shape intList, placements []Placement) Layout {
	return Layout{unique.Make(spec{axes: axes, shape: shape, places: packPlacements(placements)})}
}

// Axes returns the axes of the mesh.
func (l Layout) Axes() Axes { return l.spec.Value().axes }

// NDim returns the number of tensor dimensions.
func (l Layout) NDim() int { return l.spec.Value().shape.len() }

// Dim returns the global size of tensor dimension d.
func (l Layout) Dim(d int) int { return l.spec.Value().shape.at(d) }

// Shape returns the global shape in a fresh slice.
func (l Layout) Shape() []int {
	shape := l.spec.Value().shape
	return shape.appendTo(make([]int, 0, shape.len()))
}

// Numel returns the number of elements of the global tensor.
func (l Layout) Numel() int {
	s := l.spec.Value()
	n := 1
	for d := range s.shape.len() {
		n *= s.shape.at(d)
	}
	return n
}

// Placement returns the placement on mesh axis i.
func (l Layout) Placement(i int) Placement { return placementAt(l.spec.Value().places, i) }

// Placements returns the placements in a fresh slice.
func (l Layout) Placements() []Placement {
	s := l.spec.Value()
	p := make([]Placement, s.axes.Len())
	for i := range p {
		p[i] = placementAt(s.places, i)
	}
	return p
}

// With returns the layout of the same mesh and shape with other placements.
func (l Layout) With(placements ...Placement) (Layout, error) {
	return New(l.Axes(), l.Shape(), placements...)
}

// Replicated returns the layout of the same mesh and shape that replicates on every axis.
func (l Layout) Replicated() Layout {
	s := l.spec.Value()
	return intern(s.axes, s.shape, make([]Placement, s.axes.Len()))
}

// IsPartial reports whether the placement on some axis is Partial or MaskPartial.
func (l Layout) IsPartial() bool {
	for i := range l.Axes().Len() {
		if l.Placement(i).IsPartial() {
			return true
		}
	}
	return false
}

// String prints the layout as [5, 4] S(0),R.
func (l Layout) String() string {
	if l == (Layout{}) {
		return "no layout"
	}
	var b strings.Builder
	b.WriteByte('[')
	for d := range l.NDim() {
		if d > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, l.Dim(d))
	}
	b.WriteByte(']')
	if l.Axes().Len() > 0 {
		b.WriteByte(' ')
		b.WriteString(FormatPlacements(l.Placements()))
	}
	return b.String()
}

// The record of a placement in a packed list is kind, op, cyclic, a byte free, dim
// (4 bytes) and the length of its list in bytes (8); the lists of all follow the
// records.
const recordBytes = 16

// packPlacements packs a list of placements into a string.
func packPlacements(placements []Placement) string {
	n := recordBytes * len(placements)
	for _, p := range placements {
		n += len(p.list)
	}
	b := make([]byte, 0, n+4)
	for _, p := range placements {
		cyclic := byte(0)
		if p.cyclic {
			cyclic = 1
		}
		b = append(b, byte(p.kind), byte(p.op), cyclic, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(p.dim))
		b = binary.LittleEndian.AppendUint64(b, uint64(len(p.list)))
	}
	n = len(placements)
	for _, p := range placements {
		b = append(b, p.list...)
	}
	// The number of records is the number of axes; it is stored as well so that
	// the lists can be found from the packed form alone.
	return string(binary.LittleEndian.AppendUint32(b, uint32(n)))
}

// placementAt returns placement i of a packed list. It does not allocate: the list
// of the placement shares the packed string.
func placementAt(packed string, i int) Placement {
	u32 := func(at int) uint32 {
		s := packed[at : at+4]
		return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
	}
	at := i * recordBytes
	p := Placement{kind: kind(packed[at]), op: ReduceOp(packed[at+1]), cyclic: packed[at+2] != 0, dim: int32(u32(at + 4))}
	length := int(u32(at+8)) | int(u32(at+12))<<32
	if length == 0 {
		return p
	}
	start := recordBytes * int(u32(len(packed)-4))
	for j := range i {
		start += int(u32(j*recordBytes+8)) | int(u32(j*recordBytes+12))<<32
	}
	p.list = intList(packed[start : start+length])
	return p
}
