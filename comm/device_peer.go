package comm

import "context"

// What a rank says of its buffers: that they are empty, that some are not in device
// memory or that it has no slot for them, that it only gets something there, or, from
// stateSlot on, in which slot others find what it hands in.
const (
	stateEmpty = iota
	stateHost
	stateGets
	stateSlot
)

// An offer is what each rank tells all others before a call that moves elements: what
// is said above, and how many elements it has for each rank and expects of each.
type offer []int64

func newOffer(size int) offer { return make(offer, 1+2*size) }

func (o offer) size() int      { return len(o) / 2 }
func (o offer) state() int     { return int(o[0]) }
func (o offer) has(q int) int  { return int(o[1+q]) }
func (o offer) want(q int) int { return int(o[1+o.size()+q]) }

// fill says what a rank does in the call, its state excepted, and returns the buffer
// that it hands in.
func (o offer) fill(c *Call, rank int) (src Buffer) {
	size := o.size()
	has, wants := o[1:1+size], o[1+size:]
	src = c.Src
	all := func(list []int64, n int) {
		for q := range list {
			list[q] = int64(n)
		}
	}
	each := func(list []int64, counts []int) {
		for q, n := range counts {
			list[q] = int64(n)
		}
	}
	root := c.Root == rank
	switch c.Kind {
	case AllGatherKind:
		all(has, src.Count)
		all(wants, src.Count)
	case AllGatherVKind:
		all(has, src.Count)
		each(wants, c.DstCounts)
	case GatherKind, GatherVKind:
		has[c.Root] = int64(src.Count)
		switch {
		case root && c.Kind == GatherKind:
			all(wants, c.Dst.Count/size)
		case root:
			each(wants, c.DstCounts)
		}
	case ScatterKind, ScatterVKind:
		wants[c.Root] = int64(c.Dst.Count)
		switch {
		case root && c.Kind == ScatterKind:
			all(has, src.Count/size)
		case root:
			each(has, c.SrcCounts)
		}
	case AllToAllKind:
		all(has, src.Count/size)
		all(wants, c.Dst.Count/size)
	case AllToAllVKind:
		each(has, c.SrcCounts)
		each(wants, c.DstCounts)
	case BroadcastKind:
		if src = c.Dst; root {
			all(has, src.Count)
			has[rank] = 0
		} else {
			src = Buffer{}
			wants[c.Root] = int64(c.Dst.Count)
		}
	}
	return src
}

// shared reports whether all ranks get the same elements of a rank in calls of kind k;
// otherwise they get what lies one after another.
func (k Kind) shared() bool {
	return k == AllGatherKind || k == AllGatherVKind || k == BroadcastKind
}

// passing returns how what a rank has for others passes through its window, of so many
// elements: in how many parts, and how many elements of each rank's a part has at most.
// Each part has some for every rank, so that all copy at once.
func (o offer) passing(rank int, shared bool, window int) (parts, step int) {
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
	return (longest + step - 1) / step, step
}

// most returns how many elements the larger buffer of the rank has.
func (o offer) most(shared bool) int {
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

// agree reports whether a call can be made by reading windows, from what all ranks
// have said, so that all come to the same. It cannot if one has not for another what
// that expects: the backend then says so.
func agree(offers []offer) bool {
	some := false
	for p, o := range offers {
		if o.state() == stateHost {
			return false
		}
		some = some || o.state() != stateEmpty
		for q := range offers {
			if o.has(q) != offers[q].want(p) {
				return false
			}
		}
	}
	return some
}

// A reading is a visit that moves elements.
type reading struct {
	visit
	src    Buffer
	shared bool
	offers []offer
	cuts   []cut // see cut
}

// read carries out a call by reading windows if all ranks find that they can and that
// some have enough to move: if done is false nothing has happened.
func (w *windows) read(ctx context.Context, s *staging, c *Comm, call *Call) (done bool, err error) {
	n := c.size
	r := reading{shared: call.Kind.shared(), offers: make([]offer, n), cuts: make([]cut, n)}
	r.visit = visit{windows: w, c: c, call: call, elem: call.DType().Size(), slot: make([]int, n)}
	mine := newOffer(n)
	r.src = mine.fill(call, c.rank)
	r.offers[c.rank] = mine
	parts, _ := mine.passing(c.rank, r.shared, r.window())
	switch dst, src := s.lies(call.Dst), s.lies(call.Src); {
	case dst == stateHost || src == stateHost:
		mine[0] = stateHost
	case dst == stateEmpty && src == stateEmpty:
		mine[0] = stateEmpty
	case parts == 0:
		mine[0] = stateGets
	default:
		mine[0] = stateHost
		if slot, ok := w.reserve(); ok {
			defer w.release(slot)
			mine[0], r.slot[c.rank] = int64(stateSlot+slot), slot
		}
	}
	defer r.close(&err)
	_, known := call.most(n)
	early := func(o offer) bool { return known || !s.small(o.most(r.shared)*r.elem) } // it puts its first part before all know of it
	if mine.state() >= stateGets {
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
	all := make(offer, n*len(mine))
	told := call.inner(AllGatherKind, Of(all), Of(mine))
	if err := c.backend.Do(ctx, &told); err != nil {
		return false, err
	}
	some, late := false, false
	for q := range r.offers {
		o := all[q*len(mine):][:len(mine)]
		r.offers[q], r.slot[q] = o, max(0, o.state()-stateSlot)
		some = some || early(o)
		late = late || o.state() >= stateSlot && !early(o)
	}
	if !some || !agree(r.offers) {
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

// lies says where a buffer is.
func (s *staging) lies(b Buffer) int {
	switch {
	case b.Count == 0:
		return stateEmpty
	case s.stage.Holds(b.Ptr):
		return stateGets
	}
	return stateHost
}

// window returns how many elements a half of a slot has room for.
func (r *reading) window() int { return r.half / r.elem }

// run reads part after part, when each is in all windows. A half is written again
// when all have read what it held: they say so by coming to the next part.
func (r *reading) run(ctx context.Context) error {
	parts := 1 // what a rank has for itself comes with the first
	for q, o := range r.offers {
		n, _ := o.passing(q, r.shared, r.window())
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

// cut returns what part k has of what rank q hands in, a cut for each rank, and how many
// elements of each rank's came before.
func (r *reading) cut(q, k int) (cuts []cut, before int) {
	o := r.offers[q]
	_, step := o.passing(q, r.shared, r.window())
	first := 0
	for p := range r.cuts {
		n := o.has(p)
		r.cuts[p] = cut{first + k*step, max(0, min(step, n-k*step))}
		if !r.shared {
			first += n
		}
	}
	return r.cuts, k * step
}

// part queues the copy of part k of what this rank hands in to its slot.
func (r *reading) part(k int) error {
	cuts, _ := r.cut(r.c.rank, k)
	if r.shared { // all get the same
		one := cuts[(r.c.rank+1)%len(cuts)]
		return r.copy(putLane, spot{r.at(r.c.rank, k%2), 0}, spot{r.src.Ptr, one.at}, one.n)
	}
	return r.put(k%2, r.src.Ptr, cuts)
}

// take queues the copies of what part k has for this rank.
func (r *reading) take(k int) error {
	me, to := r.c.rank, 0 // where in dst
	for q, o := range r.offers {
		cuts, before := r.cut(q, k)
		mine := cuts[me]
		var src spot
		switch {
		case q == me && k == 0:
			src, mine.n = spot{r.src.Ptr, mine.at}, o.has(me)
		case q == me || mine.n == 0:
			mine.n = 0
		case r.shared:
			src = spot{r.at(q, k%2), 0}
		default:
			src = r.find(q, k%2, cuts)
		}
		if err := r.copy(readLane, spot{r.call.Dst.Ptr, to + before}, src, mine.n); err != nil {
			return err
		}
		to += o.has(me)
	}
	return nil
}
