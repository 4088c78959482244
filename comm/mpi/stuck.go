//go:build linux && !nolibs

package mpi

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
)

// Ranks wait for each other for ever if one is in a Recv of a rank that is in a
// collective, on one communicator. No comparison of calls finds that, since the two calls
// never meet. So a rank whose Send or Recv takes long sends a probe to the rank that it
// waits for. A rank in a call of that communicator that waits too passes it on to those
// that it waits for, with its own call added. If the probe comes back, none of the calls
// can end, because a communicator's calls on a rank are made one after the other.
//
// The rank that gets a probe from the one that waits answers if it has not begun the call. So the
// segment (see guard) says for whom a rank waits only while that rank has lately said so itself,
// and not of a message on its way.

// A wait is recorded in the segment after recordAfter. A rank sends probes after stuckAfter, and
// then each probeInterval. An answer counts for answerLasts.
const (
	recordAfter   = 100 * time.Millisecond
	stuckAfter    = 500 * time.Millisecond
	probeInterval = 500 * time.Millisecond
	answerLasts   = 3 * probeInterval
)

// A wait is one that the segment records.
type wait struct {
	slot      int       // its number in the segment
	next      time.Time // when the next probe is sent
	questions []uint64  // the probes that may be answered
	answered  time.Time // the last answer; zero: there is none that counts

	// Of a wait for any rank: how many are asked, and those that have answered.
	asked int
	heard map[int]bool
}

// maxQuestions is how many probes of a wait may be answered late.
const maxQuestions = 8

// A messageKey is Send or Recv, and the other side by world number.
type messageKey struct {
	kind backend.Kind
	rank int
}

// stuck is a call that has taken recordAfter.
type stuck struct {
	needs
	wait
	party  backend.Party
	first  uint64         // the first probe sent for it; 0: none was
	passed map[int]uint64 // the last probe passed on, by who asks
	err    error          // why the call cannot end
}

// needs is what a call waits for: that each of the ranks, by world number, begins its
// call of that number: of collectives if kind is Barrier, else of Sends to this rank or
// Recvs from it.
type needs struct {
	kind   backend.Kind
	number uint64
	ranks  []int
}

// count counts a Send or a Recv.
func (r *Rank) count(call *backend.Call) {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	if r.begun == nil {
		r.begun = map[messageKey]uint64{}
	}
	r.begun[messageKey{call.Kind, r.world[call.Root]}]++
}

// needs says what call waits for; comparing says that it waits for notes.
func (r *Rank) needs(call *backend.Call, comparing bool) needs {
	switch {
	case call.Kind == backend.RecvKind:
		peer := r.world[call.Root]
		return needs{backend.SendKind, r.begun[messageKey{backend.RecvKind, peer}], []int{peer}}
	case call.Kind == backend.SendKind:
		peer := r.world[call.Root]
		return needs{backend.RecvKind, r.begun[messageKey{backend.SendKind, peer}], []int{peer}}
	case comparing:
		return needs{backend.BarrierKind, r.calls.Load(), r.late()}
	}
	return needs{backend.BarrierKind, r.calls.Load(), r.world}
}

// probe notes that call takes long, for waited so far, and sends a probe now and then: to the rank
// that a Send or a Recv waits for, or to one whose note has not come.
func (r *Rank) probe(call *backend.Call, comparing bool, waited time.Duration) {
	if r.checks == checkNone {
		return
	}
	j, now := r.job, time.Now()
	s := r.stuck // set by this goroutine alone
	if s == nil {
		s = &stuck{party: call.Party(j.rank), passed: map[int]uint64{}}
		s.wait = wait{slot: j.beginWait(r, call, now.Add(-waited)), next: now.Add(stuckAfter - waited)}
		j.mu.Lock()
		s.needs = r.needs(r.open(call), comparing)
		r.stuck = s
		j.mu.Unlock()
	}
	j.beat(s.slot, call.Attended())
	if now.Before(s.next) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s.needs = r.needs(r.open(call), comparing)
	switch {
	case call.Kind.PointToPoint():
		probe := j.ask(&s.wait, now)
		if s.first == 0 {
			s.first = probe
		}
		j.forward(j.rank, r.id, probe, s, "")
	case comparing && len(s.ranks) > 0:
		j.post(j.write(controlProbe, 1, j.rank, r.id, question(j.ask(&s.wait, now), s.needs)), s.ranks[:1])
	}
}

// question begins the text of a probe.
func question(probe uint64, n needs) []byte {
	text := binary.LittleEndian.AppendUint64(nil, probe)
	text = binary.LittleEndian.AppendUint64(text, n.number)
	return append(text, byte(n.kind))
}

// ask returns the number of the next probe for w. The job's lock is held.
func (j *job) ask(w *wait, now time.Time) (probe uint64) {
	if !w.answered.IsZero() && now.Sub(w.answered) > answerLasts {
		w.answered = time.Time{}
		clear(w.heard)
		j.waitsOn(w, control.Nobody)
	}
	if len(w.questions) == maxQuestions {
		delete(j.questions, w.questions[0])
		w.questions = append(w.questions[:0], w.questions[1:]...)
	}
	j.probes++
	w.next, w.questions = now.Add(probeInterval), append(w.questions, j.probes)
	j.questions[j.probes] = w
	return j.probes
}

// answered is told that rank from, asked by a probe, has not begun the call that this one waits
// for. The job's lock is held.
func (j *job) answered(probe uint64, from int) {
	if w := j.questions[probe]; w != nil {
		w.answered = time.Now()
		if w.heard != nil {
			if w.heard[from] = true; len(w.heard) < w.asked {
				return
			}
			from = control.Anyone
		}
		j.waitsOn(w, from)
	}
}

// over ends a wait. The job's lock is held.
func (j *job) over(w *wait) {
	for _, probe := range w.questions {
		delete(j.questions, probe)
	}
	w.questions = nil
	j.endWait(w)
}

// unstick says that the call has ended.
func (r *Rank) unstick() {
	if r.stuck == nil { // set by this goroutine alone
		return
	}
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	r.job.over(&r.stuck.wait)
	r.stuck = nil
}

// forward sends a probe of rank asker on to those for which s waits. Its message begins with
//
//	probe      8 bytes  its number
//	needed     8 bytes  the number of the call that is waited for
//	kind       1 byte   of that call
//
// and has the waiting calls as its text. The job's lock is held.
func (j *job) forward(asker int, group, probe uint64, s *stuck, trail string) {
	for _, peer := range s.ranks {
		if peer == j.rank {
			continue
		}
		text := fmt.Appendf(question(probe, s.needs), "%s%v and waits for rank %d, ", trail, s.party, peer)
		j.post(j.write(controlProbe, 0, asker, group, text), []int{peer})
	}
}

// probed reads a probe of rank asker that rank from has passed on, answers it if from asks itself,
// and passes it on. The job's lock is held.
func (j *job) probed(from, asker int, group uint64, text []byte, passOn bool) {
	const head = 17
	if len(text) < head {
		return
	}
	probe, number, kind := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:]), backend.Kind(text[16])
	g, begun := j.groups[group], uint64(0)
	switch {
	case g == nil: // this rank has yet to make it
	case kind.PointToPoint():
		begun = g.begun[messageKey{kind, from}]
	default:
		begun = g.calls.Load()
	}
	if begun >= number {
		return // it does not wait for this rank
	}
	if asker == from && from < j.size {
		j.post(j.write(controlAbsent, 0, 0, group, text[:8]), []int{from})
	}
	if g == nil || g.stuck == nil || !passOn {
		return // this rank does something
	}
	s := g.stuck
	trail := string(text[head:])
	if asker != j.rank {
		if s.passed[asker] < probe {
			s.passed[asker] = probe
			j.forward(asker, group, probe, s, trail)
		}
		return
	}
	if s.first > 0 && probe >= s.first {
		s.err = circle(trail)
		j.alarm.Add(1)
	}
}

// circle is the error of ranks that wait for each other: waits says of each what it called and for whom it waits,
// and ends in ", ".
func circle(waits string) error {
	return fmt.Errorf("%w: %snone of these calls can end; have each Send meet its Recv, and each collective all ranks, in one order",
		backend.ErrMismatch, waits)
}
