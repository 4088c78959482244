//go:build linux && !nolibs

package mpi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// A control message is a message between two ranks on the control communicator:
//
//	kind       1 byte
//	subject    1 byte   of an abort: what its cause is; of an end: 1 if requests were given up, 2 if the
//	                    sender says so of a process that has died; of a probe: 1 if it is not to be passed on
//	length     2 bytes  of the text
//	from       4 bytes  world number of the sender, or of the rank that has died
//	who        4 bytes  of an abort whose cause is an end: the rank that ended; of a probe: who asks
//	group      8 bytes  of an abort or a probe
//	text       length bytes
//
// That of calls has pairs of group and count instead of text, and a probe a question before
// it. Control messages are short enough to leave without waiting for the receiver.
const (
	controlHead  = 20
	controlBytes = 2048
)

// The kinds of control messages.
const (
	controlAbort = 1 + iota
	controlCalls // comes before an end
	controlEnd
	controlProbe    // see probe
	controlAbsent   // answers a probe: the sender has not begun the call
	controlReport   // see report
	controlQuestion // see Ask
	controlStacks   // see AskStacks
	controlWhich    // see differ
	controlSend     // answers it
	controlSent     // comes before an end too
)

// What the cause of an abort is.
const (
	causePlain = iota
	causeMismatch
	causeEnded
)

// inbox is the receive that is always posted.
type inbox struct {
	request request
	buffer  [controlBytes]byte
}

// outbound is a control message on its way.
type outbound struct {
	request request
	data    []byte
	to      int // world number
}

// listen posts the receive of the next control message.
func (j *job) listen() error {
	b := &j.inbox
	b.request = request{receive: true}
	return j.lib.call(irecv, uintptr(unsafe.Pointer(&b.buffer)), controlBytes, j.lib.handles[typeByte], uintptr(j.lib.anySource), 0,
		j.control, uintptr(unsafe.Pointer(&b.request.handle)))
}

// write makes a control message.
func (j *job) write(kind, subject byte, who int, group uint64, text []byte) []byte {
	text = text[:min(len(text), controlBytes-controlHead)]
	data := make([]byte, controlHead, controlHead+len(text))
	data[0], data[1] = kind, subject
	binary.LittleEndian.PutUint16(data[2:], uint16(len(text)))
	binary.LittleEndian.PutUint32(data[4:], uint32(j.rank))
	binary.LittleEndian.PutUint32(data[8:], uint32(who))
	binary.LittleEndian.PutUint64(data[12:], group)
	return append(data, text...)
}

// post sends a control message to ranks, by world number. The job's lock is held.
// A control message that cannot be sent is lost: its receiver has worse to report.
func (j *job) post(data []byte, to []int) {
	for _, w := range to {
		if e := j.ended[w]; w == j.rank || e != nil && e.died {
			continue
		}
		p := &outbound{data: data, to: w}
		err := j.lib.call(isend, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), j.lib.handles[typeByte], uintptr(w), 0,
			j.control, uintptr(unsafe.Pointer(&p.request.handle)))
		if err == nil && j.test(&p.request) == nil && !p.request.done {
			j.outbox = append(j.outbox, p)
		}
	}
}

// poll reads the control messages that have come. The job's lock is held.
func (j *job) poll() {
	j.outbox = slices.DeleteFunc(j.outbox, func(p *outbound) bool { return j.test(&p.request) != nil || p.request.done })
	j.polled.Store(ticks())
	for !j.closed {
		err := j.test(&j.inbox.request)
		if err == nil && !j.inbox.request.done {
			return
		}
		if err == nil {
			j.read(j.inbox.buffer[:])
		}
		if j.listen() != nil {
			return
		}
	}
}

// read acts on a control message.
func (j *job) read(data []byte) {
	text := data[controlHead:min(controlHead+int(binary.LittleEndian.Uint16(data[2:])), len(data))]
	from, group := int(binary.LittleEndian.Uint32(data[4:])), binary.LittleEndian.Uint64(data[12:])
	switch data[0] {
	case controlAbort:
		e := &backend.AbortError{Rank: from, Cause: string(text)}
		switch data[1] {
		case causeMismatch:
			e.Err = mismatch(text)
		case causeEnded:
			e.Err = &backend.EndedError{Rank: int(binary.LittleEndian.Uint32(data[8:])), Cause: string(text)}
			e.Cause = e.Err.Error()
		}
		j.markDead(group, e)
	case controlProbe:
		j.probed(from, int(binary.LittleEndian.Uint32(data[8:])), group, text, data[1] == 0)
	case controlAbsent:
		if len(text) >= 8 {
			j.answered(binary.LittleEndian.Uint64(text), from)
		}
	case controlReport:
		j.takeReport(from, text)
	case controlQuestion:
		if len(text) >= 8 && j.segment != nil {
			j.segment.Ask(j.rank, binary.LittleEndian.Uint64(text))
		}
	case controlStacks:
		go j.printStacks() // without the lock, which it would show
	case controlWhich:
		j.asked(from, group, text)
	case controlSend:
		j.toldOf(from, group, text)
	case controlCalls:
		calls := j.ending(from).calls
		for ; len(text) >= 16; text = text[16:] {
			calls[binary.LittleEndian.Uint64(text)] = binary.LittleEndian.Uint64(text[8:])
		}
	case controlSent:
		if len(text) >= 8 {
			j.ending(from).sent = binary.LittleEndian.Uint64(text)
		}
	case controlEnd:
		j.markEnded(from, string(text), data[1] != 0, data[1] == endDied)
	}
}

// What the subject of an end says.
const (
	endClean = iota
	endStuck
	endDied
)

// markEnded says that rank w, by world number, has ended. The job's lock is held.
func (j *job) markEnded(w int, cause string, stuck, died bool) {
	e := j.ending(w)
	if e.over {
		return
	}
	e.over, e.stuck, e.died, e.cause, e.seen = true, stuck, died, cause, time.Now()
	if died { // what is on its way to it never arrives
		j.outbox = slices.DeleteFunc(j.outbox, func(p *outbound) bool {
			if p.to == w {
				j.kept = append(j.kept, p)
			}
			return p.to == w
		})
		time.AfterFunc(j.linger, j.endAll) // a rank that makes no calls does not learn of it
	}
	j.alarm.Add(1)
}

// endAll ends all processes of the job, unless this one's part has ended.
func (j *job) endAll() {
	_ = j.onThread(func() error { // there is nobody to tell
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.closed {
			return nil
		}
		return j.lib.call(abortAll, j.lib.handles[commWorld], 1)
	})
}

// ending returns what is known of the end of rank w, by world number.
func (j *job) ending(w int) *ending {
	e := j.ended[w]
	if e == nil {
		e = &ending{calls: map[uint64]uint64{}}
		j.ended[w] = e
	}
	return e
}

// markDead ends a group, whether it is known here yet or not. Only the first
// cause counts.
func (j *job) markDead(group uint64, e *backend.AbortError) {
	if j.dead[group] != nil {
		return
	}
	j.dead[group] = e
	if g := j.groups[group]; g != nil {
		g.aborted.CompareAndSwap(nil, e)
	}
	j.alarm.Add(1)
}

// Abort ends the group and those split from it, on all its ranks.
func (r *Rank) Abort(cause error) {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	if r.id == worldID {
		r.job.setState(cause)
	}
	r.abort(cause)
}

// abort is Abort; the job's lock is held.
func (r *Rank) abort(cause error) {
	if r.dead() != nil {
		return
	}
	e := &backend.AbortError{Rank: r.job.rank, Cause: cause.Error(), Err: cause}
	r.aborted.Store(e)
	r.job.markDead(r.id, e)
	if r.job.closed {
		return
	}
	subject, who, text := byte(causePlain), 0, e.Cause
	var ended *backend.EndedError
	switch {
	case errors.As(cause, &ended):
		subject, who, text = causeEnded, ended.Rank, ended.Cause
	case errors.Is(cause, backend.ErrMismatch):
		subject = causeMismatch
	}
	r.job.post(r.job.write(controlAbort, subject, who, r.id, []byte(text)), r.world)
}

// mismatch is a backend.ErrMismatch that another rank has found.
type mismatch string

func (m mismatch) Error() string { return string(m) }

func (m mismatch) Unwrap() error { return backend.ErrMismatch }

// announceEnd sends all ranks the control messages of this one's end: how many collectives
// it began on each communicator, so that they know which ones wait for it in
// vain, how many messages it has sent each, and then its cause. The job's lock is held.
func (j *job) announceEnd(cause error) {
	everyone := ints.Range(j.size)
	var counts []byte
	flush := func() {
		if len(counts) > 0 {
			j.post(j.write(controlCalls, 0, 0, 0, counts), everyone)
		}
		counts = nil
	}
	for id, g := range j.groups {
		if len(counts)+16 > controlBytes-controlHead {
			flush()
		}
		counts = binary.LittleEndian.AppendUint64(counts, id)
		counts = binary.LittleEndian.AppendUint64(counts, g.calls.Load())
	}
	flush()
	for w, n := range j.messages(backend.SendKind) {
		j.post(j.write(controlSent, 0, 0, 0, binary.LittleEndian.AppendUint64(nil, n)), []int{w})
	}
	text, stuck := "", byte(endClean)
	if cause != nil {
		text = cause.Error()
		if text == "" {
			text = fmt.Sprintf("%T", cause)
		}
	}
	if len(j.kept) > 0 {
		stuck = endStuck
	}
	j.post(j.write(controlEnd, stuck, 0, 0, []byte(text)), everyone)
}

// messages returns how many Sends to each rank, by world number, or Recvs from it this one began, but in communicators
// that were freed: those have as many of both. The job's lock is held.
func (j *job) messages(kind backend.Kind) map[int]uint64 {
	count := map[int]uint64{}
	for _, g := range j.groups {
		for key, n := range g.begun {
			if key.kind == kind {
				count[key.rank] += n
			}
		}
	}
	return count
}

// unreceived returns an error if a rank has sent more messages to this one than it has received. The job's lock is held.
func (j *job) unreceived() error {
	received := j.messages(backend.RecvKind)
	for w := range j.size {
		if e := j.ended[w]; e != nil && e.sent > received[w] {
			return &backend.UnreceivedError{From: w, To: j.rank, Messages: int(e.sent - received[w])}
		}
	}
	return nil
}
