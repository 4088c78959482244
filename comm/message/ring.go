package message

import (
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/release"
)

// The memory of each rank, from its start:
//
//	line of rank 0 … P-1     what this rank has taken of each rank's packets
//	ring of rank 0 … P-1     packets to each rank
//	pieces                   data of long messages on its way, where ranks cannot read each other's
//
// A ring has lines of 64 bytes. A packet is a record and the lines of its data after it. Its stamp is
// stored last. The stamp after the last packet is zero: the writer clears it, and some more, before it publishes
// that packet.

const lineBytes = 64

// A line is what a rank has taken of another's packets.
type line struct {
	lines atomic.Uint64 // of the ring
	eager atomic.Uint64 // bytes that receives have taken, see Mailbox.credit
	_     [lineBytes - 16]byte
}

// A record begins a packet.
type record struct {
	stamp atomic.Uint64 // published, the bytes of the data, the kind; 0: there is no packet yet
	tag   int32
	width uint32 // bytes of an element
	what  uint64 // their type
	bytes uint64 // of the message
	body  [bodyBytes]byte
}

// bodyBytes is the data that the record's own line has room for.
const bodyBytes = 32

const published = 1 << 63

// The kinds of packets.
const (
	eagerPacket = 1 + iota // a message with its data
	askPacket              // a message whose data is to be fetched: body has its number, where it is, and how
	grantPacket            // a receive wants it in pieces: bytes is its number, what that of the receive
	piecePacket            // a piece of it for receive number what: which of pieces, in bytes, and its length; or its data
	donePacket             // a receive has it: what is its number
	eatenPacket            // bytes is what receives have taken, where ranks share no memory
	skipPacket             // the next packet is at the start of the ring
)

// A packet is what a rank tells another.
type packet struct {
	kind  uint8
	tag   int32
	width uint32
	what  uint64
	bytes uint64
	words [3]uint64 // in body, if there is no data
	data  []byte    // of an eagerPacket, and over packets of a piecePacket
}

// A ring is where its lines are. They are counted from the first that was written, round after round.
type ring struct {
	base  unsafe.Pointer
	lines uint64 // a power of two
}

// place returns where line i lies, in lines from the start.
func (g ring) place(i uint64) uint64 { return i & (g.lines - 1) }

// record returns the record that begins at line i.
func (g ring) record(i uint64) *record { return (*record)(unsafe.Add(g.base, g.place(i)*lineBytes)) }

// An outRing is the writer's end of a ring.
type outRing struct {
	ring
	at    uint64 // written
	free  uint64 // taken by the reader when this rank last looked
	clear uint64 // lines whose stamps were cleared
	taken *line
}

// clearedLines is how many stamps are cleared at a time: the lines then come from the reader's cache at once,
// in place of one with each packet.
const clearedLines = 8

// linesOf returns how many lines a packet has.
func linesOf(data int) uint64 { return uint64(data+lineBytes-bodyBytes+lineBytes-1) / lineBytes }

// put writes a packet; ok is false if there is no room yet.
func (o *outRing) put(p *packet) (ok bool) {
	n := linesOf(len(p.data))
	first := o.at
	if place := o.place(first); place+n > o.lines {
		first += o.lines - place
	}
	end := first + n
	if end+1-o.free > o.lines {
		if o.free = o.taken.lines.Load(); end+1-o.free > o.lines {
			return false
		}
	}
	r := o.record(first)
	if end >= o.clear {
		o.clear = min(end+clearedLines, o.free+o.lines)
		for i := end; i < o.clear; i++ {
			release.Store(&o.record(i).stamp, 0)
		}
	}
	r.tag, r.width, r.what, r.bytes = p.tag, p.width, p.what, p.bytes
	body := unsafe.Add(unsafe.Pointer(r), lineBytes-bodyBytes)
	if p.kind == eagerPacket {
		copy(unsafe.Slice((*byte)(body), len(p.data)), p.data)
	} else {
		*(*[3]uint64)(body) = p.words
	}
	release.Store(&r.stamp, published|uint64(len(p.data))<<8|uint64(p.kind))
	if first > o.at {
		release.Store(&o.record(o.at).stamp, published|skipPacket)
	}
	o.at = end
	return true
}

// An inRing is the reader's end of a ring.
type inRing struct {
	ring
	at    atomic.Uint64 // read; whoever holds the mailbox's lock writes it
	taken *line
}

// waits reports whether a packet may have come. The lock need not be held.
func (i *inRing) waits() bool { return i.record(i.at.Load()).stamp.Load() != 0 }

// next reads the next packet, whose data lies in the ring; ok is false if there is none, or one that
// is no packet.
func (i *inRing) next(p *packet) (ok bool) {
	at := i.at.Load()
	r := i.record(at)
	stamp := r.stamp.Load()
	if stamp == 0 {
		return false
	}
	if uint8(stamp) == skipPacket {
		at += i.lines - i.place(at)
		release.Store(&i.at, at)
		release.Store(&i.taken.lines, at)
		if r = i.record(at); r.stamp.Load() == 0 {
			return false
		}
		stamp = r.stamp.Load()
	}
	n := int(stamp &^ published >> 8)
	if i.place(at)+linesOf(n) > i.lines {
		return false
	}
	p.kind, p.tag, p.width, p.what, p.bytes, p.data = uint8(stamp), r.tag, r.width, r.what, r.bytes, nil
	body := unsafe.Add(unsafe.Pointer(r), lineBytes-bodyBytes)
	if p.kind != eagerPacket {
		p.words = *(*[3]uint64)(body)
	} else if n > 0 {
		p.data = unsafe.Slice((*byte)(body), n)
	}
	return true
}

// drop gives the lines of the packet that next has read back.
func (i *inRing) drop(p *packet) {
	at := i.at.Load() + linesOf(len(p.data))
	release.Store(&i.at, at)
	release.Store(&i.taken.lines, at)
}
