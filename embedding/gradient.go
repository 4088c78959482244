package embedding

import (
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// backward returns the gradients of the tables for the gradients of the rows of all
// ids: values[t] has a row for each id of table t.
func (x *exchange) backward(values []*tensor.Tensor) []*dtensor.Rows {
	for t, u := range x.distinct {
		values[t] = x.tables[t].sumRows(u, values[t]).Values
	}
	return x.gradients(x.giveBack(values))
}

// sumRows returns the sums of widened values over equal ids, with the extra of each row
// in a column of its own.
func (p *part) sumRows(u tensor.Uniq, values *tensor.Tensor) tensor.Rows {
	wide := tensor.Widen(values)
	if wide != values {
		defer wide.Free()
	}
	rows := u.SumRows(wide)
	if p.extra() > 0 {
		count := tensor.Cast(u.Count(), wide.DType()).Reshape(u.Index.Numel(), 1)
		rows.Values = tensor.Cat(1, rows.Values, count)
	}
	return rows
}

// giveBack sends the gradients of the distinct rows to their owners and returns the
// sums of those that come to this rank's parts, counted from their first row.
func (x *exchange) giveBack(sums []*tensor.Tensor) []tensor.Rows {
	if x.ownsEvery() {
		parts := make([]tensor.Rows, len(sums))
		for t, values := range sums {
			parts[t] = x.sumRequests(t, x.requests(0, t), values)
		}
		return parts
	}
	send, receive := counters(x.requestPeers)
	for i := range x.requestPeers {
		p := &x.requestPeers[i]
		for t := range sums {
			its := &x.tables[t]
			_, n := x.segment(p, t)
			send[i] += n * (p.boxes[t].columns + its.extra())
			receive[i] += x.requestCount(i, t) * (its.columns() + its.extra())
		}
	}
	var mine *tensor.Tensor
	if x.inOrder {
		mine = sums[0]
	} else {
		mine = x.pack(sums, ints.Sum(send))
	}
	got := x.swap(x.requestGroup, mine, send, receive, "gradients of rows")
	if x.inOrder && len(x.requestPeers) > 1 {
		defer got.Free()
	}
	if len(sums) == 1 { // its rows lie one after the other
		n := x.wanted.Numel()
		return []tensor.Rows{x.sumRequests(0, x.wanted, got.Reshape(n, x.tables[0].columns()+x.tables[0].extra()))}
	}
	index, values := make([][]*tensor.Tensor, len(sums)), make([][]*tensor.Tensor, len(sums))
	at := 0
	for i := range x.requestPeers {
		for t := range sums {
			n, w := x.requestCount(i, t), x.tables[t].columns()+x.tables[t].extra()
			index[t] = append(index[t], x.requests(i, t))
			values[t] = append(values[t], tensor.Narrow(got, 0, at, n*w).Reshape(n, w))
			at += n * w
		}
	}
	parts := make([]tensor.Rows, len(sums))
	for t := range parts {
		parts[t] = x.sumRequests(t, join(index[t]), join(values[t]))
	}
	return parts
}

// ownsEvery reports whether this rank owns the rows of all its ids, and nobody requests of another.
func (x *exchange) ownsEvery() bool {
	if len(x.requestPeers) != 1 {
		return false
	}
	for t := range x.tables {
		if !x.ownsAll(&x.requestPeers[0], t) {
			return false
		}
	}
	return true
}

// sumRequests returns the sums of the gradients of the rows of table t that peers
// requested, counted from this rank's first row.
func (x *exchange) sumRequests(t int, index, values *tensor.Tensor) tensor.Rows {
	index = tensor.AddScalar(index, -float64(x.tables[t].row))
	if len(x.requestPeers) == 1 { // they are distinct
		rows := tensor.Rows{Index: index, Values: values}
		if x.tables[t].dynamic != nil {
			return present(rows)
		}
		return rows
	}
	return tensor.Coalesce(index, values, 0, x.tables[t].rows())
}

// pack returns a message of the sums, peer after peer and for each table after table,
// size numbers in all: of each row the columns of the peer, then its extra.
func (x *exchange) pack(sums []*tensor.Tensor, size int) *tensor.Tensor {
	message, at := tensor.New(x.mesh.Device(), x.dtype.Wide(), size), 0
	for i := range x.requestPeers {
		p := &x.requestPeers[i]
		for t, b := range p.boxes {
			from, n := x.segment(p, t)
			if n == 0 {
				continue
			}
			rows, extra, all := sums[t], x.tables[t].extra(), x.tables[t].width
			if extra > 0 && b.columns < all {
				rows = tensor.Cat(1, tensor.Narrow(rows, 1, b.column, b.columns), tensor.Narrow(rows, 1, all, extra))
				b.column = 0
			}
			tensor.PackBox(message, at, rows, []int{from, b.column}, []int{n, b.columns + extra})
			at += n * (b.columns + extra)
		}
	}
	return message
}

// gradients returns the gradients of the tables from those of this rank's parts: summed
// over the replicas, without the padding row, divided by their extra, in the type of the
// table.
func (x *exchange) gradients(parts []tensor.Rows) []*dtensor.Rows {
	for _, r := range x.replicas {
		counts := x.countsOf(r, parts)
		if !x.mesh.SameBits() && x.crowded(r, counts) {
			x.sumWhole(r, parts)
			continue
		}
		x.gather(r, parts, counts, gradientCause)
		for _, t := range r.tables {
			parts[t] = tensor.Coalesce(parts[t].Index, parts[t].Values, 0, x.tables[t].rows())
		}
	}
	grads := make([]*dtensor.Rows, len(parts))
	for t, rows := range parts {
		its := &x.tables[t]
		rows = dropRow(rows, its.padding-its.row)
		if w := its.columns(); its.extra() > 0 {
			rows.Values = tensor.Binary(kernel.OpDiv, tensor.Narrow(rows.Values, 1, 0, w), tensor.Narrow(rows.Values, 1, w, 1))
		}
		grads[t] = dtensor.NewRows(its.weight, tensor.AddScalar(rows.Index, float64(its.row)), tensor.Cast(rows.Values, x.dtype))
	}
	return grads
}

const gradientCause = "gradients of replicas"

// countsOf returns how many rows each replica has, [rank][table]. It makes one all-gather, unless that is known.
func (x *exchange) countsOf(r replicas, rows []tensor.Rows) (counts []int) {
	if x.counts != nil {
		return x.counts
	}
	size, k := r.group.Size(), len(r.tables)
	mine, all := make([]int64, k), make([]int64, size*k)
	for i, t := range r.tables {
		mine[i] = int64(rows[t].Index.Numel())
	}
	x.do(r.group, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: "counts of replicas"})
	for _, n := range all {
		counts = append(counts, int(n))
	}
	return counts
}

// crowd is how many replicas may have each row of a part before sums of the whole part are made.
const crowd = 4

// crowded reports whether the replicas have so many rows that to gather them takes more memory and messages than
// sums of all rows of the parts do.
func (x *exchange) crowded(r replicas, counts []int) bool {
	rows := 0
	for _, t := range r.tables {
		rows += x.tables[t].rows()
	}
	return ints.Sum(counts) > crowd*rows
}

// sumWhole replaces the rows of the tables of r by their sums over all replicas, in the order of the ranks, as gather
// and Coalesce do, to the bit. It makes one all-reduce that tells which rows any replica has, and one of all rows of the parts.
func (x *exchange) sumWhole(r replicas, parts []tensor.Rows) {
	dev, dt := x.mesh.Device(), x.dtype.Wide()
	rows, numbers := 0, 0
	for _, t := range r.tables {
		rows += x.tables[t].rows()
		numbers += x.tables[t].rows() * parts[t].Values.Dim(1)
	}
	// What is added to -0 stays as it is, 0 and -0 too.
	whole, has := tensor.Full(dev, dt, math.Copysign(0, -1), numbers), index.New[int32](dev, rows)
	clear(has.Elems)
	views, first, at := make([]*tensor.Tensor, len(parts)), 0, 0
	for _, t := range r.tables {
		n, w := x.tables[t].rows(), parts[t].Values.Dim(1)
		views[t] = tensor.Narrow(whole, 0, at, n*w).Reshape(n, w)
		tensor.PutRows(views[t], parts[t])
		for _, row := range tensor.Read[int64](parts[t].Index) {
			has.Elems[first+int(row)] = 1
		}
		runtime.KeepAlive(parts[t].Index)
		first, at = first+n, at+n*w
	}
	x.do(r.group, comm.Call{Kind: comm.AllReduceKind, Op: comm.Max, Dst: comm.Of(has.Elems), Src: comm.Of(has.Elems),
		Cause: "rows of replicas"})
	buffer := dtensor.BufferOf(whole)
	x.do(r.group, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: buffer, Src: buffer, Cause: gradientCause})
	first = 0
	for _, t := range r.tables {
		n := x.tables[t].rows()
		list, some := index.New[int64](dev, n), 0
		for row, its := range has.Elems[first : first+n] {
			if its != 0 {
				list.Elems[some] = int64(row)
				some++
			}
		}
		first += n
		its := list.Tensor(dev, some)
		parts[t] = tensor.Rows{Index: its, Values: tensor.TakeRows(views[t], its, 0)}
	}
	has.Free()
	whole.Free()
}

// gather replaces the rows of the tables of r by those of all replicas, in the order of
// the ranks. It makes one all-gather. Rows without values are sent as indices alone.
func (x *exchange) gather(r replicas, rows []tensor.Rows, counts []int, cause string) {
	size, k := r.group.Size(), len(r.tables)
	rowBytes, total := make([]int, k), make([]int, k) // by table: of a row's values, and the rows of all ranks
	for i, t := range r.tables {
		if v := rows[t].Values; v != nil {
			rowBytes[i] = v.Dim(1) * v.DType().Size()
		}
	}
	const indexBytes = 8
	bytes := make([]int, size)
	for i, n := range counts {
		bytes[i/k] += n * (indexBytes + rowBytes[i%k])
		total[i%k] += n
	}
	// The message of a rank is, table by table, its indices and then their values.
	dev := x.mesh.Device()
	message, all := tensor.New(dev, tensor.Uint8, bytes[r.group.Rank()]), tensor.New(dev, tensor.Uint8, ints.Sum(bytes))
	to := message.Ptr()
	for _, t := range r.tables {
		for _, part := range []*tensor.Tensor{rows[t].Index, rows[t].Values} {
			if part != nil {
				dev.CopyBytes(to, part.Ptr(), part.Bytes())
				to = unsafe.Add(to, part.Bytes())
			}
		}
	}
	x.do(r.group, comm.Call{Kind: comm.AllGatherVKind, Dst: dtensor.BufferOf(all), Src: dtensor.BufferOf(message),
		DstCounts: bytes, Cause: cause})
	message.Free()
	for i, t := range r.tables {
		rows[t].Index = tensor.New(dev, tensor.Int64, total[i])
		if v := rows[t].Values; v != nil {
			rows[t].Values = tensor.New(dev, v.DType(), total[i], v.Dim(1))
		}
	}
	from, row := all.Ptr(), make([]int, k)
	for j, n := range counts {
		i, got := j%k, rows[r.tables[j%k]]
		dev.CopyBytes(unsafe.Add(got.Index.Ptr(), row[i]*indexBytes), from, n*indexBytes)
		from = unsafe.Add(from, n*indexBytes)
		if got.Values != nil {
			dev.CopyBytes(unsafe.Add(got.Values.Ptr(), row[i]*rowBytes[i]), from, n*rowBytes[i])
			from = unsafe.Add(from, n*rowBytes[i])
		}
		row[i] += n
	}
	all.Free()
}

// present returns rows without those of keys that have none: their number is negative.
func present(rows tensor.Rows) tensor.Rows {
	var there []int64
	for i, row := range tensor.Read[int64](rows.Index) {
		if row >= 0 {
			there = append(there, int64(i))
		}
	}
	runtime.KeepAlive(rows.Index)
	if len(there) == rows.Index.Numel() {
		return rows
	}
	at := numbersOn(rows.Index.Device(), there)
	return tensor.Rows{Index: tensor.IndexSelect(rows.Index, 0, at), Values: tensor.TakeRows(rows.Values, at, 0)}
}

// find returns where row is in the ascending list index, ok false if it is not.
func find(index *tensor.Tensor, row int) (at int, ok bool) {
	if row < 0 {
		return 0, false
	}
	at, ok = slices.BinarySearch(tensor.Read[int64](index), int64(row))
	runtime.KeepAlive(index)
	return at, ok
}

// without returns u without one of its ids: where it stood nothing is summed.
func without(u tensor.Uniq, row int) tensor.Uniq {
	k, ok := find(u.Index, row)
	if !ok {
		return u
	}
	its := tensor.ToSlice[int64](tensor.Narrow(u.Start, 0, k, 2))
	first, n := int(its[0]), int(its[1]-its[0])
	later := tensor.Narrow(u.Start, 0, k+2, u.Index.Numel()-k-1)
	u.Start = tensor.Cat(0, tensor.Narrow(u.Start, 0, 0, k+1), tensor.AddScalar(later, float64(-n)))
	u.Index, u.Order = cut(u.Index, k, 1), cut(u.Order, first, n)
	return u
}

// dropRow returns rows without one of them.
func dropRow(rows tensor.Rows, row int) tensor.Rows {
	if k, ok := find(rows.Index, row); ok {
		return tensor.Rows{Index: cut(rows.Index, k, 1), Values: cut(rows.Values, k, 1)}
	}
	return rows
}

// cut returns x without n of its rows from row at on.
func cut(x *tensor.Tensor, at, n int) *tensor.Tensor {
	return tensor.Cat(0, tensor.Narrow(x, 0, 0, at), tensor.Narrow(x, 0, at+n, x.Dim(0)-at-n))
}
