package dtensor

import (
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
)

// tell reports a mesh, if the program runs for a forecast.
func (m *Mesh) tell() {
	w := m.eng.forecast
	if w == nil {
		return
	}
	var names []string
	var sizes []int
	for _, a := range m.axes {
		names, sizes = append(names, a.Name), append(sizes, a.Size)
	}
	m.forecast = w.Mesh(names, sizes, m.ranks)
}

// tellGroup tells which axes a communicator is of.
func (m *Mesh) tellGroup(c *comm.Comm, set axisSet) {
	if m.forecast == nil || c == nil {
		return
	}
	var names []string
	for i, a := range m.axes {
		if set.has(i) {
			names = append(names, a.Name)
		}
	}
	m.eng.forecast.Group(c.Name(), strings.Join(names, ","), m.ranksOf(set))
}

// tellSpec tells at which coordinates the shards of a tensor change their size.
func (m *Mesh) tellSpec(s *spec) {
	if m.forecast == nil {
		return
	}
	for i, p := range s.placements {
		if !p.IsShard() {
			continue
		}
		local := func(c int) []int {
			coord := slices.Clone(m.coord)
			coord[i] = c
			return s.layout.LocalShape(coord)
		}
		m.forecast.Add(i, func(a, b int) bool { return slices.Equal(local(a), local(b)) })
	}
}
