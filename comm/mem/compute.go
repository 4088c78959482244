package mem

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
)

// patterns are the patterns that Do carries out.
const patterns = 1<<comm.PatternBarrier | 1<<comm.PatternMessage | 1<<comm.PatternMove |
	1<<comm.PatternReduce | 1<<comm.PatternReduceScatter | 1<<comm.PatternScan

// agree checks that each rank expects as many elements from another as that one sends. number
// returns the number by which the error names a rank.
func agree(calls []*comm.Call, number func(rank int) int) error {
	if !calls[0].Kind.Shape().Pairwise() {
		return nil
	}
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

// compute writes the call's result to its Dst, or to scratch memory if other ranks read its
// Dst. It runs the loops that package comm's documentation gives for each kind.
func (r *Rank) compute(calls []*comm.Call) error {
	call, me, size := calls[r.rank], r.rank, len(calls)
	switch call.Kind.Shape().Pattern {
	case comm.PatternBarrier:
	case comm.PatternMove:
		for q, c := range calls {
			at, n := call.Incoming(me, q, size)
			if n == 0 {
				continue
			}
			first, _ := c.Outgoing(q, me, size)
			dst, src := call.Dst.Part(call.DstRows, at, n), c.Source(q).Part(c.SrcRows, first, n)
			if dst != src { // a call in place
				comm.CopyParts(dst, src, n*call.DType().Size(), call.Dst.Bytes())
			}
		}
	case comm.PatternReduce, comm.PatternReduceScatter, comm.PatternScan:
		if ranks := call.Folds(me, size); ranks > 0 {
			first, _ := call.Outgoing(me, me, size)
			r.fold(calls[:ranks], call, first)
		}
	default:
		return call.Carried("comm/mem", 0)
	}
	return nil
}

// fold combines the elements of the calls' Srcs, from element first on, into call's Dst.
func (r *Rank) fold(calls []*comm.Call, call *comm.Call, first int) {
	bytes := call.Dst.Bytes()
	if bytes == 0 {
		return
	}
	dst := call.Dst.Ptr
	if inPlace(call) {
		dst = unsafe.Pointer(unsafe.SliceData(r.scratchFor(call)))
	}
	for i := 0; i < bytes; {
		run := bytes - i
		for q, c := range calls {
			r.srcs[q], run = c.Src.Part(c.SrcRows, first, call.Dst.Count).Run(i, run)
		}
		r.dsts[0] = unsafe.Add(dst, i)
		call.Fold(r.dsts, r.srcs[:len(calls)], run/call.Unit())
		i += run
	}
	clear(r.dsts)
	clear(r.srcs)
}
