package cuda

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// held is how many elements of a row a thread holds at most, HELD in kernels/rows.cu.
const held = 32

// team returns how many threads share a row of n elements: enough for each to have at most
// some elements, up to a block.
func team(n, some int) int {
	size := 8
	for size < threads && size*some < n {
		size *= 2
	}
	return size
}

// teams appends the size of a team and launches with a team for each of rows rows of n
// elements.
func (l *launch) teams(rows, n, some int) {
	size := team(n, some)
	l.i32(size).each(rows * size)
}

// Softmax computes the softmax of each row, or its logarithm.
func (g kernels) Softmax(dt tensor.DType, log bool, dst, x unsafe.Pointer, m kernel.Matrix) {
	g.typed("softmax", dt).flag(log).ptr(dst, x).i64(m.Rows, m.Cols).teams(m.Rows, m.Cols, held)
}

// SoftmaxGrad computes the gradient from dy and the result y; dx may be dy.
func (g kernels) SoftmaxGrad(dt tensor.DType, log bool, dx, dy, y unsafe.Pointer, m kernel.Matrix) {
	g.typed("softmax_grad", dt).flag(log).ptr(dx, dy, y).i64(m.Rows, m.Cols).teams(m.Rows, m.Cols, held)
}

// RowStat computes dst[r] = op of row r.
func (g kernels) RowStat(op kernel.RowOp, dt tensor.DType, dst, x unsafe.Pointer, m kernel.Matrix, p float64) {
	g.typed("row_stat", dt).i32(int(op)).ptr(dst, x).i64(m.Rows, m.Cols).f64(p).teams(m.Rows, m.Cols, held)
}

// Norm normalises rows.
func (g kernels) Norm(n kernel.Norm) {
	g.typed("norm", n.DType).flag(n.Centre).ptr(n.Y, n.Stats, n.X, n.Weight, n.Bias).i64(n.Rows, n.Cols).f64(n.Eps).teams(n.Rows, n.Cols, held)
}

// NormGrad computes DX and adds to DWeight and DBias.
func (g kernels) NormGrad(o kernel.NormGrad) {
	dt, rows, n := o.DType, o.Rows, o.Cols
	if n == 0 || rows == 0 {
		return
	}
	holds, some := dt != tensor.Float64 && n <= held*threads && n*dt.Size()%16 == 0, held/2
	if n > some*threads {
		some = held
	}
	for _, p := range []unsafe.Pointer{o.DX, o.DY, o.X, o.Weight} {
		holds = holds && uintptr(p)%16 == 0
	}
	parts := normParts(rows, team(n, some))
	wanted, part := o.DWeight != nil || o.DBias != nil, unsafe.Pointer(nil)
	if wanted {
		buf := g.Scratch(2 * parts * n * dt.Wide().Size())
		defer buf.Free()
		part = buf.Block.Ptr()
	}
	if holds {
		l := g.typed("norm_grad", dt)
		if some == held {
			l = g.typed("norm_grad_long", dt)
		}
		l.flag(o.Centre).ptr(o.DX, part, o.DY, o.X, o.Weight, o.Stats).i64(rows, n, parts).teams(parts, n, some)
	} else {
		g.typed("norm_grad_rows", dt).flag(o.Centre).ptr(o.DX, o.DY, o.X, o.Weight, o.Stats).i64(rows, n).teams(rows, n, held)
		if wanted {
			g.typed("norm_grad_part", dt).flag(o.Centre).ptr(part, o.DY, o.X, o.Stats).i64(rows, n, parts).each(parts * n)
		}
	}
	if wanted {
		g.typed("norm_grad_sum", dt).ptr(o.DWeight, o.DBias, part).i64(n, parts).blocks(tallBlocks(2 * n))
	}
}

// normParts returns in how many parts teams of team threads add up the rows of a norm. A
// part has at most 64 rows, which float32 adds up precisely, and at least 8, so that the
// parts are few. Within these bounds the parts fill a multiple of 256 blocks, as many as a
// large GPU runs at once.
func normParts(rows, team int) int {
	const some, least, most = 256, 8, 64
	teams := some * threads / team
	return max(1, min(rows/least, ints.DivUp(rows, teams*most)*teams))
}

// CrossEntropyStats fills stats [n, 4] from logits; see tensor's function of that name.
func (g kernels) CrossEntropyStats(stats unsafe.Pointer, l kernel.ClassLogits, withSum bool) {
	g.typed("xent_stats", l.DType).ptr(stats, l.Logits).index(l.Target).ptr(l.Weight).i64(l.Rows, l.Classes, l.Lo).
		flag(withSum).teams(l.Rows, l.Classes, held)
}

// CrossEntropyJoin joins the statistics of two parts; see tensor's function of that
// name.
func (g kernels) CrossEntropyJoin(dt tensor.DType, stats, more unsafe.Pointer, n int, weights, others float64) {
	g.typed("xent_join", dt).ptr(stats, more).i64(n).f64(weights).f64(others).each(n)
}

// CrossEntropyGrad computes the gradient of the logits; see tensor's function of
// that name. dst may be the logits.
func (g kernels) CrossEntropyGrad(to tensor.DType, dst unsafe.Pointer, l kernel.ClassLogits, lse, coef unsafe.Pointer) {
	k := g.typed("xent_grad", l.DType)
	if to != l.DType {
		k = g.kernel("xent_grad_f32_bf16")
	}
	k.ptr(dst, l.Logits).index(l.Target).ptr(lse, coef, l.Weight).i64(l.Rows, l.Classes, l.Lo).teams(l.Rows, l.Classes, held)
}
