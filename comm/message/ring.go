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
// stored last. The stamp after the last packet is zero: the writer clears it, and some more, before it publishes that packet.

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

// An outRing is the writer's end of a ring.
type outRing struct {
	base  unsafe.Pointer
	lines uint64 // of the ring, a power of two
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

func recordAt(base unsafe.Pointer, i uint64) *record { return (*record)(unsafe.Add(base, i*lineBytes)) }

// put writes a packet; ok is false if there is no room yet.
func (o *outRing) put(p *packet) (ok bool) {
	n := linesOf(len(p.data))
	at, skip := o.at&(o.lines-1), uint64(0)
	if at+n > o.lines {
		skip = o.lines - at
	}
	if o.at+skip+n+1-o.free > o.lines {
		if o.free = o.taken.lines.Load(); o.at+skip+n+1-o.free > o.lines {
			return false
		}
	}
	first := at
	if skip > 0 {
		first = 0
	}
	r := recordAt(o.base, first)
	if end := o.at + skip + n; end >= o.clear {
		o.clear = min(end+clearedLines, o.free+o.lines)
		for i := end; i < o.clear; i++ {
			release.Store(&recordAt(o.base, i&(o.lines-1)).stamp, 0)
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
	if skip > 0 {
		release.Store(&recordAt(o.base, at).stamp, published|skipPacket)
	}
	o.at += skip + n
	return true
}

// An inRing is the reader's end of a ring.
type inRing struct {
	base  unsafe.Pointer
	lines uint64
	at    uint64
	taken *line
}

// next reads the next packet, whose data lies in the ring; ok is false if there is none, or one that
// is no packet.
func (i *inRing) next(p *packet) (ok bool) {
	r := recordAt(i.base, i.at&(i.lines-1))
	stamp := r.stamp.Load()
	if stamp == 0 {
		return false
	}
	if uint8(stamp) == skipPacket {
		i.at += i.lines - i.at&(i.lines-1)
		release.Store(&i.taken.lines, i.at)
		if r = recordAt(i.base, 0); r.stamp.Load() == 0 {
			return false
		}
		stamp = r.stamp.Load()
	}
	n := int(stamp &^ published >> 8)
	if i.at&(i.lines-1)+linesOf(n) > i.lines {
		return false
	}
	*p = packet{kind: uint8(stamp), tag: r.tag, width: r.width, what: r.what, bytes: r.bytes}
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
	i.at += linesOf(len(p.data))
	release.Store(&i.taken.lines, i.at)
}
