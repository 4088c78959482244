//go:build linux && !nolibs

package mpi

import (
	"context"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
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

// folds reports whether a reduction is folded here, in rank order.
func (r *Rank) folds(call *comm.Call) bool {
	if !call.Kind.Reduces() {
		return false
	}
	if _, ok := nativeOp(call.Op, call.DType()); !ok || !r.unordered && (call.DType().Float() || len(r.world) <= fewRanks) {
		return true
	}
	scatters := call.Kind == comm.ReduceScatterKind || call.Kind == comm.ReduceScatterVKind
	return scatters && call.Src.Bytes() > r.most
}

// fold is a reduction in rank order: each rank receives its part of every
// rank's values, folds it, and passes it on to those who want it.
//
//	AllReduce       parts → their ranks, fold, results → all     (small: all values → all, fold)
//	Reduce          parts → their ranks, fold, results → root
//	ReduceScatter   parts → their ranks, fold
func (r *Rank) fold(ctx context.Context, call *comm.Call) error {
	n := len(r.world)
	if call.Kind == comm.AllReduceKind && call.Src.Bytes()*n <= min(smallFold, r.most) {
		return r.foldAll(ctx, call)
	}
	r.clear()
	switch call.Kind {
	case comm.ReduceScatterKind, comm.ReduceScatterVKind:
		r.parts(r.sends, call.Src, call.SrcCounts)
	default:
		r.shares(r.sends, call, call.Src)
	}
	mine := r.sends[r.me]
	slots := r.slots(mine, n+1)
	r.srcs = r.srcs[:0]
	for q := range n {
		r.recvs[q] = slots(q)
		r.srcs = append(r.srcs, slots(q).Ptr)
	}
	if err := r.exchange(ctx, call); err != nil {
		return err
	}
	result := slots(n)
	switch {
	case call.Kind == comm.ReduceScatterKind || call.Kind == comm.ReduceScatterVKind:
		result = call.Dst
	case call.Kind == comm.AllReduceKind:
		r.shares(r.recvs, call, call.Dst)
		result = r.recvs[r.me]
	}
	if mine.Count > 0 {
		r.dst[0] = result.Ptr
		call.Fold(r.dst[:], r.srcs, mine.Bytes()/call.Unit())
	}
	switch call.Kind {
	case comm.AllReduceKind:
		for q := range n {
			r.sends[q] = result
		}
		return r.exchange(ctx, call)
	case comm.ReduceKind:
		r.clear()
		r.sends[call.Root] = result
		if r.me == call.Root {
			r.shares(r.recvs, call, call.Dst)
		}
		return r.exchange(ctx, call)
	}
	return nil
}

// foldAll is an AllReduce in which every rank folds everything.
func (r *Rank) foldAll(ctx context.Context, call *comm.Call) error {
	n, dt := len(r.world), r.job.lib.handles[typeOf(call.DType())]
	all := r.scratch(n * call.Src.Bytes())
	count := uintptr(call.Src.Count)
	if err := r.one(ctx, call, iallgather, uintptr(call.Src.Ptr), count, dt, uintptr(all), count, dt, r.comm); err != nil {
		return err
	}
	r.srcs = r.srcs[:0]
	for q := range n {
		r.srcs = append(r.srcs, unsafe.Add(all, q*call.Src.Bytes()))
	}
	r.dst[0] = call.Dst.Ptr
	call.Fold(r.dst[:], r.srcs, call.Src.Bytes()/call.Unit())
	return nil
}

// shares divides b among the ranks, in whole elements of the operation.
func (r *Rank) shares(into []comm.Buffer, call *comm.Call, b comm.Buffer) {
	n, unit := len(r.world), call.Unit()/call.DType().Size()
	units := b.Count / unit
	for q := range into {
		into[q] = b.Slice(units*q/n*unit, units*(q+1)/n*unit)
	}
}

// slots returns n buffers of b's size in scratch.
func (r *Rank) slots(b comm.Buffer, n int) func(i int) comm.Buffer {
	stride := (b.Bytes() + 63) &^ 63
	base := r.scratch(n * stride)
	return func(i int) comm.Buffer {
		if b.Count == 0 {
			return comm.Buffer{DType: b.DType}
		}
		return comm.Buffer{Ptr: unsafe.Add(base, i*stride), Count: b.Count, DType: b.DType}
	}
}

// scratch is memory for the call in progress, aligned for any element.
func (r *Rank) scratch(bytes int) unsafe.Pointer {
	if words := (bytes + 7) / 8; len(r.store) < words {
		r.store = make([]uint64, words)
	}
	return unsafe.Pointer(unsafe.SliceData(r.store))
}
