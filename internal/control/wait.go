package control

import (
	"fmt"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/internal/release"
)

// A Wait is a call in which a rank has been waiting for some time.
type Wait struct {
	Call
	Since   time.Time
	On      int    // world number of the first rank that has not come; Nobody or Anyone
	Text    string // the call in words, "AllReduce sum float32[1024]"
	Site    string // where the call was made, "train.go:31"
	Group   string // the ranks of the communicator, see GroupOf
	Untaken string // messages that have come and that the call does not take, in words; "" if there are none

	// Attended says that the program is blocked in this call: the call is not asynchronous,
	// or a goroutine waits for it now. Else the call goes on by itself while the
	// program does something else.
	Attended bool
}

// What On is if it is no rank.
const (
	Nobody = -1 // the rank is not known
	Anyone = -2 // any other rank ends the wait
)

// BeginWait notes that rank, the caller's own, has been waiting. It returns the
// wait's number for AttendWait and EndWait, or -1 if maxWaits are recorded already.
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
		it.on.Store(uint64(w.On - Anyone))
		it.textSize.Store(uint32(copy(it.text[:], w.Text)))
		it.siteSize.Store(uint32(copy(it.site[:], w.Site)))
		it.groupSize.Store(uint32(copy(it.group[:], w.Group)))
		it.untakenSize.Store(uint32(copy(it.untaken[:], w.Untaken)))
		s.AttendWait(rank, i, w.Attended)
		it.since.Store(w.Since.UnixNano())
		return i
	}
	b.hidden.Add(1)
	return -1
}

// groupRuns is how many runs of ranks a communicator's name has at most.
const groupRuns = 5

// GroupOf names a communicator by the world numbers of its ranks: "ranks 0-3", "ranks 0,2,4"; of many it has the first ones.
func GroupOf(world []int) string {
	b := []byte("ranks ")
	for i, runs := 0, 0; i < len(world); runs++ {
		if runs == groupRuns {
			return string(fmt.Appendf(b, ",… (%d)", len(world)))
		}
		last := i
		for last+1 < len(world) && world[last+1] == world[last]+1 {
			last++
		}
		if i > 0 {
			b = append(b, ',')
		}
		if b = strconv.AppendInt(b, int64(world[i]), 10); last > i {
			b = fmt.Appendf(b, "-%d", world[last])
		}
		i = last + 1
	}
	return string(b)
}

// AttendWait says whether the program is blocked in the wait of that number.
func (s *Segment) AttendWait(rank, number int, attended bool) {
	if number < 0 {
		return
	}
	var word uint32
	if attended {
		word = 1
	}
	s.block(rank).waits[number].attended.Store(word)
}

// SetWaitOn says for whom the wait of that number is.
func (s *Segment) SetWaitOn(rank, number, on int) {
	if number >= 0 {
		s.block(rank).waits[number].on.Store(uint64(on - Anyone))
	}
}

// Beat notes that rank, the caller's own, has looked whether its waits can end. Beats returns how
// often it has. A rank that waits and does not look is kept from running.
func (s *Segment) Beat(rank int)         { s.block(rank).beats.Add(1) }
func (s *Segment) Beats(rank int) uint64 { return s.block(rank).beats.Load() }

// Move notes that something has come to rank, the caller's own, that ends no wait. Moves returns a
// number that is another one then. Moves that are noted at the same time may count as one.
func (s *Segment) Move(rank int) {
	m := &s.block(rank).moves
	release.Store(m, m.Load()+1)
}
func (s *Segment) Moves(rank int) uint64 { return s.block(rank).moves.Load() }

// EndWait ends the wait of that number.
func (s *Segment) EndWait(rank, number int) {
	if number < 0 {
		s.block(rank).hidden.Add(-1)
		return
	}
	it := &s.block(rank).waits[number]
	it.since.Store(0)
	it.taken.Store(0)
}

// AddWaited notes that the program of rank, the caller's own, was blocked for d by other ranks.
func (s *Segment) AddWaited(rank int, d time.Duration) { s.block(rank).waited.Add(int64(d)) }

// Waited returns how long rank's program was blocked by other ranks so far. It counts waits that
// have ended and that lasted longer than microseconds.
func (s *Segment) Waited(rank int) time.Duration { return time.Duration(s.block(rank).waited.Load()) }

// Waiting is all waits of a rank.
type Waiting struct {
	Waits []Wait // in no order

	// Elsewhere says that the program is not known to be blocked: it attends to none
	// of these waits, or has others that are not recorded. Even if it is false, goroutines
	// that are in no call may do something: see Ask.
	Elsewhere bool
}

// Waiting returns the waits of rank. It leaves out waits that have only begun.
func (s *Segment) Waiting(rank int) (w Waiting) {
	b := s.block(rank)
	attended := false
	for i := range b.waits {
		it := &b.waits[i]
		since := it.since.Load()
		if since == 0 {
			continue
		}
		wait := Wait{
			Call:     Call{it.comm.Load(), it.seq.Load(), it.what.Load(), it.count.Load()},
			Since:    time.Unix(0, since),
			On:       int(min(it.on.Load(), uint64(s.ranks-1-Anyone))) + Anyone,
			Text:     readText(it.text[:], it.textSize.Load()),
			Site:     readText(it.site[:], it.siteSize.Load()),
			Group:    readText(it.group[:], it.groupSize.Load()),
			Untaken:  readText(it.untaken[:], it.untakenSize.Load()),
			Attended: it.attended.Load() != 0,
		}
		if it.since.Load() != since { // it ended, and another one began
			continue
		}
		w.Waits = append(w.Waits, wait)
		attended = attended || wait.Attended
	}
	w.Elsewhere = b.hidden.Load() != 0 || !attended
	return w
}

// Ask lets the launcher ask rank, whose program is blocked, whether all its goroutines can only
// wait. number, above 0, tells questions apart: the latest one counts.
func (s *Segment) Ask(rank int, number uint64) { s.block(rank).question.Store(number) }

// Question returns the number of the question that rank, the caller's own, has to answer; 0 if
// there is none.
func (s *Segment) Question(rank int) (number uint64) {
	b := s.block(rank)
	if number = b.question.Load(); b.answer.Load()/2 == number {
		return 0
	}
	return number
}

// Answer answers a question. only says that all goroutines of rank can only wait.
func (s *Segment) Answer(rank int, number uint64, only bool) {
	word := number * 2
	if only {
		word++
	}
	s.block(rank).answer.Store(word)
}

// OnlyWaits reports whether rank has answered yes to the question.
func (s *Segment) OnlyWaits(rank int, number uint64) bool {
	return s.block(rank).answer.Load() == number*2+1
}
