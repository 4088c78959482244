package backend

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A Part is the memory of one rank's part of a buffer, for backends. It has rows of width
// bytes, which begin pitch bytes apart; the first skip bytes are left out. A contiguous part
// has one row.
type Part struct {
	Ptr                unsafe.Pointer // the first row
	width, pitch, skip int
}

// Contiguous returns the part that begins at p and has one row.
func Contiguous(p unsafe.Pointer) Part { return Part{Ptr: p, width: math.MaxInt} }

// Part returns the part of b that has n elements; the parts before it have first elements
// together. If rows is above 1, b is a matrix of that many rows and its parts are columns: see
// Call.
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
	if i < p.width { // the first row, or a contiguous part
		return unsafe.Add(p.Ptr, i), min(n, p.width-i)
	}
	row, col := i/p.width, i%p.width
	return unsafe.Add(p.Ptr, row*p.pitch+col), min(n, p.width-col)
}

// A copy of at least prefetchBytes prefetches its source, unless its runs are shorter than
// prefetchRun.
const (
	prefetchBytes = 1 << 20
	prefetchRun   = 512
)

// CopyParts copies the first n bytes of src to dst. whole is how many bytes the caller copies
// in all: if that is more than the caches hold, the stores go past them.
func CopyParts(dst, src Part, n, whole int) {
	mode := simd.Copying(2 * whole)
	for i := 0; i < n; {
		d, run := dst.Run(i, n-i)
		s, run := src.Run(i, run)
		if to, from := unsafe.Slice((*byte)(d), run), unsafe.Slice((*byte)(s), run); n >= prefetchBytes && run >= prefetchRun {
			mode.CopyAhead(to, from)
		} else {
			copy(to, from)
		}
		i += run
	}
	mode.Done()
}

// rows reports whether the parts of Dst or of Src are columns.
func (c *Call) rows() bool { return c.DstRows > 1 || c.SrcRows > 1 }

// columns reports whether the parts of a buffer of layout l may be columns. They may in the
// calls without a root in which each part has a length of its own.
func (s Shape) columns(l Layout) bool { return l == Counted && s.Root == NoRoot }

// checkRows checks DstRows and SrcRows: each part must be a whole number of columns.
func (c *Call) checkRows() error {
	s := c.Kind.Shape()
	dst, src := s.columns(s.Dst), s.columns(s.Src)
	switch {
	case c.DstRows > 1 && !dst:
		return fmt.Errorf("DstRows is %d; %v has no parts of dst that could be columns", c.DstRows, c.Kind)
	case c.SrcRows > 1 && !src:
		return fmt.Errorf("SrcRows is %d; %v has no parts of src that could be columns", c.SrcRows, c.Kind)
	case c.SrcRows > 1 && c.Op == fold.Custom && c.Kind.Reduces() && c.Func.size != c.DType().Size():
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
