package shm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// inlineAt returns the n bytes that begin skip bytes into rank m's slot or payload
// area, nil if they are not all within it. A rank reads its own data from its source
// instead: the cache line of its slot is in another core's cache by then.
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

// foldInline folds into Dst the elements of ranks' sources that are for this rank.
func (r *Rank) foldInline(call *backend.Call, seq uint64) error {
	bytes, ranks := call.Dst.Bytes(), call.Folds(r.me, len(r.world))
	if bytes == 0 || ranks == 0 {
		return nil
	}
	skip := 0
	if call.Kind.Shape().Pattern == backend.PatternReduceScatter {
		first, _ := call.Outgoing(r.me, r.me, len(r.world))
		skip = first * call.DType().Size()
	}
	// Fold may read Src itself unless Src is Dst; with two ranks and a built-in operation even then.
	direct := call.SrcRows <= 1 && (call.Src.Ptr != call.Dst.Ptr || len(r.world) == 2 && call.Op != fold.Custom)
	for m := range ranks {
		if m == r.me && direct {
			r.srcs[m] = unsafe.Add(call.Src.Ptr, skip)
		} else if r.srcs[m] = r.inlineAt(m, seq, skip, bytes); r.srcs[m] == nil {
			return r.damagedBuffer(call, m)
		}
	}
	r.dsts[0] = call.Dst.Ptr
	call.Fold(r.dsts[:1], r.srcs[:ranks], bytes/call.Unit())
	r.dsts[0], r.srcs[r.me] = nil, nil
	return nil
}

// incoming returns which elements of rank m's source this rank gets in a call that only
// moves data: n elements from element first on, which go to element at of Dst.
func (r *Rank) incoming(call *backend.Call, seq uint64, m int) (at, first, n int) {
	if at, n = call.Incoming(r.me, m, len(r.world)); n == 0 {
		return 0, 0, 0
	}
	switch call.Kind.Shape().Src {
	case backend.Parts:
		first = r.me * n
	case backend.Counted:
		first = r.before(call, m, seq)
	}
	return at, first, n
}

// maxElems is more elements than memory holds, and few enough that their bytes, summed over
// all ranks, fit an int.
const maxElems = 1 << 48

// before returns how many elements of rank m's data go to ranks below this one.
func (r *Rank) before(call *backend.Call, m int, seq uint64) int {
	if m == r.me {
		return ints.Sum(call.SrcCounts[:m])
	}
	has, _ := r.region.vectors(m, seq)
	total := 0
	for _, n := range has[:r.me] {
		total += int(min(n, maxElems)) // these counts have not been checked
	}
	return total
}

// pack copies src to the front of dst, its parts one after another.
func pack(dst []byte, call *backend.Call, src backend.Buffer) {
	if call.SrcRows <= 1 {
		copy(dst, src.Data())
		return
	}
	at, size := 0, src.DType.Size()
	to := backend.Contiguous(unsafe.Pointer(unsafe.SliceData(dst)))
	for _, n := range call.SrcCounts {
		backend.CopyParts(to.From(at*size), src.Part(call.SrcRows, at, n), n*size, n*size)
		at += n
	}
}
