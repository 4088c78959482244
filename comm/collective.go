package comm

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// AllReduce replaces buf on every rank by the fold of all ranks' bufs. It equals
//
//	for i := range buf {
//		buf[i] = (buf of rank 0)[i] op (buf of rank 1)[i] op …
//	}
//
// with the operations from left to right, so all ranks get the same bits.
// len(buf) must be the same on all ranks.
func AllReduce[T Elem](ctx context.Context, c *Comm, buf []T, op Op) error {
	b := Of(buf)
	return c.do(ctx, AllReduceKind, op, 0, b, b)
}

// Reduce fills dst on rank root with the fold of all ranks' srcs, as AllReduce
// does. dst is not used on other ranks and may be nil there; on root it must be
// as long as src, and may be src itself.
func Reduce[T Elem](ctx context.Context, c *Comm, dst, src []T, op Op, root int) error {
	return c.do(ctx, ReduceKind, op, root, Of(dst), Of(src))
}

// ReduceScatter fills dst with this rank's part of the fold of all ranks' srcs:
//
//	for i := range dst {
//		j := c.Rank()*len(dst) + i
//		dst[i] = (src of rank 0)[j] op (src of rank 1)[j] op …
//	}
//
// len(dst) must be the same on all ranks, and len(src) c.Size() times it. dst
// may be the beginning of src: then the call is in place, and the rest of src stays as it is.
// It must not overlap src otherwise.
func ReduceScatter[T Elem](ctx context.Context, c *Comm, dst, src []T, op Op) error {
	return c.do(ctx, ReduceScatterKind, op, 0, Of(dst), Of(src))
}

// ReduceScatterV is ReduceScatter with parts of different lengths: counts[r]
// elements go to rank r. counts must be the same on all ranks, its sum len(src)
// and counts[c.Rank()] len(dst).
func ReduceScatterV[T Elem](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op) error {
	return c.Do(ctx, Call{Kind: ReduceScatterVKind, Op: op, Dst: Of(dst), Src: Of(src), SrcCounts: counts})
}

// Scan fills dst on every rank with the fold of the srcs of the ranks up to this one:
//
//	for i := range dst {
//		dst[i] = (src of rank 0)[i] op (src of rank 1)[i] op … op (src of rank c.Rank())[i]
//	}
//
// Avg divides by c.Rank()+1, the number of ranks that it folds. len(src) must be the same on
// all ranks, and len(dst) as long. dst may be src, and must not overlap it otherwise.
func Scan[T Elem](ctx context.Context, c *Comm, dst, src []T, op Op) error {
	return c.do(ctx, ScanKind, op, 0, Of(dst), Of(src))
}

// Exscan is Scan without this rank's own src: it folds the srcs of the ranks below this
// one, and leaves dst on rank 0 as it is.
func Exscan[T Elem](ctx context.Context, c *Comm, dst, src []T, op Op) error {
	return c.do(ctx, ExscanKind, op, 0, Of(dst), Of(src))
}

// AllGather fills dst on every rank with the src of rank 0, of rank 1, and so on:
//
//	for r := range c.Size() {
//		copy(dst[r*len(src):], src of rank r)
//	}
//
// len(src) must be the same on all ranks and len(dst) c.Size() times it. src
// may be this rank's part of dst: then the call is in place. It must not overlap dst otherwise.
func AllGather[T any](ctx context.Context, c *Comm, dst, src []T) error {
	return c.do(ctx, AllGatherKind, NoOp, 0, Of(dst), Of(src))
}

// AllGatherV is AllGather with parts of different lengths: counts[r] elements
// come from rank r. counts must be the same on all ranks, its sum len(dst) and
// counts[c.Rank()] len(src).
func AllGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int) error {
	return c.Do(ctx, Call{Kind: AllGatherVKind, Dst: Of(dst), Src: Of(src), DstCounts: counts})
}

// Gather is AllGather to rank root alone. dst is not used on other ranks and
// may be nil there. On root src may be root's part of dst.
func Gather[T any](ctx context.Context, c *Comm, dst, src []T, root int) error {
	return c.do(ctx, GatherKind, NoOp, root, Of(dst), Of(src))
}

// GatherV is Gather with parts of different lengths. counts is used on root
// alone, where counts[r] must be the len(src) of rank r and the sum len(dst).
func GatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	return c.Do(ctx, Call{Kind: GatherVKind, Root: root, Dst: Of(dst), Src: Of(src), DstCounts: counts})
}

// Scatter fills dst with this rank's part of root's src:
//
//	copy(dst, (src of root)[c.Rank()*len(dst):])
//
// len(dst) must be the same on all ranks and len(src) on root c.Size() times
// it. src is not used on other ranks and may be nil there. On root dst may be root's
// part of src: then the call is in place there.
func Scatter[T any](ctx context.Context, c *Comm, dst, src []T, root int) error {
	return c.do(ctx, ScatterKind, NoOp, root, Of(dst), Of(src))
}

// ScatterV is Scatter with parts of different lengths. counts is used on root
// alone, where counts[r] must be the len(dst) of rank r and the sum len(src).
func ScatterV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	return c.Do(ctx, Call{Kind: ScatterVKind, Root: root, Dst: Of(dst), Src: Of(src), SrcCounts: counts})
}

// AllToAll exchanges parts of equal length n = len(src)/c.Size() between all pairs:
//
//	for r := range c.Size() {
//		copy(dst[r*n:(r+1)*n], (src of rank r)[c.Rank()*n:])
//	}
//
// len(dst) and len(src) must be the same multiple of c.Size() on all ranks. dst
// may be src, and must not overlap it otherwise.
func AllToAll[T any](ctx context.Context, c *Comm, dst, src []T) error {
	return c.do(ctx, AllToAllKind, NoOp, 0, Of(dst), Of(src))
}

// AllToAllV is AllToAll with parts of different lengths, laid out one after
// the other: srcCounts[r] elements of src go to rank r and dstCounts[r]
// elements of dst come from rank r. What one rank sends must be what the other
// expects. dst and src may begin at one address, and must not overlap otherwise.
func AllToAllV[T any](ctx context.Context, c *Comm, dst []T, dstCounts []int, src []T, srcCounts []int) error {
	return c.Do(ctx, Call{Kind: AllToAllVKind, Dst: Of(dst), DstCounts: dstCounts, Src: Of(src), SrcCounts: srcCounts})
}

// Broadcast replaces buf on every rank by that of rank root. len(buf) must be
// the same on all ranks.
func Broadcast[T any](ctx context.Context, c *Comm, buf []T, root int) error {
	return c.do(ctx, BroadcastKind, NoOp, root, Of(buf), Buffer{})
}

// Barrier returns when all ranks have called it.
func Barrier(ctx context.Context, c *Comm) error {
	return c.do(ctx, BarrierKind, NoOp, 0, Buffer{}, Buffer{})
}

// Send hands buf to rank to, which must call Recv with a buffer of the same
// length. The other ranks take no part. Send returns when buf may be changed,
// which may be before the Recv or not. Sends from one rank to another arrive in
// order.
//
// Ranks that first send to each other may wait for ever, with Start too: it makes
// the calls of a communicator one after another. Use SendRecv, or for what goes between
// several neighbours one AllToAllV with counts of 0 for all others.
func Send[T any](ctx context.Context, c *Comm, buf []T, to int) error {
	return c.do(ctx, SendKind, NoOp, to, Buffer{}, Of(buf))
}

// Recv fills buf with what rank from sends. To serve whoever asks first, have a
// communicator with each rank, and a goroutine for each: see the example of Group.
func Recv[T any](ctx context.Context, c *Comm, buf []T, from int) error {
	return c.do(ctx, RecvKind, NoOp, from, Of(buf), Buffer{})
}

// GatherSlices returns on rank root the src of rank 0, of rank 1, and so on,
// whatever their lengths, and nil on the other ranks. It is a Gather of the lengths
// and a GatherV of the elements: where the lengths are known, GatherV alone is faster.
func GatherSlices[T any](ctx context.Context, c *Comm, src []T, root int) ([][]T, error) {
	counts := make([]int, c.ranks())
	if err := Gather(ctx, c, counts, []int{len(src)}, root); err != nil {
		return nil, err
	}
	if c.Rank() != root {
		return nil, GatherV(ctx, c, nil, src, nil, root)
	}
	all, parts := slicesOf[T](counts)
	if err := GatherV(ctx, c, all, src, counts, root); err != nil {
		return nil, err
	}
	return parts, nil
}

// AllGatherSlices returns on every rank what GatherSlices returns on root. It is an
// AllGather of the lengths and an AllGatherV of the elements.
func AllGatherSlices[T any](ctx context.Context, c *Comm, src []T) ([][]T, error) {
	counts := make([]int, c.ranks())
	if err := AllGather(ctx, c, counts, []int{len(src)}); err != nil {
		return nil, err
	}
	all, parts := slicesOf[T](counts)
	if err := AllGatherV(ctx, c, all, src, counts); err != nil {
		return nil, err
	}
	return parts, nil
}

// BroadcastSlices returns on every rank the src of rank root, whatever its length; src is not
// used on other ranks. It is a Broadcast of the length and one of the elements.
func BroadcastSlices[T any](ctx context.Context, c *Comm, src []T, root int) ([]T, error) {
	length := []int{len(src)}
	if err := Broadcast(ctx, c, length, root); err != nil {
		return nil, err
	}
	if c.Rank() != root {
		src = make([]T, length[0])
	}
	return src, Broadcast(ctx, c, src, root)
}

// ScatterSlices hands (src of root)[r] to rank r, whatever its length, and returns what this
// rank gets. src is not used on other ranks; on root len(src) must be c.Size(). It is a Scatter
// of the lengths and a ScatterV of the elements.
func ScatterSlices[T any](ctx context.Context, c *Comm, src [][]T, root int) ([]T, error) {
	var counts []int
	if c.is(root) {
		if len(src) != c.Size() {
			return nil, c.refuseSlices(ctx, Call{Kind: ScatterVKind, Root: root, Src: Of([]T(nil)), Cause: "ScatterSlices"}, len(src))
		}
		counts = lengths(src)
	}
	length := []int{0}
	if err := Scatter(ctx, c, length, counts, root); err != nil {
		return nil, err
	}
	dst := make([]T, length[0])
	return dst, ScatterV(ctx, c, dst, slices.Concat(src...), counts, root)
}

// AllToAllSlices hands src[r] to rank r, whatever its length, and returns what rank 0
// has for this rank, what rank 1 has, and so on. len(src) must be c.Size(). It is an
// AllToAll of the lengths and an AllToAllV of the elements.
func AllToAllSlices[T any](ctx context.Context, c *Comm, src [][]T) ([][]T, error) {
	if !c.none() && len(src) != c.Size() {
		return nil, c.refuseSlices(ctx, Call{Kind: AllToAllVKind, Src: Of([]T(nil)), Cause: "AllToAllSlices"}, len(src))
	}
	sent, received := lengths(src), make([]int, len(src))
	if err := AllToAll(ctx, c, received, sent); err != nil {
		return nil, err
	}
	all, parts := slicesOf[T](received)
	if err := AllToAllV(ctx, c, all, received, slices.Concat(src...), sent); err != nil {
		return nil, err
	}
	return parts, nil
}

// lengths returns the length of each slice.
func lengths[T any](of [][]T) []int {
	counts := make([]int, len(of))
	for i, s := range of {
		counts[i] = len(s)
	}
	return counts
}

// slicesOf makes slices of the given lengths, one after another in all.
func slicesOf[T any](counts []int) (all []T, parts [][]T) {
	all = make([]T, ints.Sum(counts))
	rest := all
	for _, n := range counts {
		parts, rest = append(parts, rest[:n:n]), rest[n:]
	}
	return all, parts
}

// refuseSlices fails a call that was given n slices, and not one for each rank, on all ranks.
func (c *Comm) refuseSlices(ctx context.Context, call Call, n int) error {
	c.drain()
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.seq++
	return c.refuse(ctx, &call, fmt.Errorf("%d slices for %d ranks; give one for each, which may be empty", n, c.size))
}
