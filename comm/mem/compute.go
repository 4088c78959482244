package mem

import (
	goruntime "runtime"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// patterns are the patterns that Do carries out.
const patterns = 1<<backend.PatternBarrier | 1<<backend.PatternMessage | 1<<backend.PatternMove |
	1<<backend.PatternReduce | 1<<backend.PatternReduceScatter | 1<<backend.PatternScan

// agree checks that each rank expects as many elements from another as that one sends. number
// returns the number by which the error names a rank.
func agree(calls []*backend.Call, number func(rank int) int) error {
	for p, c := range calls {
		for q, d := range calls {
			sent, _ := c.Lengths(p, q, len(calls))
			if _, expected := d.Lengths(q, p, len(calls)); sent != expected {
				return c.Uneven(number(p), sent, number(q), expected)
			}
		}
	}
	return nil
}

const (
	// aloneBytes is how much one rank reads and writes sooner than another wakes up.
	aloneBytes = 128 << 10
	// leastPart is the least of each rank's bytes that make a part.
	leastPart = 1 << 10
	// partsEach is how many parts there are for each processor, so that all end at about one time.
	partsEach = 4
)

// divide returns into how many parts the work of a collective is divided, and how many ranks may
// help the last to come.
func (m *meeting) divide() (parts, helpers int) {
	calls := m.g.calls
	size, pattern := len(calls), calls[0].Kind.Shape().Pattern
	if pattern == backend.PatternBarrier {
		return 0, 0
	}
	bytes := 0
	for _, c := range calls {
		bytes += c.Dst.Bytes()
	}
	switch pattern {
	case backend.PatternReduce, backend.PatternScan: // parts of the elements
		parts, bytes = calls[0].Src.Bytes()/leastPart, 2*bytes
	case backend.PatternReduceScatter: // ranks
		parts, bytes = size, bytes*size
	default:
		if parts, bytes = size, 2*bytes; oneDst(calls) {
			parts = 1
		}
	}
	processors := goruntime.GOMAXPROCS(0)
	if bytes < aloneBytes || parts < 2 || processors == 1 {
		return 1, 0
	}
	parts = min(parts, partsEach*processors)
	return parts, min(parts, processors, size) - 1
}

// oneDst reports whether all ranks have one Dst, as in the exchange of a Split.
func oneDst(calls []*backend.Call) bool {
	return calls[0].Kind == backend.SplitKind && len(calls) > 1 && calls[0].Dst.Ptr == calls[1].Dst.Ptr
}

// A worker is room for a part of the work, kept for the next one.
type worker struct {
	dsts, srcs []unsafe.Pointer
	firsts     []int // by sender, where in its source the elements for a receiver begin
	prefixes   backend.Prefixes
}

// compute does a part of the work of a collective. It runs the loops that package comm's
// documentation gives for each kind. even is false if a rank expects another number of elements
// than the other sends.
func (w *worker) compute(m *meeting, part int) (even bool) {
	calls := m.g.calls
	size := len(calls)
	cut := func(n int) (lo, hi int) { return n * part / m.parts, n * (part + 1) / m.parts }
	switch calls[0].Kind.Shape().Pattern {
	case backend.PatternMove:
		return w.move(calls, cut)
	case backend.PatternReduceScatter:
		for me, hi := cut(size); me < hi; me++ {
			w.foldPart(calls, me)
		}
	default:
		w.foldAll(calls, cut)
	}
	return true
}

// foldAll folds the elements that belong to a part, and writes them where all ranks want them.
func (w *worker) foldAll(calls []*backend.Call, cut func(n int) (lo, hi int)) {
	call := calls[0]
	unit := call.Unit()
	lo, hi := cut(call.Src.Bytes() / unit)
	if lo == hi {
		return
	}
	defer w.forget()
	scan := call.Kind.Shape().Pattern == backend.PatternScan
	for me, c := range calls {
		w.srcs = append(w.srcs, unsafe.Add(c.Src.Ptr, lo*unit))
		switch {
		case c.Folds(me, len(calls)) > 0:
			w.dsts = append(w.dsts, unsafe.Add(c.Dst.Ptr, lo*unit))
		case scan:
			w.dsts = append(w.dsts, nil)
		}
	}
	if scan {
		w.prefixes.Fold(call, w.dsts, w.srcs, hi-lo)
	} else {
		call.Fold(w.dsts, w.srcs, hi-lo)
	}
}

// foldPart folds the elements that belong to one rank.
func (w *worker) foldPart(calls []*backend.Call, me int) {
	defer w.forget()
	call := calls[me]
	first, _ := call.Outgoing(me, me, len(calls))
	bytes := call.Dst.Bytes()
	for i := 0; i < bytes; {
		run := bytes - i
		w.srcs = w.srcs[:0]
		for _, c := range calls {
			var src unsafe.Pointer
			src, run = c.Src.Part(c.SrcRows, first, call.Dst.Count).Run(i, run)
			w.srcs = append(w.srcs, src)
		}
		w.dsts = append(w.dsts[:0], unsafe.Add(call.Dst.Ptr, i))
		call.Fold(w.dsts, w.srcs, run/call.Unit())
		i += run
	}
}

// forget clears what would keep buffers from the garbage collector.
func (w *worker) forget() {
	clear(w.dsts)
	clear(w.srcs)
	w.dsts, w.srcs = w.dsts[:0], w.srcs[:0]
}

// move copies to the ranks of a part what the others send them. even is as compute has it.
func (w *worker) move(calls []*backend.Call, cut func(n int) (lo, hi int)) (even bool) {
	shape, size := calls[0].Kind.Shape(), len(calls)
	lo, hi := cut(size)
	senders, first := calls, 0
	if shape.Root == backend.RootSends || shape.Root == backend.RootShares {
		first = calls[0].Root
		senders = calls[first : first+1]
	}
	w.begin(senders, shape, lo)
	even = true
	same := shape.Root == backend.NoRoot && shape.Src == backend.Whole && calls[lo].DstRows <= 1 // all ranks get the same
	for me, call := range calls[lo:hi] {
		me += lo
		switch {
		case !call.Fills(me, size):
		case same && me > lo && call.DstRows <= 1:
			copyGathered(call, calls[lo], me, size)
		default:
			even = w.moveTo(call, me, senders, first, size) && even
		}
	}
	return even
}

// begin sets firsts for rank me, if the senders' parts have counts.
func (w *worker) begin(senders []*backend.Call, shape *backend.Shape, me int) {
	w.firsts = w.firsts[:0]
	if shape.Src != backend.Counted {
		return
	}
	for _, c := range senders {
		w.firsts = append(w.firsts, ints.Sum(c.SrcCounts[:me]))
	}
}

// moveTo copies to rank me, whose call is call, what the senders send, of which the first has the
// rank first. Ranks are to come one after the other.
func (w *worker) moveTo(call *backend.Call, me int, senders []*backend.Call, first, size int) (even bool) {
	shape, unit, next := call.Kind.Shape(), call.DType().Size(), 0
	even = true
	for i, c := range senders {
		from, sent := 0, 0
		if shape.Src == backend.Counted {
			from, sent = w.firsts[i], c.SrcCounts[me]
			w.firsts[i] += sent
		} else {
			from, sent = c.Outgoing(first+i, me, size)
		}
		at, n := next, 0
		if shape.Dst == backend.Counted {
			n = call.DstCounts[i]
			next += n
		} else {
			at, n = call.Incoming(me, first+i, size)
		}
		if sent != n {
			even = false
			continue
		}
		if n == 0 {
			continue
		}
		dst, src := call.Dst.Part(call.DstRows, at, n), c.Source(first+i).Part(c.SrcRows, from, n)
		if dst != src { // a call in place
			backend.CopyParts(dst, src, n*unit, call.Dst.Bytes())
		}
	}
	return even
}

// copyGathered copies to rank me's Dst, of a gather to all, that of another rank, and its own part from its Src: in a call in
// place the others read that.
func copyGathered(call, gathered *backend.Call, me, size int) {
	if call.Dst.Ptr == gathered.Dst.Ptr {
		return // they have one Dst
	}
	unit, dst, src := call.DType().Size(), call.Dst.Data(), gathered.Dst.Data()
	at, n := call.Incoming(me, me, size)
	lo, hi := at*unit, (at+n)*unit
	simd.Copy(dst[:lo], src[:lo])
	simd.Copy(dst[hi:], src[hi:])
	if own := call.Src.Data(); n > 0 && &own[0] != &dst[lo] {
		simd.Copy(dst[lo:hi], own)
	}
}
