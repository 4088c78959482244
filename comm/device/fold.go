package device

import (
	"context"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// folds carry out reductions on the devices.
type folds struct {
	piece int                       // bytes of a rank's source that a step handles
	bytes int                       // size of each of rooms
	rooms [slotCount]unsafe.Pointer // device memory to fold in, one for each slot
	slots                           // used where there are no windows
}

// A folding is a reduction in progress. The buffers are divided into pieces. In each piece a
// rank gets its share of all ranks' values, folds it, and passes it on:
//
//	AllReduce       shares of the piece → their ranks, fold, results → all
//	Reduce          shares of the piece → their ranks, fold, results → root
//	ReduceScatter   a piece of each part → their ranks, fold
//
// Shares and results are read from windows, or sent by address. By address the shares arrive
// in the first piece of the room. Its second piece holds the shares to send, if they are not
// contiguous, and then the result.
type folding struct {
	windowCall // its windows are nil if it sends by address
	s          *staging
	f          *folds
	room       unsafe.Pointer
	step       int    // elements of a piece for each rank
	parts      []int  // elements of each rank's part in a ReduceScatter; nil if ranks share each piece
	spans      []span // by rank: the elements of this rank's source that it folds in a piece
}

// fold carries out a call if all ranks can. If done is false nothing has happened.
func (f *folds) fold(ctx context.Context, s *staging, c *group, call *backend.Call) (done bool, err error) {
	n := c.size
	r := folding{s: s, f: f, spans: make([]span, n)}
	r.windowCall = windowCall{windows: s.windows.Load(), c: c, call: call, elem: call.DType().Size(), slot: make([]int, n)}
	r.step = max(1, f.piece/r.elem/n)
	if call.Kind.Shape().Pattern == backend.PatternReduceScatter {
		_, r.parts, _ = blocks(call, n)
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
		if s.stateOf(call.Src) == stateReceives && !(r.receives() && s.stateOf(call.Dst) == stateHost) {
			ready[0] = int64(slot)
			if err := r.begin(); err != nil {
				return false, err
			}
		}
	}
	all := make([]int64, n)
	gather := call.Inner(backend.AllGatherKind, backend.Of(all), backend.Of(ready))
	if err := c.Backend.Do(ctx, &gather); err != nil || slices.Min(all) < 0 {
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

// receives reports whether this rank gets a result.
func (r *folding) receives() bool { return r.call.Folds(r.c.rank, r.c.size) > 0 }

// begin opens the copies, and puts the first piece into the window.
func (r *folding) begin() error {
	if err := r.open(r.s); err != nil || r.windows == nil || r.c.size == 1 {
		return err
	}
	if err := r.put(0, r.call.Src.Ptr, r.span(0)); err != nil {
		return err
	}
	return r.wait()
}

// pieces returns the number of pieces.
func (r *folding) pieces() int {
	if r.parts == nil {
		return ints.DivUp(r.call.Src.Count, r.c.size*r.step)
	}
	return ints.DivUp(slices.Max(r.parts), r.step)
}

// span returns, by rank, the elements of this rank's source that it folds in piece k.
func (r *folding) span(k int) []span {
	n := r.c.size
	if r.parts == nil {
		lo := k * n * r.step
		m := min(n*r.step, r.call.Src.Count-lo)
		for q := range r.spans {
			r.spans[q] = span{lo + m*q/n, m*(q+1)/n - m*q/n}
		}
		return r.spans
	}
	first := 0
	for q, count := range r.parts {
		lo := min(k*r.step, count)
		r.spans[q] = span{first + lo, min(r.step, count-lo)}
		first += count
	}
	return r.spans
}

// mine returns the buffer for the result of this rank's share of piece k: a part of Dst in a
// ReduceScatter, else memory at p, from where the others get it.
func (r *folding) mine(k int, p unsafe.Pointer) backend.Buffer {
	n := r.spans[r.c.rank].n
	if r.parts != nil {
		lo := min(k*r.step, r.call.Dst.Count)
		return r.call.Dst.Slice(lo, lo+n)
	}
	return backend.Buffer{Ptr: p, Count: n, DType: r.call.DType()}
}

// foldTo queues the fold of the shares in the room into mine.
func (r *folding) foldTo(mine backend.Buffer) error {
	if mine.Count == 0 {
		return nil
	}
	r.busy[readLane] = true
	return r.copies.Fold(readLane, r.call.Op, mine, r.room, r.c.size)
}

// read folds by windows. In a ReduceScatter the pieces use the two halves of a slot in turn.
// In the other reductions the first half holds the shares and the second the results.
func (r *folding) read(ctx context.Context) error {
	me, src := r.c.rank, r.call.Src.Ptr
	for k := range r.pieces() {
		half, more := 0, k+1 < r.pieces()
		if r.parts != nil {
			half = k % 2
			if more {
				if err := r.put(1-half, src, r.span(k+1)); err != nil {
					return err
				}
			}
		}
		spans := r.span(k)
		for q := range r.c.size {
			from := position{src, spans[me].at}
			if q != me {
				from = r.find(q, half, spans)
			}
			if err := r.copy(readLane, position{r.room, q * spans[me].n}, from, spans[me].n); err != nil {
				return err
			}
		}
		if err := r.foldTo(r.mine(k, r.at(me, 1))); err != nil {
			return err
		}
		if err := r.meet(ctx); err != nil {
			return err
		}
		if r.parts != nil {
			continue
		}
		if r.receives() {
			for q, c := range spans {
				if err := r.copy(readLane, position{r.call.Dst.Ptr, c.at}, position{r.at(q, 1), 0}, c.n); err != nil {
					return err
				}
			}
		}
		if more {
			if err := r.put(0, src, r.span(k+1)); err != nil {
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
		spans := r.span(k)
		for q, c := range spans {
			counts[q] = c.n
		}
		piece, err := r.pack(spans, second)
		if err != nil {
			return err
		}
		mine := r.mine(k, second)
		swap := r.call.Inner(backend.AllToAllVKind, backend.Buffer{Ptr: r.room, Count: n * mine.Count, DType: mine.DType}, piece)
		swap.SrcCounts, swap.DstCounts = counts, slices.Repeat([]int{mine.Count}, n)
		if err := r.s.byAddress(ctx, r.c, &swap); err != nil {
			return err
		}
		if err := r.foldTo(mine); err != nil {
			return err
		}
		if err := r.wait(); err != nil {
			return err
		}
		if r.parts != nil {
			continue
		}
		pass := r.call.Inner(backend.AllGatherVKind, backend.Buffer{}, mine)
		if r.call.Kind.Rooted() {
			pass.Kind, pass.Root = backend.GatherVKind, r.call.Root
		}
		if r.receives() {
			last := spans[n-1]
			pass.Dst, pass.DstCounts = r.call.Dst.Slice(spans[0].at, last.at+last.n), counts
		}
		if err := r.s.byAddress(ctx, r.c, &pass); err != nil {
			return err
		}
	}
	return nil
}

// pack returns the spans of a piece as one buffer: in the source if they are contiguous,
// else copied to p.
func (r *folding) pack(spans []span, p unsafe.Pointer) (backend.Buffer, error) {
	first, n, contiguous := spans[0].at, 0, true
	for _, c := range spans {
		contiguous = contiguous && c.at == first+n
		n += c.n
	}
	if contiguous {
		return r.call.Src.Slice(first, first+n), nil
	}
	to := position{p, 0}
	for _, c := range spans {
		if err := r.copy(readLane, to, position{r.call.Src.Ptr, c.at}, c.n); err != nil {
			return backend.Buffer{}, err
		}
		to.i += c.n
	}
	return backend.Buffer{Ptr: p, Count: n, DType: r.call.DType()}, r.wait()
}
