package blocking

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/mpi/exchange"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// patterns are the patterns that Do carries out.
const patterns = 1<<backend.PatternBarrier | 1<<backend.PatternMessage | 1<<backend.PatternMove |
	1<<backend.PatternReduce | 1<<backend.PatternReduceScatter | 1<<backend.PatternScan

// collective carries out a call on which the ranks agree.
func (r *Rank) collective(call *backend.Call) error {
	switch call.Kind.Shape().Pattern {
	case backend.PatternBarrier:
		return r.barrier()
	case backend.PatternMove:
		return r.move(call)
	case backend.PatternReduce, backend.PatternReduceScatter, backend.PatternScan:
		return r.reduce(call)
	default:
		return call.Carried(r.job.name, 0)
	}
}

// lists returns r.sends and r.recvs, cleared: the buffers for each rank and from each rank.
func (r *Rank) lists() (sends, recvs []backend.Buffer) {
	if r.sends == nil {
		r.sends, r.recvs = make([]backend.Buffer, len(r.world)), make([]backend.Buffer, len(r.world))
	}
	clear(r.sends)
	clear(r.recvs)
	return r.sends, r.recvs
}

// exchange sends r.sends[q] to each rank q and receives r.recvs[q] from it.
// Empty buffers make no message.
func (r *Rank) exchange() error {
	n := len(r.world)
	for round := range n {
		q := (round - r.me + n) % n
		if q == r.me {
			simd.Copy(r.recvs[q].Data(), r.sends[q].Data())
			continue
		}
		if r.me < q {
			if err := r.send(r.sends[q], q, false); err != nil {
				return err
			}
		}
		if err := r.recv(r.recvs[q], q, false); err != nil {
			return err
		}
		if r.me > q {
			if err := r.send(r.sends[q], q, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// move carries out a call that only moves data.
func (r *Rank) move(call *backend.Call) error {
	sends, recvs := r.lists()
	if err := exchange.Deal(call, r.me, sends, recvs); err != nil {
		return err
	}
	return r.exchange()
}

// reduce gives each rank its part of all ranks' values, folds it there, and
// sends the results to the ranks that receive them.
func (r *Rank) reduce(call *backend.Call) error {
	n := len(r.world)
	sends, recvs := r.lists()
	results := 1
	if call.Kind.Shape().Pattern == backend.PatternScan {
		results = n // one for each rank
	}
	scatters := call.Kind.Shape().Pattern == backend.PatternReduceScatter
	if scatters {
		exchange.Divide(sends, call.Src, call.SrcCounts)
	} else {
		exchange.Share(call, sends, call.Src)
	}
	mine := sends[r.me]
	stride := (mine.Bytes() + 63) &^ 63
	if words := (n + results) * stride / 8; len(r.store) < words {
		r.store = make([]uint64, words)
	}
	slot := func(q int) backend.Buffer {
		if mine.Count == 0 {
			return mine
		}
		return backend.Buffer{Ptr: unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.store)), q*stride), Count: mine.Count, DType: mine.DType}
	}
	r.srcs = r.srcs[:0]
	for q := range n {
		recvs[q] = slot(q)
		r.srcs = append(r.srcs, recvs[q].Ptr)
	}
	if err := r.exchange(); err != nil {
		return err
	}
	result := func(q int) backend.Buffer {
		if scatters {
			return call.Dst
		}
		return slot(n + q%results)
	}
	dsts := make([]unsafe.Pointer, results)
	for q := range dsts {
		dsts[q] = result(q).Ptr
	}
	switch elements := mine.Bytes() / call.Unit(); {
	case elements == 0:
	case results > 1:
		r.prefixes.Fold(call, dsts, r.srcs, elements)
	default:
		call.Fold(dsts, r.srcs, elements)
	}
	if scatters {
		return nil
	}
	sends, recvs = r.lists()
	for q := range n {
		if call.Folds(q, n) > 0 {
			sends[q] = result(q)
		}
	}
	if call.Folds(r.me, n) > 0 {
		exchange.Share(call, recvs, call.Dst)
	}
	return r.exchange()
}
