package embedding

import (
	"math"
	"slices"

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
// rows, so that elements are added up as where rows are not divided. Those of a table with a Store are
// brought into memory, and scaled there.
func (x *exchange) renormalize(rows []tensor.Rows) {
	for _, r := range x.replicas {
		if r = r.where(x.renorms); len(r.tables) > 0 {
			x.gather(r, rows, x.countsOf(r, rows), "ids of replicas")
			for _, t := range r.tables {
				rows[t].Index = tensor.Unique(rows[t].Index, 0, x.tables[t].rows()).Index
			}
		}
	}
	onDisks := slices.ContainsFunc(x.tables, func(p part) bool { return p.renorm && p.stored != nil })
	if onDisks {
		x.fetch(true, func(t int) []int64 {
			if !x.renorms(t) {
				return nil
			}
			return tensor.ToSlice[int64](rows[t].Index)
		})
	}
	sums := make([]*tensor.Tensor, len(rows))
	for t := range x.tables {
		if x.renorms(t) {
			sums[t] = x.powSums(t, rows[t].Index)
		}
	}
	for _, r := range x.columns {
		if !x.mesh.SameBits() {
			x.addNorms(r.where(x.renorms), sums)
		}
	}
	var err error
	for t := range x.tables {
		if its := &x.tables[t]; its.renorm {
			if failed := its.shorten(rows[t].Index, sums[t]); err == nil {
				err = failed
			}
		}
	}
	if onDisks {
		agreeOnDisks(x.mesh, x.op, err)
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

// powSums returns the sums of the powers of the elements of rows of table t, with same bits of whole rows, else of this rank's part
// of them. Rows of a table with a Store have been fetched.
func (x *exchange) powSums(t int, rows *tensor.Tensor) *tensor.Tensor {
	its := &x.tables[t]
	if its.stored == nil && !x.mesh.SameBits() {
		return tensor.RowPowSums(its.local, rows, its.normType)
	}
	all := x.fetchedRows(t)
	if all == nil {
		all = tensor.TakeRows(its.local, rows, 0)
	}
	if x.mesh.SameBits() {
		all = dtensor.WholeRows(its.weight, all)
	}
	return tensor.RowPowSums(all, tensor.Arange(rows.Device(), tensor.Int64, 0, rows.Numel()), its.normType)
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
// their elements' powers, are above MaxNorm. Its error is that of a Store.
func (p *part) shorten(rows, sums *tensor.Tensor) error {
	var long []int64
	var factors []float64
	index := tensor.ToSlice[int64](rows)
	for i, sum := range tensor.ToSlice[float64](tensor.Cast(sums, tensor.Float64)) {
		if norm := p.norm(sum); norm > p.maxNorm {
			long, factors = append(long, index[i]), append(factors, p.maxNorm/(norm+1e-7))
		}
	}
	if len(long) == 0 {
		return nil
	}
	dev := rows.Device()
	by := tensor.Cast(tensor.FromSlice(dev, factors, len(factors)), p.weight.DType().Wide())
	if p.stored != nil {
		return p.stored.scale(long, by)
	}
	tensor.ScaleRowsTo(p.local, tensor.FromSlice(dev, long, len(long)), by)
	return nil
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
