package comm

// Source returns the buffer of rank me whose elements the ranks read. It is empty if they
// read none.
func (c *Call) Source(me int) Buffer {
	switch root := c.Kind.Shape().Root; {
	case root == RootShares && me == c.Root:
		return c.Dst
	case root == RootShares || root == RootSends && me != c.Root:
		return Buffer{DType: c.DType()}
	case c.Kind.Shape().Pattern == PatternBarrier:
		return Buffer{DType: Uint8}
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

// Receives reports whether rank me may receive elements from peer in a PatternMove call.
func (c *Call) Receives(me, peer int) bool { return c.Sends(peer, me) }

// Incoming returns which elements of rank me's Dst come from rank from in a PatternMove call
// of size ranks: n elements, beginning with element at.
func (c *Call) Incoming(me, from, size int) (at, n int) {
	if !c.Receives(me, from) {
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
	switch l {
	case Whole:
		return 0, b.Count
	case Parts:
		n = b.Count / size
		return q * n, n
	case Counted:
		return sum(counts[:q]), counts[q]
	}
	return 0, 0
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Lengths returns how many elements rank me sends to peer, and how many it expects from
// peer, in a Pairwise call. Each is -1 if there is no such transfer.
func (c *Call) Lengths(me, peer, size int) (sent, expected int) {
	sent, expected = -1, -1
	if !c.Kind.Shape().Pairwise() {
		return sent, expected
	}
	length := func(l Layout, b Buffer, counts []int) int { // without the sum that says where it begins
		if l == Counted {
			return counts[peer]
		}
		_, n := extent(l, b, counts, peer, size)
		return n
	}
	if c.Sends(me, peer) {
		sent = length(c.Kind.Shape().Src, c.Src, c.SrcCounts)
	}
	if c.Receives(me, peer) {
		expected = length(c.Kind.Shape().Dst, c.Dst, c.DstCounts)
	}
	return sent, expected
}

// agreedCount returns the number of elements that must be the same on all ranks. ok is false
// in calls that have no such number: those with counts, and Barrier.
func (c *Call) agreedCount() (n int, ok bool) {
	s := c.Kind.Shape()
	switch {
	case s.Dst == Counted || s.Src == Counted || s.Pattern == PatternBarrier:
		return 0, false
	case s.Dst == Whole && s.Src != Whole:
		return c.Dst.Count, true
	}
	return c.Src.Count, true
}

// Empty reports whether all ranks know that the call moves no elements on any rank.
func (c *Call) Empty() bool {
	switch s := c.Kind.Shape(); {
	case s.Pattern == PatternBarrier:
		return true
	case s.Agreed && s.Dst == Counted:
		return c.Dst.Count == 0
	case s.Agreed:
		return c.Src.Count == 0
	}
	n, ok := c.agreedCount()
	return ok && n == 0
}

// Deal sets sends[q] to the buffer that rank me of a PatternMove call sends to rank q, and
// recvs[q] to the one that it receives from rank q. Both must hold empty buffers. It is for
// backends that carry out a collective by messages. It returns an error for other calls.
func (c *Call) Deal(me int, sends, recvs []Buffer) error {
	s := c.Kind.Shape()
	if s.Pattern != PatternMove {
		return c.unknown("comm.Call.Deal")
	}
	source := c.Source(me)
	if s.Src == Parts || s.Src == Counted {
		if s.Root != RootSends || me == c.Root {
			source.Divide(sends, c.SrcCounts)
		}
	} else {
		for q := range sends {
			if c.Sends(me, q) {
				sends[q] = source
			}
		}
	}
	if s.Dst == Whole {
		if c.Receives(me, c.Root) {
			recvs[c.Root] = c.Dst
		}
	} else if s.gets(me, c.Root) {
		c.Dst.Divide(recvs, c.DstCounts)
	}
	return nil
}

// Divide sets into[q] to rank q's part of b, which has counts[q] elements. Without counts all
// parts have the same length.
func (b Buffer) Divide(into []Buffer, counts []int) {
	lo, n := 0, b.Count/len(into)
	for q := range into {
		if counts != nil {
			n = counts[q]
		}
		into[q] = b.Slice(lo, lo+n)
		lo += n
	}
}

// Share divides b into nearly equal parts, one for each rank, each a whole number of the
// operation's elements.
func (c *Call) Share(into []Buffer, b Buffer) {
	n, unit := len(into), c.Unit()/c.DType().Size()
	units := b.Count / unit
	for q := range into {
		into[q] = b.Slice(units*q/n*unit, units*(q+1)/n*unit)
	}
}
