package kernel

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// Iota sets dst[i] = start + i.
func (w Widening) Iota(dt dtype.DType, dst unsafe.Pointer, n, start int) {
	if !w.widens("Iota", dt) {
		w.Own.Iota(dt, dst, n, start)
		return
	}
	w.elements(dt, n, func(lo, n int, x []unsafe.Pointer) { w.Own.Iota(f32, x[0], n, start+lo) }, write(dst, 1))
}

// Unary computes dst[i] = op(x[i]); dst may be x.
func (w Widening) Unary(op UnaryOp, dt dtype.DType, dst, x unsafe.Pointer, n int) {
	if !w.widens("Unary", dt) {
		w.Own.Unary(op, dt, dst, x, n)
		return
	}
	w.elements(dt, n, func(_, n int, x []unsafe.Pointer) { w.Own.Unary(op, f32, x[0], x[0], n) }, operand{from: x, to: dst, unit: 1})
}

// UnaryGrad computes dx[i] = dy[i]·op'(x[i]), y[i] = op(x[i]); dx may be dy.
func (w Widening) UnaryGrad(op UnaryOp, dt dtype.DType, dx unsafe.Pointer, s Slope, n int) {
	if !w.widens("UnaryGrad", dt) {
		w.Own.UnaryGrad(op, dt, dx, s, n)
		return
	}
	var saved unsafe.Pointer
	switch op.Row().Reads {
	case ReadsInput:
		saved = s.X
	case ReadsOutput:
		saved = s.Y
	}
	w.elements(dt, n, func(_, n int, x []unsafe.Pointer) {
		dy, saved := x[0], x[1]
		if saved == nil {
			saved = dy // not read
		}
		w.Own.UnaryGrad(op, f32, dy, Slope{dy, saved, saved}, n)
	}, operand{from: s.DY, to: dx, unit: 1}, read(saved, 1))
}

// Clamp computes dst[i] = min(max(x[i], lo), hi) of floats.
func (w Widening) Clamp(dt dtype.DType, dst, x unsafe.Pointer, lo, hi float64, n int) {
	if !w.widens("Clamp", dt) {
		w.Own.Clamp(dt, dst, x, lo, hi, n)
		return
	}
	w.elements(dt, n, func(_, n int, x []unsafe.Pointer) { w.Own.Clamp(f32, x[0], x[0], lo, hi, n) }, operand{from: x, to: dst, unit: 1})
}

// ClampGrad computes dx[i] = dy[i] where lo <= x[i] <= hi, else 0.
func (w Widening) ClampGrad(dt dtype.DType, dx unsafe.Pointer, s Slope, lo, hi float64, n int) {
	if !w.widens("ClampGrad", dt) {
		w.Own.ClampGrad(dt, dx, s, lo, hi, n)
		return
	}
	w.elements(dt, n, func(_, n int, x []unsafe.Pointer) { w.Own.ClampGrad(f32, x[0], Slope{DY: x[0], X: x[1]}, lo, hi, n) },
		operand{from: s.DY, to: dx, unit: 1}, read(s.X, 1))
}

// Leaky computes dst[i] = dy[i] where x[i] > 0, else dy[i]·slope.
func (w Widening) Leaky(dt dtype.DType, dst unsafe.Pointer, s Slope, slope float64, n int) {
	if !w.widens("Leaky", dt) {
		w.Own.Leaky(dt, dst, s, slope, n)
		return
	}
	w.elements(dt, n, func(_, n int, x []unsafe.Pointer) { w.Own.Leaky(f32, x[0], Slope{DY: x[0], X: x[1]}, slope, n) },
		operand{from: s.DY, to: dst, unit: 1}, read(s.X, 1))
}

// Binary computes dst[i] = op(a[i], b[i]); dst may be a or b.
func (w Widening) Binary(op BinaryOp, dt dtype.DType, dst, a, b unsafe.Pointer, n int) {
	if !w.widens("Binary", dt) {
		w.Own.Binary(op, dt, dst, a, b, n)
		return
	}
	w.elements(dt, n, func(_, n int, x []unsafe.Pointer) { w.Own.Binary(op, f32, x[0], x[0], x[1], n) },
		operand{from: a, to: dst, unit: 1}, read(b, 1))
}

// BinaryLoop computes Binary over arguments that broadcast.
func (w Widening) BinaryLoop(op BinaryOp, dt dtype.DType, dst, a, b unsafe.Pointer, l Loop) {
	if !w.widens("BinaryLoop", dt) {
		w.Own.BinaryLoop(op, dt, dst, a, b, l)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.BinaryLoop(op, f32, x[0], x[1], x[2], l) },
		write(dst, l.Numel()), read(a, l.extent(&l.A)), read(b, l.extent(&l.B)))
}

// BinaryScalar computes Binary of x and a number; dst may be x.
func (w Widening) BinaryScalar(op BinaryOp, dt dtype.DType, dst, x unsafe.Pointer, v Number, n int) {
	if !w.widens("BinaryScalar", dt) {
		w.Own.BinaryScalar(op, dt, dst, x, v, n)
		return
	}
	w.elements(dt, n, func(_, n int, x []unsafe.Pointer) { w.Own.BinaryScalar(op, f32, x[0], x[0], v, n) }, operand{from: x, to: dst, unit: 1})
}

// CompareLoop computes dst = op(a, b), one byte of 0 or 1 an element.
func (w Widening) CompareLoop(op CompareOp, dt dtype.DType, dst, a, b unsafe.Pointer, l Loop) {
	if !w.widens("CompareLoop", dt) {
		w.Own.CompareLoop(op, dt, dst, a, b, l)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.CompareLoop(op, f32, dst, x[0], x[1], l) },
		read(a, l.extent(&l.A)), read(b, l.extent(&l.B)))
}

// Axpy computes y[i] += alpha·x[i].
func (w Widening) Axpy(dt dtype.DType, y unsafe.Pointer, alpha float64, x unsafe.Pointer, n int) {
	if !w.widens("Axpy", dt) {
		w.Own.Axpy(dt, y, alpha, x, n)
		return
	}
	w.elements(dt, n, func(_, n int, x []unsafe.Pointer) { w.Own.Axpy(f32, x[0], alpha, x[1], n) }, edit(y, 1), read(x, 1))
}

// Cumsum computes dst[o, r, i] = the sum of x[o, 0..r, i], or of x[o, r.., i] with reverse.
func (w Widening) Cumsum(dt dtype.DType, reverse bool, dst, x unsafe.Pointer, a Axis) {
	if !w.widens("Cumsum", dt) {
		w.Own.Cumsum(dt, reverse, dst, x, a)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.Cumsum(f32, reverse, x[0], x[1], a) }, write(dst, a.Numel()), read(x, a.Numel()))
}

// Reduce computes dst[o, i] = op over r of x[o, r, i]; dst is float32.
func (w Widening) Reduce(op ReduceOp, dt dtype.DType, dst, x unsafe.Pointer, a Axis) {
	if !w.widens("Reduce", dt) {
		w.Own.Reduce(op, dt, dst, x, a)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.Reduce(op, f32, dst, x[0], a) }, read(x, a.Numel()))
}

// MatMul computes g for each index of l. A product that is added to one of a narrow type is
// added before it is rounded.
func (w Widening) MatMul(dt dtype.DType, g Gemm, dst, a, b unsafe.Pointer, l Loop) {
	if !w.widens("MatMul", dt) {
		w.Own.MatMul(dt, g, dst, a, b, l)
		return
	}
	wide := g
	wide.Wide = false
	operands := []operand{read(a, l.extent(&l.A)*g.M*g.K), read(b, l.extent(&l.B)*g.K*g.N)}
	if !g.Wide {
		c := write(dst, l.Numel()*g.M*g.N)
		if g.Accumulate {
			c.from = dst
		}
		operands = append(operands, c)
	}
	w.whole(dt, func(x []unsafe.Pointer) {
		to := dst
		if !g.Wide {
			to = x[2]
		}
		w.Own.MatMul(f32, wide, to, x[0], x[1], l)
	}, operands...)
}

// heads calls f for some heads of attention at a time, from head lo on.
func (w Widening) heads(a Attention, f func(lo int, a Attention, wide []unsafe.Pointer), operands ...operand) {
	w.pieces(a.DType, a.Heads, HeadsPiece/max(1, (a.T+a.Room)*(a.D+a.E)), func(lo, n int, wide []unsafe.Pointer) {
		some := a
		some.DType, some.Heads, some.LSE = f32, n, floats(a.LSE, lo*a.T)
		some.Y, some.Q, some.K, some.V = wide[0], wide[1], wide[2], wide[3]
		f(lo, some, wide)
	}, operands...)
}

// Attention computes Y and LSE.
func (w Widening) Attention(a Attention) {
	if !w.widens("Attention", a.DType) {
		w.Own.Attention(a)
		return
	}
	w.heads(a, func(_ int, some Attention, _ []unsafe.Pointer) { w.Own.Attention(some) },
		write(a.Y, a.T*a.E), read(a.Q, a.T*a.D), read(a.K, a.Room*a.D), read(a.V, a.Room*a.E))
}

// AttentionGrad computes DQ, DK and DV.
func (w Widening) AttentionGrad(a AttentionGrad) {
	if !w.widens("AttentionGrad", a.DType) {
		w.Own.AttentionGrad(a)
		return
	}
	w.heads(a.Attention, func(_ int, some Attention, x []unsafe.Pointer) {
		w.Own.AttentionGrad(AttentionGrad{Attention: some, DQ: x[4], DK: x[5], DV: x[6], DY: x[7]})
	}, read(a.Y, a.T*a.E), read(a.Q, a.T*a.D), read(a.K, a.S*a.D), read(a.V, a.S*a.E),
		write(a.DQ, a.T*a.D), write(a.DK, a.S*a.D), write(a.DV, a.S*a.E), read(a.DY, a.T*a.E))
}

// Softmax computes the softmax of each row, or its logarithm.
func (w Widening) Softmax(dt dtype.DType, log bool, dst, x unsafe.Pointer, m Matrix) {
	if !w.widens("Softmax", dt) {
		w.Own.Softmax(dt, log, dst, x, m)
		return
	}
	w.rows(dt, m, func(_ int, m Matrix, x []unsafe.Pointer) { w.Own.Softmax(f32, log, x[0], x[1], m) }, write(dst, m.Cols), read(x, m.Cols))
}

// SoftmaxGrad computes the gradient from dy and the result y; dx may be dy.
func (w Widening) SoftmaxGrad(dt dtype.DType, log bool, dx, dy, y unsafe.Pointer, m Matrix) {
	if !w.widens("SoftmaxGrad", dt) {
		w.Own.SoftmaxGrad(dt, log, dx, dy, y, m)
		return
	}
	w.rows(dt, m, func(_ int, m Matrix, x []unsafe.Pointer) { w.Own.SoftmaxGrad(f32, log, x[0], x[0], x[1], m) },
		operand{from: dy, to: dx, unit: m.Cols}, read(y, m.Cols))
}

// Norm normalises rows.
func (w Widening) Norm(n Norm) {
	if !w.widens("Norm", n.DType) {
		w.Own.Norm(n)
		return
	}
	stats := dtype.Float64.Size() // of a row
	if n.Centre {
		stats *= 2
	}
	w.rows(n.DType, n.Matrix, func(lo int, m Matrix, x []unsafe.Pointer) {
		some := n
		some.Matrix, some.DType, some.Stats = m, f32, unsafe.Add(n.Stats, lo*stats)
		some.Y, some.X, some.Weight, some.Bias = x[0], x[1], x[2], x[3]
		w.Own.Norm(some)
	}, write(n.Y, n.Cols), read(n.X, n.Cols), readAll(n.Weight, n.Cols), readAll(n.Bias, n.Cols))
}

// NormGrad computes DX and adds to DWeight and DBias. It takes all rows in one piece: the
// gradient of a weight is the sum over all rows, rounded once.
func (w Widening) NormGrad(n NormGrad) {
	if !w.widens("NormGrad", n.DType) {
		w.Own.NormGrad(n)
		return
	}
	w.whole(n.DType, func(x []unsafe.Pointer) {
		wide := n
		wide.DType = f32
		wide.DX, wide.DWeight, wide.DBias, wide.DY, wide.X, wide.Weight = x[0], x[1], x[2], x[3], x[4], x[5]
		w.Own.NormGrad(wide)
	}, write(n.DX, n.Numel()), edit(n.DWeight, n.Cols), edit(n.DBias, n.Cols), read(n.DY, n.Numel()), read(n.X, n.Numel()),
		read(n.Weight, n.Cols))
}

// RowStat computes dst[r] = op of row r; dst is float32.
func (w Widening) RowStat(op RowOp, dt dtype.DType, dst, x unsafe.Pointer, m Matrix, p float64) {
	if !w.widens("RowStat", dt) {
		w.Own.RowStat(op, dt, dst, x, m, p)
		return
	}
	w.rows(dt, m, func(lo int, m Matrix, x []unsafe.Pointer) { w.Own.RowStat(op, f32, floats(dst, lo), x[0], m, p) }, read(x, m.Cols))
}

// TopK computes the k largest of each row, and their positions (int64).
func (w Widening) TopK(dt dtype.DType, values, index, x unsafe.Pointer, m Matrix, k int) {
	if !w.widens("TopK", dt) {
		w.Own.TopK(dt, values, index, x, m, k)
		return
	}
	w.rows(dt, m, func(lo int, m Matrix, x []unsafe.Pointer) {
		w.Own.TopK(f32, x[0], unsafe.Add(index, lo*k*dtype.Int64.Size()), x[1], m, k)
	}, write(values, k), read(x, m.Cols))
}

// IndexAdd computes dst[o, index[j], i] += src[o, j, i].
func (w Widening) IndexAdd(dt dtype.DType, dst, src unsafe.Pointer, index Index, a Axis) {
	if !w.widens("IndexAdd", dt) {
		w.Own.IndexAdd(dt, dst, src, index, a)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.IndexAdd(f32, x[0], x[1], index, a) },
		edit(dst, a.Numel()), read(src, a.Outer*index.N*a.Inner))
}

// Scatter sets the elements of dst that p names to those of src, or adds these.
func (w Widening) Scatter(dt dtype.DType, add bool, dst, src unsafe.Pointer, p Pick) {
	if !add || !w.widens("Scatter", dt) {
		w.Own.Scatter(dt, add, dst, src, p)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.Scatter(f32, add, x[0], x[1], p) }, edit(dst, p.Numel), read(src, p.Loop.extent(&p.Loop.B)))
}

// SumSegments computes dst[s] = the sum of the rows of values that segment s names.
func (w Widening) SumSegments(dt dtype.DType, dst, values unsafe.Pointer, s Segments, dim int) {
	if !w.widens("SumSegments", dt) {
		w.Own.SumSegments(dt, dst, values, s, dim)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.SumSegments(f32, x[0], x[1], s, dim) }, write(dst, s.N*dim), read(values, s.Of*dim))
}

// AddRows computes table[index[i]] += scale·values[i].
func (w Widening) AddRows(dt dtype.DType, to, values unsafe.Pointer, index Index, dim int, scale float64) {
	if !w.widens("AddRows", dt) {
		w.Own.AddRows(dt, to, values, index, dim, scale)
		return
	}
	w.tableRows(index, true, func(lo, n int, rows []unsafe.Pointer) {
		w.whole(dt, func(x []unsafe.Pointer) { w.Own.Axpy(f32, rows[0], scale, x[0], n*dim) }, read(unsafe.Add(values, lo*dim*dt.Size()), n*dim))
	}, table{dt, to, dim})
}

// RowPowSums computes dst[i] = Σ|x|ᵖ over row index[i]; dst is float32.
func (w Widening) RowPowSums(dt dtype.DType, dst, from unsafe.Pointer, index Index, dim int, p float64) {
	if !w.widens("RowPowSums", dt) {
		w.Own.RowPowSums(dt, dst, from, index, dim, p)
		return
	}
	w.tableRows(index, false, func(lo, n int, rows []unsafe.Pointer) {
		numbers, room := w.numbered(n)
		defer room.Free()
		w.Own.RowPowSums(f32, floats(dst, lo), rows[0], numbers, dim, p)
	}, table{dt, from, dim})
}

// ScaleRows computes table[index[i]] *= factor[i]; factor is float32.
func (w Widening) ScaleRows(dt dtype.DType, to unsafe.Pointer, index Index, factor unsafe.Pointer, dim int) {
	if !w.widens("ScaleRows", dt) {
		w.Own.ScaleRows(dt, to, index, factor, dim)
		return
	}
	w.tableRows(index, true, func(lo, n int, rows []unsafe.Pointer) {
		numbers, room := w.numbered(n)
		defer room.Free()
		w.Own.ScaleRows(f32, rows[0], numbers, floats(factor, lo), dim)
	}, table{dt, to, dim})
}

// CrossEntropyStats fills stats, which are float32.
func (w Widening) CrossEntropyStats(stats unsafe.Pointer, l ClassLogits, withSum bool) {
	if !w.widens("CrossEntropyStats", l.DType) {
		w.Own.CrossEntropyStats(stats, l, withSum)
		return
	}
	w.rows(l.DType, Matrix{l.Rows, l.Classes}, func(lo int, m Matrix, x []unsafe.Pointer) {
		w.Own.CrossEntropyStats(floats(stats, lo*Stats), l.From(lo, m.Rows, f32, x[0]), withSum)
	}, read(l.Logits, l.Classes))
}

// CrossEntropyGrad computes the gradient of the logits, of type to; dst may be the logits.
func (w Widening) CrossEntropyGrad(to dtype.DType, dst unsafe.Pointer, l ClassLogits, lse, coef unsafe.Pointer) {
	if !w.widens("CrossEntropyGrad", to) {
		w.Own.CrossEntropyGrad(to, dst, l, lse, coef)
		return
	}
	o := write(dst, l.Classes)
	if l.DType == to {
		o.from = l.Logits
	}
	w.rows(to, Matrix{l.Rows, l.Classes}, func(lo int, m Matrix, x []unsafe.Pointer) {
		logits := x[0]
		if o.from == nil {
			logits = floats(l.Logits, lo*l.Classes)
		}
		w.Own.CrossEntropyGrad(f32, x[0], l.From(lo, m.Rows, f32, logits), floats(lse, lo), floats(coef, 3*lo))
	}, o)
}

// SGD does one step of stochastic gradient descent; buf, which may be nil, is float32.
func (w Widening) SGD(dt dtype.DType, param, grad, buf unsafe.Pointer, n int, o SGD) {
	if !w.widens("SGD", dt) {
		w.Own.SGD(dt, param, grad, buf, n, o)
		return
	}
	w.elements(dt, n, func(lo, n int, x []unsafe.Pointer) { w.Own.SGD(f32, x[0], x[1], floats(buf, lo), n, o) }, edit(param, 1), read(grad, 1))
}

// Adam does one step of Adam or AdamW; M and V are float32.
func (w Widening) Adam(a Adam) {
	if !w.widens("Adam", a.DType) {
		w.Own.Adam(a)
		return
	}
	some := a
	some.DType, some.Index = f32, nil
	if a.Index == nil {
		w.elements(a.DType, a.Numel(), func(lo, n int, x []unsafe.Pointer) {
			some.Matrix, some.Param, some.Grad, some.M, some.V = Matrix{1, n}, x[0], x[1], floats(a.M, lo), floats(a.V, lo)
			w.Own.Adam(some)
		}, edit(a.Param, 1), read(a.Grad, 1))
		return
	}
	w.tableRows(Index{dtype.Int64, a.Index, a.Rows}, true, func(lo, n int, rows []unsafe.Pointer) {
		w.whole(a.DType, func(x []unsafe.Pointer) {
			some.Matrix, some.Param, some.Grad, some.M, some.V = Matrix{n, a.Cols}, rows[0], x[0], rows[1], rows[2]
			w.Own.Adam(some)
		}, read(unsafe.Add(a.Grad, lo*a.Cols*a.DType.Size()), n*a.Cols))
	}, table{a.DType, a.Param, a.Cols}, table{f32, a.M, a.Cols}, table{f32, a.V, a.Cols})
}

// AdagradRows does one step of row-wise Adagrad; State is float32.
func (w Widening) AdagradRows(a Adagrad) {
	if !w.widens("AdagradRows", a.DType) {
		w.Own.AdagradRows(a)
		return
	}
	w.tableRows(Index{dtype.Int64, a.Index, a.Rows}, true, func(lo, n int, rows []unsafe.Pointer) {
		numbers, room := w.numbered(n)
		defer room.Free()
		some := a
		some.DType, some.Rows, some.Index, some.Table, some.State = f32, n, numbers.At, rows[0], rows[1]
		if a.Mean != nil {
			some.Mean = unsafe.Add(a.Mean, lo*dtype.Float64.Size())
		}
		w.whole(a.DType, func(x []unsafe.Pointer) {
			some.Grad = x[0]
			w.Own.AdagradRows(some)
		}, read(unsafe.Add(a.Grad, lo*a.Cols*a.DType.Size()), n*a.Cols))
	}, table{a.DType, a.Table, a.Cols}, table{f32, a.State, 1})
}

// SumSquares computes dst = Σx², in float64.
func (w Widening) SumSquares(dst unsafe.Pointer, dt dtype.DType, x unsafe.Pointer, n int) {
	if !w.widens("SumSquares", dt) {
		w.Own.SumSquares(dst, dt, x, n)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.SumSquares(dst, f32, x[0], n) }, read(x, n))
}

// ColumnSquares computes dst[c] = Σx² over column c, in float64.
func (w Widening) ColumnSquares(dst unsafe.Pointer, dt dtype.DType, x unsafe.Pointer, m Matrix) {
	if !w.widens("ColumnSquares", dt) {
		w.Own.ColumnSquares(dst, dt, x, m)
		return
	}
	w.whole(dt, func(x []unsafe.Pointer) { w.Own.ColumnSquares(dst, f32, x[0], m) }, read(x, m.Rows*m.Cols))
}
