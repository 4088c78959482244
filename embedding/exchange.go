package embedding

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// An exchange is the owner exchange of one lookup on one rank, for one table or
// several. Ranks request the distinct rows of their ids from the ranks that own them,
// owners reply with the rows, and later the gradients of the rows go to the owners.
type exchange struct {
	*route
	op      string
	mesh    *dtensor.Mesh
	dtype   tensor.DType // of the tables
	tables  []part
	facts   uint32       // a hash of what the ranks must have the same
	subject fmt.Stringer // what it is a hash of

	distinct []tensor.Uniq    // by table: of this rank's ids
	begin    []int            // [peer][table]: where the peer's requests begin in wanted; one more for the end
	message  *tensor.Tensor   // int64: the rows that this rank requests, see packRequests; nil: not packed yet
	send     []int            // how many of them of each peer
	wanted   *tensor.Tensor   // int64: the rows that the peers request of this rank
	lists    []*tensor.Tensor // by dynamic table: what they request of it, see asking; nil: there is none
	counts   []int            // of one table: the distinct rows of each replica; nil: not known
	inOrder  bool             // see setOrder
	fetched  []*tensor.Tensor // by table: the requested rows, peer by peer, of one with a Store; nil: it has none
	asks     *asks            // what Prefetch has exchanged; nil: no table has a Store
	asked    *ask             // what of it are the requests of all ranks; nil: they are to be exchanged
}

// A part is a table as this rank has it.
type part struct {
	*settings
	weight *dtensor.Tensor
	local  *tensor.Tensor // this rank's part, [rows, columns]
	row    int            // the first row of local
	width  int            // the columns of a row that is looked up

	dynamic *Dynamic  // whose keys are requested; nil: rows are
	keys    *distinct // of dynamic: this rank's
}

func (p *part) rows() int    { return p.local.Dim(0) }
func (p *part) columns() int { return p.local.Dim(1) }

// extra is how many numbers are sent with each row of the gradient: with
// ScaleGradByFreq one, how often the row occurs.
func (p *part) extra() int {
	if p.frequency {
		return 1
	}
	return 0
}

// firstRow returns the first row of this rank's part of a table.
func firstRow(weight *dtensor.Tensor) int {
	offset, _ := weight.Offset()
	return offset[0]
}

// agree gathers the numbers of all ranks that have other ids, by rank of batch. The first
// numbers of a rank are its status: zeros, or what names its first bad id. The status of an
// earlier id is less. first is the least status of a bad id, nil if all ids are good.
func (x *exchange) agree(numbers []int64, status int) (all, first []int64) {
	all = numbers
	if x.batch != nil {
		all = make([]int64, x.batch.Size()*len(numbers))
		x.do(x.batch, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(numbers), Cause: "status and counts"})
	}
	for its := range slices.Chunk(all, len(numbers)) {
		if its[0] != 0 && (first == nil || slices.Compare(its[:status], first) < 0) {
			first = its[:status]
		}
	}
	return all, first
}

// appendCounts appends to numbers how many rows this rank requests of each peer, by
// table; and where tables have a Store which Prefetch has requested the same, see sameAsk.
func (x *exchange) appendCounts(numbers []int64) []int64 {
	for i := range x.requestPeers {
		for t := range x.tables {
			_, n := x.segment(&x.requestPeers[i], t)
			numbers = append(numbers, int64(n))
		}
	}
	if x.asks != nil && x.op != prefetchOp {
		numbers = append(numbers, x.sameAsk())
	}
	return numbers
}

// setCounts reads from the numbers of all ranks, n for each, how many rows the peers
// request of this one. The counts of a rank follow its first skip numbers.
func (x *exchange) setCounts(all []int64, n, skip int) {
	x.begin = append(make([]int, 0, len(x.requestPeers)*len(x.tables)+1), 0)
	for _, p := range x.requestPeers {
		its := all[p.batchRank*n+skip+x.self*len(x.tables):]
		for t := range x.tables {
			x.begin = append(x.begin, x.begin[len(x.begin)-1]+int(its[t]))
		}
	}
	if x.asks != nil && x.op != prefetchOp {
		x.setAsked(all, n, skip+len(x.requestPeers)*len(x.tables))
	}
}

// requests returns the rows of table t that a peer requests of this rank.
func (x *exchange) requests(peer, t int) *tensor.Tensor {
	return tensor.Narrow(x.wanted, 0, x.begin[peer*len(x.tables)+t], x.requestCount(peer, t))
}

func (x *exchange) requestCount(peer, t int) int {
	at := peer*len(x.tables) + t
	return x.begin[at+1] - x.begin[at]
}

// segment returns which of this rank's distinct ids of table t a peer owns: n of them,
// beginning with the one at from.
func (x *exchange) segment(p *peer, t int) (from, n int) {
	b := &p.boxes[t]
	if !b.owner || b.rows == 0 { // ranks without columns are told too: an optimizer may remember whole rows
		return 0, 0
	}
	if keys := x.tables[t].keys; keys != nil {
		rows := x.tables[t].dynamic.rows
		from, to := keys.begins[b.row/rows], keys.begins[(b.row+b.rows)/rows]
		return from, to - from
	}
	index := tensor.Read[int64](x.distinct[t].Index)
	from, _ = slices.BinarySearch(index, int64(b.row))
	to, _ := slices.BinarySearch(index, int64(b.row+b.rows))
	return from, to - from
}

// setOrder sets inOrder: the messages of this rank are its distinct ids and their rows in
// the order in which they lie, so nothing is packed. That is so if there is one table, and
// the peers own whole rows of it, in their order.
func (x *exchange) setOrder() {
	x.inOrder = len(x.tables) == 1
	at := 0
	for i := range x.requestPeers {
		p := &x.requestPeers[i]
		if !x.inOrder {
			return
		}
		from, n := x.segment(p, 0)
		x.inOrder = n == 0 || from == at && p.boxes[0].columns == x.tables[0].width
		at += n
	}
	x.inOrder = x.inOrder && at == x.distinct[0].Index.Numel()
}

// request sends the distinct ids to the ranks that own their rows, unless a Prefetch has done so.
func (x *exchange) request() {
	if x.asked != nil {
		x.wanted = x.rowsOf(numbersOn(x.mesh.Device(), x.asked.wanted))
		return
	}
	x.packRequests()
	receive := make([]int, len(x.send))
	for i := range x.requestPeers {
		for t := range x.tables {
			receive[i] += x.tables[t].words() * x.requestCount(i, t)
		}
	}
	cause := "ids"
	if len(x.tables) == 1 && x.tables[0].dynamic != nil {
		cause = "keys"
	}
	got := x.swap(x.requestGroup, x.message, x.send, receive, cause)
	if x.op == prefetchOp && x.asks != nil && x.requestGroup != nil {
		x.asks.note(x.requestGroup, x.message, x.send, got)
	}
	x.wanted = x.rowsOf(got)
}

// packRequests sets message to the distinct ids, peer by peer and of each table by table, and send, unless it has done so.
func (x *exchange) packRequests() {
	if x.message != nil {
		return
	}
	x.setOrder()
	x.send = make([]int, len(x.requestPeers))
	var parts []*tensor.Tensor
	for i := range x.requestPeers {
		for t := range x.tables {
			from, n := x.segment(&x.requestPeers[i], t)
			x.send[i] += x.tables[t].words() * n
			if n > 0 && !x.inOrder {
				parts = append(parts, x.asking(t, from, n))
			}
		}
	}
	switch {
	case x.inOrder:
		x.message = x.asking(0, 0, x.distinct[0].Index.Numel())
	case len(parts) > 0:
		x.message = join(parts)
	default:
		x.message = tensor.New(x.mesh.Device(), tensor.Int64, 0)
	}
}

// reply sends the requested rows to the ranks that requested them, and returns by table
// the distinct rows of this rank's ids.
func (x *exchange) reply() []*tensor.Tensor { return x.unpack(x.replies()) }

// replies is reply up to the rows as they have come: peer by peer and for each table by table, one after the other.
func (x *exchange) replies() *tensor.Tensor {
	dev, dt := x.mesh.Device(), x.dtype
	send, receive := counters(x.replyPeers)
	for i := range x.replyPeers {
		p := &x.replyPeers[i]
		for t := range x.tables {
			_, n := x.segment(p, t)
			receive[i] += n * p.boxes[t].columns
			if p.boxes[t].owner {
				send[i] += x.requestCount(p.requestPeer, t) * x.tables[t].columns()
			}
		}
	}
	var mine *tensor.Tensor
	if len(x.tables) == 1 && x.replyGroup == x.requestGroup { // every request gets one reply
		if mine = x.fetchedRows(0); mine == nil {
			mine = tensor.TakeRows(x.tables[0].local, x.wanted, x.tables[0].row)
		}
	} else {
		mine = tensor.New(dev, dt, ints.Sum(send))
		at := 0
		for i := range x.replyPeers {
			p := &x.replyPeers[i]
			for t := range x.tables {
				its := &x.tables[t]
				n, w := x.requestCount(p.requestPeer, t), its.columns()
				if !p.boxes[t].owner || n*w == 0 {
					continue
				}
				if to := tensor.Narrow(mine, 0, at, n*w).Reshape(n, w); its.stored != nil {
					tensor.Copy(to, x.fetchedFor(p.requestPeer, t))
				} else {
					tensor.TakeRowsTo(to, its.local, x.requests(p.requestPeer, t), its.row, its.dynamic != nil)
				}
				at += n * w
			}
		}
	}
	got := x.swap(x.replyGroup, mine, send, receive, "rows")
	if got != mine {
		mine.Free()
	}
	return got
}

// unpack returns by table the distinct rows of this rank's ids, which have come.
func (x *exchange) unpack(got *tensor.Tensor) []*tensor.Tensor {
	dev, dt := x.mesh.Device(), x.dtype
	if x.inOrder && x.replyGroup == x.requestGroup {
		return []*tensor.Tensor{got.Reshape(x.distinct[0].Index.Numel(), x.tables[0].width)}
	}
	rows := make([]*tensor.Tensor, len(x.tables))
	got, at := got.Reshape(got.Numel()), 0
	for i := range x.replyPeers {
		p := &x.replyPeers[i]
		for t, b := range p.boxes {
			from, n := x.segment(p, t)
			switch {
			case n == 0:
			case x.ownsAll(p, t):
				rows[t] = tensor.Narrow(got, 0, at, n*b.columns).Reshape(n, b.columns)
			default:
				if rows[t] == nil {
					rows[t] = tensor.New(dev, dt, x.distinct[t].Index.Numel(), x.tables[t].width)
				}
				tensor.UnpackBox(rows[t], []int{from, b.column}, got, at, []int{n, b.columns})
			}
			at += n * b.columns
		}
	}
	for t := range rows {
		if rows[t] == nil { // there is no id
			rows[t] = tensor.New(dev, dt, x.distinct[t].Index.Numel(), x.tables[t].width)
		}
	}
	return rows
}

// ownsAll reports whether a peer owns the rows of all of this rank's ids of table t, with all columns.
func (x *exchange) ownsAll(p *peer, t int) bool {
	_, n := x.segment(p, t)
	return n == x.distinct[t].Index.Numel() && p.boxes[t].columns == x.tables[t].width
}

// counters returns a zero for each peer, of what goes there and of what comes.
func counters(peers []peer) (send, receive []int) {
	n := len(peers)
	list := make([]int, 2*n)
	return list[:n:n], list[n:]
}

// swap exchanges the parts of a message among the members of a group; without a group
// there is one part, which stays.
func (x *exchange) swap(g *comm.Comm, message *tensor.Tensor, send, receive []int, cause string) *tensor.Tensor {
	if g == nil {
		return message
	}
	got := tensor.New(message.Device(), message.DType(), ints.Sum(receive))
	x.do(g, comm.Call{Kind: comm.AllToAllVKind, Dst: dtensor.BufferOf(got), Src: dtensor.BufferOf(message),
		DstCounts: receive, SrcCounts: send, Cause: cause})
	runtime.KeepAlive(message)
	return got
}

// do makes a call under the context of the running operator, and throws its error.
func (x *exchange) do(g *comm.Comm, call comm.Call) {
	call.Cause, call.Facts, call.Subject = x.op+": "+call.Cause, x.facts, x.subject
	x.mesh.Do(g, call)
}

// ownedIDs returns ids with -1 in place of those whose rows no peer owns.
func (x *exchange) ownedIDs(ids *tensor.Tensor) *tensor.Tensor {
	var owners layout.Owners
	for i, p := range x.requestPeers {
		owners.Add(p.boxes[0].row, p.boxes[0].rows, i)
	}
	dev, whole := ids.Device(), tensor.Cast(ids, tensor.Int64)
	owned, owner := index.New[int64](dev, ids.Numel()), index.New[int32](dev, ids.Numel())
	copy(owned.Elems, tensor.Read[int64](whole))
	runtime.KeepAlive(whole)
	owners.Find(owner.Elems, owned.Elems)
	for i, p := range owner.Elems {
		if p < 0 {
			owned.Elems[i] = -1
		}
	}
	owner.Free()
	return owned.Tensor(dev, ids.Numel()).Reshape(ids.Shape()...)
}

// join returns tensors one after the other.
func join(parts []*tensor.Tensor) *tensor.Tensor {
	if len(parts) == 1 {
		return parts[0]
	}
	return tensor.Cat(0, parts...)
}
