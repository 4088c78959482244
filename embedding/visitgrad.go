package embedding

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// backward returns the gradients of the tables for the gradients of the rows of
// all ids: values[t] is [n, D] for the n ids of table t, float32. They are of the
// tables' type once all have been added up.
func (v *visit) backward(values []*tensor.Tensor) []*dtensor.Rows {
	sums := make([]*tensor.Tensor, len(values))
	for t, u := range v.uniq {
		sums[t] = u.SumRows(values[t]).Values // [U, D]
	}
	parts := v.giveBack(sums)
	for _, r := range v.replicas {
		v.sumReplicas(r, parts)
	}
	grads := make([]*dtensor.Rows, len(parts))
	for t, rows := range parts {
		lo, w := v.own(t).row, v.own(t).columns
		rows = dropRow(rows, v.c.settings[t].padding-lo)
		if v.extra(t) > 0 {
			rows.Values = tensor.Div(tensor.Narrow(rows.Values, 1, 0, w), tensor.Narrow(rows.Values, 1, w, 1))
		}
		grads[t] = dtensor.NewRows(v.c.tables[t].weight, tensor.AddScalar(rows.Index, float64(lo)), tensor.Cast(rows.Values, v.c.dtype))
	}
	return grads
}

// extra returns how many numbers travel with each row of table t's gradient: with
// ScaleGradByFreq how often it occurs.
func (v *visit) extra(t int) int {
	if v.c.settings[t].frequency {
		return 1
	}
	return 0
}

// giveBack takes the gradients of the distinct rows to the ranks that have them
// and returns those of this rank's parts, with rows counted from their first and
// their extra at the end.
func (v *visit) giveBack(sums []*tensor.Tensor) []tensor.Rows {
	out, in := make([]int, len(v.askers)), make([]int, len(v.askers))
	for i := range v.askers {
		p := &v.askers[i]
		for t := range sums {
			_, n := v.segment(p, t)
			out[i] += n * (p.boxes[t].columns + v.extra(t))
			in[i] += v.asked[i][t] * (v.own(t).columns + v.extra(t))
		}
	}
	dev := v.c.mesh.Device()
	mine, at := tensor.New(dev, tensor.Float32, sum(out)), 0
	for i := range v.askers {
		p := &v.askers[i]
		for t, b := range p.boxes {
			if from, n := v.segment(p, t); n > 0 {
				tensor.PackBox(mine, at, sums[t], []int{from, b.column}, []int{n, b.columns})
				at += n * b.columns
				if v.extra(t) > 0 {
					start := v.uniq[t].Start
					count := tensor.Sub(tensor.Narrow(start, 0, from+1, n), tensor.Narrow(start, 0, from, n))
					tensor.Copy(tensor.Narrow(mine, 0, at, n), tensor.Cast(count, tensor.Float32))
					at += n
				}
			}
		}
	}
	got := v.swap(v.ask, mine, out, in, "gradients of rows")
	index, values := make([][]*tensor.Tensor, len(sums)), make([][]*tensor.Tensor, len(sums))
	at = 0
	for i := range v.askers {
		for t, n := range v.asked[i] {
			w := v.own(t).columns
			rows := tensor.Narrow(got, 0, at, n*w).Reshape(n, w)
			at += n * w
			if v.extra(t) > 0 {
				rows = tensor.Cat(1, rows, tensor.Narrow(got, 0, at, n).Reshape(n, 1))
				at += n
			}
			index[t], values[t] = append(index[t], v.wanted(i, t)), append(values[t], rows)
		}
	}
	parts := make([]tensor.Rows, len(sums))
	for t := range parts {
		b := v.own(t)
		i := tensor.AddScalar(tensor.Cat(0, index[t]...), -float64(b.row))
		if len(v.askers) == 1 {
			parts[t] = tensor.Rows{Index: i, Values: values[t][0]}
		} else {
			parts[t] = tensor.Coalesce(i, tensor.Cat(0, values[t]...), b.rows)
		}
	}
	return parts
}

// width is what a row of the gradient of this rank's part of table t has.
func (v *visit) width(t int) int { return v.own(t).columns + v.extra(t) }

// sumReplicas replaces the gradients of the tables of r by their sums over the
// ranks that replicate them: one exchange of counts and one of ids and rows, for
// all these tables, added up in the order of the ranks.
func (v *visit) sumReplicas(r replicas, parts []tensor.Rows) {
	size := r.group.Size()
	mine, all := make([]int64, len(r.tables)), make([]int64, size*len(r.tables))
	bytes := func(t, n int) int { return n * (tensor.Int64.Size() + v.width(t)*tensor.Float32.Size()) }
	total := 0
	for i, t := range r.tables {
		mine[i] = int64(parts[t].Index.Numel())
		total += bytes(t, int(mine[i]))
	}
	v.do(r.group, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: "counts of replicas"})
	dev := v.c.mesh.Device()
	// A rank's message is, table by table, its row numbers and then its rows.
	message := tensor.New(dev, tensor.Uint8, total)
	at := message.Ptr()
	put := func(x *tensor.Tensor) {
		dev.CopyBytes(at, x.Ptr(), x.Bytes())
		at = unsafe.Add(at, x.Bytes())
	}
	for _, t := range r.tables {
		put(parts[t].Index)
		put(parts[t].Values)
	}
	counts := make([]int, size)
	for p := range counts {
		for i, t := range r.tables {
			counts[p] += bytes(t, int(all[p*len(r.tables)+i]))
		}
	}
	whole := tensor.New(dev, tensor.Uint8, sum(counts))
	v.do(r.group, comm.Call{Kind: comm.AllGatherVKind, Dst: dtensor.BufferOf(whole), Src: dtensor.BufferOf(message), DstCounts: counts, Cause: "gradients of replicas"})
	message.Free()
	at = whole.Ptr()
	take := func(x *tensor.Tensor) *tensor.Tensor {
		dev.CopyBytes(x.Ptr(), at, x.Bytes())
		at = unsafe.Add(at, x.Bytes())
		return x
	}
	index, values := make([][]*tensor.Tensor, len(r.tables)), make([][]*tensor.Tensor, len(r.tables))
	for p := range size {
		for i, t := range r.tables {
			n := int(all[p*len(r.tables)+i])
			index[i] = append(index[i], take(tensor.New(dev, tensor.Int64, n)))
			values[i] = append(values[i], take(tensor.New(dev, tensor.Float32, n, v.width(t))))
		}
	}
	whole.Free()
	for i, t := range r.tables {
		parts[t] = tensor.Coalesce(tensor.Cat(0, index[i]...), tensor.Cat(0, values[i]...), v.own(t).rows)
	}
}
