package shm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
)

// A failure is why a communicator ended. Only the first one counts.
type failure struct {
	kind uint32
	a, b int    // world numbers
	seq  uint64 // of the calls that disagree; see stamp
	text string
}

const (
	ranksAbort    = 1 + iota // rank a called Abort: text
	ranksEnd                 // rank a has ended: text
	ranksDisagree            // ranks a and b, each of which leaves a note for seq
	ranksUneven              // a mismatch that one rank sees: text
	ranksRefuse              // rank a called Abort because of a mismatch: text
)

// Abort ends the communicator and all that were split from it.
func (r *Rank) Abort(cause error) {
	var ended *backend.EndedError
	switch {
	case errors.As(cause, &ended):
		r.abort(failure{kind: ranksEnd, a: ended.Rank, text: ended.Cause})
	case errors.Is(cause, backend.ErrMismatch):
		r.abort(failure{kind: ranksRefuse, a: r.world[r.me], text: cause.Error()})
	default:
		r.abort(failure{kind: ranksAbort, a: r.world[r.me], text: cause.Error()})
	}
}

// abort publishes v unless another failure came first, and wakes the ranks that sleep.
func (r *Rank) abort(v failure) {
	h := r.region.head
	if !h.claimed.CompareAndSwap(0, 1) {
		return
	}
	h.kind, h.a, h.b, h.seq = v.kind, uint32(v.a), uint32(v.b), v.seq
	h.size = uint32(copy(h.cause[:], v.text))
	h.set.Store(1)
	r.job.alarm.Add(1)
	for _, m := range r.region.members {
		m.wake()
	}
	h.open()
}

// read returns the failure of the communicator itself, not those of its parents.
func (g *region) read() (v failure, ok bool) {
	h := g.head
	if h.set.Load() == 0 {
		return failure{}, false
	}
	text := strings.ToValidUTF8(string(h.cause[:min(h.size, causeBytes)]), "\uFFFD")
	return failure{h.kind, int(h.a), int(h.b), h.seq, text}, true
}

// alarmed returns the error that has ended the communicator or one that it
// was split from. It is cheap while nothing is wrong anywhere in the job.
func (r *Rank) alarmed(call *backend.Call) error {
	now := r.job.alarm.Load()
	if now == r.quiet {
		return nil
	}
	if r.broken() != nil {
		return r.failed(call)
	}
	r.quiet = now
	return nil
}

// quit ends the communicator because of err, leaves it and returns err.
func (r *Rank) quit(err error) error {
	r.Abort(err)
	r.leave()
	return err
}

// failed returns this rank's error and leaves the communicator. It is called when there
// is a failure.
func (r *Rank) failed(call *backend.Call) error {
	g := r
	for g.parent != nil && g.region.head.claimed.Load() == 0 {
		g = g.parent
	}
	err := g.why(call)
	r.leave()
	return err
}

// why returns the failure of the communicator itself as this rank's error. It is called when
// there is one. call is the one in progress, nil if none of the communicator's is.
func (r *Rank) why(call *backend.Call) error {
	v, ok := r.region.read()
	for i := 0; !ok && i < 1000; i++ { // the rank that has claimed the head is about to write why
		time.Sleep(time.Millisecond)
		v, ok = r.region.read()
	}
	switch v.kind {
	case ranksEnd:
		return &backend.EndedError{Rank: v.a, Cause: v.text}
	case ranksDisagree:
		return r.disagreement(v, call)
	case ranksUneven:
		return remoteError{v.text, backend.ErrMismatch}
	case ranksRefuse:
		return &backend.AbortError{Rank: v.a, Cause: v.text, Err: remoteError{v.text, backend.ErrMismatch}}
	}
	return &backend.AbortError{Rank: v.a, Cause: v.text}
}

// A remoteError is an error that another rank wrote.
type remoteError struct {
	text string
	is   error
}

func (e remoteError) Error() string { return e.text }
func (e remoteError) Unwrap() error { return e.is }

// stamp returns the number that marks the two notes about the disagreement in call seq.
func (r *Rank) stamp(seq uint64) uint64 { return r.region.id*0x9e3779b97f4a7c15 ^ seq*2654435761 | 1 }

// disagreement returns the error of a mismatch, the same on all ranks. If this rank is one
// of the two it writes its note; then it waits for both notes.
func (r *Rank) disagreement(v failure, call *backend.Call) error {
	stamp := r.stamp(v.seq)
	if me := r.world[r.me]; call != nil && (me == v.a || me == v.b) {
		if _, ok := r.job.seg.Note(me, stamp); !ok {
			r.job.seg.SetNote(me, stamp, noteOf(call.Party(me)))
		}
	}
	return backend.Mismatch(r.side(v.a, stamp), r.side(v.b, stamp))
}

// noteOf returns p as the text of a note, a line for each of its fields.
func noteOf(p backend.Party) string {
	return fmt.Sprintf("%d\n%s\n%s\n%s", p.Facts, p.Call, p.Site, p.Subject)
}

// partyOf returns the party whose noteOf a rank has left, which may be cut short.
func partyOf(world int, note string) backend.Party {
	number, rest, _ := strings.Cut(note, "\n")
	call, rest, _ := strings.Cut(rest, "\n")
	site, subject, _ := strings.Cut(rest, "\n")
	facts, _ := strconv.ParseUint(number, 10, 32)
	return backend.Party{Rank: world, Call: call, Site: site, Facts: uint32(facts), Subject: subject}
}

// side returns a rank's own description of its call. It waits a while for the rank's note:
// the rank is in the call too, but may not be running now.
func (r *Rank) side(world int, stamp uint64) backend.Party {
	if world < 0 || world >= r.job.seg.Ranks() {
		return backend.Party{Rank: world, Call: "an unknown call"}
	}
	for range 500 {
		if text, ok := r.job.seg.Note(world, stamp); ok {
			return partyOf(world, text)
		}
		if _, ended := r.job.seg.HasEnded(world); ended {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return backend.Party{Rank: world, Call: r.published(world).String()}
}

// published returns the fingerprint of the last call that a rank, by world
// number, has published here. It serves if the rank leaves no note.
func (r *Rank) published(world int) backend.Fingerprint {
	for m, w := range r.world {
		if w == world {
			a, b := r.region.slot(m, 0), r.region.slot(m, 1)
			if a.seq.Load() < b.seq.Load() {
				a = b
			}
			return backend.Fingerprint{What: a.what, Count: a.count}
		}
	}
	return backend.Fingerprint{}
}

// leave says that this rank makes no more calls on this communicator. If other ranks may be
// writing into its memory, leave waits until they have noticed, so that nobody writes into its
// buffers afterwards. It does not wait forever for a rank that is stopped.
func (r *Rank) leave() {
	r.mine.left.Store(1)
	if !r.exposed {
		return
	}
	r.exposed = false
	for range 2000 {
		if !r.anybodyInside() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	r.stillWritten = true
}

// anybodyInside reports whether some rank may still be in the call that this
// one is leaving.
func (r *Rank) anybodyInside() bool {
	for m, peer := range r.region.members {
		if m == r.me || peer.left.Load() != 0 || r.region.slot(m, r.calls).seq.Load() < r.calls || peer.step.Load() >= r.exit {
			continue
		}
		if _, ended := r.job.seg.HasEnded(r.world[m]); !ended {
			return true
		}
	}
	return false
}

// log notes the call in the flight recorder.
func (r *Rank) log(call *backend.Call, seq uint64, f backend.Fingerprint) {
	r.job.seg.Log(r.job.rank, control.Call{Comm: r.region.id, Seq: seq, What: f.What, Count: f.Count}, call.Bytes())
}

// uneven ends the communicator because the number of elements that rank from sends is not
// what rank to expects.
func (r *Rank) uneven(call *backend.Call, from, sent, to, expected int) error {
	err := call.Uneven(r.world[from], sent, r.world[to], expected)
	r.abort(failure{kind: ranksUneven, text: err.Error()})
	return r.failed(call)
}

// damaged ends the communicator because rank m published values that cannot be right.
func (r *Rank) damaged(call *backend.Call, m int, what string) error {
	r.abort(failure{kind: ranksAbort, a: r.world[r.me], text: fmt.Sprintf("shm: what rank %d published is damaged: %s", r.world[m], what)})
	return r.failed(call)
}

// damagedBuffer ends the communicator because rank m published a place for its data where it
// cannot be.
func (r *Rank) damagedBuffer(call *backend.Call, m int) error {
	return r.damaged(call, m, fmt.Sprintf("its buffer of %v", call))
}
