package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
)

// A route says which ranks have to do with each other's rows when samples are
// sharded over a given set of axes. Along an axis,
//
//	samples   table
//	S         S      ids go to the ranks that have the rows, rows come back
//	R         S      all ranks have the same samples: each knows what the others ask
//	                 of it and gives it unasked
//	any       R      each rank has its own copy and asks nobody
type route struct {
	batch    *comm.Comm // over the axes that shard samples: where ranks differ in their ids; nil: they do not
	ask      *comm.Comm // of those, the ones that shard some table; nil: none
	give     *comm.Comm // all axes that shard some table; nil: none
	askers   []peer     // the members of ask; this rank alone without one
	givers   []peer     // the members of give; this rank alone without one
	self     int        // this rank among askers
	replicas []replicas // by the axes that replicate tables and shard samples
	columns  []replicas // by the axes that shard columns
}

// A peer is another rank as this one sees it, or this one.
type peer struct {
	twin  int    // givers: the asker that has the same samples
	head  int    // askers: its rank in batch
	fits  []bool // by table: it is one that rows are asked of, not one that has a copy of its own
	boxes []box  // by table: what it has
}

// A box is a part of a table.
type box struct{ row, rows, column, columns int }

// replicas are tables about whose rows the same ranks have to agree: over axes
// that replicate them and shard the samples, whose gradients are summed, or over
// axes that shard their columns, where norms are.
type replicas struct {
	group  *comm.Comm
	tables []int
}

// routeFor returns the route for samples that are sharded over a set of axes.
func (c *Collection) routeFor(j *Jagged) *route {
	var batch, some uint
	sharded := make([]uint, len(c.tables))
	for axis, a := range c.mesh.Axes() {
		if a.Size == 1 {
			continue
		}
		if j.batch.Placement(axis).IsShard() {
			batch |= 1 << axis
		}
		for t, table := range c.tables {
			if table.weight.Placements()[axis].IsShard() {
				sharded[t] |= 1 << axis
				some |= 1 << axis
			}
		}
	}
	if r, ok := c.routes[batch]; ok {
		return r
	}
	r := &route{batch: groupOver(c.mesh, batch), ask: groupOver(c.mesh, batch&some), give: groupOver(c.mesh, some)}
	me := c.mesh.Coord()
	asking := coordsOver(c.mesh, batch&some)
	for i, coord := range asking {
		p := c.newPeer(coord, sharded)
		p.head = rankIn(c.mesh, batch, coord)
		r.askers = append(r.askers, p)
		if slices.Equal(coord, me) {
			r.self = i
		}
	}
	for _, coord := range coordsOver(c.mesh, some) {
		p := c.newPeer(coord, sharded)
		p.twin = rankIn(c.mesh, batch&some, coord)
		r.givers = append(r.givers, p)
	}
	r.pair(c, batch, sharded)
	c.routes[batch] = r
	return r
}

// pair groups the tables by the axes over which their gradients and norms are summed.
func (r *route) pair(c *Collection, batch uint, sharded []uint) {
	copies, columns := make([]uint, len(c.tables)), make([]uint, len(c.tables))
	for t, table := range c.tables {
		copies[t] = batch &^ sharded[t]
		for axis, place := range table.weight.Placements() {
			if place.Shards(1) && c.mesh.Axes()[axis].Size > 1 {
				columns[t] |= 1 << axis
			}
		}
	}
	r.replicas, r.columns = c.together(copies), c.together(columns)
}

// together groups the tables by a set of axes each; those without are left out.
func (c *Collection) together(sets []uint) []replicas {
	var list []replicas
	place := map[uint]int{}
	for t, set := range sets {
		if set == 0 {
			continue
		}
		at, ok := place[set]
		if !ok {
			at = len(list)
			place[set] = at
			list = append(list, replicas{group: groupOver(c.mesh, set)})
		}
		list[at].tables = append(list[at].tables, t)
	}
	return list
}

// newPeer describes the rank at coord.
func (c *Collection) newPeer(coord []int, sharded []uint) peer {
	p := peer{fits: make([]bool, len(c.tables)), boxes: make([]box, len(c.tables))}
	for t, table := range c.tables {
		p.fits[t] = true
		for axis, at := range c.mesh.Coord() {
			if sharded[t]>>axis&1 == 0 && coord[axis] != at {
				p.fits[t] = false
			}
		}
		l := table.weight.Layout()
		b := &p.boxes[t]
		b.row, b.rows = l.Span(coord, 0)
		b.column, b.columns = l.Span(coord, 1)
	}
	return p
}

// coordsOver lists the coordinates of the ranks that differ from this one on a
// set of axes alone, in the order of their group.
func coordsOver(m *dtensor.Mesh, set uint) [][]int {
	coords := [][]int{slices.Clone(m.Coord())}
	for axis, a := range m.Axes() {
		if set>>axis&1 == 0 {
			continue
		}
		var more [][]int
		for _, c := range coords {
			for i := range a.Size {
				c := slices.Clone(c)
				c[axis] = i
				more = append(more, c)
			}
		}
		coords = more
	}
	return coords
}

// rankIn returns the rank of coord in the group over a set of axes.
func rankIn(m *dtensor.Mesh, set uint, coord []int) int {
	rank := 0
	for axis, a := range m.Axes() {
		if set>>axis&1 != 0 {
			rank = rank*a.Size + coord[axis]
		}
	}
	return rank
}

// groupOver returns the communicator over a set of axes, nil for none.
func groupOver(m *dtensor.Mesh, set uint) *comm.Comm {
	var names []string
	for axis, a := range m.Axes() {
		if set>>axis&1 != 0 {
			names = append(names, a.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return m.Group(names...)
}
