package backend

import (
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/internal/fold"
)

// A Special is the set of what a call has that a backend may not take as it is.
type Special uint8

// The bits of a Special.
const (
	SpecialRows    Special = 1 << iota // DstRows or SrcRows
	SpecialStructs                     // elements without a DType
	SpecialInPlace                     // Dst and Src overlap, as a call in place may
)

// Problem returns what is wrong with the call on rank of size, nil if nothing is, and if so what is special about it.
func (c *Call) Problem(rank, size int) (special Special, err error) {
	s := c.Kind.Shape()
	switch {
	case !c.Kind.Valid():
		return 0, fmt.Errorf("invalid kind %v; use one of the kinds of package comm", c.Kind)
	case s.Pattern == PatternBarrier:
		return special, nil
	case s.Root == NoRoot && s.Pattern != PatternMessage: // Root is not used
	case c.Root < 0 || c.Root >= size:
		return 0, fmt.Errorf("rank %d is not in the communicator; give one of 0 to %d", c.Root, size-1)
	case s.Pattern == PatternMessage && c.Root == rank:
		return 0, fmt.Errorf("rank %d is this rank itself; copy instead", c.Root)
	}
	dst, src, dt := &c.Dst, &c.Src, c.DType()
	if dt.Size() == 0 {
		return 0, errors.New("neither dst nor src has an element type; make them with comm.Of")
	}
	if s.Pattern >= PatternReduce {
		if err := c.checkOp(dt); err != nil {
			return 0, err
		}
	}
	if c.ofStructs() {
		special |= SpecialStructs
		if err := c.checkTypes(); err != nil {
			return 0, err
		}
	}
	if dst.DType != src.DType && dst.DType.Size() > 0 && src.DType.Size() > 0 {
		return 0, fmt.Errorf("dst holds %v and src %v; cast one of them", dst.DType, src.DType)
	}
	if dst.Count < 0 || src.Count < 0 || dst.Count > 0 && dst.Ptr == nil || src.Count > 0 && src.Ptr == nil {
		return 0, fmt.Errorf("dst has %d elements at %v and src %d at %v; give both memory", dst.Count, dst.Ptr, src.Count, src.Ptr)
	}
	if c.rows() {
		special |= SpecialRows
		if err := c.checkRows(); err != nil {
			return 0, err
		}
	}
	same := s.InPlace && dst.Ptr == src.Ptr && dst.Count == src.Count
	if !same {
		if err := c.checkCounts(rank, size); err != nil {
			return 0, err
		}
	}
	if s.Pattern >= PatternReduce && c.Op == fold.Custom {
		if err := c.checkFunc(); err != nil {
			return 0, err
		}
	}
	if same || !dst.Overlaps(*src) {
		return special, nil
	}
	if !c.inPlace(rank, size) {
		return 0, errors.New("dst and src overlap; give two separate buffers, or one as the documentation says of calls in place")
	}
	return special | SpecialInPlace, nil
}

// checkOp checks the operation of a reduction of elements of type dt.
func (c *Call) checkOp(dt DType) error {
	switch {
	case c.Op != fold.Custom:
		return c.Op.Accepts(dt)
	case c.Func == nil || c.Func.combine == nil && c.Func.problem == nil:
		return errors.New("operation custom without a Func; make one with comm.NewFunc")
	}
	return c.Func.problem
}

// checkCounts checks the lengths of the buffers by the table of shapes.
func (c *Call) checkCounts(rank, size int) error {
	s, d, n := c.Kind.Shape(), c.Dst.Count, c.Src.Count
	if t := c.structType(); t != nil {
		d, n = d/t.Size, n/t.Size
	}
	dst, src := s.Dst, s.Src
	if s.Root == RootReceives && rank != c.Root {
		dst = Unused
	}
	if s.Root == RootSends && rank != c.Root {
		src = Unused
	}
	wantDst, wantSrc := n, n
	switch {
	case s.Pattern == NoPattern:
		return c.unknown("comm")
	case dst == Unused || src == Unused:
		return nil
	case dst == Whole && src == Whole:
	case dst == Parts && src == Whole:
		wantDst = size * n
	case dst == Whole && src == Parts:
		wantDst, wantSrc = d, size*d
	case dst == Parts && src == Parts:
		if d != n || n%size != 0 {
			return fmt.Errorf("len(dst) is %d and len(src) %d; both must be the same multiple of the %d ranks", d, n, size)
		}
	default:
		return c.checkVectors(rank, size, d, n)
	}
	switch {
	case d == wantDst && n == wantSrc:
		return nil
	case wantDst == wantSrc:
		return fmt.Errorf("len(dst) is %d and len(src) %d; they must be equal; in place, give the buffer as both", d, n)
	}
	return fmt.Errorf("len(dst) is %d and len(src) %d; they must be %d and %d", d, n, wantDst, wantSrc)
}

// checkVectors checks the counts of a call that has some, and whose buffers have d and n elements.
func (c *Call) checkVectors(rank, size, d, n int) error {
	switch s := c.Kind.Shape(); {
	case s.Dst == Counted && s.Src == Whole:
		return vector("dst", c.DstCounts, size, d, rank, n)
	case s.Dst == Whole && s.Src == Counted:
		return vector("src", c.SrcCounts, size, n, rank, d)
	case s.Dst == Counted && s.Src == Counted:
		if err := vector("dst", c.DstCounts, size, d, -1, 0); err != nil {
			return err
		}
		if err := vector("src", c.SrcCounts, size, n, -1, 0); err != nil {
			return err
		}
		if c.DstCounts[rank] != c.SrcCounts[rank] {
			return fmt.Errorf("this rank %d sends itself %d elements and expects %d; make dstCounts[%d] and srcCounts[%d] equal",
				rank, c.SrcCounts[rank], c.DstCounts[rank], rank, rank)
		}
		return nil
	default:
		return fmt.Errorf("no check of %v, whose buffers are of layouts %d and %d; write it in checkCounts of package comm/backend",
			c.Kind, s.Dst, s.Src)
	}
}

// checkFunc checks that a Func's elements are whole in every rank's part.
func (c *Call) checkFunc() error {
	unit := c.DType().Size() * c.Width()
	whole := c.Dst.Bytes()%c.Func.size == 0 && c.Src.Bytes()%c.Func.size == 0
	for _, n := range c.SrcCounts {
		whole = whole && n*unit%c.Func.size == 0
	}
	if !whole {
		return fmt.Errorf("dst has %d bytes and src %d, not a whole number of the %d-byte elements of %q in each part",
			c.Dst.Bytes(), c.Src.Bytes(), c.Func.size, c.Func.name)
	}
	return nil
}

// vector checks the counts of one buffer: one a rank, their sum its length,
// and the entry of rank (if not -1) the length own of the other buffer.
func vector(name string, counts []int, size, length, rank, own int) error {
	if len(counts) != size {
		return fmt.Errorf("%sCounts has %d entries; give one for each of the %d ranks", name, len(counts), size)
	}
	sum := 0
	for r, n := range counts {
		if n < 0 {
			return fmt.Errorf("%sCounts[%d] is %d; counts are not negative", name, r, n)
		}
		if sum += n; sum < 0 {
			return fmt.Errorf("%sCounts[%d] is %d; with those before it that is more than an int holds", name, r, n)
		}
	}
	if sum != length {
		return fmt.Errorf("%sCounts sum to %d and len(%s) is %d; they must be equal", name, sum, name, length)
	}
	if rank >= 0 && counts[rank] != own {
		return fmt.Errorf("%sCounts[%d] is %d and this rank's part has %d elements; they must be equal", name, rank, counts[rank], own)
	}
	return nil
}
