package dtensor

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/object"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/internal/stack"
	"github.com/gorun-spmd/gorun/tensor"
)

// A ProductSample finds ranks that multiply wrongly, even where no other rank has the same shard. Between SampleProduct and Check
// each rank puts aside a few elements of one of its products, with what they were made from: of those of MatMul, Linear,
// ScaledDotProductAttention and their gradients, and of MatMulTo. In Check the next rank computes them again, by the same kernels. With
// SameBits an element has the same bits whatever is computed beside it, so a difference means that one of the two ranks is faulty.
type ProductSample struct {
	eng   *engine
	key   philox.Key
	named iter.Seq2[string, *Tensor]
	node  uint32        // says which node of a product that has several
	seen  uint64        // products so far
	taken *sampledPiece // nil: none
}

// SampleProduct begins to sample the products of all meshes of this rank. All of them are equally likely; seed, which must be the
// same on all ranks, chooses, and is the number of the step as a rule. named says how tensors are called in an error. It returns nil,
// whose Check does nothing, if SameBits is off. What is put aside takes some 64 KiB, or more where one element needs more, and no call is
// made before Check.
func (m *Mesh) SampleProduct(seed uint64, named iter.Seq2[string, *Tensor]) *ProductSample {
	if !m.eng.same {
		return nil
	}
	p := &ProductSample{eng: m.eng, key: philox.Key{Seed: seed}, named: named}
	p.node = p.key.Block(math.MaxUint64)[0]
	m.eng.products = p
	return p
}

// turn returns which of n nodes that a rank computes of a product may be sampled, 0 if it computes none.
func (p *ProductSample) turn(n int) int {
	if p == nil {
		return -1
	}
	return int(p.node % uint32(max(n, 1)))
}

// chosen returns random words if the product that comes next is the one to put aside, until another is.
func (p *ProductSample) chosen() (words [4]uint32, ok bool) {
	if p == nil {
		return words, false
	}
	words = p.key.Block(p.seen)
	p.seen++
	if uint64(words[0])%p.seen != 0 { // so that each of n products is the one that remains with probability 1/n
		return words, false
	}
	p.taken = nil
	return words, true
}

// begin returns a piece of what is computed of operands: a rank's part of a tensor, of shape local, from offset on. op names it in the
// forward pass.
func (p *ProductSample) begin(op string, local, offset []int, operands ...*tensor.Tensor) *sampledPiece {
	p.taken = &sampledPiece{Op: op, Local: local, Offset: offset}
	if n := p.eng.detecting; n != nil {
		p.taken.Op, p.taken.Line = "gradient of "+n.op, stack.Line(n.stack(), "")
	} else {
		p.taken.Line = stack.Line(callers(), "")
	}
	for _, x := range operands {
		for name, t := range p.named {
			if p.taken.Tensor == "" && partOf(x, t.local) {
				p.taken.Tensor = name
			}
		}
	}
	return p.taken
}

// partOf reports whether x lies in the memory of t.
func partOf(x, t *tensor.Tensor) bool {
	if _, absent := t.Absent(); absent || x.Numel() == 0 || t.Numel() == 0 {
		return false
	}
	first := uintptr(t.Ptr())
	return uintptr(x.Ptr()) >= first && uintptr(x.Ptr()) < first+uintptr(t.Bytes())
}

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
	wrong, err := piece.computeAgain(p.eng.dev)
	if err != nil {
		world.Abort(err)
		return nil, err
	}
	if wrong != nil {
		wrong.Rank, wrong.By = world.WorldRank(before), world.WorldRank(me)
	}
	return wrong, nil
}

// A ProductError says that two ranks have computed an element of a product from the same numbers, and not the same.
type ProductError struct {
	Op     string // "MatMul", "gradient of Linear"
	Line   string // that called it, "train/main.go:31"; "" if it is not known
	Tensor string // the named tensor that an operand is or is a part of; "" if none is, or it was cast or redistributed for the product
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
