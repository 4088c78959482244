package dtensor

import (
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// Group returns the communicator of the ranks that share this rank's
// coordinate on every axis but the named ones, ordered by their positions: on
// a mesh (dp=2,tp=2), Group("tp") is this rank's row. Without names it is a
// group of one. It is nil on a rank outside.
//
// The communicators of single axes and of the whole mesh exist since the mesh
// was made. That of another set of axes is made when it is first asked for,
// which is therefore collective over the mesh; operators ask for it inside
// plans that are the same on every rank, and so must you.
//
// Group throws a *LayoutError for an unknown name and for one that is given
// twice, and a *comm.Error if making the communicator fails.
func (m *Mesh) Group(axes ...string) *comm.Comm { return m.groupOf(m.setOf("Group", axes)) }

// setOf returns the set of the named axes.
func (m *Mesh) setOf(op string, names []string) (set axisSet) {
	for _, name := range names {
		i := m.mustAxis(op, name)
		if set.has(i) {
			refuse(op, fmt.Sprintf("axis %q of mesh %s is named twice", name, m), "name it once")
		}
		set |= 1 << i
	}
	return set
}

// groupOf is group for operators: it throws.
func (m *Mesh) groupOf(set axisSet) *comm.Comm {
	c, err := m.group(set)
	if err != nil {
		fault.Throw(err)
	}
	return c
}

// group returns the communicator of an axis set, making it if need be. Axes of
// size one are left out, so that sets which differ only by them share one.
func (m *Mesh) group(set axisSet) (*comm.Comm, error) {
	if m.all == nil {
		return nil, nil
	}
	if c, ok := m.groups[set]; ok {
		return c, nil
	}
	var core axisSet
	size := 1
	for i, a := range m.axes {
		if set.has(i) && a.Size > 1 {
			core |= 1 << i
			size *= a.Size
		}
	}
	if c, ok := m.groups[core]; ok {
		m.groups[set] = c
		return c, nil
	}
	c := m.all
	if size != len(m.ranks) {
		// Colour: the position with the set's coordinates zeroed. Key: the position.
		place := func(position int) (color, key int) {
			for i, stride, rest := len(m.axes)-1, 1, position; i >= 0; i-- {
				n := m.axes[i].Size
				if !core.has(i) {
					color += rest % n * stride
				}
				stride, rest = stride*n, rest/n
			}
			return color, position
		}
		var err error
		if c, err = m.all.Internals().Split(m.eng.ctx, place); err != nil {
			return nil, err
		}
	}
	m.groups[core], m.groups[set] = c, c
	m.tellGroup(c, core)
	return c, nil
}

// Sub returns the mesh of the named axes that this rank is in: on a mesh
// (dp=2,tp=4), Sub("tp") is a mesh (tp=4) of the ranks with this rank's dp
// coordinate. The axes keep their order in m. Asking twice gives the same
// *Mesh. Sub is collective over m and throws like Group.
func (m *Mesh) Sub(names ...string) *Mesh {
	set := m.setOf("Sub", names)
	if set == 0 {
		refuse("Sub", fmt.Sprintf("no axis of mesh %s is named", m), "name at least one")
	}
	if s, ok := m.subs[set]; ok {
		return s
	}
	var axes []Axis
	for i, a := range m.axes {
		if set.has(i) {
			axes = append(axes, a)
		}
	}
	all := m.groupOf(set)
	s, err := assemble(m.eng, "Sub", all, all, axes, m.ranksOf(set))
	if err != nil {
		fault.Throw(err)
	}
	m.subs[set] = s
	return s
}

// Flatten returns the mesh with one axis of that name in place of all of m's:
// the same ranks in the same order. It communicates nothing.
func (m *Mesh) Flatten(name string) *Mesh {
	axes := []Axis{{Name: name, Size: len(m.ranks)}}
	f, err := assemble(m.eng, "Flatten", m.parent, m.all, axes, m.ranks)
	if err != nil {
		fault.Throw(err)
	}
	return f
}

// ranksOf returns the world ranks of this rank's group over set, in order; on a
// rank outside those of the group at coordinate zero.
func (m *Mesh) ranksOf(set axisSet) []int {
	var ranks []int
	own := m.coord
	if m.outside() {
		own = make([]int, len(m.axes))
	}
	for p, r := range m.ranks {
		same := true
		for i, c := range m.pure.Coord(p) {
			same = same && (set.has(i) || c == own[i])
		}
		if same {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
