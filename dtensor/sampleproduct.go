package dtensor

import (
	"context"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/object"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/internal/stack"
	"github.com/gorun-spmd/gorun/tensor"
)

// A ProductSample finds ranks that multiply wrongly, also where no other rank has the same shard. Between SampleProduct and Check
// each rank puts aside a few elements of one of its products, of those of MatMul, Linear and their gradients, with the rows and
// columns that they were made from. In Check the next rank computes them again, by the same kernels. With SameBits an element has the
// same bits whatever is computed beside it, so a difference means that one of the two ranks is faulty.
type ProductSample struct {
	eng   *engine
	key   philox.Key
	named iter.Seq2[string, *Tensor]
	seen  uint64        // products so far
	taken *sampledPiece // nil: none
}

// A sampledPiece is Rows × Cols elements of a product, C, and what they were made from, as the product takes it.
type sampledPiece struct {
	Op             string // "MatMul", "gradient of Linear"
	Line           string // that called Op
	Tensor         string // of those that are named, the one that is an operand
	TransA, TransB bool
	Type, Out      tensor.DType // of the operands and of C
	Rows, Cols     int
	Inner          int // the inner dimension
	A, B, Bias, C  []byte
	First, Width   int   // in the rank's part of the product: the number of C's first element, and that of elements from row to row
	Local, Offset  []int // the shape of this part, and where it begins in the global tensor
}

const (
	sampledSide  = 8       // the most rows and columns of a product that are put aside
	sampledBytes = 1 << 16 // the most bytes of operands, unless one row and one column have more
)

// SampleProduct begins to sample the products of all meshes of this rank. All of them are equally likely; seed, which must be the
// same on all ranks, chooses, and is the number of the step as a rule. named says how tensors are called in an error. It returns nil,
// whose Check does nothing, if SameBits is off. What is put aside takes some 64 KiB, and no call is made before Check.
func (m *Mesh) SampleProduct(seed uint64, named iter.Seq2[string, *Tensor]) *ProductSample {
	if !m.eng.same {
		return nil
	}
	m.eng.products = &ProductSample{eng: m.eng, key: philox.Key{Seed: seed}, named: named}
	return m.eng.products
}

// turn returns which of n nodes that a rank computes of the next product may be sampled.
func (p *ProductSample) turn(n int) int {
	if p == nil {
		return -1
	}
	return int((p.seen + p.key.Seed) % uint64(n))
}

// product puts a piece of the product c = a·b aside, or a·b + bias, if its turn has come. c is this rank's part of a tensor of layout s.
func (p *ProductSample) product(op string, s *spec, a, b, bias, c *tensor.Tensor, transA, transB bool) {
	if p == nil {
		return
	}
	words := p.key.Block(p.seen)
	p.seen++
	if uint64(words[0])%p.seen != 0 { // so that each of n products is the one that remains with probability 1/n
		return
	}
	p.taken = nil
	if a.Numel() == 0 || b.Numel() == 0 {
		return
	}
	piece := &sampledPiece{Op: op, TransA: transA, TransB: transB, Type: a.DType(), Out: c.DType(), Local: s.local, Offset: s.offset}
	if n := p.eng.detecting; n != nil {
		piece.Op, piece.Line = "gradient of "+n.op, stack.Line(n.stack(), "")
	} else {
		piece.Line = stack.Line(callers(), "")
	}
	for name, t := range p.named {
		if t.local == a || t.local == b {
			piece.Tensor = name
		}
	}
	piece.cut(a, b, bias, c, words)
	p.taken = piece
}

// cut copies the elements that random words choose, and their operands.
func (piece *sampledPiece) cut(a, b, bias, c *tensor.Tensor, words [4]uint32) {
	rowsA, inner := matrixOf(a)
	colsB := b.Dim(b.NDim() - 1)
	if piece.TransA {
		rowsA, inner = inner, rowsA
	}
	if piece.TransB {
		colsB = b.Dim(b.NDim() - 2)
	}
	if !piece.TransA && b.NDim() == 2 { // all matrices of a meet the same b
		rowsA = a.Numel() / inner
	}
	piece.Inner, piece.Rows, piece.Cols = inner, min(sampledSide, rowsA), min(sampledSide, colsB)
	for piece.Rows+piece.Cols > 2 && (piece.Rows+piece.Cols)*inner*piece.Type.Size() > sampledBytes {
		piece.Rows, piece.Cols = (piece.Rows+1)/2, (piece.Cols+1)/2
	}
	matrix := int(words[1]) % (c.Numel() / (rowsA * colsB))
	row, col := int(words[2])%(rowsA-piece.Rows+1), int(words[3])%(colsB-piece.Cols+1)
	batch := c.Shape()[:max(0, c.NDim()-2)]
	piece.A = block(a, sizeBefore(a, batch, matrix)*rowsA*inner, rowsA, inner, row, piece.Rows, piece.TransA)
	piece.B = block(b, sizeBefore(b, batch, matrix)*inner*colsB, colsB, inner, col, piece.Cols, !piece.TransB)
	if bias != nil {
		size := bias.DType().Size()
		piece.Bias = slices.Clone(bytesOf(bias)[col*size : (col+piece.Cols)*size])
	}
	piece.First, piece.Width = matrix*rowsA*colsB+row*colsB+col, colsB
	for r := range piece.Rows {
		at := (piece.First + r*colsB) * c.DType().Size()
		piece.C = append(piece.C, bytesOf(c)[at:at+piece.Cols*c.DType().Size()]...)
	}
	runtime.KeepAlive([]*tensor.Tensor{bias, c})
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
func block(t *tensor.Tensor, begin, vectors, length, first, n int, across bool) (b []byte) {
	size := t.DType().Size()
	all := bytesOf(t)[begin*size:]
	if !across {
		b = slices.Clone(all[first*length*size : (first+n)*length*size])
	} else {
		for k := range length {
			b = append(b, all[(k*vectors+first)*size:(k*vectors+first+n)*size]...)
		}
	}
	runtime.KeepAlive(t)
	return b
}

// bytesOf returns the memory of a tensor on the host, which must stay reachable.
func bytesOf(t *tensor.Tensor) []byte { return unsafe.Slice((*byte)(t.Ptr()), t.Bytes()) }

// Drop ends the sampling, without a comparison. After Check it does nothing.
func (p *ProductSample) Drop() {
	if p != nil && p.eng.products == p {
		p.eng.products = nil
	}
}

// Check ends the sampling. It returns a *ProductError, the same on every rank, if a rank has computed otherwise what the one before it
// has put aside. It is collective over world: each rank sends the next one its sample, and one number of each rank is gathered.
func (p *ProductSample) Check(ctx context.Context, world *comm.Comm) error {
	if p == nil {
		return nil
	}
	p.Drop()
	if world.Size() == 1 {
		return nil
	}
	wrong, err := p.compare(ctx, world)
	if err != nil {
		return fmt.Errorf("dtensor: ProductSample.Check: %w", err)
	}
	mine, all := []int64{0}, make([]int64, world.Size())
	if wrong != nil {
		mine[0] = 1
	}
	if err := world.Do(ctx, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: "ProductSample"}); err != nil {
		return fmt.Errorf("dtensor: ProductSample.Check: %w", err)
	}
	by := slices.Index(all, 1)
	if by < 0 {
		return nil
	}
	also := false
	for r, found := range all { // rank r-1 multiplies wrongly more likely if it finds rank r-2 wrong too
		if before := (r + len(all) - 1) % len(all); found == 1 && all[before] == 1 && len(all) > 2 {
			by, also = r, true
			break
		}
	}
	if wrong, err = comm.BroadcastObject(ctx, world, wrong, by); err != nil {
		return fmt.Errorf("dtensor: ProductSample.Check: %w", err)
	}
	wrong.Also = also
	return fmt.Errorf("dtensor: ProductSample.Check: %w", wrong)
}

// compare sends the next rank what this one has put aside, and returns how what the one before it has differs from what this rank
// computes. Its error is one that has ended the communicator.
func (p *ProductSample) compare(ctx context.Context, world *comm.Comm) (*ProductError, error) {
	me, n := world.Rank(), world.Size()
	next, before := (me+1)%n, (me+n-1)%n
	out, err := object.Encode(p.taken)
	if err != nil {
		world.Abort(err)
		return nil, err
	}
	// pass sends the next rank src and fills dst with what the one before sends. Not every backend has SendRecv.
	pass := func(dst, src comm.Buffer) error {
		first := comm.Call{Kind: comm.SendKind, Root: next, Src: src, Cause: "ProductSample"}
		second := comm.Call{Kind: comm.RecvKind, Root: before, Dst: dst, Cause: "ProductSample"}
		if me%2 == 1 { // a send may wait for its receiver
			first, second = second, first
		}
		if err := world.Do(ctx, first); err != nil {
			return err
		}
		return world.Do(ctx, second)
	}
	theirs := []int64{0}
	if err := pass(comm.Of(theirs), comm.Of([]int64{int64(len(out))})); err != nil {
		return nil, err
	}
	got := make([]byte, theirs[0])
	if err := pass(comm.Of(got), comm.Of(out)); err != nil {
		return nil, err
	}
	piece, err := object.Decode[*sampledPiece](got)
	if err != nil || piece == nil {
		if err != nil {
			world.Abort(err)
		}
		return nil, err
	}
	wrong, err := piece.again(p.eng.dev)
	if err != nil {
		world.Abort(err)
		return nil, err
	}
	if wrong != nil {
		wrong.Rank, wrong.By = world.WorldRank(before), world.WorldRank(me)
	}
	return wrong, nil
}

// again computes the piece and returns the first difference, if there is one.
func (piece *sampledPiece) again(dev tensor.Device) (wrong *ProductError, err error) {
	defer fault.Catch(&err)
	defer dev.Open().Close()
	of := func(b []byte, dt tensor.DType, rows, cols int, across bool) *tensor.Tensor {
		if across {
			rows, cols = cols, rows
		}
		t := tensor.New(dev, dt, rows, cols)
		copy(bytesOf(t), b)
		return t
	}
	a := of(piece.A, piece.Type, piece.Rows, piece.Inner, piece.TransA)
	b := of(piece.B, piece.Type, piece.Cols, piece.Inner, !piece.TransB)
	was := of(piece.C, piece.Out, piece.Rows, piece.Cols, false)
	now := tensor.NewLike(was)
	if piece.Bias != nil {
		now = tensor.Linear(a, b, of(piece.Bias, piece.Type, 1, piece.Cols, false).Reshape(piece.Cols))
	} else {
		tensor.MatMulTo(now, a, b, piece.TransA, piece.TransB, false)
	}
	x, y := tensor.ToSlice[float64](tensor.Cast(was, tensor.Float64)), tensor.ToSlice[float64](tensor.Cast(now, tensor.Float64))
	for i := range x {
		if math.Float64bits(x[i]) == math.Float64bits(y[i]) || math.IsNaN(x[i]) && math.IsNaN(y[i]) {
			continue
		}
		index := globalIndex(piece.First+i/piece.Cols*piece.Width+i%piece.Cols, piece.Local, piece.Offset)
		return &ProductError{Op: piece.Op, Line: piece.Line, Tensor: piece.Tensor, Index: index, DType: piece.Out, Value: x[i], Again: y[i]}, nil
	}
	return nil, nil
}

// A ProductError says that two ranks have computed an element of a product from the same numbers, and not the same.
type ProductError struct {
	Op     string // "MatMul", "gradient of Linear"
	Line   string // that called it, "train/main.go:31"; "" if it is not known
	Tensor string // the named tensor that is an operand; "" if none is, or it was cast or redistributed for the product
	Index  []int  // of the element in the global tensor, or in what the rank adds to it
	Rank   int    // the world's number of the rank whose product it is
	By     int    // and of that which has computed it again
	Also   bool   // Rank differs from a third rank too, whose product it has computed again
	DType  tensor.DType
	Value  float64 // on Rank
	Again  float64 // on By
}

// Product returns the operator and, if it is known, the line that called it: "MatMul at train/main.go:31".
func (e *ProductError) Product() string {
	if e.Line == "" {
		return e.Op
	}
	return e.Op + " at " + e.Line
}

// Error names the operator, the element and the two ranks.
func (e *ProductError) Error() string {
	what := e.Product()
	if e.Tensor != "" {
		what += fmt.Sprintf(", of tensor %q", e.Tensor)
	}
	blame := "one of the two computes wrongly"
	if e.Also {
		blame = fmt.Sprintf("rank %d differs from a third rank too, so it computes wrongly", e.Rank)
	}
	return fmt.Sprintf("product %s: element %v is %s on rank %d, but %s on rank %d, which computed it again from the same numbers; %s: "+
		"look for a faulty core and for faulty memory", what, e.Index, e.show(e.Value), e.Rank, e.show(e.Again), e.By, blame)
}

// show writes a value and its bits.
func (e *ProductError) show(v float64) string {
	switch e.DType {
	case tensor.Float64:
		return fmt.Sprintf("%v (%#016x)", v, math.Float64bits(v))
	case tensor.Float32:
		return fmt.Sprintf("%v (%#08x)", float32(v), math.Float32bits(float32(v)))
	}
	return fmt.Sprint(float32(v))
}
