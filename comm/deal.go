package comm

// Deal fills sends and recvs, an empty buffer for each rank, with what rank me of a
// call that only moves data sends to each and receives from it: for backends that
// make calls of messages between pairs of ranks.
func (c *Call) Deal(me int, sends, recvs []Buffer) {
	switch c.Kind {
	case BroadcastKind:
		if me != c.Root {
			recvs[c.Root] = c.Dst
			break
		}
		for q := range sends {
			if q != me {
				sends[q] = c.Dst
			}
		}
	case AllGatherKind, AllGatherVKind, SplitKind:
		for q := range sends {
			sends[q] = c.Src
		}
		c.Dst.Divide(recvs, c.DstCounts)
	case GatherKind, GatherVKind:
		sends[c.Root] = c.Src
		if me == c.Root {
			c.Dst.Divide(recvs, c.DstCounts)
		}
	case ScatterKind, ScatterVKind:
		recvs[c.Root] = c.Dst
		if me == c.Root {
			c.Src.Divide(sends, c.SrcCounts)
		}
	case AllToAllKind, AllToAllVKind:
		c.Src.Divide(sends, c.SrcCounts)
		c.Dst.Divide(recvs, c.DstCounts)
	}
}

// Divide gives each rank its part of b: counts elements, the same number if there are
// no counts.
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

// Share divides b among the ranks, in whole elements of the operation.
func (c *Call) Share(into []Buffer, b Buffer) {
	n, unit := len(into), c.Unit()/c.DType().Size()
	units := b.Count / unit
	for q := range into {
		into[q] = b.Slice(units*q/n*unit, units*(q+1)/n*unit)
	}
}
