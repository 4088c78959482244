package control

import (
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/internal/release"
)

// A Report is what a rank says of itself, for a process of another host.
type Report struct {
	State  State
	Calls  uint64
	Bytes  int
	Last   Call // if there were calls
	Step   int  // -1: none
	Saved  time.Time
	Waited time.Duration
	Beats  uint64
	Moves  uint64
	Hidden int32
	Answer uint64
	Waits  []Wait
}

// Report returns what rank says. It lists no more than a number of waits.
func (s *Segment) Report(rank, waits int) Report {
	b := s.block(rank)
	r := Report{State: s.State(rank), Calls: s.Calls(rank), Bytes: s.Bytes(rank), Step: -1, Waited: s.Waited(rank),
		Beats: s.Beats(rank), Moves: s.Moves(rank), Hidden: b.hidden.Load(), Answer: b.answer.Load(), Waits: s.Waiting(rank).Waits}
	r.Last, _ = s.LastCall(rank)
	r.Saved = s.Saved(rank)
	if step, ok := s.Step(rank); ok {
		r.Step = step
	}
	if more := len(r.Waits) - waits; more > 0 {
		r.Hidden += int32(more)
		r.Waits = r.Waits[:waits]
	}
	return r
}

// Copy writes a report of rank, a rank of another host, into its block. The other methods then
// return what they would there. Only one process may write to a block.
func (s *Segment) Copy(rank int, r Report) {
	b := s.block(rank)
	if r.Calls > 0 {
		b.ring[(r.Calls-1)%ringCalls] = r.Last
	}
	b.bytes = int64(r.Bytes)
	release.Store(&b.calls, r.Calls)
	if r.Step >= 0 {
		s.SetStep(rank, r.Step)
	}
	if !r.Saved.IsZero() {
		b.savedAt.Store(r.Saved.UnixNano())
	}
	b.waited.Store(int64(r.Waited))
	b.answer.Store(r.Answer)
	if !slices.EqualFunc(s.Waiting(rank).Waits, r.Waits, sameWait) { // who looks meanwhile must not see that they end
		for i := range b.waits {
			b.waits[i].since.Store(0)
			b.waits[i].taken.Store(0)
		}
		for _, w := range r.Waits {
			s.BeginWait(rank, w)
		}
	}
	b.hidden.Store(r.Hidden)
	b.beats.Store(r.Beats)
	b.moves.Store(r.Moves)
	s.SetState(rank, r.State)
}

// sameWait reports whether v is w.
func sameWait(v, w Wait) bool {
	at := v.Since.Equal(w.Since)
	v.Since = w.Since
	return at && v == w
}
