package control

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A TraceLog is the memory in which one rank keeps its part of a job's trace: its
// last calls, and the texts that they name, once each. It is a file without a name
// which the launcher makes and reads, so that it outlives the rank, however that
// ends. Its size is fixed; memory is taken as it fills.
//
//	header | texts | records, a ring
type TraceLog struct {
	memory []byte

	mu    sync.Mutex
	texts map[string]uint32
}

const (
	traceMagic     = 0x6563617274 // "trace"
	traceTextBytes = 2 << 20

	// All ranks' records together, and the fewest of one.
	traceJobRecords  = 1 << 18
	traceRankRecords = 1 << 12
)

// traceVersion tells layouts apart.
const traceVersion = 1<<32 | uint64(unsafe.Sizeof(TraceRecord{}))

type traceHeader struct {
	magic, version uint64
	rank, capacity uint64
	began, ended   atomic.Int64  // see Clock; 0: not yet
	written        atomic.Uint64 // records ever
	textSize       atomic.Uint64
	host           [64]byte
	_              [64]byte
}

const traceHeaderBytes = int(unsafe.Sizeof(traceHeader{}))

// A TraceRecord is one call, one wait for an asynchronous call, or one step.
// Texts are given by number, see TraceLog.Text. Times are Clock's.
type TraceRecord struct {
	Start, End int64
	Call       uint64 // which call of the communicator, from 1
	Number     uint64 // the same on all ranks of a collective, and on both sides of a message; of a step its own
	Bytes      int64
	Count      int64 // elements

	Name, Comm, Op, DType, Cause, Site uint32

	Size  int32 // ranks of the communicator
	Peer  int32 // world number of the root or of the other side; -1: none
	Shape TraceShape
	Async bool // it went on by itself
	Fails bool
	_     [5]byte
}

// A TraceShape says what a record is, and where its data goes.
type TraceShape uint8

// The shapes. After TraceStep the zero value of what is not named is right.
const (
	TraceAll      TraceShape = iota // a collective in which every rank needs every other
	TraceFromRoot                   // a collective in which all need Peer
	TraceToRoot                     // a collective in which Peer needs all
	TraceSend                       // a message to Peer
	TraceRecv                       // a message from Peer
	TraceWait                       // the program stood still for an asynchronous call
	TraceStep                       // step Number began at Start; it lasts until the next one does
	traceShapes
)

// Clock returns the time in nanoseconds by a clock that all processes of one host
// share and nobody sets, CLOCK_MONOTONIC.
func Clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// traceCapacity is how many records each of so many ranks can keep.
func traceCapacity(ranks int) int { return max(traceRankRecords, traceJobRecords/ranks) }

func traceBytes(capacity int) int {
	return traceHeaderBytes + traceTextBytes + capacity*int(unsafe.Sizeof(TraceRecord{}))
}

// CreateTrace makes the file for one rank of a job. It is closed on exec: hand it on
// as os/exec's ExtraFiles.
func CreateTrace(rank, ranks int) (*os.File, error) {
	name, capacity := fmt.Sprintf("gorun-trace-%d", rank), traceCapacity(ranks)
	f, err := memfd(name, traceBytes(capacity))
	if err != nil {
		return nil, fmt.Errorf("control: CreateTrace: %w", err)
	}
	t, err := mapTrace(f, traceBytes(capacity))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("control: CreateTrace: %w", err)
	}
	t.prepare(rank, capacity)
	return f, t.Close()
}

// NewTrace makes a log of this process's own, for a rank that no launcher of ours
// started.
func NewTrace(rank, ranks int) (*TraceLog, error) {
	capacity := traceCapacity(ranks)
	memory, err := unix.Mmap(-1, 0, traceBytes(capacity), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("control: NewTrace: %w", err)
	}
	t := &TraceLog{memory: memory}
	t.prepare(rank, capacity)
	t.begin()
	return t, nil
}

// OpenTrace maps what CreateTrace made, in the rank. The file may be closed
// afterwards.
func OpenTrace(f *os.File) (*TraceLog, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("control: OpenTrace: %w", err)
	}
	if info.Size() < int64(traceBytes(1)) {
		return nil, fmt.Errorf("control: OpenTrace: %s has %d bytes; the environment and the inherited files do not fit", f.Name(), info.Size())
	}
	t, err := mapTrace(f, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("control: OpenTrace: %w", err)
	}
	h := t.header()
	if h.magic != traceMagic || h.version != traceVersion || h.capacity == 0 || int(info.Size()) != traceBytes(int(h.capacity)) {
		return nil, errors.Join(fmt.Errorf("control: OpenTrace: %s is not a trace of this version of gorun", f.Name()), t.Close())
	}
	t.begin()
	return t, nil
}

func mapTrace(f *os.File, bytes int) (*TraceLog, error) {
	memory, err := unix.Mmap(int(f.Fd()), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of %s: %w", bytes, f.Name(), err)
	}
	return &TraceLog{memory: memory}, nil
}

func (t *TraceLog) prepare(rank, capacity int) {
	h := t.header()
	h.version, h.rank, h.capacity = traceVersion, uint64(rank), uint64(capacity)
	h.magic = traceMagic
}

func (t *TraceLog) begin() {
	host, _ := os.Hostname()
	h := t.header()
	copy(h.host[:], host)
	h.began.Store(Clock())
	t.texts = map[string]uint32{"": 0}
}

func (t *TraceLog) header() *traceHeader { return (*traceHeader)(unsafe.Pointer(&t.memory[0])) }

// Close unmaps the log.
func (t *TraceLog) Close() error { return unix.Munmap(t.memory) }

// End says that the rank's program has ended.
func (t *TraceLog) End() { t.header().ended.Store(Clock()) }

// Text returns the number of a text, which is stored at its first use. When there is
// no more room it is that of the empty text.
func (t *TraceLog) Text(text string) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.texts[text]
	if ok {
		return n
	}
	h := t.header()
	size := h.textSize.Load()
	if size+uint64(len(text))+1 <= traceTextBytes {
		n = uint32(size + 1)
		copy(t.memory[traceHeaderBytes+int(size):], text) // and a zero byte, which is there
		h.textSize.Store(size + uint64(len(text)) + 1)
		t.texts[text] = n
	}
	return n
}

// Add keeps a record; if the log is full, in place of the oldest.
func (t *TraceLog) Add(r TraceRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.header()
	n := h.written.Load()
	t.ring()[n%h.capacity] = r
	h.written.Store(n + 1)
}

func (t *TraceLog) ring() []TraceRecord {
	first := unsafe.Pointer(unsafe.SliceData(t.memory[traceHeaderBytes+traceTextBytes:]))
	return unsafe.Slice((*TraceRecord)(first), (len(t.memory)-traceHeaderBytes-traceTextBytes)/int(unsafe.Sizeof(TraceRecord{})))
}

// A TracePart is what one rank has left in its log.
type TracePart struct {
	Rank    int
	Host    string
	Began   int64 // Clock's; 0: the rank did not come to keep a log
	Ended   int64 // 0: its program did not end
	Written uint64
	Records []TraceRecord // the last of them, by the time at which they were added
	Texts   []byte
}

// Part returns what the log has. The rank may be writing to it, or have been killed
// in the middle: whatever is there, the records that Part returns have an end not
// before their start.
func (t *TraceLog) Part() *TracePart {
	h := t.header()
	ring := t.ring()
	p := &TracePart{Rank: int(h.rank), Began: h.began.Load(), Ended: h.ended.Load(), Written: h.written.Load()}
	host, _, _ := bytes.Cut(h.host[:], []byte{0})
	p.Host = readText(host, uint32(len(host)))
	p.Texts = bytes.Clone(t.memory[traceHeaderBytes : traceHeaderBytes+int(min(h.textSize.Load(), traceTextBytes))])
	kept := min(p.Written, uint64(len(ring)))
	if kept == uint64(len(ring)) {
		kept-- // the oldest may be half replaced
	}
	for n := p.Written - kept; n != p.Written; n++ {
		if r := ring[n%uint64(len(ring))]; r.Start > 0 && (r.End >= r.Start || r.Shape == TraceStep) && r.Shape < traceShapes {
			p.Records = append(p.Records, r)
		}
	}
	return p
}

// ReadTrace returns what a rank has left in a file that CreateTrace made.
func ReadTrace(f *os.File) (*TracePart, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("control: ReadTrace: %w", err)
	}
	t, err := mapTrace(f, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("control: ReadTrace: %w", err)
	}
	return t.Part(), t.Close()
}

// Text returns the text of a number; "" if there is none.
func (p *TracePart) Text(n uint32) string {
	if n == 0 || int(n) > len(p.Texts) {
		return ""
	}
	text, _, _ := bytes.Cut(p.Texts[n-1:], []byte{0})
	return readText(text, uint32(len(text)))
}

// AddText adds a text to the part and returns its number.
func (p *TracePart) AddText(text string) uint32 {
	n := uint32(len(p.Texts) + 1)
	p.Texts = append(append(p.Texts, text...), 0)
	return n
}

// Dropped returns how many of the rank's first records are not in the part.
func (p *TracePart) Dropped() uint64 { return p.Written - min(p.Written, uint64(len(p.Records))) }

// Align adds to all times what makes the rank's clock that of another host: at the
// time from, by its own clock, offset atFrom, and at the time to, offset atTo.
func (p *TracePart) Align(from, atFrom, to, atTo int64) {
	shift := func(t *int64) {
		if *t == 0 {
			return
		}
		by := atFrom
		if to > from {
			by += int64(float64(atTo-atFrom) * float64(*t-from) / float64(to-from))
		}
		*t += by
	}
	shift(&p.Began)
	shift(&p.Ended)
	for i := range p.Records {
		shift(&p.Records[i].Start)
		shift(&p.Records[i].End)
	}
}
