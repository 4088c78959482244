package embedding

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// backward returns the gradient of the table for the gradient gy of the result:
//
//	Values[i] = Σ gy[j] over all j with ids[j] == Index[i]
//
// without the padding row; with ScaleGradByFreq over the number of such j. That of
// bfloat16 is float32 until all have been added up, also where it travels.
func (l *lookup) backward(gy *dtensor.Tensor) *dtensor.Rows {
	dy := gy.Redistribute(reduced(l.result)...).Local()
	u := *l.distinct()
	if l.stays() { // else what others expect of this rank includes the padding row
		u = without(u, l.s.padding-l.lo)
	}
	return l.gradient(sumWide(u, dy), u)
}

// sumWide is SumRows of values that are widened first.
func sumWide(u tensor.Uniq, values *tensor.Tensor) tensor.Rows {
	wide := tensor.Widen(values)
	if wide != values {
		defer wide.Free()
	}
	return u.SumRows(wide)
}

// gradient returns the gradient of the table from the widened gradients of the distinct
// local ids u.
func (l *lookup) gradient(rows tensor.Rows, u tensor.Uniq) *dtensor.Rows {
	if l.s.frequency { // how often each occurs travels as one more feature
		times := tensor.Cast(u.Count(), rows.Values.DType()).Reshape(u.Index.Numel(), 1)
		rows.Values = tensor.Cat(1, rows.Values, times)
	}
	if l.travel != nil {
		rows = l.giveBack(rows.Values)
	}
	if len(l.replicated) > 0 {
		rows = l.sumReplicas(rows)
	}
	if !l.stays() {
		rows = dropRow(rows, l.s.padding-l.lo)
	}
	if l.s.frequency {
		d := l.table.Dim(1)
		times := tensor.Narrow(rows.Values, 1, d, 1)
		rows.Values = tensor.Div(tensor.Narrow(rows.Values, 1, 0, d), times)
	}
	return dtensor.NewRows(l.weight, tensor.AddScalar(rows.Index, float64(l.lo)), tensor.Cast(rows.Values, l.table.DType()))
}

// stays reports whether the gradient needs nothing of other ranks.
func (l *lookup) stays() bool { return l.travel == nil && len(l.replicated) == 0 }

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

// sumReplicas returns the sum over the ranks that replicate this rank's rows,
// the same on all of them: one exchange of ids and rows, added up in the order
// of the ranks.
func (l *lookup) sumReplicas(rows tensor.Rows) tensor.Rows {
	g := l.group(l.replicated...)
	l.countReplicas(g, rows.Index.Numel())
	dev, dt, w := rows.Values.Device(), rows.Values.DType(), rows.Values.Dim(1)
	idBytes, rowBytes := tensor.Int64.Size(), w*dt.Size()
	// A rank's message is its row numbers, then its rows.
	mine := tensor.New(dev, tensor.Uint8, rows.Index.Numel()*(idBytes+rowBytes))
	dev.CopyBytes(mine.Ptr(), rows.Index.Ptr(), rows.Index.Bytes())
	dev.CopyBytes(unsafe.Add(mine.Ptr(), rows.Index.Bytes()), rows.Values.Ptr(), rows.Values.Bytes())
	total := sum(l.counts)
	all := tensor.New(dev, tensor.Uint8, total*(idBytes+rowBytes))
	l.mesh.Do(g, comm.Call{Kind: comm.AllGatherVKind, Dst: dtensor.BufferOf(all), Src: dtensor.BufferOf(mine),
		DstCounts: scaled(l.counts, idBytes+rowBytes), Cause: l.op + ": gradients of replicas"})
	mine.Free()
	index, values := tensor.New(dev, tensor.Int64, total), tensor.New(dev, dt, total, w)
	from, row := all.Ptr(), 0
	for _, n := range l.counts {
		dev.CopyBytes(unsafe.Add(index.Ptr(), row*idBytes), from, n*idBytes)
		dev.CopyBytes(unsafe.Add(values.Ptr(), row*rowBytes), unsafe.Add(from, n*idBytes), n*rowBytes)
		from = unsafe.Add(from, n*(idBytes+rowBytes))
		row += n
	}
	all.Free()
	return tensor.Coalesce(index, values, l.n)
}

// countReplicas fills in how many distinct rows each replica has, n on this
// rank, unless that is known.
func (l *lookup) countReplicas(g *comm.Comm, n int) {
	if l.counts != nil {
		return
	}
	all := make([]int64, g.Size())
	l.mesh.Do(g, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of([]int64{int64(n)}), Cause: l.op + ": counts of replicas"})
	for _, c := range all {
		l.counts = append(l.counts, int(c))
	}
}
