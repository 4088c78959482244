package shm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
)

// inline ends a call all of whose data is in slots or payload areas: each rank
// takes its result from there, on its own.
func (r *Rank) inline(call *comm.Call, seq uint64) error {
	switch call.Kind {
	case comm.BarrierKind:
	case comm.AllReduceKind:
		return r.foldInline(call, seq, 0)
	case comm.ReduceKind:
		if call.Root == r.me {
			return r.foldInline(call, seq, 0)
		}
	case comm.ReduceScatterKind:
		return r.foldInline(call, seq, r.me*call.Dst.Bytes())
	case comm.ReduceScatterVKind:
		return r.foldInline(call, seq, sum(call.SrcCounts[:r.me])*call.DType().Size())
	default:
		size := call.DType().Size()
		for m := range r.world {
			n, from := r.share(call, seq, m)
			if n == 0 {
				continue
			}
			var src unsafe.Pointer
			if m == r.me && call.SrcRows <= 1 {
				src = unsafe.Add(call.Src.Ptr, from*size)
			} else if src = r.inlineAt(m, seq, from*size, n*size); src == nil {
				return r.damagedBuffer(call, m)
			}
			comm.CopyParts(call.Dst.Part(call.DstRows, r.landing(call, m), n), comm.Contiguous(src), n*size, n*size)
		}
	}
	return nil
}

// inlineAt returns the n bytes that begin skip bytes into rank m's slot or payload
// area, nil if they are not all within it. Its own data a rank has better from where
// they were: others have taken the slot's cache line from it meanwhile.
func (r *Rank) inlineAt(m int, seq uint64, skip, n int) unsafe.Pointer {
	at, size := r.region.slot(m, seq).data(), bodyBytes
	if r.mode(m) != inSlot {
		at, size = r.region.payload(m, seq), payloadBytes
	}
	if skip < 0 || n < 0 || n > size || skip > size-n {
		return nil
	}
	return unsafe.Add(at, skip)
}

// foldInline reduces into Dst what lies skip bytes into each rank's data.
func (r *Rank) foldInline(call *comm.Call, seq uint64, skip int) error {
	bytes := call.Dst.Bytes()
	if bytes == 0 {
		return nil
	}
	// Src serves where Fold may have it beside Dst.
	apart := call.SrcRows <= 1 && (call.Src.Ptr != call.Dst.Ptr || len(r.world) == 2 && call.Op != comm.Custom)
	for m := range r.world {
		if m == r.me && apart {
			r.srcs[m] = unsafe.Add(call.Src.Ptr, skip)
		} else if r.srcs[m] = r.inlineAt(m, seq, skip, bytes); r.srcs[m] == nil {
			return r.damagedBuffer(call, m)
		}
	}
	r.dsts[0] = call.Dst.Ptr
	call.Fold(r.dsts[:1], r.srcs, bytes/call.Unit())
	r.dsts[0], r.srcs[r.me] = nil, nil
	return nil
}

// share returns how many elements this rank takes from rank m in a call that
// only moves data, and where in m's data they begin.
func (r *Rank) share(call *comm.Call, seq uint64, m int) (n, from int) {
	switch call.Kind {
	case comm.BroadcastKind:
		if m == call.Root && m != r.me {
			return call.Dst.Count, 0
		}
	case comm.AllGatherKind, comm.SplitKind:
		return call.Src.Count, 0
	case comm.AllGatherVKind:
		return call.DstCounts[m], 0
	case comm.GatherKind:
		if r.me == call.Root {
			return call.Src.Count, 0
		}
	case comm.GatherVKind:
		if r.me == call.Root {
			return call.DstCounts[m], 0
		}
	case comm.ScatterKind:
		if m == call.Root {
			return call.Dst.Count, r.me * call.Dst.Count
		}
	case comm.ScatterVKind:
		if m == call.Root {
			return call.Dst.Count, r.before(call, m, seq)
		}
	case comm.AllToAllKind:
		n := call.Src.Count / len(r.world)
		return n, r.me * n
	case comm.AllToAllVKind:
		return call.DstCounts[m], r.before(call, m, seq)
	}
	return 0, 0
}

// most is more elements than memory has; so many of every rank's still have a number
// of bytes.
const most = 1 << 48

// before returns how many elements of rank m's data go to ranks below this one.
func (r *Rank) before(call *comm.Call, m int, seq uint64) int {
	if m == r.me {
		return sum(call.SrcCounts[:m])
	}
	has, _ := r.region.vectors(m, seq)
	total := 0
	for _, n := range has[:r.me] {
		total += int(min(n, most)) // nobody has compared these
	}
	return total
}

func sum(counts []int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// pack copies src to the front of dst, its parts one after another.
func pack(dst []byte, call *comm.Call, src comm.Buffer) {
	if call.SrcRows <= 1 {
		copy(dst, src.Data())
		return
	}
	at, size := 0, src.DType.Size()
	to := comm.Contiguous(unsafe.Pointer(unsafe.SliceData(dst)))
	for _, n := range call.SrcCounts {
		comm.CopyParts(to.From(at*size), src.Part(call.SrcRows, at, n), n*size, n*size)
		at += n
	}
}
