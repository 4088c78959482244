package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
)

// A route says which ranks exchange rows of some tables when ids are sharded over a given
// set of axes. Along an axis,
//
//	ids   table
//	S     S      ranks request rows from their owners, which reply
//	R     S      all ranks have the same ids: owners reply unasked
//	any   R      each rank has its own copy and requests nothing
type route struct {
	batch        *comm.Comm // over the axes that shard ids; nil: none
	requestGroup *comm.Comm // over those of them that requests cross; nil: none
	replyGroup   *comm.Comm // over the axes that replies cross; nil: none
	requestPeers []peer     // the members of requestGroup; this rank alone without one
	replyPeers   []peer     // the members of replyGroup; this rank alone without one
	self         int        // this rank among requestPeers
	replicas     []replicas // by the axes that replicate tables and shard ids: their gradients are summed
	columns      []replicas // by the axes that shard columns: their norms are
}

// A peer is another rank as this one sees it, or this one.
type peer struct {
	requestPeer int   // of a reply: the request peer that has the same ids
	batchRank   int   // of a request: its rank in batch
	boxes       []box // by table: what it owns
}

// A box is a peer's part of a table.
type box struct {
	row, rows, column, columns int
	owner                      bool // rows are requested of the peer; else this rank has them itself
}

// replicas are tables over whose rows the ranks of a group agree.
type replicas struct {
	axes   uint
	group  *comm.Comm
	tables []int
}

// where returns r with those of its tables that are so.
func (r replicas) where(is func(t int) bool) replicas {
	some := replicas{group: r.group}
	for _, t := range r.tables {
		if is(t) {
			some.tables = append(some.tables, t)
		}
	}
	return some
}

// maxAxes is the number of axes of a mesh for which no memory is allocated.
const maxAxes = 8

// noRoute is that of a lookup that needs no other rank.
var noRoute = &route{}

// newRoute returns the route of tables when ids are sharded over the axes of batch;
// requests and replies cross those of the axes of requests and replies.
func newRoute(m *dtensor.Mesh, weights []*dtensor.Tensor, batch, requests, replies uint) *route {
	r := &route{batch: groupOver(m, batch)}
	r.requestGroup, r.requestPeers = r.batch, newPeers(m, weights, requests, batch, requests)
	if requests != batch {
		r.requestGroup = groupOver(m, requests)
	}
	r.replyGroup, r.replyPeers = r.requestGroup, r.requestPeers
	if replies != requests {
		r.replyGroup, r.replyPeers = groupOver(m, replies), newPeers(m, weights, replies, batch, requests)
	}
	r.self = rankIn(m, requests, m.Coord())
	r.replicas = groupTables(m, weights, func(w *dtensor.Tensor) uint { return batch &^ shardedOver(w, 0, 1) })
	r.columns = groupTables(m, weights, func(w *dtensor.Tensor) uint { return shardedOver(w, 1) })
	return r
}

// shardedOver returns the axes of more than one rank that shard dimensions of a tensor.
func shardedOver(t *dtensor.Tensor, dims ...int) (set uint) {
	for axis := range t.Mesh().Axes() {
		for _, d := range dims {
			if t.Placement(axis).Shards(d) && t.Mesh().Axes()[axis].Size > 1 {
				set |= 1 << axis
			}
		}
	}
	return set
}

// groupTables groups the tables by a set of axes each; those without are left out.
func groupTables(m *dtensor.Mesh, weights []*dtensor.Tensor, axes func(*dtensor.Tensor) uint) []replicas {
	var list []replicas
	for t, w := range weights {
		set := axes(w)
		if set == 0 {
			continue
		}
		at := slices.IndexFunc(list, func(r replicas) bool { return r.axes == set })
		if at < 0 {
			at = len(list)
			list = append(list, replicas{axes: set, group: groupOver(m, set)})
		}
		list[at].tables = append(list[at].tables, t)
	}
	return list
}

// newPeers describes the ranks of the group over a set of axes.
func newPeers(m *dtensor.Mesh, weights []*dtensor.Tensor, set, batch, requests uint) []peer {
	size, k := 1, len(weights)
	for axis, a := range m.Axes() {
		if set>>axis&1 != 0 {
			size *= a.Size
		}
	}
	peers, boxes := make([]peer, size), make([]box, size*k)
	here := m.Coord()
	coord := append(make([]int, 0, maxAxes), here...)
	for i := range peers {
		for axis, rest := len(coord)-1, i; axis >= 0; axis-- {
			if set>>axis&1 != 0 {
				n := m.Axes()[axis].Size
				coord[axis], rest = rest%n, rest/n
			}
		}
		peers[i] = peer{requestPeer: rankIn(m, requests, coord), batchRank: rankIn(m, batch, coord), boxes: boxes[i*k : (i+1)*k]}
		for t, w := range weights {
			sharded, b, l := shardedOver(w, 0, 1), &peers[i].boxes[t], w.Layout()
			b.row, b.rows = l.Span(coord, 0)
			b.column, b.columns = l.Span(coord, 1)
			b.owner = true
			for axis := range coord {
				b.owner = b.owner && (coord[axis] == here[axis] || sharded>>axis&1 != 0)
			}
		}
	}
	return peers
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

// axisSet returns a list of axes as a set.
func axisSet(axes []int) (set uint) {
	for _, a := range axes {
		set |= 1 << a
	}
	return set
}

// groupOver returns the communicator over a set of axes, nil for none.
func groupOver(m *dtensor.Mesh, set uint) *comm.Comm {
	names := make([]string, 0, maxAxes)
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
