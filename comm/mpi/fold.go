//go:build linux && !nolibs

package mpi

import (
	"context"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/mpi/exchange"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// smallFold is up to how many bytes, of all ranks together, the values go to
// every rank, in one collective; from there on each rank folds its part.
const smallFold = 32 << 10

// fewRanks is up to how many ranks a fold here is faster than the library's
// non-blocking reduction even where that gives the same bits. Measured with 2
// ranks under Open MPI 4.1.4 (MPICH 4.0.2): 8 KiB 4.0 µs here, 9.7 there (1.5,
// 2.3), 256 KiB 34 and 153 (30 and 40). From more ranks on its trees need
// fewer messages.
const fewRanks = 16

// reductions are the patterns that fold carries out.
const reductions = 1<<backend.PatternReduce | 1<<backend.PatternReduceScatter | 1<<backend.PatternScan

// folds reports whether a reduction is folded here, in rank order.
func (r *Rank) folds(call *backend.Call) bool {
	switch {
	case !call.Kind.Reduces():
		return false
	case call.Kind.Shape().Pattern == backend.PatternScan: // the libraries' own promise no order of operations
		return true
	}
	if _, ok := nativeOp(call.Op, call.DType()); !ok || !r.unordered && (call.DType().Float() || len(r.world) <= fewRanks) {
		return true
	}
	return call.Kind.Shape().Pattern == backend.PatternReduceScatter && call.Src.Bytes() > r.most
}

// foldStep is how many bytes of one rank's values a fold takes at a time, so that
// what is received of the others is still in the cache when it is folded.
const foldStep = 1 << 20

// fold is a reduction in rank order: each rank receives its part of every
// rank's values, folds it, and passes it on to those who want it.
//
//	AllReduce       parts → their ranks, fold, results → all     (small: all values → all, fold)
//	Reduce          parts → their ranks, fold, results → root
//	ReduceScatter   parts → their ranks, fold
//	Scan            parts → their ranks, the folds of all ranks, results → their ranks
//
// It does so in steps, each of some of the values.
func (r *Rank) fold(ctx context.Context, call *backend.Call) error {
	n, unit, count := len(r.world), call.Unit()/call.DType().Size(), call.Src.Count
	step := max(1, foldStep/call.Unit()) * unit
	shares := func(into []backend.Buffer, b backend.Buffer, lo int) {
		exchange.Share(call, into, b.Slice(lo, min(lo+step, b.Count)))
	}
	switch call.Kind.Shape().Pattern {
	case backend.PatternReduce:
		switch {
		case call.Kind == backend.AllReduceKind && call.Src.Bytes()*n <= min(smallFold, r.most):
			return r.foldAll(ctx, call)
		case r.levelled(call):
			return r.foldLevels(ctx, call)
		}
		return r.foldParts(ctx, call, step, count, shares)
	case backend.PatternReduceScatter:
		longest := count / n
		for _, c := range call.SrcCounts {
			longest = max(longest, c)
		}
		step = max(1, foldStep/call.Unit()/n) * unit
		return r.foldParts(ctx, call, step, longest, func(into []backend.Buffer, b backend.Buffer, lo int) {
			exchange.Divide(into, b, call.SrcCounts)
			for q, part := range into {
				into[q] = part.Slice(min(lo, part.Count), min(lo+step, part.Count))
			}
		})
	case backend.PatternScan:
		for lo := 0; lo < count; lo += step {
			if err := r.scanShares(ctx, call, lo, min(lo+step, count)); err != nil {
				return err
			}
		}
		return nil
	}
	return call.Carried("comm/mpi", 0)
}

// foldParts is a reduction of parts of count elements, of which a step takes some: divide gives those of a buffer like Src from an element
// on. At tick t the ranks begin to exchange the parts of step t and, but in a ReduceScatter, the results of step t-2.
func (r *Rank) foldParts(ctx context.Context, call *backend.Call, step, count int,
	divide func(into []backend.Buffer, b backend.Buffer, lo int),
) error {
	n, steps := len(r.world), ints.DivUp(count, step)
	scatters, gets := call.Kind.Shape().Pattern == backend.PatternReduceScatter, call.Folds(r.me, len(r.world)) > 0
	r.clear()
	divide(r.sends, call.Src, 0)
	slots := r.slots(r.sends[r.me], lag*(n+1)) // of each step what comes from each rank, and the result or the spare of foldInto
	slot := func(i, s int, like backend.Buffer) backend.Buffer { return slots(i*lag+s%lag).Slice(0, like.Count) }
	result := func(s int) backend.Buffer { // of this rank's part; the parts of Dst are then in r.recvs
		switch {
		case scatters:
			return call.Dst.Slice(min(s*step, call.Dst.Count), min((s+1)*step, call.Dst.Count))
		case gets:
			divide(r.recvs, call.Dst, s*step)
			return r.recvs[r.me]
		}
		divide(r.recvs, call.Src, s*step)
		return slot(n, s, r.recvs[r.me])
	}
	for t := range steps + lag {
		m := r.mail.empty()
		if t < steps {
			divide(r.sends, call.Src, t*step)
			for q, b := range r.sends {
				m.swap(q, b, slot(q, t, r.sends[r.me]))
			}
		}
		if s := t - lag; s >= 0 && !scatters {
			mine := result(s)
			for q, b := range r.recvs {
				if call.Folds(q, n) > 0 {
					m.send(q, mine)
				}
				if gets {
					m.recv(q, b)
				}
			}
		}
		if err := r.carry(ctx, call, m); err != nil {
			return err
		}
		s := t - 1 // has come
		if s < 0 || s >= steps {
			continue
		}
		divide(r.sends, call.Src, s*step)
		mine := r.sends[r.me]
		if mine.Count == 0 {
			continue
		}
		r.srcs = r.srcs[:0]
		for q := range n {
			r.srcs = append(r.srcs, slot(q, s, mine).Ptr)
		}
		r.srcs[r.me] = mine.Ptr
		r.foldInto(call, result(s).Ptr, mine, slot(n, s, mine).Ptr)
	}
	return r.wait(ctx, call, nil)
}

// scanShares is a step of a Scan or an Exscan: of elements lo to hi.
func (r *Rank) scanShares(ctx context.Context, call *backend.Call, lo, hi int) error {
	n := len(r.world)
	r.clear()
	exchange.Share(call, r.sends, call.Src.Slice(lo, hi))
	mine := r.sends[r.me]
	slots := r.slots(mine, 2*n)
	if err := r.receive(ctx, call, mine, slots); err != nil {
		return err
	}
	r.clear()
	dsts := make([]unsafe.Pointer, n)
	for q := range n {
		if call.Folds(q, n) > 0 {
			r.sends[q] = slots(n + q)
			dsts[q] = r.sends[q].Ptr
		}
	}
	r.prefixes.Fold(call, dsts, r.srcs, mine.Bytes()/call.Unit())
	if call.Folds(r.me, n) > 0 {
		exchange.Share(call, r.recvs, call.Dst.Slice(lo, hi))
	}
	return r.exchange(ctx, call)
}

// receive sends r.sends and receives in slots what the others send to this rank; r.srcs
// is then that of all ranks.
func (r *Rank) receive(ctx context.Context, call *backend.Call, mine backend.Buffer, slots func(int) backend.Buffer) error {
	clear(r.recvs)
	r.sends[r.me] = backend.Buffer{}
	r.srcs = r.srcs[:0]
	for q := range r.recvs {
		if q == r.me {
			r.srcs = append(r.srcs, mine.Ptr)
			continue
		}
		r.recvs[q] = slots(q)
		r.srcs = append(r.srcs, slots(q).Ptr)
	}
	return r.exchange(ctx, call)
}

// foldInto folds r.srcs, one of which is mine, into dst. Where dst cannot be mine,
// see backend.Call.Fold, spare is another of the same size.
func (r *Rank) foldInto(call *backend.Call, dst unsafe.Pointer, mine backend.Buffer, spare unsafe.Pointer) {
	r.dsts = [2]unsafe.Pointer{dst}
	n := 1
	if dst == mine.Ptr && r.me > 0 && (len(r.srcs) > 2 || call.Op == fold.Custom) {
		r.dsts, n = [2]unsafe.Pointer{spare, dst}, 2
	}
	call.Fold(r.dsts[:n], r.srcs, mine.Bytes()/call.Unit())
}

// foldAll is an AllReduce in which every rank folds everything.
func (r *Rank) foldAll(ctx context.Context, call *backend.Call) error {
	n := len(r.world)
	if n > fewPeers {
		return r.foldGathered(ctx, call)
	}
	r.clear()
	for q := range r.sends {
		r.sends[q] = call.Src
	}
	slots := r.slots(call.Src, n)
	if err := r.receive(ctx, call, call.Src, slots); err != nil {
		return err
	}
	r.foldInto(call, call.Dst.Ptr, call.Src, slots(r.me).Ptr)
	return nil
}

// foldGathered is foldAll by the library's own all-gather.
func (r *Rank) foldGathered(ctx context.Context, call *backend.Call) error {
	n, dt := len(r.world), r.job.lib.handles[typeOf(call.DType())]
	if err := r.unanimous(ctx, call); err != nil {
		return err
	}
	all := r.scratch(n * call.Src.Bytes())
	count := uintptr(call.Src.Count)
	if err := r.one(ctx, call, iallgather, uintptr(call.Src.Ptr), count, dt, uintptr(all), count, dt, r.comm); err != nil {
		return err
	}
	r.srcs = r.srcs[:0]
	for q := range n {
		r.srcs = append(r.srcs, unsafe.Add(all, q*call.Src.Bytes()))
	}
	r.dsts[0] = call.Dst.Ptr
	call.Fold(r.dsts[:1], r.srcs, call.Src.Bytes()/call.Unit())
	return nil
}

// slots returns n buffers of b's size in scratch.
func (r *Rank) slots(b backend.Buffer, n int) func(i int) backend.Buffer {
	stride := (b.Bytes() + 63) &^ 63
	base := r.scratch(n * stride)
	return func(i int) backend.Buffer {
		if b.Count == 0 {
			return backend.Buffer{DType: b.DType}
		}
		return backend.Buffer{Ptr: unsafe.Add(base, i*stride), Count: b.Count, DType: b.DType}
	}
}

// slot is the address of buffer i of two like b in scratch.
func (r *Rank) slot(b backend.Buffer, i int) unsafe.Pointer {
	stride := (b.Bytes() + 63) &^ 63
	return unsafe.Add(r.scratch(2*stride), i*stride)
}

// scratch is memory for the call in progress, aligned for any element.
func (r *Rank) scratch(bytes int) unsafe.Pointer {
	if words := (bytes + 7) / 8; len(r.store) < words {
		r.store = make([]uint64, words)
	}
	return unsafe.Pointer(unsafe.SliceData(r.store))
}
