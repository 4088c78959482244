package comm

import (
	"fmt"
	"math"
	"unsafe"
)

// A Part is the memory of one rank's part of a buffer, for backends: rows of Width
// bytes, Pitch bytes apart. What is contiguous is one row.
type Part struct {
	Ptr          unsafe.Pointer
	Width, Pitch int
}

// Part returns the part of b that has n elements, after first elements in the parts
// before it, where b is laid out in rows as Call says.
func (b Buffer) Part(rows, first, n int) Part {
	size := b.DType.Size()
	if rows <= 1 || n == 0 {
		return Part{Ptr: b.Slice(first, first+n).Ptr, Width: math.MaxInt}
	}
	return Part{Ptr: unsafe.Add(b.Ptr, first/rows*size), Width: n / rows * size, Pitch: b.Count / rows * size}
}

// Run returns the address of byte i of the part, and how many of n bytes from there
// on lie one after another.
func (p Part) Run(i, n int) (at unsafe.Pointer, bytes int) {
	if i < p.Width { // most are contiguous
		return unsafe.Add(p.Ptr, i), min(n, p.Width-i)
	}
	row, col := i/p.Width, i%p.Width
	return unsafe.Add(p.Ptr, row*p.Pitch+col), min(n, p.Width-col)
}

// TakesRows reports whether c carries out calls with DstRows and SrcRows. It does
// where ranks read each other's memory, and does not where buffers are handed to a
// library or lie in the memory of a device: there the caller must pack.
func (c *Comm) TakesRows() bool {
	r, ok := c.backend.(interface{ TakesRows() bool })
	return ok && r.TakesRows() && c.shared.staging.Load() == nil
}

// rows reports whether a buffer's parts are columns.
func (c *Call) rows() bool { return c.DstRows > 1 || c.SrcRows > 1 }

// mayHaveRows returns which buffers of a call of kind k may have rows.
func (k Kind) mayHaveRows() (dst, src bool) {
	switch k {
	case AllGatherVKind:
		return true, false
	case ReduceScatterVKind:
		return false, true
	case AllToAllVKind:
		return true, true
	}
	return false, false
}

// checkRows checks that every part of a buffer is whole columns of its rows.
func (c *Call) checkRows() error {
	dst, src := c.Kind.mayHaveRows()
	switch {
	case c.DstRows > 1 && !dst:
		return fmt.Errorf("DstRows is %d; %v has no parts of dst that could be columns", c.DstRows, c.Kind)
	case c.SrcRows > 1 && !src:
		return fmt.Errorf("SrcRows is %d; %v has no parts of src that could be columns", c.SrcRows, c.Kind)
	case c.SrcRows > 1 && c.Op == Custom && c.Kind.Reduces() && c.Func.size != c.DType().Size():
		return fmt.Errorf("SrcRows is %d and %q is on %d-byte elements; columns are of single elements", c.SrcRows, c.Func.name, c.Func.size)
	}
	for r, n := range c.DstCounts {
		if c.DstRows > 1 && n%c.DstRows != 0 {
			return fmt.Errorf("dstCounts[%d] is %d, not whole columns of %d rows", r, n, c.DstRows)
		}
	}
	for r, n := range c.SrcCounts {
		if c.SrcRows > 1 && n%c.SrcRows != 0 {
			return fmt.Errorf("srcCounts[%d] is %d, not whole columns of %d rows", r, n, c.SrcRows)
		}
	}
	return nil
}
