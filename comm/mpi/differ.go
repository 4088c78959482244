//go:build linux && !nolibs

package mpi

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/mpi/exchange"
)

// The note of a Send has no line: to find it out takes as long as a short message. So a receiver whose call differs asks the
// sender for its call, by a control message. A sender of a long message is still in the call, and answers. One of a
// short message has most often left it.

// answerTime is how long the receiver waits for an answer.
const answerTime = 300 * time.Millisecond

// A sendKey is a Send on a communicator: the other rank by world number, the receiver or the sender, and which of all
// Sends from the one to the other.
type sendKey struct {
	rank   int
	number uint64
}

// differ ends the communicator because the other side of a Recv makes another call, and returns the error.
func (r *Rank) differ(call *backend.Call) error {
	its := r.notes[0].fingerprint()
	theirs, left := backend.Party{Rank: r.world[call.Root], Call: its.String()}, true
	if text, ok := r.askFor(call); ok {
		theirs, left = text.Party(theirs.Rank), false
	}
	err := backend.Mismatch(call.Party(r.world[r.me]), theirs)
	if left {
		err = fmt.Errorf("%w; %s=1 has rank %d wait in its call, so that the error names its line", err, debugVariable, theirs.Rank)
	}
	err = r.giveUp(call, err)
	r.forget(len(r.requests))
	return err
}

// askFor asks the sender of what call is to receive for its call; ok is false if it has not answered.
func (r *Rank) askFor(call *backend.Call) (text exchange.Text, ok bool) {
	j, from := r.job, r.world[call.Root]
	j.mu.Lock()
	defer j.mu.Unlock()
	key := sendKey{from, r.begun[messageKey{backend.RecvKind, from}]}
	j.post(j.write(controlWhich, 0, 0, r.id, binary.LittleEndian.AppendUint64(nil, key.number)), []int{from})
	for began := time.Now(); time.Since(began) < answerTime && r.dead() == nil; {
		j.poll()
		r.tellOf(call) // the sender may ask this rank
		if text, ok = r.told[key]; ok || j.ended[from] != nil && j.ended[from].over {
			break
		}
		j.mu.Unlock()
		nap(shortestNap)
		j.mu.Lock()
	}
	return text, ok
}

// asked is told that rank from asks for a Send to it. The job's lock is held, as in the others.
func (j *job) asked(from int, group uint64, text []byte) {
	if g := j.groups[group]; g != nil && len(text) >= 8 {
		g.asked = append(g.asked, sendKey{from, binary.LittleEndian.Uint64(text)})
		j.alarm.Add(1)
	}
}

// tellOf answers those who ask for a Send if it is call, or the Send of a SendRecv. Others are over, and need no answer.
func (r *Rank) tellOf(call *backend.Call) {
	if len(r.asked) == 0 {
		return
	}
	if r.sending.Kind == backend.SendKind {
		call = &r.sending
	}
	if call.Kind == backend.SendKind {
		to := r.world[call.Root]
		key := sendKey{to, r.begun[messageKey{backend.SendKind, to}]}
		if slices.Contains(r.asked, key) {
			text := exchange.TextOf(call.Party(r.job.rank))
			answer := append(binary.LittleEndian.AppendUint64(nil, key.number), text[:]...)
			r.job.post(r.job.write(controlSend, 0, 0, r.id, answer), []int{to})
		}
	}
	r.asked = nil
}

// toldOf keeps an answer.
func (j *job) toldOf(from int, group uint64, answer []byte) {
	var text exchange.Text
	if g := j.groups[group]; g != nil && len(answer) == 8+len(text) {
		copy(text[:], answer[8:])
		g.told = map[sendKey]exchange.Text{{from, binary.LittleEndian.Uint64(answer)}: text}
	}
}
