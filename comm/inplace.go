package comm

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// inPlace reports whether Dst and Src may overlap as they do, on rank of size:
//
//   - in a gather Src is this rank's part of Dst, in a scatter Dst is the root's part of Src;
//   - in an AllReduce, Reduce, ReduceScatter, Scan or AllToAll both begin at one address.
func (c *Call) inPlace(rank, size int) bool {
	s := c.Kind.Shape()
	width := c.width()
	switch {
	case c.rows() || c.Dst.Count == 0 || c.Src.Count == 0:
		return false
	case s.Pattern != PatternMove || s.Dst != Whole && s.Src != Whole:
		return c.Dst.Ptr == c.Src.Ptr
	case s.Src == Whole && s.Root != RootSends:
		at, n := extent(s.Dst, c.Dst, c.DstCounts, rank, size)
		return c.Src.Ptr == unsafe.Add(c.Dst.Ptr, at*width*c.DType().Size()) && c.Src.Count == n*width
	case s.Dst == Whole && s.Root == RootSends:
		at, n := extent(s.Src, c.Src, c.SrcCounts, rank, size)
		return c.Dst.Ptr == unsafe.Add(c.Src.Ptr, at*width*c.DType().Size()) && c.Dst.Count == n*width
	}
	return false
}

// checkInPlace is checkCounts for a call whose buffers overlap.
func (c *Call) checkInPlace(rank, size int) error {
	if err := c.checkCounts(rank, size); err != nil {
		return err
	}
	if !c.inPlace(rank, size) {
		return errors.New("dst and src overlap; give two separate buffers, or one as the documentation says of calls in place")
	}
	c.special |= overlaps
	return nil
}

// separate gives a call in place two buffers that do not overlap, for the backend. Where ranks
// read each other's memory, gathers and scatters need none: nobody writes what another reads.
func (c *Comm) separate(call *Call) error {
	s := call.Kind.Shape()
	d, ok := c.carrier().(DeviceHolder)
	n, without := c.backend.(NumberlessBackend)
	switch {
	case without && n.Numberless(call.Dst.Ptr): // nothing moves
	case ok && d.Holds(call.Dst.Ptr):
		return fmt.Errorf("%v in place is not for device memory; give two separate buffers", call.Kind)
	case s.Pattern == PatternMove && (s.Dst == Whole || s.Src == Whole) && c.Internals().SupportsRows():
	case s.Root == RootSends:
		call.Dst = c.copyOf(call.Dst) // its elements are in place already
	default:
		call.Src = c.copyOf(call.Src)
	}
	return nil
}

// copyOf returns a copy of b, which lasts until the next call.
func (c *Comm) copyOf(b Buffer) Buffer {
	if words := (b.Bytes() + 7) / 8; len(c.scratch) < words {
		c.scratch = make([]uint64, words)
	}
	data := b.Data()
	b.Ptr = unsafe.Pointer(unsafe.SliceData(c.scratch))
	simd.Copy(b.Data(), data)
	return b
}
