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

// compute returns what the call leaves in the Dst of rank me, by the loops of
// package comm's documentation.
func compute(calls []*comm.Call, me int) []byte {
	call, n := calls[me], len(calls)
	out := func() []byte { return make([]byte, 0, call.Dst.Bytes()) }
	offset := func(counts []int, r int) (sum int) {
		for _, c := range counts[:r] {
			sum += c
		}
		return sum
	}
	switch call.Kind {
	case comm.BarrierKind:
		return nil
	case comm.BroadcastKind:
		return append(out(), calls[call.Root].Dst.Data()...)
	case comm.AllReduceKind:
		return fold(calls, me, 0, call.Src.Count)
	case comm.ReduceKind:
		if me != call.Root {
			return nil
		}
		return fold(calls, me, 0, call.Src.Count)
	case comm.ReduceScatterKind:
		return fold(calls, me, me*call.Dst.Count, call.Dst.Count)
	case comm.ReduceScatterVKind:
		return fold(calls, me, offset(call.SrcCounts, me), call.Dst.Count)
	case comm.ScatterKind, comm.ScatterVKind:
		root := calls[call.Root]
		lo := me * call.Dst.Count
		if call.Kind == comm.ScatterVKind {
			lo = offset(root.SrcCounts, me)
		}
		return append(out(), root.Src.Slice(lo, lo+call.Dst.Count).Data()...)
	case comm.AllToAllKind, comm.AllToAllVKind:
		b := out()
		for _, c := range calls {
			part := c.Src.Count / n
			lo := me * part
			if call.Kind == comm.AllToAllVKind {
				part, lo = c.SrcCounts[me], offset(c.SrcCounts, me)
			}
			b = append(b, c.Src.Slice(lo, lo+part).Data()...)
		}
		return b
	case comm.GatherKind, comm.GatherVKind:
		if me != call.Root {
			return nil
		}
		fallthrough
	case comm.AllGatherKind, comm.AllGatherVKind, comm.SplitKind:
		b := out()
		for _, c := range calls {
			b = append(b, c.Src.Data()...)
		}
		return b
	}
	panic(fmt.Sprintf("comm/mem: no collective %v", call.Kind))
}

// fold reduces elements lo to lo+count of all ranks' Src.
func fold(calls []*comm.Call, me, lo, count int) []byte {
	call := calls[me]
	bytes := count * call.DType().Size()
	if bytes == 0 {
		return nil
	}
	words := make([]uint64, (bytes+7)/8) // aligned for any element
	srcs := make([]unsafe.Pointer, len(calls))
	for i, c := range calls {
		srcs[i] = c.Src.Slice(lo, lo+count).Ptr
	}
	dst := unsafe.Pointer(unsafe.SliceData(words))
	call.Fold([]unsafe.Pointer{dst}, srcs, bytes/call.Unit())
	return unsafe.Slice((*byte)(dst), bytes)
}
