package comm

import (
	"context"
	"slices"
	"unsafe"
)

// folds are reductions of device memory that the devices fold themselves.
type folds struct {
	piece int // bytes that a rank hands in at once
	bytes int // of a room
	rooms [slotCount]unsafe.Pointer
	slots // of those that do not have one of windows
}

// A folding is a reduction under way. Each rank gets its share of all ranks' values,
// folds it, and passes it on, a piece of the buffers after the other:
//
//	AllReduce       shares of the piece → their ranks, fold, results → all
//	Reduce          shares of the piece → their ranks, fold, results → root
//	ReduceScatter   a piece of each part → their ranks, fold
//
// Shares and results are read from windows, or go by address: from the room's second
// piece, if what is sent does not lie together, to the first; the result to the second.
type folding struct {
	visit // without windows: by address
	s     *staging
	f     *folds
	room  unsafe.Pointer
	step  int   // elements of a piece for each rank
	whole []int // elements of each rank's part; nil if a piece is what is divided
	cuts  []cut // what a piece has for each rank to fold, of what this one hands in
}

// fold carries out a call if all ranks find that they can: if done is false nothing has
// happened.
func (f *folds) fold(ctx context.Context, s *staging, c *Comm, call *Call) (done bool, err error) {
	n := c.size
	r := folding{s: s, f: f, cuts: make([]cut, n)}
	r.visit = visit{windows: s.windows.Load(), c: c, call: call, elem: call.DType().Size(), slot: make([]int, n)}
	r.step = max(1, f.piece/r.elem/n)
	switch call.Kind {
	case ReduceScatterKind:
		r.whole = slices.Repeat([]int{call.Dst.Count}, n)
	case ReduceScatterVKind:
		r.whole = call.SrcCounts
	}
	slots := &f.slots
	if r.windows != nil {
		slots = &r.windows.slots
	}
	ready := []int64{-1}
	defer r.close(&err)
	if slot, ok := slots.reserve(); ok {
		defer slots.release(slot)
		r.room, r.slot[c.rank] = f.rooms[slot], slot
		if s.lies(call.Src) == stateGets && !(r.gets() && s.lies(call.Dst) == stateHost) {
			ready[0] = int64(slot)
			if err := r.begin(); err != nil {
				return false, err
			}
		}
	}
	all := make([]int64, n)
	told := call.inner(AllGatherKind, Of(all), Of(ready))
	if err := c.backend.Do(ctx, &told); err != nil || slices.Min(all) < 0 {
		return false, err
	}
	for q, slot := range all {
		r.slot[q] = int(slot)
	}
	switch {
	case n == 1 && call.Dst.Ptr == call.Src.Ptr:
		return true, nil
	case n == 1:
		return true, s.copy(r.copies, call.Dst, call.Src)
	case r.windows != nil:
		return true, r.read(ctx)
	}
	return true, r.send(ctx)
}

// gets reports whether this rank gets a result.
func (r *folding) gets() bool { return r.call.Kind != ReduceKind || r.call.Root == r.c.rank }

// begin opens the copies, and puts the first piece into the window.
func (r *folding) begin() error {
	if err := r.open(r.s); err != nil || r.windows == nil || r.c.size == 1 {
		return err
	}
	if err := r.put(0, r.call.Src.Ptr, r.cut(0)); err != nil {
		return err
	}
	return r.wait()
}

// pieces returns how many there are.
func (r *folding) pieces() int {
	if r.whole == nil {
		step := r.c.size * r.step
		return (r.call.Src.Count + step - 1) / step
	}
	return (slices.Max(r.whole) + r.step - 1) / r.step
}

// cut returns what piece k has for each rank.
func (r *folding) cut(k int) []cut {
	n := r.c.size
	if r.whole == nil {
		lo := k * n * r.step
		m := min(n*r.step, r.call.Src.Count-lo)
		for q := range r.cuts {
			r.cuts[q] = cut{lo + m*q/n, m*(q+1)/n - m*q/n}
		}
		return r.cuts
	}
	first := 0
	for q, count := range r.whole {
		lo := min(k*r.step, count)
		r.cuts[q] = cut{first + lo, min(r.step, count-lo)}
		first += count
	}
	return r.cuts
}

// mine returns where the result of this rank's share of piece k goes: to its part of dst,
// or to p if others get results.
func (r *folding) mine(k int, p unsafe.Pointer) Buffer {
	n := r.cuts[r.c.rank].n
	if r.whole != nil {
		lo := min(k*r.step, r.call.Dst.Count)
		return r.call.Dst.Slice(lo, lo+n)
	}
	return Buffer{Ptr: p, Count: n, DType: r.call.DType()}
}

// foldTo queues the fold of what is in the room.
func (r *folding) foldTo(mine Buffer) error {
	if mine.Count == 0 {
		return nil
	}
	r.busy[readLane] = true
	return r.copies.Fold(readLane, r.call.Op, mine, r.room, r.c.size)
}

// read folds by windows. Where results go to others, these are in the second half of the
// slot and pieces in the first; else the pieces take turns.
func (r *folding) read(ctx context.Context) error {
	me, src := r.c.rank, r.call.Src.Ptr
	for k := range r.pieces() {
		half, more := 0, k+1 < r.pieces()
		if r.whole != nil {
			half = k % 2
			if more {
				if err := r.put(1-half, src, r.cut(k+1)); err != nil {
					return err
				}
			}
		}
		cuts := r.cut(k)
		for q := range r.c.size {
			from := spot{src, cuts[me].at}
			if q != me {
				from = r.find(q, half, cuts)
			}
			if err := r.copy(readLane, spot{r.room, q * cuts[me].n}, from, cuts[me].n); err != nil {
				return err
			}
		}
		if err := r.foldTo(r.mine(k, r.at(me, 1))); err != nil {
			return err
		}
		if err := r.meet(ctx); err != nil {
			return err
		}
		if r.whole != nil {
			continue
		}
		if r.gets() {
			for q, c := range cuts {
				if err := r.copy(readLane, spot{r.call.Dst.Ptr, c.at}, spot{r.at(q, 1), 0}, c.n); err != nil {
					return err
				}
			}
		}
		if more {
			if err := r.put(0, src, r.cut(k+1)); err != nil {
				return err
			}
		}
		if err := r.meet(ctx); err != nil {
			return err
		}
	}
	return nil
}

// send folds by address.
func (r *folding) send(ctx context.Context) error {
	n := r.c.size
	second := unsafe.Add(r.room, r.f.piece)
	counts := make([]int, n)
	for k := range r.pieces() {
		cuts := r.cut(k)
		for q, c := range cuts {
			counts[q] = c.n
		}
		piece, err := r.pack(cuts, second)
		if err != nil {
			return err
		}
		mine := r.mine(k, second)
		swap := r.call.inner(AllToAllVKind, Buffer{Ptr: r.room, Count: n * mine.Count, DType: mine.DType}, piece)
		swap.SrcCounts, swap.DstCounts = counts, slices.Repeat([]int{mine.Count}, n)
		if err := r.s.hand(ctx, r.c, &swap); err != nil {
			return err
		}
		if err := r.foldTo(mine); err != nil {
			return err
		}
		if err := r.wait(); err != nil {
			return err
		}
		if r.whole != nil {
			continue
		}
		pass := r.call.inner(AllGatherVKind, Buffer{}, mine)
		if r.call.Kind == ReduceKind {
			pass.Kind, pass.Root = GatherVKind, r.call.Root
		}
		if r.gets() {
			last := cuts[n-1]
			pass.Dst, pass.DstCounts = r.call.Dst.Slice(cuts[0].at, last.at+last.n), counts
		}
		if err := r.s.hand(ctx, r.c, &pass); err != nil {
			return err
		}
	}
	return nil
}

// pack returns what a piece has for all ranks, one's after the other's: at p if it does
// not lie so.
func (r *folding) pack(cuts []cut, p unsafe.Pointer) (Buffer, error) {
	first, n, together := cuts[0].at, 0, true
	for _, c := range cuts {
		together = together && c.at == first+n
		n += c.n
	}
	if together {
		return r.call.Src.Slice(first, first+n), nil
	}
	to := spot{p, 0}
	for _, c := range cuts {
		if err := r.copy(readLane, to, spot{r.call.Src.Ptr, c.at}, c.n); err != nil {
			return Buffer{}, err
		}
		to.i += c.n
	}
	return Buffer{Ptr: p, Count: n, DType: r.call.DType()}, r.wait()
}
