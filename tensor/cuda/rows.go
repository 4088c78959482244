package cuda

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// held is how many elements of a row a thread holds at most, HELD in kernels/rows.cu.
const held = 32

// team returns how many threads share a row of n elements: so many that each has some of
// them, if a block has as many.
func team(n, some int) int {
	size := 8
	for size < threads && size*some < n {
		size *= 2
	}
	return size
}

// teams launches with a team for each of rows rows of n elements, and appends how large
// it is.
func (l *launch) teams(rows, n, some int) {
	size := team(n, some)
	l.i32(size).each(rows * size)
}

// Softmax computes the softmax, or its logarithm, of each of rows rows of n.
func (g *Device) Softmax(dt tensor.DType, log bool, dst, x unsafe.Pointer, rows, n int) bool {
	g.typed("softmax", dt).flag(log).ptr(dst, x).i64(rows, n).teams(rows, n, held)
	return true
}

// SoftmaxGrad computes the gradient from dy and the result y; dx may be dy.
func (g *Device) SoftmaxGrad(dt tensor.DType, log bool, dx, dy, y unsafe.Pointer, rows, n int) bool {
	g.typed("softmax_grad", dt).flag(log).ptr(dx, dy, y).i64(rows, n).teams(rows, n, held)
	return true
}

// RowStat computes dst[r] = op of row r of x [rows, n].
func (g *Device) RowStat(op tensor.RowOp, dt tensor.DType, dst, x unsafe.Pointer, rows, n int, p float64) {
	g.typed("row_stat", dt).i32(int(op)).ptr(dst, x).i64(rows, n).f64(p).teams(rows, n, held)
}

// LayerNorm normalises rows of n; stats gets (mean, rstd) of each. weight and bias may be nil.
func (g *Device) LayerNorm(dt tensor.DType, dst, stats, x, weight, bias unsafe.Pointer, rows, n int, eps float64) bool {
	g.typed("norm", dt).i32(1).ptr(dst, stats, x, weight, bias).i64(rows, n).f64(eps).teams(rows, n, held)
	return true
}

// RMSNorm scales rows of n; stats gets rstd of each. weight may be nil.
func (g *Device) RMSNorm(dt tensor.DType, dst, stats, x, weight unsafe.Pointer, rows, n int, eps float64) bool {
	g.typed("norm", dt).i32(0).ptr(dst, stats, x, weight, nil).i64(rows, n).f64(eps).teams(rows, n, held)
	return true
}

// LayerNormGrad computes dx and adds to dweight and dbias, which may be nil.
func (g *Device) LayerNormGrad(dt tensor.DType, dx, dweight, dbias, dy, x, weight, stats unsafe.Pointer, rows, n int) bool {
	g.normGrad(dt, true, dx, dweight, dbias, dy, x, weight, stats, rows, n)
	return true
}

// RMSNormGrad computes dx and adds to dweight, which may be nil.
func (g *Device) RMSNormGrad(dt tensor.DType, dx, dweight, dy, x, weight, stats unsafe.Pointer, rows, n int) bool {
	g.normGrad(dt, false, dx, dweight, nil, dy, x, weight, stats, rows, n)
	return true
}

func (g *Device) normGrad(dt tensor.DType, centre bool, dx, dweight, dbias, dy, x, weight, stats unsafe.Pointer, rows, n int) {
	if n == 0 || rows == 0 {
		return
	}
	holds, some := dt != tensor.Float64 && n <= held*threads && n*dt.Size()%16 == 0, held/2
	if n > some*threads {
		some = held
	}
	for _, p := range []unsafe.Pointer{dx, dy, x, weight} {
		holds = holds && uintptr(p)%16 == 0
	}
	parts := normParts(rows, team(n, some))
	wanted, part := dweight != nil || dbias != nil, unsafe.Pointer(nil)
	if wanted {
		buf := g.Scratch(2 * parts * n * tensor.WideType(dt).Size())
		defer buf.Free()
		part = buf.Block.Ptr()
	}
	if holds {
		l := g.typed("norm_grad", dt)
		if some == held {
			l = g.typed("norm_grad_long", dt)
		}
		l.flag(centre).ptr(dx, part, dy, x, weight, stats).i64(rows, n, parts).teams(parts, n, some)
	} else {
		g.typed("norm_grad_rows", dt).flag(centre).ptr(dx, dy, x, weight, stats).i64(rows, n).teams(rows, n, held)
		if wanted {
			g.typed("norm_grad_part", dt).flag(centre).ptr(part, dy, x, stats).i64(rows, n, parts).each(parts * n)
		}
	}
	if wanted {
		g.typed("norm_grad_sum", dt).ptr(dweight, dbias, part).i64(n, parts).blocks(tallBlocks(2 * n))
	}
}

// normParts returns in how many parts teams of so many threads add up the rows of a norm:
// of 64 rows at most, which float32 adds up well, and of 8 or more, so that the parts are
// few. As far as that lets it, it makes 256 blocks or a multiple, which a large GPU has at
// once.
func normParts(rows, team int) int {
	const some, least, most = 256, 8, 64
	teams := some * threads / team
	return max(1, min(rows/least, (rows+teams*most-1)/(teams*most)*teams))
}

// CrossEntropyStats fills stats [n, 4] from logits [n, classes]; see tensor's
// function of that name. weight may be nil.
func (g *Device) CrossEntropyStats(dt tensor.DType, stats, logits unsafe.Pointer, it tensor.DType, target, weight unsafe.Pointer, n, classes, lo int, withSum bool) {
	g.typed("xent_stats", dt).ptr(stats, logits).dt(it).ptr(target, weight).i64(n, classes, lo).flag(withSum).teams(n, classes, held)
}

// CrossEntropyJoin joins the statistics of two parts; see tensor's function of that
// name.
func (g *Device) CrossEntropyJoin(dt tensor.DType, stats, more unsafe.Pointer, n int, weights, others float64) {
	g.typed("xent_join", dt).ptr(stats, more).i64(n).f64(weights).f64(others).each(n)
}

// CrossEntropyGrad computes the gradient of the logits; see tensor's function of
// that name. dst may be logits, weight may be nil.
func (g *Device) CrossEntropyGrad(to tensor.DType, dst unsafe.Pointer, dt tensor.DType, logits unsafe.Pointer, it tensor.DType, target, lse, coef, weight unsafe.Pointer, n, classes, lo int) {
	l := g.typed("xent_grad", dt)
	if to != dt {
		l = g.kernel("xent_grad_f32_bf16")
	}
	l.ptr(dst, logits).dt(it).ptr(target, lse, coef, weight).i64(n, classes, lo).teams(n, classes, held)
}
