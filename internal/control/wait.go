package control

import "time"

// A Wait is what a rank has been waiting for, for some time.
type Wait struct {
	Call
	Since time.Time
	On    int    // world number of the first rank that has not come
	Text  string // the call in words, "AllReduce sum float32[1024]"
	Site  string // where the call was made, "train.go:31"

	// Attended says that the program itself stands still for this call: it made
	// it to block, or waits for it now. Else the call goes on by itself while the
	// program does something else.
	Attended bool
}

// BeginWait notes that rank, the caller's own, has been waiting. It returns the
// number under which the wait can be changed and ended, -1 if it is one too many to
// be recorded.
func (s *Segment) BeginWait(rank int, w Wait) (number int) {
	b := s.block(rank)
	for i := range b.waits {
		it := &b.waits[i]
		if !it.taken.CompareAndSwap(0, 1) {
			continue
		}
		it.comm.Store(w.Comm)
		it.seq.Store(w.Seq)
		it.what.Store(w.What)
		it.count.Store(w.Count)
		it.on.Store(uint64(w.On))
		it.textSize.Store(uint32(copy(it.text[:], w.Text)))
		it.siteSize.Store(uint32(copy(it.site[:], w.Site)))
		it.since.Store(w.Since.UnixNano())
		s.AttendWait(rank, i, w.Attended)
		return i
	}
	b.hidden.Add(1)
	return -1
}

// AttendWait says whether the program stands still for the wait of that number.
func (s *Segment) AttendWait(rank, number int, attended bool) {
	if number < 0 {
		return
	}
	b := s.block(rank)
	it := &b.waits[number]
	switch {
	case attended && it.attended.CompareAndSwap(0, 1):
		if n := b.attended.Add(1); n > b.peak.Load() {
			b.peak.Store(n)
		}
	case !attended && it.attended.CompareAndSwap(1, 0):
		b.attended.Add(-1)
	}
}

// EndWait ends the wait of that number.
func (s *Segment) EndWait(rank, number int) {
	if number < 0 {
		s.block(rank).hidden.Add(-1)
		return
	}
	s.AttendWait(rank, number, false)
	it := &s.block(rank).waits[number]
	it.since.Store(0)
	it.taken.Store(0)
}

// Waiting is all that a rank waits for.
type Waiting struct {
	Waits []Wait // in no order

	// Elsewhere says that the program may be doing something beside the waits that
	// it attends to: it has had more of them at once than now, or has some that are
	// not recorded.
	Elsewhere bool
}

// Waiting returns what rank is waiting for; what does not last for long is left out.
func (s *Segment) Waiting(rank int) (w Waiting) {
	b := s.block(rank)
	attended := 0
	for i := range b.waits {
		it := &b.waits[i]
		since := it.since.Load()
		if since == 0 {
			continue
		}
		wait := Wait{
			Call:     Call{it.comm.Load(), it.seq.Load(), it.what.Load(), it.count.Load()},
			Since:    time.Unix(0, since),
			On:       int(min(it.on.Load(), uint64(s.ranks-1))),
			Text:     readText(it.text[:], it.textSize.Load()),
			Site:     readText(it.site[:], it.siteSize.Load()),
			Attended: it.attended.Load() != 0,
		}
		if it.since.Load() != since { // it ended, and another one began
			continue
		}
		w.Waits = append(w.Waits, wait)
		if wait.Attended {
			attended++
		}
	}
	w.Elsewhere = b.hidden.Load() != 0 || attended == 0 || attended < int(b.peak.Load())
	return w
}
