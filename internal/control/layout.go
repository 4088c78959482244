package control

import (
	"sync/atomic"
	"unsafe"
)

// The segment, from its start:
//
//	header            one page
//	block of rank 0   what rank 0 and the launcher say about rank 0
//	…
//	block of rank n-1
//	regions           memory that the ranks hand out among themselves
//
// Its pages are zero until they are written, and take no memory until then.
// Everything that two processes use at once is an atomic.

const (
	magic      = 0x6e75726f67 // "gorun"
	format     = 8            // raised with every change of the layout
	totalBytes = 1 << 30
	page       = 4096

	causeBytes = 1 << 10
	noteBytes  = 2 << 10
	errorBytes = 16 << 10
	siteBytes  = 256
	groupBytes = 64

	// ringCalls is how many calls a rank's flight recorder keeps: so many that the last one stays whole while it is read.
	ringCalls = 128

	// maxWaits is how many waits of one rank are recorded at once. A rank can have one wait
	// for each communicator in use.
	maxWaits = 8
)

// version tells layouts apart, of other formats and of other sizes of a block.
const version = format<<32 | uint64(unsafe.Sizeof(block{}))

type header struct {
	magic, version uint64
	ranks, cores   uint64
	arenaBytes     uint64
	memoryBytes    uint64
	_              [16]byte

	alarm atomic.Uint32 // raised whenever a rank ends or a communicator is aborted
	_     [60]byte

	next atomic.Uint64 // offset of the first free byte of the regions
	used atomic.Int64  // bytes in use of all ranks' arenas
	_    [48]byte

	names names
}

// text is a string that its writer stores once; it sets set afterwards.
type text[A any] struct {
	set  atomic.Uint32
	size atomic.Uint32
	data A
}

// block holds the state of one rank. The launcher writes ended and question, the rank the
// rest.
type block struct {
	state   atomic.Uint32
	core    atomic.Uint32 // plus 1; 0: not known
	errorAt atomic.Int64  // Unix nanoseconds
	calls   atomic.Uint64
	step    atomic.Int64 // plus 1; 0: none
	bytes   int64        // bytes that the rank has handed to collectives; written as ring is
	savedAt atomic.Int64 // Unix nanoseconds; 0: never

	question  atomic.Uint64 // see Ask
	answer    atomic.Uint64 // the question's number times 2, plus 1 for yes
	hidden    atomic.Int32  // number of waits in progress beyond maxWaits
	asked     atomic.Int32  // number of the signal that asked this rank to end; 0: none
	waited    atomic.Int64  // nanoseconds, see AddWaited
	beats     atomic.Uint64 // see Beat
	moves     atomic.Uint64 // see Move
	pid       atomic.Int64  // see SetPID
	announcer atomic.Int64  // plus 1: the rank that says how this one has ended, see Fail

	waits [maxWaits]waiting

	ended   text[[causeBytes]byte]
	failure text[[errorBytes]byte]
	note    struct {
		stamp atomic.Uint64
		size  atomic.Uint32
		data  [noteBytes]byte
	}
	ring [ringCalls]Call
}

// waiting is a wait of a rank that has lasted a while.
type waiting struct {
	taken    atomic.Uint32
	attended atomic.Uint32
	since    atomic.Int64 // Unix nanoseconds; 0: not waiting; stored last
	comm     atomic.Uint64
	seq      atomic.Uint64
	what     atomic.Uint64
	count    atomic.Uint64
	on       atomic.Uint64 // world number of the rank waited for, plus 1; 0: not known
	text     [siteBytes]byte
	site     [siteBytes]byte
	untaken  [siteBytes]byte
	group    [groupBytes]byte

	textSize, siteSize, untakenSize, groupSize atomic.Uint32
}

// blockStride is the distance between blocks: whole pages.
const blockStride = (unsafe.Sizeof(block{}) + page - 1) &^ (page - 1)

// regionBase returns the offset of the first region.
func regionBase(ranks int) uint64 { return page + uint64(ranks)*uint64(blockStride) }
