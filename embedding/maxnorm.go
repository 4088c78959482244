package embedding

import (
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// renormalize scales rows that some rank looks up and whose norm is above their table's
// MaxNorm, in this rank's parts of the tables:
//
//	row *= MaxNorm / (norm + 1e-7)
//
// rows[t].Index lists the distinct rows that are requested of this rank; it is nil for
// tables without a MaxNorm. Replicas tell each other these rows, so that all scale the same;
// ranks that hold other columns add up their parts of the norms, or with same bits gather the
// rows, so that elements are added up as where rows are not divided.
func (x *exchange) renormalize(rows []tensor.Rows) {
	for _, r := range x.replicas {
		if r = r.where(x.renorms); len(r.tables) > 0 {
			x.gather(r, rows, x.countsOf(r, rows), "ids of replicas")
			for _, t := range r.tables {
				rows[t].Index = tensor.Unique(rows[t].Index, 0, x.tables[t].rows()).Index
			}
		}
	}
	sums := make([]*tensor.Tensor, len(rows))
	for t, its := range x.tables {
		if its.renorm {
			sums[t] = its.powSums(rows[t].Index, x.mesh.SameBits())
		}
	}
	for _, r := range x.columns {
		if !x.mesh.SameBits() {
			x.addNorms(r.where(x.renorms), sums)
		}
	}
	for t, its := range x.tables {
		if its.renorm {
			its.shorten(its.local, rows[t].Index, sums[t])
		}
	}
}

// requestedRows returns, by table, the distinct rows that the peers request of this rank,
// counted from its first, for the tables with a MaxNorm.
func (x *exchange) requestedRows() []tensor.Rows {
	rows := make([]tensor.Rows, len(x.tables))
	for t, its := range x.tables {
		if its.renorm {
			parts := make([]*tensor.Tensor, len(x.requestPeers))
			for i := range parts {
				parts[i] = x.requests(i, t)
			}
			rows[t].Index = tensor.Unique(join(parts), its.row, its.rows()).Index
		}
	}
	return rows
}

// renorms reports whether table t has a MaxNorm.
func (x *exchange) renorms(t int) bool { return x.tables[t].renorm }

// powSums returns the sums of the powers of the elements of rows, of whole rows or of this rank's part of them.
func (p *part) powSums(rows *tensor.Tensor, whole bool) *tensor.Tensor {
	if !whole {
		return tensor.RowPowSums(p.local, rows, p.normType)
	}
	all := dtensor.WholeRows(p.weight, tensor.TakeRows(p.local, rows, 0))
	return tensor.RowPowSums(all, tensor.Arange(rows.Device(), tensor.Int64, 0, rows.Numel()), p.normType)
}

// addNorms adds up the parts of norms over the ranks that hold other columns of
// the same rows; the largest of them where the norm is the largest element.
func (x *exchange) addNorms(r replicas, sums []*tensor.Tensor) {
	for _, op := range []comm.Op{comm.Sum, comm.Max} {
		var parts []*tensor.Tensor
		var tables []int
		for _, t := range r.tables {
			if math.IsInf(x.tables[t].normType, 1) == (op == comm.Max) {
				parts, tables = append(parts, sums[t]), append(tables, t)
			}
		}
		if len(parts) == 0 {
			continue
		}
		all := join(parts)
		x.do(r.group, comm.Call{Kind: comm.AllReduceKind, Op: op, Dst: dtensor.BufferOf(all), Src: dtensor.BufferOf(all), Cause: "norms of rows"})
		at := 0
		for _, t := range tables {
			n := sums[t].Numel()
			sums[t] = tensor.Narrow(all, 0, at, n)
			at += n
		}
	}
}

// shorten scales the rows of a part of a table whose norms, from the sums of
// their elements' powers, are above MaxNorm.
func (s *settings) shorten(table, rows, sums *tensor.Tensor) {
	var long []int64
	var factors []float64
	index := tensor.ToSlice[int64](rows)
	for i, sum := range tensor.ToSlice[float64](tensor.Cast(sums, tensor.Float64)) {
		if norm := s.norm(sum); norm > s.maxNorm {
			long, factors = append(long, index[i]), append(factors, s.maxNorm/(norm+1e-7))
		}
	}
	if len(long) > 0 {
		dev := table.Device()
		by := tensor.Cast(tensor.FromSlice(dev, factors, len(factors)), table.DType().Wide())
		tensor.ScaleRowsTo(table, tensor.FromSlice(dev, long, len(long)), by)
	}
}

// norm is the norm of a row whose elements' powers add up to sum.
func (s *settings) norm(sum float64) float64 {
	switch p := s.normType; {
	case math.IsInf(p, 1):
		return sum
	case p == 2:
		return math.Sqrt(sum)
	default:
		return math.Pow(sum, 1/p)
	}
}
