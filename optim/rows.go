package optim

import (
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// rowsOf returns a row-sparse gradient of p as rows of this rank's shard:
// distinct, counted from the shard's first; ascending unless p is an excerpt, of which no optimizer goes through all rows.
func rowsOf(p *dtensor.Tensor, r *dtensor.Rows) tensor.Rows {
	if p.ExcerptOf() != "" {
		r = r.Distinct()
	} else {
		r = r.Coalesce()
	}
	offset, inside := p.Offset()
	if !inside || offset[0] == 0 {
		return tensor.Rows{Index: r.Index, Values: r.Values}
	}
	return tensor.Rows{Index: tensor.AddScalar(r.Index, -float64(offset[0])), Values: r.Values}
}

// checkRows throws unless the gradient is one of the parameter's rows.
func (b *base) checkRows(i int, p *dtensor.Tensor, r *dtensor.Rows) {
	if p.NDim() != 2 || p.DType() != r.Values.DType() || r.Values.NDim() != 2 || p.Local().Dim(1) != r.Values.Dim(1) {
		fault.Throw(fmt.Errorf("optim: %s.Step: gradient %d is %v and its parameter %v; pass the gradient of that parameter", b.name, i, r, p))
	}
}

// denseOf returns a sparse gradient as a dense one if the shard is on a GPU, whose kernels
// go through all rows anyway, or of a narrow type; else nil, and everyRow does the step.
func denseOf(shard *tensor.Tensor, g tensor.Rows) *tensor.Tensor {
	if tensor.OnHost(shard.Device()) && shard.DType().Wide() == shard.DType() {
		return nil
	}
	return tensor.DenseRows(g, shard.Dim(0))
}

// everyRow calls f for each row of a shard [R, D], the elements lo to hi, with its
// gradient, zeros if g does not have the row. It makes no gradient of the size of the shard.
func everyRow[T dtype.Float](shard *tensor.Tensor, g tensor.Rows, f func(lo, hi int, grad []T)) {
	n, width := shard.Numel(), shard.Dim(1)
	index, values := tensor.Read[int64](g.Index), tensor.Read[T](g.Values)
	// Runs of rows without a gradient are long: f gets many rows of them at a time.
	const piece = 1 << 14
	zero := make([]T, min(n, max(piece, width)))
	at := 0
	quiet := func(to int) {
		for at < to {
			hi := min(at+len(zero), to)
			f(at, hi, zero[:hi-at])
			at = hi
		}
	}
	for i, row := range index {
		quiet(int(row) * width)
		f(at, at+width, values[i*width:(i+1)*width])
		at += width
	}
	quiet(n)
}
