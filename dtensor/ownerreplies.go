package dtensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// OwnerReplies is an exchange of rows without requests. The members of a group have the
// same ids, so each owner knows which of its rows every member is to have, and sends them
// unasked. Positions are those of the ids. A member keeps the rows of some positions.
type OwnerReplies struct {
	mesh  *Mesh
	group *comm.Comm
	op    string // in the causes of calls
	step  string // the cause instead, of a step of a redistribution
	me    int
	table bool              // rows are taken from a part of a table, which has those of this rank alone
	all   bool              // all members keep all rows: one all-gather of the rows of each owner
	list  []int64           // by position: the row
	owner []int32           // by position: the member that owns the row
	ids   *tensor.Tensor    // holds list, if the rows are those of a part of a table
	held  index.List[int32] // holds owner then
	keeps [][]span          // by member: the positions that it keeps, ascending
	shape []int             // see Shape

	columns []int     // the dimensions of a row, if members do not get whole rows
	parts   []rowPart // by member: what it gets then; nil: whole rows
}

// span is the positions from begin to end.
type span struct{ begin, end int }

// rowPart is a box of the dimensions of a row.
type rowPart struct{ start, size []int }

// NewOwnerReplies returns the exchange of the rows of a table that ids name, along one
// axis of its mesh, which shards the rows of the table. All ranks of the axis have the
// same ids. Each keeps all rows, or with shard those of its part of the first dimension
// of the ids, as torch.chunk divides it.
func NewOwnerReplies(table *Tensor, axis int, ids *tensor.Tensor, shard bool, op string) *OwnerReplies {
	m := table.spec.mesh
	set := axisSet(1 << axis)
	r := &OwnerReplies{mesh: m, group: m.groupOf(set), op: op, table: true, ids: tensor.Cast(ids, tensor.Int64)}
	r.list, r.me = tensor.Read[int64](r.ids), r.group.Rank()
	r.held = index.New[int32](table.local.Device(), len(r.list))
	r.owner = r.held.Elems
	var owners layout.Owners
	coord := slices.Clone(m.coord)
	for p := range r.group.Size() {
		coord[axis] = p
		start, n := table.spec.layout.Span(coord, 0)
		owners.Add(start, n, p)
	}
	owners.Find(r.owner, r.list)
	r.all = !shard && r.group.Size() > 2
	r.keeps = make([][]span, r.group.Size())
	keeps := make([]span, len(r.keeps))
	r.shape = append(append(make([]int, 0, ids.NDim()+1), ids.Shape()...), table.local.Dim(1))
	if shard {
		at, inner := 0, len(r.list)/max(r.shape[0], 1)
		for p, n := range layout.ChunkSizes(r.shape[0], len(keeps)) {
			keeps[p] = span{at, at + n*inner}
			at += n * inner
			if p == r.me {
				r.shape[0] = n
			}
		}
	}
	for p := range keeps {
		if !shard {
			keeps[p].end = len(r.list)
		}
		r.keeps[p] = keeps[p : p+1]
	}
	return r
}

// Shape returns the shape of the rows that this rank keeps: of its ids, and a row.
func (r *OwnerReplies) Shape() []int { return r.shape }

// Kept returns how many rows this rank keeps.
func (r *OwnerReplies) Kept() int { return positions(r.keeps[r.me]) }

func positions(spans []span) (n int) {
	for _, s := range spans {
		n += s.end - s.begin
	}
	return n
}

// owns is 1 if this rank owns the row at position i, else 0.
func (r *OwnerReplies) owns(i int) int {
	if int(r.owner[i]) == r.me {
		return 1
	}
	return 0
}

// Forward brings the rows that this rank keeps to out [..., D]. local [rows, D] has the
// rows that this rank owns, counted from base. filled says that out has those of them that
// this rank keeps.
//
// The owner of a row cannot be predicted, so the loops of arrivals, departures and Backward
// write at every position, without a branch, and count only what they mean to keep.
func (r *OwnerReplies) Forward(out, local *tensor.Tensor, base int, filled bool) {
	dev, size, n := local.Device(), r.group.Size(), r.Kept()
	counts := make([]int, 2*size)
	send, receive := counts[:size], counts[size:]
	slot := r.arrivals(receive, n)
	rows, count := r.departures(send)
	width := out.Numel() / max(n, 1)
	src := r.pack(tensor.TakeRows(local, rows.Tensor(dev, count), base), send)
	rows.Free()
	got := tensor.New(dev, local.DType(), ints.Sum(receive), width)
	r.do(got, src, receive, send, "rows")
	src.Free()
	if out.Numel() > 0 {
		if !filled {
			tensor.TakeRowsTo(out, r.mine(local), r.own(n), base, false)
		}
		tensor.TakeRowsTo(out, got, slot.Tensor(dev, n), 0, false)
	}
	slot.Free()
	got.Free()
}

// arrivals sets receive to how many rows come from each member. They come by owner, in the order of the positions: slot says
// where each of the n rows is that this rank keeps, -1 for its own.
func (r *OwnerReplies) arrivals(receive []int, n int) (slot index.List[int32]) {
	kept := r.keeps[r.me]
	slot = index.New[int32](r.mesh.eng.dev, n)
	for _, s := range kept {
		for _, o := range r.owner[s.begin:s.end] {
			receive[o]++
		}
	}
	if !r.all {
		receive[r.me] = 0
	}
	next, k := ints.Starts(receive), 0
	for _, s := range kept {
		for _, o := range r.owner[s.begin:s.end] {
			at := int32(next[o])
			next[o]++
			if int(o) == r.me {
				at = -1
			}
			slot.Elems[k] = at
			k++
		}
	}
	return slot
}

// departures returns the rows of this rank that leave, member by member, and how many they are; it sets send to how many go
// to each.
func (r *OwnerReplies) departures(send []int) (rows index.List[int64], count int) {
	most := 0
	for m, spans := range r.keeps {
		if m != r.me || r.all {
			most += positions(spans)
		}
	}
	rows = index.New[int64](r.mesh.eng.dev, most)
	for m, spans := range r.keeps {
		if m == r.me && !r.all {
			continue
		}
		before := count
		for _, s := range spans {
			for i := s.begin; i < s.end; i++ {
				rows.Elems[count] = r.list[i]
				count += r.owns(i)
			}
		}
		if send[m] = count - before; r.all {
			break
		}
	}
	return rows, count
}

// own returns the rows of this rank that it keeps, n with -1 for those of others: of a part
// of a table any row that is not in it stands for those.
func (r *OwnerReplies) own(n int) *tensor.Tensor {
	if kept := r.keeps[r.me]; r.table {
		return tensor.Narrow(r.ids.Reshape(len(r.list)), 0, kept[0].begin, n)
	}
	own, k := index.New[int64](r.mesh.eng.dev, n), 0
	for _, s := range r.keeps[r.me] {
		for i := s.begin; i < s.end; i++ {
			row := int64(-1)
			if int(r.owner[i]) == r.me {
				row = r.list[i]
			}
			own.Elems[k] = row
			k++
		}
	}
	return own.Tensor(r.mesh.eng.dev, n)
}

// pack returns rows, of which member m gets count[m], cut to the columns that it gets, and
// makes counts those of elements.
func (r *OwnerReplies) pack(rows *tensor.Tensor, counts []int) *tensor.Tensor {
	if r.parts == nil {
		scale(counts, rows.Dim(1))
		return rows
	}
	shape := slices.Concat([]int{rows.Dim(0)}, r.columns)
	first := slices.Clone(counts)
	for m := range counts {
		counts[m] *= ints.Product(r.parts[m].size)
	}
	flat := tensor.New(rows.Device(), rows.DType(), ints.Sum(counts))
	row, at := 0, 0
	for m, n := range first {
		part := r.parts[m]
		if counts[m] > 0 {
			tensor.PackBox(flat, at, rows.Reshape(shape...), slices.Concat([]int{row}, part.start), slices.Concat([]int{n}, part.size))
		}
		row += n
		at += counts[m]
	}
	rows.Free()
	return flat
}

// mine returns rows [rows, D] cut to the columns that this rank gets.
func (r *OwnerReplies) mine(rows *tensor.Tensor) *tensor.Tensor {
	if r.parts == nil {
		return rows
	}
	n, part := rows.Dim(0), r.parts[r.me]
	cut := tensor.New(rows.Device(), rows.DType(), n, ints.Product(part.size))
	box := slices.Concat([]int{n}, part.size)
	tensor.CopyBox(cut.Reshape(box...), make([]int, len(box)), rows.Reshape(slices.Concat([]int{n}, r.columns)...),
		slices.Concat([]int{0}, part.start), box)
	return cut
}

// do sends rows from src to dst; send counts elements and receive rows of dst.
func (r *OwnerReplies) do(dst, src *tensor.Tensor, receive, send []int, what string) {
	scale(receive, dst.Dim(1))
	call := comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(dst), Src: BufferOf(src), DstCounts: receive, SrcCounts: send,
		Cause: r.step}
	if r.step == "" {
		call.Cause = r.op + ": " + what
	}
	if r.all {
		call.Kind, call.SrcCounts = comm.AllGatherVKind, nil
	}
	r.mesh.Do(r.group, call)
	runtime.KeepAlive(dst)
	runtime.KeepAlive(src)
	runtime.KeepAlive(r)
}

// Backward sends the gradients dy [n, D] of the rows that this rank keeps to their owners.
// values are the gradients that come to this rank. u lists the rows of the table that they
// are for, of those from base to base+rows, and which values each row sums, in the order
// of the positions.
func (r *OwnerReplies) Backward(dy *tensor.Tensor, base, rows int) (u tensor.Uniq, values *tensor.Tensor) {
	dev, width, size := dy.Device(), dy.Dim(1), r.group.Size()
	kept, n := r.keeps[r.me], r.Kept()
	counts := make([]int, 2*size)
	send, receive := counts[:size], counts[size:]
	for _, s := range kept {
		for _, o := range r.owner[s.begin:s.end] {
			send[o]++
		}
	}
	own := send[r.me]
	send[r.me] = 0

	// values will hold the gradients of this rank's own rows and then those that arrive,
	// by member. ids are in the order of the positions; where says which value each has.
	most := 0
	for _, spans := range r.keeps {
		most += positions(spans)
	}
	ids, where, count := index.New[int64](dev, most), index.New[int32](dev, most), 0
	arrived := own
	for m, spans := range r.keeps {
		at, before := arrived, count
		if m == r.me {
			at = 0
		}
		for _, s := range spans {
			for i := s.begin; i < s.end; i++ {
				ids.Elems[count], where.Elems[count] = r.list[i], int32(at+count-before)
				count += r.owns(i)
			}
		}
		if m != r.me {
			receive[m] = count - before
			arrived += count - before
		}
	}

	// dy leaves in this order: the rows of this rank, then those of each member.
	order, next, k := index.New[int32](dev, n), ints.Starts(send), int32(0)
	for m := range next {
		next[m] += own
	}
	next[r.me] = 0
	for _, s := range kept {
		for _, o := range r.owner[s.begin:s.end] {
			order.Elems[next[o]] = k
			next[o]++
			k++
		}
	}
	at := order.Tensor(dev, n)
	values = tensor.New(dev, dy.DType(), count, width)
	tensor.TakeRowsTo(tensor.Narrow(values, 0, 0, own), dy, tensor.Narrow(at, 0, 0, own), 0, false)
	src := tensor.TakeRows(dy, tensor.Narrow(at, 0, own, n-own), 0)
	scale(send, width)
	r.do(tensor.Narrow(values, 0, own, count-own), src, receive, send, "gradients of rows")
	runtime.KeepAlive(values)
	src.Free()
	order.Free()
	u = tensor.Unique(ids.Tensor(dev, count), base, rows)
	tensor.Edit(u.Order, func(sorted []int32) {
		for i, k := range sorted {
			sorted[i] = where.Elems[k]
		}
	})
	where.Free()
	return u, values
}

// scale makes counts of rows counts of elements.
func scale(counts []int, width int) {
	for i := range counts {
		counts[i] *= width
	}
}
