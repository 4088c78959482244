package shm

import (
	"sync/atomic"
	"unsafe"
)

// The region of a communicator of P ranks, from its start:
//
//	head                  aborts; the ranks' world numbers
//	member of rank 0 … P-1
//	cell of ranks 0→0, 0→1, … P-1→P-1
//	counts of rank 0 … P-1      two vectors of P, for each of the two slots
//	payload of rank 0 … P-1     payloadBytes for each of the two slots
//
// All parts begin at a cache line. Fields that are not atomics are written
// before and read after an atomic of the same writer.

const (
	line         = 64
	bodyBytes    = 32        // data that travels in a slot itself
	payloadBytes = 4 << 10   // data that travels in a payload area
	causeBytes   = 2 << 10   // text of an abort
	stageBytes   = 256 << 10 // one of the two halves of a staging block
)

// head is the state of the communicator itself.
type head struct {
	ranks   atomic.Uint32
	claimed atomic.Uint32 // taken by the rank that aborts
	set     atomic.Uint32 // 1 once the fields from kind to cause are complete
	kind    uint32
	a, b    uint32 // world numbers: the rank that aborted or ended, or the two that disagree
	size    uint32
	_       uint32
	seq     uint64
	life    uint64 // how many communicators have had this region before
	cause   [causeBytes]byte
	_       [line - 48]byte

	// Used if the ranks are a crowd; see crowdRanks.
	begun    atomic.Uint64 // calls begun, summed over the ranks
	passed   atomic.Uint64 // points passed within calls, summed over the ranks
	settled  atomic.Uint64 // the last call that one rank has settled for all; see settle
	settler  atomic.Uint32 // that rank
	_        [line - 28]byte
	gate     atomic.Uint32 // futex, raised to wake
	sleepers atomic.Uint32
	_        [line - 8]byte
}

// slot is one call of one rank.
type slot struct {
	seq         atomic.Uint64 // stored last
	what, count uint64        // fingerprint
	summary     uint64        // mode in the low 8 bits, then the number of elements
	body        [bodyBytes]byte
}

// A location says where data lies that is not in the slot or the payload area. It is stored
// in the slot's body. Offsets count from the start of the rank's arena.
type location struct {
	at      uint64 // the source, or the staging block if the rank stages
	dst     uint64 // the Dst into which others store, unless the rank stages
	longest uint64 // elements of the longest part, if the rank stages
	rows    uint64 // the source's rows, if its parts are columns and the rank does not stage
}

// location returns the body as a location.
func (s *slot) location() *location { return (*location)(s.data()) }

// data returns the address of the body, without reading the slot.
func (s *slot) data() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(s), unsafe.Offsetof(s.body)) }

// The modes say where a rank's data is, the cheapest first.
const (
	inSlot    = iota // data in body
	inPayload        // data in the payload area
	inArena          // see location
	staged           // see location; data comes round by round
)

// A member holds the published state of one rank, and the futex on which others wait for it.
type member struct {
	step  atomic.Uint64 // how many points within calls the rank has passed
	left  atomic.Uint32 // 1: the rank makes no more calls, because of an error
	gone  atomic.Uint32 // 1: the rank does not touch the region again
	over  atomic.Uint32 // 1: the rank's program has ended, see Leave
	sends atomic.Uint32 // 1: the rank has sent messages
	_     [line - 24]byte

	bell     atomic.Uint32 // futex, raised to wake
	sleepers atomic.Uint32
	_        [line - 8]byte
}

// cell is one direction between two ranks, for Send and Recv.
type cell struct {
	// The sender's line.
	seq         atomic.Uint64 // message number, stored last
	what, count uint64
	summary     uint64 // mode in the low 8 bits, then bytes of this piece
	body        [bodyBytes]byte
	// The receiver's line.
	taken atomic.Uint64 // messages that it has read
	_     [line - 8]byte
}

// at returns the body as the place of a message in the sender's arena.
func (c *cell) at() *uint64 { return (*uint64)(unsafe.Pointer(&c.body)) }

// regionBytes returns the size of the region of a communicator of n ranks.
func regionBytes(n int) int { return layoutOf(n).bytes }

// layout holds the offsets within a region.
type layout struct{ world, slots, members, cells, counts, payload, result, bytes int }

func layoutOf(n int) layout {
	var l layout
	at := int(unsafe.Sizeof(head{}))
	next := func(offset *int, bytes int) {
		*offset = at
		at += (bytes + line - 1) &^ (line - 1)
	}
	next(&l.world, 4*n)
	next(&l.slots, n*2*int(unsafe.Sizeof(slot{})))
	next(&l.members, n*int(unsafe.Sizeof(member{})))
	next(&l.cells, n*n*int(unsafe.Sizeof(cell{})))
	next(&l.counts, n*countsStride(n))
	next(&l.payload, n*2*payloadBytes)
	next(&l.result, payloadBytes)
	l.bytes = at
	return l
}

// countsStride returns the bytes of one rank's count vectors.
func countsStride(n int) int { return (2*2*8*n + line - 1) &^ (line - 1) }

// region is a mapped region.
type region struct {
	base    unsafe.Pointer
	offset  uint64 // in the control segment
	id      uint64 // the communicator's name to others: offset and, from bit 32, head.life
	size    int
	at      layout
	head    *head
	members []*member
}

func newRegion(base unsafe.Pointer, offset uint64, n int) *region {
	g := &region{base: base, offset: offset, size: n, at: layoutOf(n), head: (*head)(base)}
	g.id = offset | g.head.life<<32
	for m := range n {
		p := (*member)(unsafe.Add(base, g.at.members+m*int(unsafe.Sizeof(member{}))))
		g.members = append(g.members, p)
	}
	return g
}

// slot returns rank m's slot for call seq: a rank has one for even and one for odd calls.
func (g *region) slot(m int, seq uint64) *slot {
	return (*slot)(unsafe.Add(g.base, g.at.slots+(2*m+int(seq&1))*int(unsafe.Sizeof(slot{}))))
}

// worlds returns the array of world numbers.
func (g *region) worlds() []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Add(g.base, g.at.world)), g.size)
}

func (g *region) cell(from, to int) *cell {
	return (*cell)(unsafe.Add(g.base, g.at.cells+(from*g.size+to)*int(unsafe.Sizeof(cell{}))))
}

// vectors returns the counts that rank m publishes with call seq: how many elements it
// has for each rank, and how many it expects from each.
func (g *region) vectors(m int, seq uint64) (has, expects []uint64) {
	p := unsafe.Add(g.base, g.at.counts+m*countsStride(g.size)+int(seq&1)*16*g.size)
	v := unsafe.Slice((*uint64)(p), 2*g.size)
	return v[:g.size], v[g.size:]
}

// result returns the address of what the last settled call made; see settle.
func (g *region) result() unsafe.Pointer { return unsafe.Add(g.base, g.at.result) }

func (g *region) payload(m int, seq uint64) unsafe.Pointer {
	return unsafe.Add(g.base, g.at.payload+(2*m+int(seq&1))*payloadBytes)
}
