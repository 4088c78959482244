package dtensor

import (
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// A sampledPiece is some elements of a result, and what they were made from, as the kernel that computes them takes it.
type sampledPiece struct {
	Op             string // "MatMul", "gradient of Linear"
	Line           string // that called Op
	Tensor         string // of those that are named, the one that is an operand
	Kernel         sampledKernel
	Operands       []sampledTensor
	TransA, TransB bool
	Out            int           // which of the kernel's results it is
	C              sampledTensor // what it was, a matrix
	First, Width   int           // in Local: the number of C's first element, and that of elements from row to row
	Local, Offset  []int         // the shape of the rank's part of the result, and where it begins in the global tensor
}

// A sampledKernel computes a piece.
type sampledKernel int

const (
	multiplies       sampledKernel = iota // a·b
	multipliesBiased                      // a·bᵀ + bias
	multipliesOnto                        // what was there + a·b
	attends                               // of q, k and v
	attendsGrad                           // of dy, q, k, v, y and lse
)

// A sampledTensor has the bytes of a tensor.
type sampledTensor struct {
	Type  tensor.DType
	Shape []int
	Data  []byte
}

const (
	sampledSide  = 8       // the most rows and columns of a product that are put aside
	sampledBytes = 1 << 16 // the most bytes of operands, unless the least piece has more
)

// product puts a piece of the product c = a·b aside, or a·b + bias, if its turn has come. c is this rank's part of a tensor of layout s.
func (p *ProductSample) product(op string, s *spec, a, b, bias, c *tensor.Tensor, transA, transB bool) {
	if words, ok := p.chosen(); ok && a.Numel() > 0 && b.Numel() > 0 {
		piece := p.begin(op, s.local, s.offset, a, b)
		piece.cut(a, b, bias, c.Shape(), transA, transB, words)
		piece.result(c)
	}
}

// A Part says which part of an operator's work a call of MatMulTo is.
type Part struct {
	Op          string // in errors: "LinearCrossEntropy: logits"
	Offset      []int  // of dst in what all calls compute together
	Node, Nodes int    // dst is the Node-th of so many nodes of a sum that this rank computes, one after another; Nodes is 1 for no sum
}

// MatMulTo is tensor.MatMulTo for an operator that is defined outside this package: its products are among those of a ProductSample.
func (m *Mesh) MatMulTo(part Part, dst, a, b *tensor.Tensor, transA, transB, accumulate bool) {
	p := m.eng.products
	if p.turn(part.Nodes) == part.Node {
		if words, ok := p.chosen(); ok && a.Numel() > 0 && b.Numel() > 0 {
			piece := p.begin("", dst.Shape(), part.Offset, a, b)
			piece.Op = part.Op
			piece.cut(a, b, nil, dst.Shape(), transA, transB, words)
			if accumulate {
				piece.Kernel = multipliesOnto
				piece.result(dst)
				piece.Operands = append(piece.Operands, piece.C)
			}
			defer piece.result(dst)
		}
	}
	tensor.MatMulTo(dst, a, b, transA, transB, accumulate)
}

// cut chooses elements of a product c of this shape by random words, and copies their operands.
func (piece *sampledPiece) cut(a, b, bias *tensor.Tensor, c []int, transA, transB bool, words [4]uint32) {
	piece.TransA, piece.TransB = transA, transB
	rowsA, inner := matrixOf(a)
	colsB := b.Dim(b.NDim() - 1)
	if transA {
		rowsA, inner = inner, rowsA
	}
	if transB {
		colsB = b.Dim(b.NDim() - 2)
	}
	if !transA && b.NDim() == 2 { // all matrices of a meet the same b
		rowsA = a.Numel() / inner
	}
	rows, cols := min(sampledSide, rowsA), min(sampledSide, colsB)
	for rows+cols > 2 && (rows+cols)*inner*a.DType().Size() > sampledBytes {
		rows, cols = (rows+1)/2, (cols+1)/2
	}
	matrix := int(words[1]) % (ints.Product(c) / (rowsA * colsB))
	row, col := int(words[2])%(rowsA-rows+1), int(words[3])%(colsB-cols+1)
	batch := c[:max(0, len(c)-2)]
	piece.Operands = append(piece.Operands,
		block(a, sizeBefore(a, batch, matrix)*rowsA*inner, rowsA, inner, row, rows, transA),
		block(b, sizeBefore(b, batch, matrix)*inner*colsB, colsB, inner, col, cols, !transB))
	if bias != nil {
		piece.Kernel = multipliesBiased
		its := block(bias, 0, 1, colsB, 0, 1, false)
		size := bias.DType().Size()
		piece.Operands = append(piece.Operands, sampledTensor{bias.DType(), []int{cols}, its.Data[col*size : (col+cols)*size]})
	}
	piece.First, piece.Width = matrix*rowsA*colsB+row*colsB+col, colsB
	piece.C.Shape = []int{rows, cols}
}

// result copies the elements of the piece from c, which has all of Local.
func (piece *sampledPiece) result(c *tensor.Tensor) {
	piece.C.Type, piece.C.Data = c.DType(), nil
	for r := range piece.C.Shape[0] {
		at := (piece.First + r*piece.Width) * c.DType().Size()
		piece.C.Data = append(piece.C.Data, bytesOf(c)[at:at+piece.C.Shape[1]*c.DType().Size()]...)
	}
	runtime.KeepAlive(c)
}

// matrixOf returns the last two dimensions of t.
func matrixOf(t *tensor.Tensor) (rows, cols int) {
	if n := t.NDim(); n > 1 {
		rows = t.Dim(n - 2)
	} else {
		rows = 1
	}
	return rows, t.Dim(t.NDim() - 1)
}

// sizeBefore returns how many matrices lie before the one of t that matrix number at of a product with these batch dimensions is made from.
func sizeBefore(t *tensor.Tensor, batch []int, at int) (n int) {
	own := t.Shape()[:max(0, t.NDim()-2)]
	step := 1
	for d := len(batch) - 1; d >= 0; d-- {
		if k := d - (len(batch) - len(own)); k >= 0 && own[k] > 1 {
			n += at % batch[d] * step
			step *= own[k]
		}
		at /= batch[d]
	}
	return n
}

// block returns some of the vectors of a matrix that begins at an element of t: rows, or columns if they lie across, as the matrix of
// them lies.
func block(t *tensor.Tensor, begin, vectors, length, first, n int, across bool) sampledTensor {
	size := t.DType().Size()
	b := sampledTensor{Type: t.DType(), Shape: []int{n, length}}
	all := bytesOf(t)[begin*size:]
	if !across {
		b.Data = slices.Clone(all[first*length*size : (first+n)*length*size])
	} else {
		b.Shape = []int{length, n}
		for k := range length {
			b.Data = append(b.Data, all[(k*vectors+first)*size:(k*vectors+first+n)*size]...)
		}
	}
	runtime.KeepAlive(t)
	return b
}

// bytesOf returns the memory of a tensor on the host, which must stay reachable.
func bytesOf(t *tensor.Tensor) []byte { return unsafe.Slice((*byte)(t.Ptr()), t.Bytes()) }

// on returns the tensor on a device.
func (b sampledTensor) on(dev tensor.Device) *tensor.Tensor {
	t := tensor.New(dev, b.Type, b.Shape...)
	copy(bytesOf(t), b.Data)
	return t
}

// computeAgain computes the piece again and returns the first difference, if there is one.
func (piece *sampledPiece) computeAgain(dev tensor.Device) (wrong *ProductError, err error) {
	defer fault.Catch(&err)
	defer dev.Open().Close()
	var in []*tensor.Tensor
	for _, b := range piece.Operands {
		in = append(in, b.on(dev))
	}
	was := piece.C.on(dev)
	now := tensor.NewLike(was)
	switch piece.Kernel {
	case multiplies:
		tensor.MatMulTo(now, in[0], in[1], piece.TransA, piece.TransB, false)
	case multipliesBiased:
		now = tensor.Linear(in[0], in[1], in[2])
	case multipliesOnto:
		now = in[2]
		tensor.MatMulTo(now, in[0], in[1], piece.TransA, piece.TransB, true)
	case attends:
		now, _ = tensor.Attention(in[0], in[1], in[2], false)
	case attendsGrad:
		dq, dk, dv := tensor.AttentionGrad(in[0], in[1], in[2], in[3], in[4], in[5], false)
		now = []*tensor.Tensor{dq, dk, dv}[piece.Out]
	}
	x, y := tensor.ToSlice[float64](tensor.Cast(was, tensor.Float64)), tensor.ToSlice[float64](tensor.Cast(now, tensor.Float64))
	for i := range x {
		if math.Float64bits(x[i]) == math.Float64bits(y[i]) || math.IsNaN(x[i]) && math.IsNaN(y[i]) ||
			piece.Kernel >= attends && masked(x[i], y[i]) {
			continue
		}
		cols := piece.C.Shape[1]
		index := globalIndex(piece.First+i/cols*piece.Width+i%cols, piece.Local, piece.Offset)
		return &ProductError{Op: piece.Op, Line: piece.Line, Tensor: piece.Tensor, Index: index, DType: piece.C.Type, Value: x[i],
			Again: y[i]}, nil
	}
	return nil, nil
}
