package embedding

import (
	"math"
	"runtime"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// renormalize scales the rows that some rank looks up and whose norm is above
// MaxNorm, in this rank's part of the table:
//
//	row *= MaxNorm / (norm + 1e-7)
//
// Ranks that replicate these rows tell each other their distinct ids, so that
// all scale the same; ranks that hold other columns of them add up their part of
// the norms: one collective of a number for each distinct id.
func (l *lookup) renormalize() {
	rows := l.lookedUp()
	sums := tensor.RowPowSums(l.table, rows, l.s.normType)
	if g := l.group(l.columns...); g != nil {
		how := comm.Sum
		if math.IsInf(l.s.normType, 1) {
			how = comm.Max
		}
		l.mesh.Do(g, comm.Call{Kind: comm.AllReduceKind, Op: how, Dst: dtensor.BufferOf(sums), Src: dtensor.BufferOf(sums), Cause: l.op + ": norms of rows"})
	}
	l.s.shorten(l.table, rows, sums)
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
		by := tensor.Cast(tensor.FromSlice(dev, factors, len(factors)), tensor.WideType(table.DType()))
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

// lookedUp returns the distinct rows of this rank's part of the table that any
// rank looks up there, int64, counted from its first row.
func (l *lookup) lookedUp() *tensor.Tensor {
	var rows *tensor.Tensor
	if l.travel != nil {
		rows = tensor.Unique(l.travel.asked, 0, l.n).Index
	} else {
		rows = l.distinct().Index
	}
	g := l.group(l.replicated...)
	if g == nil {
		return rows
	}
	counts := l.counts
	l.countReplicas(g, rows.Numel())
	all := tensor.New(rows.Device(), tensor.Int64, sum(l.counts))
	l.mesh.Do(g, comm.Call{Kind: comm.AllGatherVKind, Dst: dtensor.BufferOf(all), Src: dtensor.BufferOf(rows), DstCounts: l.counts, Cause: l.op + ": ids of replicas"})
	runtime.KeepAlive(rows)
	l.counts = counts
	return tensor.Unique(all, 0, l.n).Index
}
