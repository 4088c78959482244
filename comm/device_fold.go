package comm

import (
	"context"
	"unsafe"
)

// folds are reductions of device memory that the devices fold themselves.
type folds struct {
	from  int // bytes of a call from which on they do
	piece int // bytes that a rank hands in at once
	rooms [slotCount]unsafe.Pointer
	slots
}

// A room is memory of the device for two pieces: what the ranks have of this rank's
// share, and before that what this rank has of theirs, or after it the result.
func (f *folds) roomBytes() int { return 2 * f.piece }

// takes reports whether a call is folded on devices if it is of their memory, by what
// all ranks know of it.
func (f *folds) takes(call *Call) bool {
	return call.Kind.Reduces() && call.Op != Custom && call.Src.Bytes() >= f.from
}

// A folding is a reduction under way. Each rank gets its share of all ranks' values by
// an AllToAllV, folds it, and passes it on by an AllGatherV or a GatherV, a piece of the
// buffers after the other:
//
//	AllReduce       shares of the piece → their ranks, fold, results → all
//	Reduce          shares of the piece → their ranks, fold, results → root
//	ReduceScatter   a piece of each part → their ranks, fold
//
// A piece is not folded while another travels: that takes a tenth of the time or less.
type folding struct {
	*folds
	c      *Comm
	call   *Call
	room   unsafe.Pointer
	step   int // elements of a piece for each rank
	copies Copies
}

// fold carries out a call if all ranks find that they can: if done is false nothing has
// happened.
func (f *folds) fold(ctx context.Context, s *staging, c *Comm, call *Call) (done bool, err error) {
	r := folding{folds: f, c: c, call: call, step: max(1, f.piece/call.DType().Size()/c.size)}
	ready := []int64{0}
	if slot, ok := f.reserve(); ok {
		defer f.release(slot)
		r.room = f.rooms[slot]
		gets := call.Kind != ReduceKind || call.Root == c.rank
		if s.lies(call.Src) == stateGets && !(gets && s.lies(call.Dst) == stateHost) {
			ready[0] = 1
		}
	}
	told := call.inner(AllReduceKind, Of(ready), Of(ready))
	told.Op = Min
	if err := c.backend.Do(ctx, &told); err != nil || ready[0] == 0 {
		return false, err
	}
	return true, s.copies(func(copies Copies) error {
		r.copies = copies
		switch {
		case c.size == 1 && call.Dst.Ptr == call.Src.Ptr:
			return nil
		case c.size == 1:
			return s.copy(copies, call.Dst, call.Src)
		case call.Kind == AllReduceKind || call.Kind == ReduceKind:
			return r.shares(ctx)
		}
		return r.parts(ctx)
	})
}

// second is where the second piece of the room is.
func (r *folding) second() unsafe.Pointer { return unsafe.Add(r.room, r.piece) }

// shares folds an AllReduce or a Reduce: a piece of the buffer after the other is
// divided among the ranks.
func (r *folding) shares(ctx context.Context) error {
	n := r.c.size
	counts := make([]int, n)
	for lo := 0; lo < r.call.Src.Count; lo += n * r.step {
		hi := min(lo+n*r.step, r.call.Src.Count)
		for q := range counts {
			counts[q] = (hi-lo)*(q+1)/n - (hi-lo)*q/n
		}
		mine := Buffer{Ptr: r.second(), Count: counts[r.c.rank], DType: r.call.DType()}
		if err := r.foldMine(ctx, mine, r.call.Src.Slice(lo, hi), counts); err != nil {
			return err
		}
		pass := r.call.inner(AllGatherVKind, Buffer{}, mine)
		if r.call.Kind == ReduceKind {
			pass.Kind, pass.Root = GatherVKind, r.call.Root
		}
		if r.call.Kind == AllReduceKind || r.call.Root == r.c.rank {
			pass.Dst, pass.DstCounts = r.call.Dst.Slice(lo, hi), counts
		}
		if err := r.c.carry(ctx, &pass); err != nil {
			return err
		}
	}
	return nil
}

// parts folds a ReduceScatter or ReduceScatterV: a piece of each rank's part after the
// other.
func (r *folding) parts(ctx context.Context) error {
	n, src, dst := r.c.size, r.call.Src, r.call.Dst
	whole := r.call.SrcCounts
	if r.call.Kind == ReduceScatterKind {
		whole = make([]int, n)
		for q := range whole {
			whole[q] = dst.Count
		}
	}
	longest := 0
	for _, count := range whole {
		longest = max(longest, count)
	}
	counts := make([]int, n)
	for lo := 0; lo < longest; lo += r.step {
		for q := range counts {
			counts[q] = max(0, min(r.step, whole[q]-lo))
		}
		piece := src
		if longest > r.step {
			var err error
			if piece, err = r.pack(lo, whole, counts); err != nil {
				return err
			}
		}
		mine := dst.Slice(min(lo, dst.Count), min(lo+r.step, dst.Count))
		if err := r.foldMine(ctx, mine, piece, counts); err != nil {
			return err
		}
	}
	return nil
}

// pack puts the elements of each part from lo on one after another, counts of them.
func (r *folding) pack(lo int, whole, counts []int) (Buffer, error) {
	elem := r.call.DType().Size()
	b := Buffer{Ptr: r.second(), DType: r.call.DType()}
	first := 0 // element of the part
	for q, n := range counts {
		if n > 0 {
			if err := r.copies.Within(0, unsafe.Add(b.Ptr, b.Count*elem), unsafe.Add(r.call.Src.Ptr, (first+lo)*elem), n*elem); err != nil {
				return b, err
			}
		}
		b.Count += n
		first += whole[q]
	}
	return b, r.copies.Wait(0)
}

// foldMine has the ranks exchange a piece, of which each gets as many elements as
// counts says, and folds what is this rank's.
func (r *folding) foldMine(ctx context.Context, mine, piece Buffer, counts []int) error {
	n := r.c.size
	swap := r.call.inner(AllToAllVKind, Buffer{Ptr: r.room, Count: n * mine.Count, DType: mine.DType}, piece)
	swap.SrcCounts, swap.DstCounts = counts, make([]int, n)
	for q := range n {
		swap.DstCounts[q] = mine.Count
	}
	if err := r.c.carry(ctx, &swap); err != nil || mine.Count == 0 {
		return err
	}
	if err := r.copies.Fold(0, r.call.Op, mine, r.room, n); err != nil {
		return err
	}
	return r.copies.Wait(0)
}
