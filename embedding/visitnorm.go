package embedding

import (
	"math"
	"runtime"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// renormalize scales the rows that some rank looks up and whose norm is above
// their table's MaxNorm, in this rank's parts of the tables. Ranks that replicate
// tables tell each other their distinct rows, in one exchange of counts and one of
// rows for all tables; ranks that hold other columns add up their parts of the
// norms, in one exchange.
func (v *visit) renormalize() {
	rows := make([]*tensor.Tensor, len(v.c.tables)) // by table: distinct, counted from this rank's first; nil: no MaxNorm
	for t := range rows {
		if v.c.settings[t].renorm {
			var parts []*tensor.Tensor
			for i := range v.askers {
				parts = append(parts, v.wanted(i, t))
			}
			rows[t] = tensor.Unique(tensor.Cat(0, parts...), v.own(t).row, v.own(t).rows).Index
		}
	}
	for _, r := range v.replicas {
		v.shareRows(r.normed(v.c), rows)
	}
	sums := make([]*tensor.Tensor, len(rows))
	for t := range rows {
		if rows[t] != nil {
			sums[t] = tensor.RowPowSums(v.c.local(t), rows[t], v.c.settings[t].normType)
		}
	}
	for _, r := range v.columns {
		v.addNorms(r.normed(v.c), sums)
	}
	for t := range rows {
		if rows[t] != nil {
			v.c.settings[t].shorten(v.c.local(t), rows[t], sums[t])
		}
	}
}

// normed returns those tables that have a MaxNorm.
func (r replicas) normed(c *Collection) replicas {
	some := replicas{group: r.group}
	for _, t := range r.tables {
		if c.settings[t].renorm {
			some.tables = append(some.tables, t)
		}
	}
	return some
}

// shareRows replaces the rows of the tables of r by those of all ranks of its group.
func (v *visit) shareRows(r replicas, rows []*tensor.Tensor) {
	if len(r.tables) == 0 {
		return
	}
	size, n := r.group.Size(), len(r.tables)
	mine, all := make([]int64, n), make([]int64, size*n)
	parts := make([]*tensor.Tensor, n)
	for i, t := range r.tables {
		mine[i], parts[i] = int64(rows[t].Numel()), rows[t]
	}
	v.do(r.group, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: "counts of replicas' ids"})
	counts := make([]int, size)
	for i, k := range all {
		counts[i/n] += int(k)
	}
	message := tensor.Cat(0, parts...)
	whole := tensor.New(message.Device(), tensor.Int64, sum(counts))
	v.do(r.group, comm.Call{Kind: comm.AllGatherVKind, Dst: dtensor.BufferOf(whole), Src: dtensor.BufferOf(message), DstCounts: counts, Cause: "ids of replicas"})
	runtime.KeepAlive(message)
	of := make([][]*tensor.Tensor, n)
	at := 0
	for i, k := range all {
		of[i%n] = append(of[i%n], tensor.Narrow(whole, 0, at, int(k)))
		at += int(k)
	}
	for i, t := range r.tables {
		rows[t] = tensor.Unique(tensor.Cat(0, of[i]...), 0, v.own(t).rows).Index
	}
}

// addNorms adds up the parts of norms over the ranks that hold other columns of
// the same rows; the largest of them where the norm is the largest element.
func (v *visit) addNorms(r replicas, sums []*tensor.Tensor) {
	for _, op := range []comm.Op{comm.Sum, comm.Max} {
		var parts []*tensor.Tensor
		var tables []int
		for _, t := range r.tables {
			if math.IsInf(v.c.settings[t].normType, 1) == (op == comm.Max) {
				parts, tables = append(parts, sums[t]), append(tables, t)
			}
		}
		if len(parts) == 0 {
			continue
		}
		all := tensor.Cat(0, parts...)
		v.do(r.group, comm.Call{Kind: comm.AllReduceKind, Op: op, Dst: dtensor.BufferOf(all), Src: dtensor.BufferOf(all), Cause: "norms of rows"})
		at := 0
		for _, t := range tables {
			n := sums[t].Numel()
			sums[t] = tensor.Narrow(all, 0, at, n)
			at += n
		}
	}
}
