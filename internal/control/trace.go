package control

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A TraceLog is the memory in which one rank keeps its part of a job's trace: its
// last calls, and each text that they name, once. It is a file without a name. The launcher
// makes and reads it, so it outlives the rank, however the rank ends. Its size is fixed; it takes
// memory as it fills.
//
//	header | texts | samples, a ring | records, a ring
type TraceLog struct {
	memory []byte

	mu    sync.Mutex
	texts map[string]uint32
}

const (
	traceMagic     = 0x6563617274 // "trace"
	traceTextBytes = 2 << 20

	traceJobRecords  = 1 << 19 // records of all ranks together, at most,
	traceRankRecords = 1 << 12 // but at least so many of each rank
	traceSamples     = 1 << 15 // samples of one rank
)

// traceVersion tells layouts apart.
const traceVersion = 2<<32 | uint64(unsafe.Sizeof(TraceRecord{}))

type traceHeader struct {
	magic, version uint64
	rank, capacity uint64
	began, ended   atomic.Int64  // see Clock; 0: not yet
	written        atomic.Uint64 // number of records so far, with those overwritten
	sampled        atomic.Uint64 // number of samples so far, with those overwritten
	textSize       atomic.Uint64
	host           [64]byte
	_              [64]byte
}

// The offsets of the parts of a log.
const (
	traceHeaderBytes = int(unsafe.Sizeof(traceHeader{}))
	traceSamplesAt   = traceHeaderBytes + traceTextBytes
	traceRingAt      = traceSamplesAt + traceSamples*int(unsafe.Sizeof(TraceSample{}))
)

// A TraceRecord is one call, one wait for an asynchronous call, one step, or another span of
// time. Texts are given by number, see TraceLog.Text. Times are Clock's.
type TraceRecord struct {
	Start, End int64
	Call       uint64 // the call's number in the communicator, from 1
	Number     uint64 // the same on all ranks of a collective and on both sides of a message; or a step's number
	Bytes      int64
	Count      int64 // elements

	Name, Comm, Op, DType, Cause, Site uint32

	Size  int32 // ranks of the communicator
	Peer  int32 // world number of the root or of the other side; -1: none
	Shape TraceShape
	Async bool // the call was asynchronous
	Fails bool
	_     [5]byte
}

// A TraceShape says what a record is, and where its data goes.
type TraceShape uint8

// The shapes. A record of TraceStep or a later shape leaves fields that it does not need zero.
const (
	TraceAll      TraceShape = iota // a collective in which every rank needs every other
	TraceFromRoot                   // a collective in which all ranks need Peer
	TraceToRoot                     // a collective in which Peer needs all ranks
	TraceSend                       // a message to Peer
	TraceRecv                       // a message from Peer
	TraceWait                       // the program was blocked until an asynchronous call ended
	TraceStep                       // step Number began at Start; it lasts until the next step begins
	TraceOperator                   // an operator's forward pass
	TraceGradient                   // an operator's backward pass
	TraceSpan                       // a part of the program, by its own name
	traceShapes
)

// A TraceSample is a number at a time, or a text.
type TraceSample struct {
	At    int64 // time by Clock
	Step  int64 // the program's step; -1: not known
	Value float64
	Name  uint32 // see TraceLog.Text
	Kind  SampleKind
	_     [3]byte
}

// A SampleKind says what a sample is.
type SampleKind uint8

// The kinds of samples.
const (
	SampleMetric SampleKind = iota // the value of the metric Name
	SampleMemory                   // bytes of memory that the rank has
	SampleStep                     // the step began
	SampleLayout                   // Name is an observe.Layout, as JSON
	sampleKinds
)

// Call reports whether a record of this shape is a call on a communicator.
func (s TraceShape) Call() bool { return s < TraceWait }

// Message reports whether a record of this shape is a side of a message.
func (s TraceShape) Message() bool { return s == TraceSend || s == TraceRecv }

// traceCapacity returns how many records each of a number of ranks can keep.
func traceCapacity(ranks int) int { return max(traceRankRecords, traceJobRecords/ranks) }

func traceBytes(capacity int) int {
	return traceRingAt + capacity*int(unsafe.Sizeof(TraceRecord{}))
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

// NewTrace makes a log in this process's own memory, for a rank that gorun did not start.
func NewTrace(rank, ranks int) (*TraceLog, error) {
	capacity := traceCapacity(ranks)
	p, err := zeroes(traceBytes(capacity))
	if err != nil {
		return nil, fmt.Errorf("control: NewTrace: %w", err)
	}
	t := &TraceLog{memory: unsafe.Slice((*byte)(p), traceBytes(capacity))}
	t.prepare(rank, capacity)
	t.begin()
	return t, nil
}

// OpenTrace maps a file of CreateTrace into the rank's process. The file may be closed
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
	p, err := mapFile(f, bytes)
	if err != nil {
		return nil, err
	}
	return &TraceLog{memory: unsafe.Slice((*byte)(p), bytes)}, nil
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
func (t *TraceLog) Close() error {
	return unmap(unsafe.Pointer(unsafe.SliceData(t.memory)), len(t.memory))
}

// End says that the rank's program has ended.
func (t *TraceLog) End() { t.header().ended.Store(Clock()) }

// Text returns the number of a text, and stores the text at its first use. When the log has
// no more room for texts, it returns the number of the empty text.
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
		copy(t.memory[traceHeaderBytes+int(size):], text) // the zero byte after it is there already
		h.textSize.Store(size + uint64(len(text)) + 1)
		t.texts[text] = n
	}
	return n
}

// Add keeps a record. If the log is full, it replaces the oldest.
func (t *TraceLog) Add(r TraceRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.header()
	n := h.written.Load()
	t.ring()[n%h.capacity] = r
	h.written.Store(n + 1)
}

func (t *TraceLog) ring() []TraceRecord {
	first := unsafe.Pointer(unsafe.SliceData(t.memory[traceRingAt:]))
	return unsafe.Slice((*TraceRecord)(first), (len(t.memory)-traceRingAt)/int(unsafe.Sizeof(TraceRecord{})))
}

// Sample keeps a sample. If there is no more room, it replaces the oldest.
func (t *TraceLog) Sample(s TraceSample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.header()
	n := h.sampled.Load()
	t.samples()[n%traceSamples] = s
	h.sampled.Store(n + 1)
}

func (t *TraceLog) samples() []TraceSample {
	return unsafe.Slice((*TraceSample)(unsafe.Pointer(unsafe.SliceData(t.memory[traceSamplesAt:]))), traceSamples)
}

// A TracePart is the content of one rank's log.
type TracePart struct {
	Rank    int
	Host    string
	Began   int64         // time by Clock; 0: the rank did not open its log
	Ended   int64         // time by Clock; 0: the rank's program did not end
	Written uint64        // number of records that the rank has added
	Records []TraceRecord // the last of them, in the order in which they were added
	Samples []TraceSample // the last samples
	Texts   []byte
}

// Part returns the log's content. The rank may be writing to it, or may have been killed
// while it wrote. In any case no record that Part returns ends before its start.
func (t *TraceLog) Part() *TracePart { return t.last(int(t.header().capacity)) }

// last is Part with at most the last most records.
func (t *TraceLog) last(most int) *TracePart {
	h := t.header()
	ring := t.ring()
	p := &TracePart{Rank: int(h.rank), Began: h.began.Load(), Ended: h.ended.Load(), Written: h.written.Load()}
	host, _, _ := bytes.Cut(h.host[:], []byte{0})
	p.Host = readText(host, uint32(len(host)))
	p.Texts = bytes.Clone(t.memory[traceHeaderBytes : traceHeaderBytes+int(min(h.textSize.Load(), traceTextBytes))])
	kept := min(p.Written, uint64(len(ring)), uint64(most))
	if kept == uint64(len(ring)) {
		kept-- // the oldest may be half replaced
	}
	for n := p.Written - kept; n != p.Written; n++ {
		if r := ring[n%uint64(len(ring))]; r.Start > 0 && (r.End >= r.Start || r.Shape == TraceStep) && r.Shape < traceShapes {
			p.Records = append(p.Records, r)
		}
	}
	p.Samples = t.lastSamples()
	return p
}

func (t *TraceLog) lastSamples() (list []TraceSample) {
	ring, written := t.samples(), t.header().sampled.Load()
	for n := written - min(written, traceSamples-1); n != written; n++ {
		if s := ring[n%traceSamples]; s.At > 0 && s.Kind < sampleKinds {
			list = append(list, s)
		}
	}
	return list
}

// ReadTrace returns the content of a rank's log in a file that CreateTrace made.
func ReadTrace(f *os.File) (*TracePart, error) { return ReadTraceEnd(f, math.MaxInt) }

// ReadTraceEnd is ReadTrace with at most the last most records.
func ReadTraceEnd(f *os.File, most int) (*TracePart, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("control: ReadTrace: %w", err)
	}
	t, err := mapTrace(f, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("control: ReadTrace: %w", err)
	}
	return t.last(most), t.Close()
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

// Align converts all times from the rank's clock to another host's. It adds atFrom to the time
// from and atTo to the time to, both by the rank's clock, and interpolates in between.
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
	for i := range p.Samples {
		shift(&p.Samples[i].At)
	}
}
