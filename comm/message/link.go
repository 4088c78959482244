package message

import (
	"encoding/binary"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/release"
)

// A link carries packets to the other ranks. The mailbox's lock is held.
type link interface {
	// put sends a packet; ok is false if there is no room yet.
	put(to int, p packet) (ok bool)
	// poll has the mailbox read packets that have come, whose data is valid until it has.
	poll() error
	// eat tells a rank that receives have taken a number of bytes more of what it has sent with envelopes. look sets o.eaten
	// to what another rank has told this one in that way.
	eat(from int, bytes uint64)
	look(to int, o *outbound)
	close() error
}

// A ringLink is rings in shared memory.
type ringLink struct {
	m    *Mailbox
	outs []outRing // by rank
	ins  []inRing
	last envelope // that has come: a poll is too short to clear one each time
}

// mostPackets is how many packets of a rank are read before the others' turn.
const mostPackets = 64

func (l *ringLink) put(to int, p packet) bool { return l.outs[to].put(&p) }

func (l *ringLink) poll() error {
	l.pollFor(nil)
	return nil
}

// pollFor is poll that reads no more from the rank whose packet has ended a request. To look whether there is more takes as
// long as to read it, and takes a line from the core that is about to write to it.
func (l *ringLink) pollFor(r *Request) {
	e := &l.last
	for from := range l.ins {
		if from == l.m.me {
			continue
		}
		in := &l.ins[from]
		e.from = from
		for i := 0; i < mostPackets && in.next(&e.packet); i++ {
			l.m.read(e)
			in.drop(&e.packet)
			if r != nil && r.ended() {
				break
			}
		}
	}
}

// waits reports whether a packet may have come. The lock need not be held.
func (l *ringLink) waits(me int) bool {
	for from := range l.ins {
		if from != me && l.ins[from].waits() {
			return true
		}
	}
	return false
}

func (l *ringLink) eat(from int, bytes uint64) {
	eager := &l.ins[from].taken.eager
	release.Store(eager, eager.Load()+bytes) // no other rank writes it
}

func (l *ringLink) look(to int, o *outbound) { o.eaten = l.outs[to].taken.eager.Load() }

func (l *ringLink) close() error { return l.m.memory.Close() }

// A packetLink is a backend's packets. Their bytes are those of a record, and the data after it.
type packetLink struct {
	m       *Mailbox
	packets backend.Packets
	head    [headBytes]byte
	eaten   []uint64 // by rank, bytes that receives have taken
	told    []uint64 // of those, what this rank has said
	err     error
}

// headBytes is the length of a packet without data.
const headBytes = 8 + 4 + 4 + 8 + 8 + 3*8

func (l *packetLink) put(to int, p packet) bool {
	h := binary.LittleEndian.AppendUint64(l.head[:0], uint64(p.kind))
	h = binary.LittleEndian.AppendUint32(h, uint32(p.tag))
	h = binary.LittleEndian.AppendUint32(h, p.width)
	h = binary.LittleEndian.AppendUint64(h, p.what)
	h = binary.LittleEndian.AppendUint64(h, p.bytes)
	for _, w := range p.words {
		h = binary.LittleEndian.AppendUint64(h, w)
	}
	ok, err := l.packets.Send(to, h, p.data)
	if err != nil {
		l.err = err
	}
	return ok
}

func (l *packetLink) poll() error {
	if l.err != nil {
		return l.err
	}
	return l.packets.Recv(func(from int, b []byte) {
		u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
		p := packet{kind: b[0], tag: int32(u32(b[8:])), width: u32(b[12:]), what: u64(b[16:]), bytes: u64(b[24:]), data: b[headBytes:]}
		for i := range p.words {
			p.words[i] = u64(b[32+8*i:])
		}
		l.m.read(&envelope{packet: p, from: from})
	})
}

// eat tells a rank now and then: the more it has sent, the more may be on its way.
func (l *packetLink) eat(from int, bytes uint64) {
	if l.eaten == nil {
		l.eaten, l.told = make([]uint64, len(l.m.outs)), make([]uint64, len(l.m.outs))
	}
	l.eaten[from] += bytes
	if l.eaten[from]-l.told[from] > l.m.credit/4 && !l.m.closing {
		l.told[from] = l.eaten[from]
		l.m.say(from, packet{kind: eatenPacket, bytes: l.eaten[from]})
	}
}

func (l *packetLink) look(int, *outbound) {} // the other rank says so by a packet

func (l *packetLink) close() error { return l.packets.Close() }
