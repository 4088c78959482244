package comm

import (
	"fmt"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// inPlace reports whether Dst and Src may overlap as they do, on rank of size:
//
//   - in a gather Src is this rank's part of Dst, in a scatter Dst is the root's part of Src;
//   - in an AllReduce, Reduce, ReduceScatter, Scan or AllToAll both begin at one address.
func (c *Call) inPlace(rank, size int) bool {
	if c.rows() || c.Dst.Count == 0 || c.Src.Count == 0 {
		return false
	}
	s := c.Kind.Shape()
	part, whole, layout, counts := c.Src, c.Dst, s.Dst, c.DstCounts
	switch {
	case s.Pattern != PatternMove || s.Dst != Whole && s.Src != Whole:
		return c.Dst.Ptr == c.Src.Ptr
	case s.Root == RootShares:
		return false
	case s.Root == RootSends:
		part, whole, layout, counts = c.Dst, c.Src, s.Src, c.SrcCounts
	}
	at, n := extent(layout, whole, counts, rank, size)
	if layout == Counted { // counts are in elements of the user's
		at, n = at*c.Width(), n*c.Width()
	}
	return part.Ptr == unsafe.Add(whole.Ptr, at*c.DType().Size()) && part.Count == n
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
