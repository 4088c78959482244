package mem

import (
	"fmt"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
)

// agree checks what only all ranks together know: that what one sends another
// expects. world gives the ranks' world numbers, for the message.
func agree(calls []*comm.Call, world []int) error {
	for p, c := range calls {
		for q, d := range calls {
			var sent, expected int
			switch c.Kind {
			case comm.AllToAllVKind:
				sent, expected = c.SrcCounts[q], d.DstCounts[p]
			case comm.GatherVKind:
				if q == c.Root {
					sent, expected = c.Src.Count, d.DstCounts[p]
				}
			case comm.ScatterVKind:
				if p == c.Root {
					sent, expected = c.SrcCounts[q], d.Dst.Count
				}
			}
			if sent != expected {
				return comm.Uneven(c.Kind, world[p], sent, world[q], expected)
			}
		}
	}
	return nil
}

// compute leaves the call's result in its Dst, or aside, by the loops of package
// comm's documentation.
func (r *Rank) compute(calls []*comm.Call) {
	call, me := calls[r.rank], r.rank
	switch call.Kind {
	case comm.BarrierKind:
	case comm.BroadcastKind:
		if me != call.Root {
			take(call, 0, calls[call.Root].Dst.Part(1, 0, call.Dst.Count), call.Dst.Count)
		}
	case comm.AllReduceKind:
		r.fold(calls, 0)
	case comm.ReduceKind:
		if me == call.Root {
			r.fold(calls, 0)
		}
	case comm.ReduceScatterKind:
		r.fold(calls, me*call.Dst.Count)
	case comm.ReduceScatterVKind:
		r.fold(calls, before(call.SrcCounts, me))
	case comm.ScatterKind:
		take(call, 0, calls[call.Root].Src.Part(1, me*call.Dst.Count, call.Dst.Count), call.Dst.Count)
	case comm.ScatterVKind:
		root := calls[call.Root]
		take(call, 0, root.Src.Part(1, before(root.SrcCounts, me), call.Dst.Count), call.Dst.Count)
	case comm.AllToAllKind, comm.AllToAllVKind:
		at := 0
		for _, c := range calls {
			n := c.Src.Count / len(calls)
			lo := me * n
			if call.Kind == comm.AllToAllVKind {
				n, lo = c.SrcCounts[me], before(c.SrcCounts, me)
			}
			take(call, at, c.Src.Part(c.SrcRows, lo, n), n)
			at += n
		}
	case comm.GatherKind, comm.GatherVKind:
		if me != call.Root {
			return
		}
		fallthrough
	case comm.AllGatherKind, comm.AllGatherVKind, comm.SplitKind:
		at := 0
		for _, c := range calls {
			take(call, at, c.Src.Part(1, 0, c.Src.Count), c.Src.Count)
			at += c.Src.Count
		}
	default:
		panic(fmt.Sprintf("comm/mem: no collective %v", call.Kind))
	}
}

// take copies src, a part of n elements, to the part of call's Dst that begins at
// element at.
func take(call *comm.Call, at int, src comm.Part, n int) {
	comm.CopyParts(call.Dst.Part(call.DstRows, at, n), src, n*call.DType().Size(), call.Dst.Bytes())
}

// before returns how many elements the ranks below r have.
func before(counts []int, r int) (sum int) {
	for _, c := range counts[:r] {
		sum += c
	}
	return sum
}

// fold reduces the elements from lo on of all ranks' Src.
func (r *Rank) fold(calls []*comm.Call, lo int) {
	call := calls[r.rank]
	bytes := call.Dst.Bytes()
	if bytes == 0 {
		return
	}
	dst := call.Dst.Ptr
	if inPlace(call) {
		dst = unsafe.Pointer(unsafe.SliceData(r.asideFor(call)))
	}
	for i := 0; i < bytes; {
		run := bytes - i
		for q, c := range calls {
			r.srcs[q], run = c.Src.Part(c.SrcRows, lo, call.Dst.Count).Run(i, run)
		}
		r.dsts[0] = unsafe.Add(dst, i)
		call.Fold(r.dsts, r.srcs, run/call.Unit())
		i += run
	}
	clear(r.dsts)
	clear(r.srcs)
}
