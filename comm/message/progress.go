package message

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// progress reads the packets that have come and writes those that had no room. The lock is held.
func (m *Mailbox) progress() { m.progressFor(nil) }

// progressFor is progress that may leave packets when a request has ended; nil: it leaves none.
func (m *Mailbox) progressFor(r *Request) {
	if m.err != nil || m.closed {
		return
	}
	reads := m.reads
	if m.rings != nil {
		m.rings.pollFor(r)
	} else if err := m.link.poll(); err != nil {
		m.fail(err)
		return
	}
	if m.reads != reads {
		m.backend.Moved()
	}
	if m.err != nil {
		return
	}
	if m.queued > 0 {
		m.unqueue()
	}
	if len(m.streams) > 0 {
		m.stream()
	}
	if idle := m.rings != nil && m.queued == 0 && len(m.streams) == 0; idle != m.idle.Load() { // a store is slow
		m.idle.Store(idle)
	}
}

// read acts on a packet that has come.
func (m *Mailbox) read(e *envelope) {
	if m.err != nil {
		return
	}
	m.ins[e.from].came++
	m.reads++
	switch e.kind {
	case eagerPacket, askPacket:
		m.arrive(e)
	case grantPacket:
		r := m.sends.get(e.bytes)
		if r == nil {
			m.damaged(e.from, "a grant")
			return
		}
		m.sends.remove(e.bytes)
		r.rarely().transfer = &transfer{id: m.takes.add(r), peerID: e.what, data: r.buf.Data()} // in takes fail finds it
		m.streams = append(m.streams, r)
	case piecePacket:
		m.piece(e)
	case donePacket:
		r := m.sends.get(e.what)
		if r == nil {
			m.damaged(e.from, "an end")
			return
		}
		m.sends.remove(e.what)
		m.end(r, nil)
	case eatenPacket:
		m.outs[e.from].eaten = e.bytes
	default:
		m.damaged(e.from, "a packet")
	}
}

// damaged ends the mailbox because a rank wrote nonsense.
func (m *Mailbox) damaged(from int, what string) {
	m.fail(fmt.Errorf("message: what rank %d wrote is damaged: %s", m.comm.WorldRank(from), what))
}

// say sends a packet that is no message.
func (m *Mailbox) say(to int, p packet) {
	if to == m.me {
		m.outs[to].sent++
		m.read(&envelope{packet: p, from: to})
		return
	}
	o := &m.outs[to]
	if len(o.queue) == 0 && m.put(to, &p) {
		return
	}
	o.queue = append(o.queue, waitingPacket{packet: p})
	m.queued++
	m.idle.Store(false)
}

// put sends a packet; ok is false if there is no room yet.
func (m *Mailbox) put(to int, p *packet) (ok bool) {
	if m.rings != nil { // without a copy, which a link needs
		ok = m.rings.outs[to].put(p)
	} else {
		ok = m.link.put(to, *p)
	}
	if ok {
		m.outs[to].sent++
	}
	return ok
}

// unqueue writes packets that had no room.
func (m *Mailbox) unqueue() {
	for to := range m.outs {
		o := &m.outs[to]
		n := 0
		for ; n < len(o.queue); n++ {
			w := &o.queue[n]
			if w.send != nil && !m.trySend(w.send) || w.send == nil && !m.put(to, &w.packet) {
				break
			}
		}
		m.queued -= n
		if clear(o.queue[:n]); n == len(o.queue) {
			o.queue = o.queue[:0]
		} else {
			o.queue = o.queue[n:]
		}
	}
}

// send begins a send.
func (m *Mailbox) send(r *Request) {
	to := int(r.peer)
	if to == m.me {
		m.sendSelf(r)
		return
	}
	o := &m.outs[to]
	if len(o.queue) == 0 && m.trySend(r) {
		return
	}
	o.queue = append(o.queue, waitingPacket{send: r})
	m.queued++
	m.idle.Store(false)
}

// sendShort sends a message that may leave at once, and reports whether it did.
func (m *Mailbox) sendShort(a *args) bool {
	to, data := a.peer, a.buf.Data()
	return !a.sync && to != m.me && len(m.outs[to].queue) == 0 && m.affords(to, len(data)) &&
		m.putEager(to, &packet{tag: int32(a.tag), width: uint32(a.width), what: a.what, data: data})
}

// putEager sends a message with its envelope; ok is false if there is no room yet.
func (m *Mailbox) putEager(to int, p *packet) (ok bool) {
	p.kind, p.bytes = eagerPacket, uint64(len(p.data))
	if ok = m.put(to, p); ok {
		m.outs[to].eager += p.bytes + lineBytes
	}
	return ok
}

// trySend sends a message, or its envelope; ok is false if there is no room yet.
func (m *Mailbox) trySend(r *Request) (ok bool) {
	n := r.buf.Bytes()
	p := packet{tag: r.tag, width: uint32(r.width), what: r.what, bytes: uint64(n)}
	if !r.sync && m.affords(int(r.peer), n) {
		p.data = r.buf.Data()
		if ok = m.putEager(int(r.peer), &p); ok {
			m.end(r, nil)
		}
		return ok
	}
	id := m.sends.add(r)
	p.kind, p.words = askPacket, [3]uint64{id}
	if n == 0 {
		p.words[2] = uint64(byExport)
	} else if m.shared == nil {
		p.words[2] = uint64(byPieces)
	} else if at, ok := m.shared.Export(r.buf.Ptr, n); ok {
		p.words[1], p.words[2] = at, uint64(byExport)
	}
	if !m.put(int(r.peer), &p) {
		m.sends.remove(id)
		return false
	}
	return true
}

// affords reports whether a message may go with its envelope: a short one may, unless its receiver has not taken
// many of them.
func (m *Mailbox) affords(to, n int) bool {
	o := &m.outs[to]
	if n > m.eager {
		return false
	}
	if o.eager+uint64(n)+lineBytes-o.eaten <= m.credit {
		return true
	}
	m.link.look(to, o)
	return o.eager+uint64(n)+lineBytes-o.eaten <= m.credit
}

// sendSelf gives a message to this rank's own receives.
func (m *Mailbox) sendSelf(r *Request) {
	p := packet{kind: eagerPacket, tag: r.tag, width: uint32(r.width), what: r.what, bytes: uint64(r.buf.Bytes()), data: r.buf.Data()}
	if r.sync || r.buf.Bytes() > m.eager {
		p.kind, p.words, p.data = askPacket, [3]uint64{m.sends.add(r), 0, uint64(byExport)}, nil
	}
	m.arrive(&envelope{packet: p, from: m.me})
	if p.kind == eagerPacket {
		m.end(r, nil)
	}
}

// fetch has a receive get the data of a long message.
func (m *Mailbox) fetch(r *Request, e *envelope) {
	switch {
	case e.bytes == 0:
	case e.from == m.me:
		copyBytes(r.buf.Data(), m.sends.get(e.id()).buf.Data())
	case e.way() == byExport:
		p := m.shared.Import(e.from, e.place(), e.size())
		if p == nil {
			m.damaged(e.from, "where a message lies")
			m.end(r, m.err)
			return
		}
		copyBytes(r.buf.Data(), unsafe.Slice((*byte)(p), e.bytes))
	default:
		t := &transfer{id: m.takes.add(r), data: r.buf.Data()[:e.bytes]}
		r.rarely().transfer = t
		m.say(e.from, packet{kind: grantPacket, bytes: e.id(), what: t.id})
		return
	}
	m.end(r, nil)
	m.say(e.from, packet{kind: donePacket, what: e.id()})
}

// pieces is the memory through which a rank sends long messages, one piece after the other.
type pieces struct {
	at    int // in its memory
	free  []bool
	next  int
	base  unsafe.Pointer
	flags []*atomic.Uint64 // of each whether a receiver has not read it yet
}

func (p *pieces) open(memory backend.WindowMemory, me int) {
	if len(p.free) == 0 {
		return
	}
	p.base = unsafe.Add(memory.Address(me), p.at)
	for i := range p.free {
		p.flags = append(p.flags, (*atomic.Uint64)(unsafe.Add(p.base, pieceCount*pieceBytes+i*lineBytes)))
	}
}

// stream sends what it can of the sends that go in pieces, each in turn.
func (m *Mailbox) stream() {
	for i, stuck := 0, 0; stuck < len(m.streams); {
		i %= len(m.streams)
		r := m.streams[i]
		t, n := r.rare.transfer, 0
		if len(m.outs[r.peer].queue) == 0 { // else its receiver reads nothing now
			n = m.sendPiece(r)
		}
		if n == 0 {
			i++
			stuck++
			continue
		}
		stuck = 0
		if t.at += n; t.at < len(t.data) {
			i++
			continue
		}
		m.streams = slices.Delete(m.streams, i, i+1)
		m.takes.remove(t.id)
		m.end(r, nil)
	}
}

// sendPiece sends a piece of a message, and returns its length, 0 if there is no room yet.
func (m *Mailbox) sendPiece(r *Request) int {
	t := r.rare.transfer
	left := t.data[t.at:]
	if m.shared == nil {
		n := min(packetBytes, len(left))
		if !m.put(int(r.peer), &packet{kind: piecePacket, what: t.peerID, data: left[:n]}) {
			return 0
		}
		return n
	}
	p := &m.pieces
	if p.flags[p.next].Load() != 0 {
		return 0
	}
	n := min(pieceBytes, len(left))
	copyBytes(unsafe.Slice((*byte)(unsafe.Add(p.base, p.next*pieceBytes)), n), left[:n])
	p.flags[p.next].Store(1)
	m.say(int(r.peer), packet{kind: piecePacket, what: t.peerID, bytes: uint64(p.next), words: [3]uint64{uint64(n)}})
	p.next = (p.next + 1) % pieceCount
	return n
}

// piece copies a piece of what a receive gets.
func (m *Mailbox) piece(e *envelope) {
	r, n, which := m.takes.get(e.what), e.words[0], e.bytes
	if m.shared == nil {
		n = uint64(len(e.data))
	}
	if r == nil || which >= pieceCount || n > pieceBytes || n > uint64(len(r.rare.transfer.data)-r.rare.transfer.at) {
		m.damaged(e.from, "a piece")
		return
	}
	t := r.rare.transfer
	if m.shared == nil {
		copyBytes(t.data[t.at:], e.data)
	} else {
		base := unsafe.Add(m.memory.Address(e.from), m.pieces.at)
		copyBytes(t.data[t.at:], unsafe.Slice((*byte)(unsafe.Add(base, int(which)*pieceBytes)), n))
		(*atomic.Uint64)(unsafe.Add(base, pieceCount*pieceBytes+int(which)*lineBytes)).Store(0)
	}
	if t.at += int(n); t.at == len(t.data) {
		m.takes.remove(e.what)
		m.end(r, nil)
	}
}

// copyBytes copies src to the start of dst.
func copyBytes(dst, src []byte) { simd.Copy(dst[:len(src)], src) }

// The pauses of drive: short while something moves. Idle for idlePauses of the longest, it ends.
const (
	shortestPause = 20 * time.Microsecond
	longestPause  = time.Millisecond
	idlePauses    = 20
)

// drive makes progress for requests that the program does not wait for. It outlives them for a while: to
// start it costs several times what a short message does, and wakes a thread.
func (m *Mailbox) drive() {
	pause, idle := shortestPause, 0
	for {
		time.Sleep(pause)
		m.mu.Lock()
		before := m.loose + m.queued
		m.progress()
		if before == 0 {
			idle++
		} else {
			idle = 0
		}
		if m.closed || idle == idlePauses || m.err != nil && m.loose+m.queued == 0 {
			m.driving = false
			m.mu.Unlock()
			return
		}
		if pause *= 2; pause > longestPause || idle > 0 {
			pause = longestPause
		}
		if m.loose+m.queued != before || len(m.streams) > 0 || len(m.takes.requests) > len(m.takes.unused) {
			pause = shortestPause
		}
		m.mu.Unlock()
		if idle > 0 {
			continue
		}
		if err := m.backend.Broken(); err != nil {
			m.mu.Lock()
			m.aborted = true // by another rank
			m.fail(err)
			m.mu.Unlock()
		}
		if err := m.deserted(); err != nil {
			m.mu.Lock()
			m.fail(err)
			m.mu.Unlock()
		}
		m.settle()
	}
}

// deserted returns an error if a request waits for a rank that has ended.
func (m *Mailbox) deserted() error {
	var last *comm.EndedError
	over := 0
	for r := range m.outs {
		cause, ended := m.backend.Ended(r)
		if !ended {
			continue
		}
		over++
		last = &comm.EndedError{Rank: m.comm.WorldRank(r), Cause: cause}
		if m.needs(r) {
			return last
		}
	}
	if over > 0 && over == len(m.outs)-1 && m.needs(AnySource) {
		return last
	}
	return nil
}

// needs reports whether a request that the program does not wait for needs a rank, after all that the rank has sent.
func (m *Mailbox) needs(rank int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress()
	for _, r := range m.posted.all() {
		if int(r.peer) == rank && r.loose {
			return true
		}
	}
	for _, t := range []*table{&m.sends, &m.takes} {
		for _, r := range t.requests {
			if r != nil && int(r.peer) == rank && r.loose {
				return true
			}
		}
	}
	if rank == AnySource {
		return false
	}
	for _, w := range m.outs[rank].queue {
		if w.send != nil && w.send.loose {
			return true
		}
	}
	return false
}
