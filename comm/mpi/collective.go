//go:build linux && !nolibs

package mpi

import (
	"context"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// patterns are the patterns that Do carries out.
const patterns = reductions | 1<<backend.PatternBarrier | 1<<backend.PatternMessage | 1<<backend.PatternMove

// collective carries out a call that has been agreed on: by messages and folds of this package, or as native does.
func (r *Rank) collective(ctx context.Context, call *backend.Call) error {
	if len(r.world) == 2 {
		if ok, err := r.two(ctx, call); ok {
			return err
		}
	}
	switch {
	case call.Kind.PointToPoint():
		return r.sendOrRecv(ctx, call)
	case empty(call) && len(r.world) <= fewPeers:
		return r.barrier(ctx, call)
	case empty(call):
		return r.one(ctx, call, ibarrier, r.comm)
	case r.folds(call):
		return r.fold(ctx, call)
	case r.levelled(call) && call.Kind == backend.BroadcastKind:
		return r.broadcastLevels(ctx, call)
	case r.levelled(call):
		return r.gatherLevels(ctx, call)
	case r.byMessages(call):
		return r.pairs(ctx, call)
	}
	if err := r.unanimous(ctx, call); err != nil {
		return err
	}
	return r.native(ctx, call)
}

// native carries out a call by the library's collective, or by messages where that would move more bytes than r.most.
func (r *Rank) native(ctx context.Context, call *backend.Call) error {
	n, src, dst, dt := uintptr(call.Src.Count), r.at(call.Src, 0), r.at(call.Dst, 1), r.job.lib.handles[typeOf(call.DType())]
	fits := call.Src.Bytes() <= r.most && call.Dst.Bytes() <= r.most
	switch call.Kind {
	case backend.BroadcastKind:
		return r.broadcast(ctx, call)
	case backend.AllReduceKind:
		return r.allReduce(ctx, call)
	case backend.ReduceKind:
		return r.reduce(ctx, call)
	case backend.ReduceScatterKind:
		if err := r.one(ctx, call, ireduceScatterBlock, src, dst, uintptr(call.Dst.Count), dt, r.op(call), r.comm); err != nil {
			return err
		}
		r.average(call, call.Dst)
		return nil
	case backend.ReduceScatterVKind:
		if err := r.one(ctx, call, ireduceScatter, src, dst, r.vector(&r.counts, call.SrcCounts), dt, r.op(call), r.comm); err != nil {
			return err
		}
		r.average(call, call.Dst)
		return nil
	case backend.AllGatherKind, backend.SplitKind:
		if fits {
			return r.one(ctx, call, iallgather, src, n, dt, dst, n, dt, r.comm)
		}
	case backend.AllGatherVKind:
		if fits {
			counts := r.vector(&r.counts, call.DstCounts)
			return r.one(ctx, call, iallgatherv, src, n, dt, dst, counts, r.offsets(call.DstCounts), dt, r.comm)
		}
	case backend.GatherKind:
		if call.Src.Bytes()*len(r.world) <= r.most {
			return r.one(ctx, call, igather, src, n, dt, dst, n, dt, uintptr(call.Root), r.comm)
		}
	case backend.ScatterKind:
		if call.Dst.Bytes()*len(r.world) <= r.most {
			m := uintptr(call.Dst.Count)
			return r.one(ctx, call, iscatter, src, m, dt, dst, m, dt, uintptr(call.Root), r.comm)
		}
	case backend.AllToAllKind:
		if fits {
			m := uintptr(call.Src.Count / len(r.world))
			return r.one(ctx, call, ialltoall, src, m, dt, dst, m, dt, r.comm)
		}
	}
	return r.pairs(ctx, call)
}

// empty reports whether all ranks know that a collective moves no elements on any rank.
func empty(call *backend.Call) bool {
	switch s := call.Kind.Shape(); {
	case s.Pattern == backend.PatternBarrier:
		return true
	case s.Pairwise():
		return false
	case s.Dst == backend.Counted || s.Src == backend.Parts || s.Src == backend.Unused:
		return call.Dst.Count == 0
	}
	return call.Src.Count == 0
}

// one carries out call by a single request.
func (r *Rank) one(ctx context.Context, call *backend.Call, f function, args ...uintptr) error {
	if err := r.begin(false, f, args...); err != nil {
		return err
	}
	return r.wait(ctx, call, nil)
}

// at is the address of a buffer, never nil and never the same for two: some
// libraries check even what they do not use.
func (r *Rank) at(b backend.Buffer, pad int) uintptr {
	if b.Count == 0 {
		return pointer(&r.pad[pad])
	}
	return uintptr(b.Ptr)
}

func (r *Rank) op(call *backend.Call) uintptr {
	op, _ := nativeOp(call.Op, call.DType())
	return r.job.lib.handles[op]
}

// vector is counts as MPI wants them, in scratch.
func (r *Rank) vector(scratch *[]int32, counts []int) uintptr {
	s := (*scratch)[:0]
	for _, n := range counts {
		s = append(s, int32(n))
	}
	*scratch = s
	return pointer(unsafe.SliceData(s))
}

// offsets is where the parts of a buffer begin that has counts.
func (r *Rank) offsets(counts []int) uintptr {
	s, at := r.starts[:0], 0
	for _, n := range counts {
		s = append(s, int32(at))
		at += n
	}
	r.starts = s
	return pointer(unsafe.SliceData(s))
}

// step is how many elements of a call's type one MPI call moves at most.
func (r *Rank) step(call *backend.Call) int { return max(1, r.most/call.DType().Size()) }

func (r *Rank) broadcast(ctx context.Context, call *backend.Call) error {
	step, dt := r.step(call), r.job.lib.handles[typeOf(call.DType())]
	for lo := 0; lo < call.Dst.Count; lo += step {
		part := call.Dst.Slice(lo, min(lo+step, call.Dst.Count))
		if err := r.one(ctx, call, ibcast, uintptr(part.Ptr), uintptr(part.Count), dt, uintptr(call.Root), r.comm); err != nil {
			return err
		}
	}
	return nil
}

// allReduce is in place on every rank, as MPI wants it on all or none.
func (r *Rank) allReduce(ctx context.Context, call *backend.Call) error {
	if call.Dst.Ptr != call.Src.Ptr {
		simd.Copy(call.Dst.Data(), call.Src.Data())
	}
	step, dt, op := r.step(call), r.job.lib.handles[typeOf(call.DType())], r.op(call)
	for lo := 0; lo < call.Dst.Count; lo += step {
		part := call.Dst.Slice(lo, min(lo+step, call.Dst.Count))
		if err := r.one(ctx, call, iallreduce, r.job.lib.inPlace, uintptr(part.Ptr), uintptr(part.Count), dt, op, r.comm); err != nil {
			return err
		}
	}
	r.average(call, call.Dst)
	return nil
}

func (r *Rank) reduce(ctx context.Context, call *backend.Call) error {
	step, dt, op := r.step(call), r.job.lib.handles[typeOf(call.DType())], r.op(call)
	for lo := 0; lo < call.Src.Count; lo += step {
		hi := min(lo+step, call.Src.Count)
		src, dst := uintptr(call.Src.Slice(lo, hi).Ptr), pointer(&r.pad[1])
		if r.me == call.Root {
			dst = uintptr(call.Dst.Slice(lo, hi).Ptr)
		}
		if err := r.one(ctx, call, ireduce, src, dst, uintptr(hi-lo), dt, op, uintptr(call.Root), r.comm); err != nil {
			return err
		}
	}
	if r.me == call.Root {
		r.average(call, call.Dst)
	}
	return nil
}

// average makes a sum the average that was asked for.
func (r *Rank) average(call *backend.Call, sum backend.Buffer) {
	if call.Op != fold.Avg || sum.Count == 0 {
		return
	}
	switch sum.DType {
	case dtype.Float32:
		divideAll(unsafe.Slice((*float32)(sum.Ptr), sum.Count), len(r.world))
	case dtype.Float64:
		divideAll(unsafe.Slice((*float64)(sum.Ptr), sum.Count), len(r.world))
	}
}

// divideAll does x[i] /= n.
func divideAll[T float32 | float64](x []T, n int) {
	for i := range x {
		x[i] /= T(n)
	}
}

// sendOrRecv is Send and Recv.
func (r *Rank) sendOrRecv(ctx context.Context, call *backend.Call) error {
	receive, f, b := call.Kind == backend.RecvKind, isend, call.Src
	if receive {
		f, b = irecv, call.Dst
	}
	if err := r.message(receive, f, b, call.Root, tagMessage); err != nil {
		return err
	}
	return r.wait(ctx, call, nil)
}

// message begins the requests that move b from or to peer.
func (r *Rank) message(receive bool, f function, b backend.Buffer, peer int, tag uintptr) error {
	return r.inParts(receive, f, b, peer, tag, r.most)
}

// inParts is message with no more than most bytes in each request.
func (r *Rank) inParts(receive bool, f function, b backend.Buffer, peer int, tag uintptr, most int) error {
	size := b.DType.Size()
	step, dt := max(1, most/size), r.job.lib.handles[typeOf(b.DType)]
	for lo := 0; ; lo += step {
		part := b.Slice(lo, min(lo+step, b.Count))
		tagged := r.tag(receive, tag, part.Bytes(), peer)
		if err := r.begin(receive, f, r.at(part, 0), uintptr(part.Count), dt, uintptr(peer), tagged, r.comm); err != nil {
			return err
		}
		if lo+step >= b.Count {
			return nil
		}
	}
}
