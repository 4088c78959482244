package backend

import (
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// Source returns the buffer of rank me whose elements the ranks read. It is empty if they
// read none.
func (c *Call) Source(me int) Buffer {
	switch root := c.Kind.Shape().Root; {
	case root == RootShares && me == c.Root:
		return c.Dst
	case root == RootShares || root == RootSends && me != c.Root:
		return Buffer{DType: c.DType()}
	case c.Kind.Shape().Pattern == PatternBarrier:
		return Buffer{DType: dtype.Uint8}
	}
	return c.Src
}

// Sends reports whether rank me may send elements to peer in a PatternMove call. Counts may
// still be 0.
func (c *Call) Sends(me, peer int) bool {
	switch c.Kind.Shape().Root {
	case RootReceives:
		return peer == c.Root
	case RootSends:
		return me == c.Root
	case RootShares:
		return me == c.Root && peer != me
	}
	return true
}

// Incoming returns which elements of rank me's Dst come from rank from in a PatternMove call
// of size ranks: n elements, beginning with element at.
func (c *Call) Incoming(me, from, size int) (at, n int) {
	if !c.Sends(from, me) {
		return 0, 0
	}
	return extent(c.Kind.Shape().Dst, c.Dst, c.DstCounts, from, size)
}

// Outgoing returns which elements of rank me's Source go to rank to in a call of size ranks:
// n elements, beginning with element at. In a reduction rank to folds them.
func (c *Call) Outgoing(me, to, size int) (at, n int) {
	if !c.Sends(me, to) {
		return 0, 0
	}
	s := c.Kind.Shape()
	if s.Root == RootShares {
		return 0, c.Dst.Count
	}
	return extent(s.Src, c.Src, c.SrcCounts, to, size)
}

// extent returns where part q of a buffer begins, and its length.
func extent(l Layout, b Buffer, counts []int, q, size int) (at, n int) {
	n = partLength(l, b, counts, q, size)
	switch l {
	case Parts:
		at = q * n
	case Counted:
		at = ints.Sum(counts[:q])
	}
	return at, n
}

// partLength returns the length of part q of a buffer.
func partLength(l Layout, b Buffer, counts []int, q, size int) int {
	switch l {
	case Whole:
		return b.Count
	case Parts:
		return b.Count / size
	case Counted:
		return counts[q]
	}
	return 0
}

// Lengths returns how many elements rank me sends to peer, and how many it expects from
// peer, in a Pairwise call. Each is -1 if there is no such transfer.
func (c *Call) Lengths(me, peer, size int) (sent, expected int) {
	sent, expected = -1, -1
	s := c.Kind.Shape()
	if !s.Pairwise() {
		return sent, expected
	}
	if c.Sends(me, peer) {
		sent = partLength(s.Src, c.Src, c.SrcCounts, peer, size)
	}
	if c.Sends(peer, me) {
		expected = partLength(s.Dst, c.Dst, c.DstCounts, peer, size)
	}
	return sent, expected
}
