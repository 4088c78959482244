package device

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// The state of a rank in a call.
const (
	stateEmpty    = iota // its buffers are empty
	stateHost            // a buffer is not in device memory, or the rank has no free slot
	stateReceives        // the rank only receives, in device memory
	stateSlot            // stateSlot+i: the rank sends from slot i of its window
)

// A summary tells all ranks before a call that moves elements: one rank's state, how many
// elements it sends to each rank, and how many it expects from each.
type summary []int64

func newSummary(size int) summary { return make(summary, 1+2*size) }

func (o summary) size() int      { return len(o) / 2 }
func (o summary) state() int     { return int(o[0]) }
func (o summary) has(q int) int  { return int(o[1+q]) }
func (o summary) want(q int) int { return int(o[1+o.size()+q]) }

// fill sets the counts of the summary and returns the rank's source. It leaves the state.
func (o summary) fill(c *backend.Call, rank int) (src backend.Buffer) {
	size := o.size()
	for q := range size {
		_, has := c.Outgoing(rank, q, size)
		_, want := c.Incoming(rank, q, size)
		o[1+q], o[1+size+q] = int64(has), int64(want)
	}
	return c.Source(rank)
}

// shared reports whether a rank sends the same elements to all ranks in calls of kind k. If
// not, it sends each rank a part of its own.
func shared(k backend.Kind) bool {
	s := k.Shape()
	return s.Pattern == backend.PatternMove && k != backend.SplitKind &&
		(s.Root == backend.RootShares || s.Root == backend.NoRoot && s.Src == backend.Whole)
}

// divide returns the number of parts in which a rank's source goes through its window, which
// holds window elements, and the most elements for one rank in a part. Each part has
// elements for every rank, so that all ranks copy at the same time.
func (o summary) divide(rank int, shared bool, window int) (parts, step int) {
	total, longest := 0, 0
	for q := range o.size() {
		if q != rank {
			total += o.has(q)
			longest = max(longest, o.has(q))
		}
	}
	step = window
	if !shared && total > window {
		step = max(1, window/(o.size()-1))
	}
	return ints.DivUp(longest, step), step
}

// longest returns the number of elements of the rank's larger buffer.
func (o summary) longest(shared bool) int {
	has, wants := 0, 0
	for q := range o.size() {
		if wants += o.want(q); shared {
			has = max(has, o.has(q))
		} else {
			has += o.has(q)
		}
	}
	return max(has, wants)
}

// agree reports whether a call can be carried out by windows. All ranks have the same
// summaries, so all come to the same answer. It is false if some rank does not send as many
// elements as another expects: the backend then makes the error.
func agree(summaries []summary) bool {
	some := false
	for p, o := range summaries {
		if o.state() == stateHost {
			return false
		}
		some = some || o.state() != stateEmpty
		for q := range summaries {
			if o.has(q) != summaries[q].want(p) {
				return false
			}
		}
	}
	return some
}

// A windowMove is a windowCall that moves elements.
type windowMove struct {
	windowCall
	src       backend.Buffer
	shared    bool
	summaries []summary
	spans     []span // see span
}

// read carries out a call by windows if all ranks can, and if some rank has enough elements.
// If done is false nothing has happened.
func (w *windows) read(ctx context.Context, s *staging, c *group, call *backend.Call) (done bool, err error) {
	n := c.size
	r := windowMove{shared: shared(call.Kind), summaries: make([]summary, n), spans: make([]span, n)}
	r.windowCall = windowCall{windows: w, c: c, call: call, elem: call.DType().Size(), slot: make([]int, n)}
	mine := r.summarize(s)
	if mine.state() >= stateSlot {
		defer w.release(r.slot[c.rank])
	}
	defer r.close(&err)
	_, known := largestBuffer(call, n)
	// A rank is early if its own summary shows that the call is not small. It copies its first part
	// before it knows the other summaries.
	early := func(o summary) bool { return known || !s.small(o.longest(r.shared)*r.elem) }
	if mine.state() >= stateReceives {
		if err := r.open(s); err != nil {
			return false, err
		}
	}
	if mine.state() >= stateSlot && early(mine) {
		if err := r.part(0); err != nil {
			return false, err
		}
		if err := r.wait(); err != nil {
			return false, err
		}
	}
	all := make(summary, n*len(mine))
	gather := call.Inner(backend.AllGatherKind, backend.Of(all), backend.Of(mine))
	if err := c.Backend.Do(ctx, &gather); err != nil {
		return false, err
	}
	some, late := false, false
	for q := range r.summaries {
		o := all[q*len(mine):][:len(mine)]
		r.summaries[q], r.slot[q] = o, max(0, o.state()-stateSlot)
		some = some || early(o)
		late = late || o.state() >= stateSlot && !early(o)
	}
	if !some || !agree(r.summaries) {
		return false, nil
	}
	if late {
		if mine.state() >= stateSlot && !early(mine) {
			if err := r.part(0); err != nil {
				return true, err
			}
		}
		if err := r.meet(ctx); err != nil {
			return true, err
		}
	}
	return true, r.run(ctx)
}

// summarize sets this rank's summary, and its source and slot, and returns the summary. It reserves the slot.
func (r *windowMove) summarize(s *staging) summary {
	mine, me := newSummary(r.c.size), r.c.rank
	r.src = mine.fill(r.call, me)
	r.summaries[me] = mine
	parts, _ := mine.divide(me, r.shared, r.window())
	switch dst, src := s.stateOf(r.call.Dst), s.stateOf(r.call.Src); {
	case dst == stateHost || src == stateHost:
		mine[0] = stateHost
	case dst == stateEmpty && src == stateEmpty:
		mine[0] = stateEmpty
	case parts == 0:
		mine[0] = stateReceives
	default:
		mine[0] = stateHost
		if slot, ok := r.reserve(); ok {
			mine[0], r.slot[me] = int64(stateSlot+slot), slot
		}
	}
	return mine
}

// stateOf returns the state of a rank whose only buffer is b.
func (s *staging) stateOf(b backend.Buffer) int {
	switch {
	case b.Count == 0:
		return stateEmpty
	case s.stage.Holds(b.Ptr):
		return stateReceives
	}
	return stateHost
}

// window returns how many elements fit half a slot.
func (r *windowMove) window() int { return r.half / r.elem }

// run reads part after part. It reads a part when all windows hold it, and writes a half again
// when all ranks have read it; meet waits for both.
func (r *windowMove) run(ctx context.Context) error {
	parts := 1 // a rank copies its own elements with the first part
	for q, o := range r.summaries {
		n, _ := o.divide(q, r.shared, r.window())
		parts = max(parts, n)
	}
	for k := range parts {
		if k+1 < parts {
			if err := r.part(k + 1); err != nil {
				return err
			}
		}
		if err := r.take(k); err != nil {
			return err
		}
		if err := r.meet(ctx); err != nil {
			return err
		}
	}
	return nil
}

// span returns, by rank, the elements of rank q's source that part k holds for it. before is the
// number of elements that the parts before hold for each rank.
func (r *windowMove) span(q, k int) (spans []span, before int) {
	o := r.summaries[q]
	_, step := o.divide(q, r.shared, r.window())
	first := 0
	for p := range r.spans {
		n := o.has(p)
		r.spans[p] = span{first + k*step, max(0, min(step, n-k*step))}
		if !r.shared {
			first += n
		}
	}
	return r.spans, k * step
}

// part queues the copies of part k of this rank's source to its slot.
func (r *windowMove) part(k int) error {
	spans, _ := r.span(r.c.rank, k)
	if r.shared { // every rank gets the same elements
		one := spans[(r.c.rank+1)%len(spans)]
		return r.copy(putLane, position{r.at(r.c.rank, k%2), 0}, position{r.src.Ptr, one.at}, one.n)
	}
	return r.put(k%2, r.src.Ptr, spans)
}

// take queues the copies of this rank's elements of part k, from all windows to Dst.
func (r *windowMove) take(k int) error {
	me, to := r.c.rank, 0 // to: the next element of Dst
	for q, o := range r.summaries {
		spans, before := r.span(q, k)
		mine := spans[me]
		var src position
		switch {
		case q == me && k == 0:
			src, mine.n = position{r.src.Ptr, mine.at}, o.has(me)
		case q == me || mine.n == 0:
			mine.n = 0
		case r.shared:
			src = position{r.at(q, k%2), 0}
		default:
			src = r.find(q, k%2, spans)
		}
		if err := r.copy(readLane, position{r.call.Dst.Ptr, to + before}, src, mine.n); err != nil {
			return err
		}
		to += o.has(me)
	}
	return nil
}
