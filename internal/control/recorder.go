package control

import "time"

// A Call is one collective as the flight recorder keeps it.
type Call struct {
	Comm  uint64 // the communicator, by the offset of its region
	Seq   uint64 // which call of the communicator, from 1
	What  uint64 // the two words of its comm.Fingerprint
	Count uint64
}

// A Wait is what a rank has been waiting for, for some time.
type Wait struct {
	Call
	Since time.Time
	On    int    // world number of the first rank that has not come
	Text  string // the call in words, "AllReduce sum float32[1024]"
	Site  string // where the call was made, "train.go:31"
}

// Log notes that rank, which must be the caller's own, begins a call. It costs
// a few stores.
func (s *Segment) Log(rank int, c Call) {
	b := s.block(rank)
	n := b.calls.Load()
	b.ring[n%RingCalls] = entry{c.Comm, c.Seq, c.What, c.Count}
	b.calls.Store(n + 1)
}

// Last returns rank's last calls, the latest last. If rank runs on meanwhile,
// the earliest may be mixed up.
func (s *Segment) Last(rank int) []Call {
	b := s.block(rank)
	n := b.calls.Load()
	calls := make([]Call, 0, RingCalls)
	for i := n - min(n, RingCalls); i != n; i++ {
		e := b.ring[i%RingCalls]
		calls = append(calls, Call{e.comm, e.seq, e.what, e.count})
	}
	return calls
}

// SetWait says that rank has been waiting; a zero Since that it goes on.
func (s *Segment) SetWait(rank int, w Wait) {
	b := &s.block(rank).wait
	if w.Since.IsZero() {
		b.since.Store(0)
		return
	}
	b.comm.Store(w.Comm)
	b.seq.Store(w.Seq)
	b.what.Store(w.What)
	b.count.Store(w.Count)
	b.on.Store(uint64(w.On))
	b.textSize.Store(uint32(copy(b.text[:], w.Text)))
	b.siteSize.Store(uint32(copy(b.site[:], w.Site)))
	b.since.Store(w.Since.UnixNano())
}

// Waiting returns what rank is waiting for; ok is false if it is not waiting,
// or not for long.
func (s *Segment) Waiting(rank int) (w Wait, ok bool) {
	b := &s.block(rank).wait
	since := b.since.Load()
	if since == 0 {
		return Wait{}, false
	}
	return Wait{
		Call:  Call{b.comm.Load(), b.seq.Load(), b.what.Load(), b.count.Load()},
		Since: time.Unix(0, since),
		On:    int(min(b.on.Load(), uint64(s.ranks-1))),
		Text:  readText(b.text[:], b.textSize.Load()),
		Site:  readText(b.site[:], b.siteSize.Load()),
	}, true
}

// SetNote publishes rank's side of a disagreement; stamp says which.
func (s *Segment) SetNote(rank int, stamp uint64, text string) {
	n := &s.block(rank).note
	n.stamp.Store(0)
	n.size.Store(uint32(copy(n.data[:], text)))
	n.stamp.Store(stamp)
}

// Note returns what rank said with SetNote for stamp, ok false if nothing.
func (s *Segment) Note(rank int, stamp uint64) (text string, ok bool) {
	n := &s.block(rank).note
	if n.stamp.Load() != stamp {
		return "", false
	}
	return readText(n.data[:], n.size.Load()), true
}

// Calls returns how many calls rank has made, on all communicators: while it
// stays the same the rank makes no progress.
func (s *Segment) Calls(rank int) uint64 { return s.block(rank).calls.Load() }
