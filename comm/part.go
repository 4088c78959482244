package comm

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// A Part is the memory of one rank's part of a buffer, for backends: rows of width
// bytes, pitch bytes apart, without the first skip bytes. What is contiguous is one row.
type Part struct {
	Ptr                unsafe.Pointer // of its first row
	width, pitch, skip int
}

// Contiguous returns the part that lies at p.
func Contiguous(p unsafe.Pointer) Part { return Part{Ptr: p, width: math.MaxInt} }

// Part returns the part of b that has n elements, after first elements in the parts
// before it, where b is laid out in rows as Call says.
func (b Buffer) Part(rows, first, n int) Part {
	size := b.DType.Size()
	if rows <= 1 || n == 0 {
		return Contiguous(b.Slice(first, first+n).Ptr)
	}
	return Part{Ptr: unsafe.Add(b.Ptr, first/rows*size), width: n / rows * size, pitch: b.Count / rows * size}
}

// From returns the part without its first bytes.
func (p Part) From(bytes int) Part {
	p.skip += bytes
	return p
}

// Run returns the address of byte i of the part, and how many of n bytes from there
// on lie one after another.
func (p Part) Run(i, n int) (at unsafe.Pointer, bytes int) {
	i += p.skip
	if i < p.width { // most are contiguous
		return unsafe.Add(p.Ptr, i), min(n, p.width-i)
	}
	row, col := i/p.width, i%p.width
	return unsafe.Add(p.Ptr, row*p.pitch+col), min(n, p.width-col)
}

// Runs of something of aheadBytes are copied as a piece of it if they are of aheadRun.
const (
	aheadBytes = 1 << 20
	aheadRun   = 512
)

// CopyParts copies the first n bytes of src to dst, of whole bytes that the caller
// copies in all.
func CopyParts(dst, src Part, n, whole int) {
	l := simd.Moving(2 * whole)
	for i := 0; i < n; {
		d, run := dst.Run(i, n-i)
		s, run := src.Run(i, run)
		if to, from := unsafe.Slice((*byte)(d), run), unsafe.Slice((*byte)(s), run); n >= aheadBytes && run >= aheadRun {
			l.CopyAhead(to, from)
		} else {
			copy(to, from)
		}
		i += run
	}
	l.Done()
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
