package layout

import (
	"fmt"
	"slices"
	"strings"
)

// An Axis is one dimension of a mesh: a name and how many ranks lie along it.
type Axis struct {
	Name string
	Size int
}

// Axes describes a mesh without its ranks: the sizes and names of its axes.
// Positions number its coordinates in row-major order: the last axis runs fastest.
// Axes is an immutable value: == compares it and it can be a map key. The zero
// Axes has no axes and one position.
type Axes struct {
	sizes intList
	names string // joined by commas
}

// NewAxes returns the axes of a mesh. It returns an error if a size is below 1, or
// a name is empty, used twice, or holds a character that the printed form needs.
func NewAxes(axes ...Axis) (Axes, error) {
	sizes := make([]int, len(axes))
	names := make([]string, len(axes))
	for i, a := range axes {
		if a.Size < 1 {
			return Axes{}, fmt.Errorf("layout: NewAxes: axis %q has size %d; use at least 1", a.Name, a.Size)
		}
		if a.Name == "" || strings.ContainsAny(a.Name, ",=()[]: \t\n") {
			return Axes{}, fmt.Errorf("layout: NewAxes: axis %d is named %q; use a name without spaces, commas, colons, equals signs, "+
				"parentheses or brackets", i, a.Name)
		}
		if slices.Contains(names[:i], a.Name) {
			return Axes{}, fmt.Errorf("layout: NewAxes: two axes are named %q; rename one", a.Name)
		}
		sizes[i], names[i] = a.Size, a.Name
	}
	return Axes{sizes: pack(sizes), names: strings.Join(names, ",")}, nil
}

// Len returns the number of axes.
func (a Axes) Len() int { return a.sizes.len() }

// Size returns how many ranks lie along axis i.
func (a Axes) Size(i int) int { return a.sizes.at(i) }

// Sizes returns the sizes of all axes in a fresh slice.
func (a Axes) Sizes() []int { return a.sizes.slice() }

// Name returns the name of axis i.
func (a Axes) Name(i int) string {
	names := a.names
	for range i {
		_, names, _ = strings.Cut(names, ",")
	}
	name, _, _ := strings.Cut(names, ",")
	return name
}

// Index returns the axis called name; ok is false if there is none.
func (a Axes) Index(name string) (i int, ok bool) {
	for i := range a.Len() {
		if a.Name(i) == name {
			return i, true
		}
	}
	return 0, false
}

// Count returns the number of positions: the product of the sizes.
func (a Axes) Count() int {
	n := 1
	for i := range a.Len() {
		n *= a.Size(i)
	}
	return n
}

// appendCoord appends the coordinate of a position to dst.
func (a Axes) appendCoord(dst []int, position int) []int {
	n := a.Len()
	start := len(dst)
	for range n {
		dst = append(dst, 0)
	}
	for i := n - 1; i >= 0; i-- {
		size := a.Size(i)
		dst[start+i] = position % size
		position /= size
	}
	return dst
}

// Coord returns the coordinate of a position in a fresh slice.
func (a Axes) Coord(position int) []int { return a.appendCoord(make([]int, 0, a.Len()), position) }

// Position returns the position of a coordinate.
func (a Axes) Position(coord []int) int {
	p := 0
	for i, c := range coord {
		p = p*a.Size(i) + c
	}
	return p
}

// String prints the axes as (data=2,model=4).
func (a Axes) String() string {
	var b strings.Builder
	b.WriteByte('(')
	for i := range a.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s=%d", a.Name(i), a.Size(i))
	}
	b.WriteByte(')')
	return b.String()
}
