package backend

import "unsafe"

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
