//go:build linux && !nolibs

package mpi

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// Ranks wait for each other for ever if one is in a Recv of a rank that is in a
// collective, on one communicator. No comparison of calls finds that, since the two calls
// never meet. So a rank whose Send or Recv takes long sends a probe to the rank that it
// waits for. A rank in a call of that communicator that waits too passes it on to those
// that it waits for, with its own call added. If the probe comes back, none of the calls
// can end, because a communicator's calls on a rank are made one after the other.

// stuckAfter is how long a rank waits before it sends a probe, and passes probes on.
const stuckAfter = time.Second

// A messageKey is Send or Recv, and the other side by world number.
type messageKey struct {
	kind comm.Kind
	rank int
}

// stuck is a call that has taken stuckAfter.
type stuck struct {
	needs
	party  comm.Party
	first  uint64         // the first probe sent for it; 0: none was
	next   time.Time      // when the next one is sent
	passed map[int]uint64 // the last probe passed on, by who asks
	err    error          // why the call cannot end
}

// needs is what a call waits for: that each of the ranks, by world number, begins its
// call of that number: of collectives if kind is Barrier, else of Sends to this rank or
// Recvs from it.
type needs struct {
	kind   comm.Kind
	number uint64
	ranks  []int
}

// count counts a Send or a Recv.
func (r *Rank) count(call *comm.Call) {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	if r.begun == nil {
		r.begun = map[messageKey]uint64{}
	}
	r.begun[messageKey{call.Kind, r.world[call.Root]}]++
}

// needs says what call waits for; comparing says that it waits for notes.
func (r *Rank) needs(call *comm.Call, comparing bool) needs {
	switch {
	case call.Kind == comm.RecvKind:
		peer := r.world[call.Root]
		return needs{comm.SendKind, r.begun[messageKey{comm.RecvKind, peer}], []int{peer}}
	case call.Kind == comm.SendKind:
		peer := r.world[call.Root]
		return needs{comm.RecvKind, r.begun[messageKey{comm.SendKind, peer}], []int{peer}}
	case comparing:
		return needs{comm.BarrierKind, r.calls.Load(), r.late(true)}
	}
	return needs{comm.BarrierKind, r.calls.Load(), r.world}
}

// probe notes that call takes long, and sends a probe now and then if it is a Send or a Recv.
func (r *Rank) probe(call *comm.Call, comparing bool) {
	if r.checks == checkNone {
		return
	}
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	s, now := r.stuck, time.Now()
	if s == nil {
		s = &stuck{party: comm.Party{Rank: j.rank, Call: call.String(), Site: call.Site()}, next: now, passed: map[int]uint64{}}
		r.stuck = s
	}
	s.needs = r.needs(r.open(call), comparing)
	if !call.Kind.PointToPoint() || now.Before(s.next) {
		return
	}
	s.next = now.Add(stuckAfter)
	j.probes++
	if s.first == 0 {
		s.first = j.probes
	}
	j.forward(j.rank, r.id, j.probes, s, "")
}

// unstick says that the call has ended.
func (r *Rank) unstick() {
	if r.stuck == nil { // set by this goroutine alone
		return
	}
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
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
		text := binary.LittleEndian.AppendUint64(nil, probe)
		text = binary.LittleEndian.AppendUint64(text, s.number)
		text = append(text, byte(s.kind))
		text = fmt.Appendf(text, "%s%v and waits for rank %d, ", trail, s.party, peer)
		j.post(j.write(controlProbe, 0, asker, group, text), []int{peer})
	}
}

// probed reads a probe of rank asker that rank from has passed on. The job's lock is held.
func (j *job) probed(from, asker int, group uint64, text []byte) {
	const head = 17
	g := j.groups[group]
	if g == nil || len(text) < head {
		return
	}
	probe, number, kind := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:]), comm.Kind(text[16])
	begun := g.calls.Load()
	if kind.PointToPoint() {
		begun = g.begun[messageKey{kind, from}]
	}
	s := g.stuck
	if begun >= number || s == nil {
		return // it does not wait for this rank, or this rank does something
	}
	trail := string(text[head:])
	if asker != j.rank {
		if s.passed[asker] < probe {
			s.passed[asker] = probe
			j.forward(asker, group, probe, s, trail)
		}
		return
	}
	if s.first > 0 && probe >= s.first {
		s.err = comm.Circle(trail)
		j.alarm.Add(1)
	}
}
