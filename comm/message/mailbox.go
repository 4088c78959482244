package message

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// A Mailbox is one rank's end of what the ranks of a communicator send each other by tag. Its
// functions and methods may be called from any goroutine, except for New and Close, which are
// collectives of the communicator.
type Mailbox struct {
	comm    *comm.Comm
	inner   comm.Internals
	backend backend.MessageBackend
	shared  backend.SharedBackend // nil: ranks share no memory
	link    link
	rings   *ringLink            // link, if it is one
	holder  backend.DeviceHolder // nil: there is no memory of a device
	memory  backend.WindowMemory // with shared
	me      int
	eager   int         // bytes of the longest message that travels with its envelope
	credit  uint64      // bytes of such messages to one rank that no receive has taken
	sent    Request     // of sends that were over when they were begun
	idle    atomic.Bool // nothing is to be sent: progress need only look for packets in rings

	mu      sync.Mutex // guards what follows
	tally   *comm.Tally
	outs    []outbound      // by rank
	ins     []inbound       // by rank
	fresh   []Request       // allocated together
	begun   int             // how many of those are in use
	spares  []*blockingCall // not in use
	kept    []*envelope     // not in use, see keep
	posted  queue[Request]  // receives and probes that have no message yet
	count   uint64          // messages that have come
	reads   uint64          // packets that have come
	sends   table           // long messages whose receiver has not got them
	takes   table           // receives of pieces
	streams []*Request      // sends that are to go in pieces
	pieces  pieces
	queued  int // packets in the queues of outs
	loose   int // requests that the program does not wait for
	driving bool
	closing bool
	closed  bool
	aborted bool
	err     error // what has ended the mailbox
}

// An outbound is the way to one rank.
type outbound struct {
	eager uint64 // bytes sent with their envelopes
	eaten uint64 // of those taken by receives when this rank last knew
	sent  int    // packets
	queue []waitingPacket
}

// A waitingPacket is one that the ring had no room for: that of a send, or another.
type waitingPacket struct {
	send *Request // nil: it is the packet
	packet
}

// An inbound is the way from one rank.
type inbound struct {
	early queue[envelope] // that no receive has taken
	came  int             // packets
}

// Sizes of a mailbox.
const (
	mostRingBytes = 64 << 10
	allRingBytes  = 1 << 20 // of all rings of a rank, but that each has at least leastRing
	leastRing     = 8 << 10
	mostEager     = 4 << 10 // but at most a quarter of a ring
	allCredit     = 4 << 20 // of all ranks to one
	mostCredit    = 256 << 10
	pieceBytes    = 64 << 10
	packetBytes   = 60 << 10 // of a piece in a packet, which with its head Open MPI sends over TCP without asking the receiver first
	pieceCount    = 16
)

// New makes a Mailbox. All ranks of c call it. Where the ranks communicate by a Go binding of MPI,
// with the build tags gompi and empi, its error is errors.ErrUnsupported.
func New(ctx context.Context, c *comm.Comm) (*Mailbox, error) {
	if c == nil {
		return nil, fault.Located(errors.New("message: New: the communicator is nil: this rank is in none of the groups of Split or Group; " +
			"make the call on ranks that are"))
	}
	m := &Mailbox{comm: c, inner: c.Internals(), me: c.Rank()}
	b, ok := m.inner.Backend().(backend.MessageBackend)
	if !ok { // on all ranks
		return nil, fmt.Errorf("message: New: %s carries no messages with tags; build the program without the build tags gompi and empi, so "+
			"that it uses shared memory under gorun, or finds the MPI library when it starts: %w", m.inner.Library(), errors.ErrUnsupported)
	}
	n := c.Size()
	// The largest power of two that is no longer.
	ringBytes := 1 << (bits.Len(uint(min(mostRingBytes, max(leastRing, allRingBytes/n)))) - 1)
	m.backend, m.holder = b, m.inner.Holder()
	m.eager, m.credit = min(mostEager, ringBytes/4-lineBytes), uint64(max(ringBytes, min(mostCredit, allCredit/n)))
	m.outs, m.ins = make([]outbound, n), make([]inbound, n)
	m.sent.m, m.tally = m, m.inner.Tally()
	m.sent.over.Store(1)
	if err := m.open(ctx, ringBytes); err != nil {
		return nil, err
	}
	return m, m.barrier(ctx, "message.New") // no rank sends to memory that is not there yet
}

// open makes the way to the other ranks: rings, or packets.
func (m *Mailbox) open(ctx context.Context, ringBytes int) error {
	n := len(m.outs)
	if p, ok := m.backend.(backend.PacketBackend); ok {
		packets, err := p.OpenPackets(ctx, headBytes+packetBytes)
		if err != nil {
			return m.inner.FailAlone(&comm.Call{Kind: comm.TaggedRecvKind, Root: AnySource, Tag: AnyTag, Cause: "message.New"}, err)
		}
		m.link = &packetLink{m: m, packets: packets}
		return nil
	}
	m.shared = m.backend.(backend.SharedBackend)
	bytes := n * (lineBytes + ringBytes)
	own := make([]byte, 1)
	if _, ok := m.shared.Export(unsafe.Pointer(&own[0]), 1); !ok { // not all memory can be read by others
		m.pieces.at = bytes
		m.pieces.free = make([]bool, pieceCount)
		bytes += pieceCount * (pieceBytes + lineBytes)
	}
	memory, _, err := m.inner.OpenWindow(ctx, bytes)
	if err != nil {
		return err
	}
	m.memory = memory
	l := &ringLink{m: m, outs: make([]outRing, n), ins: make([]inRing, n)}
	at := func(rank, offset int) unsafe.Pointer { return unsafe.Add(memory.Address(rank), offset) }
	for r := range n {
		lines := uint64(ringBytes / lineBytes)
		l.outs[r] = outRing{ring: ring{at(m.me, n*lineBytes+r*ringBytes), lines}, taken: (*line)(at(r, m.me*lineBytes))}
		l.ins[r] = inRing{ring: ring{at(r, n*lineBytes+m.me*ringBytes), lines}, taken: (*line)(at(m.me, r*lineBytes))}
	}
	m.link, m.rings = l, l
	m.pieces.open(memory, m.me)
	return nil
}

func (m *Mailbox) barrier(ctx context.Context, cause string) error {
	return m.comm.Do(ctx, comm.Call{Kind: comm.BarrierKind, Cause: cause})
}

// Comm returns the communicator whose ranks the mailbox is among.
func (m *Mailbox) Comm() *comm.Comm { return m.comm }

// Close takes the mailbox back, when all ranks have called it. Its error says so if this rank
// has requests that have not ended, and then nothing was done; or if it has not received what was
// sent to it.
func (m *Mailbox) Close(ctx context.Context) error {
	m.mu.Lock()
	open, closed := m.loose, m.closed
	m.mu.Unlock()
	switch {
	case closed:
		return m.fault("Close", errClosed)
	case open > 0:
		return m.fault("Close", fmt.Errorf("the mailbox has %s under way; Wait for each, or Cancel it", ints.Counted(open, "request")))
	}
	if err := m.flush(ctx); err != nil {
		return err
	}
	if err := m.settleAccounts(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	lost, first := 0, (*envelope)(nil)
	for r := range m.ins {
		for _, e := range m.ins[r].early.all() {
			if lost++; first == nil {
				first = e
			}
		}
	}
	m.closed = true
	m.mu.Unlock()
	if err := m.barrier(ctx, "message.Close"); err != nil { // the others have seen this rank's packets
		return err
	}
	m.inner.EndTally(m.tally)
	if err := m.link.close(); err != nil {
		return err
	}
	if lost > 0 {
		if lost == 1 {
			return m.fault("Close", fmt.Errorf("1 message was not received, %s; Recv it", first.describe(m)))
		}
		return m.fault("Close", fmt.Errorf("%d messages were not received, the first of them %s; Recv each", lost, first.describe(m)))
	}
	return nil
}

// flush returns when the rings have had room for all that this rank has to say.
func (m *Mailbox) flush(ctx context.Context) error {
	return m.until(ctx, comm.TaggedSendKind, func(r int) bool { return len(m.outs[r].queue) == 0 })
}

// settleAccounts returns when all ranks have called it, and this one has read all packets that were sent to it.
func (m *Mailbox) settleAccounts(ctx context.Context) error {
	sent, come := make([]int, len(m.outs)), make([]int, len(m.outs))
	m.mu.Lock()
	m.closing = true
	for r := range m.outs {
		sent[r] = m.outs[r].sent
	}
	m.mu.Unlock()
	call := comm.Call{Kind: comm.AllToAllKind, Dst: comm.Of(come), Src: comm.Of(sent), Cause: "message.Close"}
	if err := m.comm.Do(ctx, call); err != nil {
		return err
	}
	return m.until(ctx, comm.TaggedRecvKind, func(r int) bool { return m.ins[r].came == come[r] })
}

// until makes progress until something is so of all ranks.
func (m *Mailbox) until(ctx context.Context, kind comm.Kind, so func(rank int) bool) error {
	call := comm.Call{Kind: kind, Tag: AnyTag, Cause: "message.Close"}
	err := m.backend.Await(ctx, &call, func() (int, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.progress()
		for r := range m.outs {
			if !so(r) {
				call.Root = r
				return r, m.err
			}
		}
		return -1, m.err
	})
	if err != nil {
		return m.inner.FailAlone(&call, err)
	}
	return nil
}

var errClosed = errors.New("the mailbox is closed; make the call before Close, or make another mailbox")

// fault is the error of a call that is no message.
func (m *Mailbox) fault(name string, err error) error {
	c := m.comm
	return &comm.Error{Call: "message " + name, Site: new(comm.Call).Site(), Comm: c.Name(), Rank: c.WorldRank(c.Rank()), Err: err}
}

// fail ends the mailbox, and all its requests, with err.
func (m *Mailbox) fail(err error) {
	if m.err == nil {
		m.err = err
	}
	for _, r := range m.posted.all() {
		m.end(r, m.err)
	}
	m.posted = queue[Request]{}
	for _, t := range []*table{&m.sends, &m.takes} {
		for _, r := range t.requests {
			if r != nil {
				m.end(r, m.err)
			}
		}
		*t = table{}
	}
	for i := range m.outs {
		for _, w := range m.outs[i].queue {
			if w.send != nil {
				m.end(w.send, m.err)
			}
		}
		m.outs[i].queue = nil
	}
	m.streams, m.queued = nil, 0
}

// settle tells the other ranks of an error that this one has found. The lock is not held: Abort
// may wait for who holds a lock of the backend's, and looks here.
func (m *Mailbox) settle() {
	m.mu.Lock()
	err := m.err
	tell := err != nil && !m.aborted
	m.aborted = m.aborted || tell
	m.mu.Unlock()
	if tell {
		m.comm.Abort(err)
	}
}
