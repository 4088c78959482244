package message

import (
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// A queue is requests, or messages, in the order in which they were added.
type queue[E any] struct {
	items []*E
	gone  int // the first of items that are there no more
}

func (q *queue[E]) all() []*E { return q.items[q.gone:] }

func (q *queue[E]) add(e *E) {
	if q.gone > 0 && 2*q.gone >= len(q.items) {
		n := copy(q.items, q.all())
		clear(q.items[n:])
		q.items, q.gone = q.items[:n], 0
	}
	q.items = append(q.items, e)
}

// remove takes out item i of all. It moves those before it, which were looked at to find it.
func (q *queue[E]) remove(i int) {
	all := q.all()
	if i > 0 { // most are the first
		copy(all[1:], all[:i])
	}
	all[0] = nil
	q.gone++
}

// An envelope is a packet that has come. That of a message stays until a receive takes it.
type envelope struct {
	packet
	from  int
	order uint64 // of all messages that have come
}

// size returns the bytes of the message.
func (e *envelope) size() int { return int(e.bytes) }

// long reports whether the data is to be fetched. Then id is its sender's number for it, and place where it lies if it
// goes byExport.
func (e *envelope) long() bool    { return e.kind == askPacket }
func (e *envelope) id() uint64    { return e.words[0] }
func (e *envelope) place() uint64 { return e.words[1] }
func (e *envelope) way() way      { return way(e.words[2]) }

// A way is how the data of a long message comes.
type way uint64

const (
	byPieces way = iota // its sender copies it through pieces
	byExport            // the receiver copies it from where it lies
)

// fits reports whether a receive from a rank, with a tag, takes e.
func (e *envelope) fits(from, tag int) bool {
	return (from == AnySource || from == e.from) && (tag == AnyTag || int32(tag) == e.tag)
}

func (e *envelope) status() Status {
	return Status{Source: e.from, Tag: int(e.tag), Count: e.size() / max(1, int(e.width))}
}

// describe says what e is.
func (e *envelope) describe(m *Mailbox) string {
	return fmt.Sprintf("%s from rank %d, tag %d", typed(e.what, e.size(), int(e.width)), m.comm.WorldRank(e.from), e.tag)
}

// typed describes elements by their type as a packet has it.
func typed(what uint64, bytes, width int) string {
	f := backend.Fingerprint{What: what<<16 | uint64(comm.SendKind), Count: uint64(bytes / max(1, width))}
	_, text, _ := strings.Cut(f.String(), " ")
	object := comm.Call{Kind: comm.TaggedSendKind, Src: comm.Of([]coded(nil))}
	switch hash, n := what>>24, bytes/max(1, width); {
	case what == object.Fingerprint().What>>16 && bytes == 0: // its receive does not know how long it is
		return "an object"
	case what == object.Fingerprint().What>>16:
		return fmt.Sprintf("an object of %s", ints.Counted(n, "byte"))
	case hash != 0:
		return fmt.Sprintf("%s of a struct or array of %s", ints.Counted(n, "element"), ints.Counted(width, "byte"))
	}
	return text
}

// find returns the message that a receive takes of those that have come: of those that it may take the
// first of its sender; from any sender the one that came first. take says that it is removed.
func (m *Mailbox) find(from, tag int, take bool) *envelope {
	lo, hi := from, from+1
	if from == AnySource {
		lo, hi = 0, len(m.ins)
	}
	var found *envelope
	at := 0
	for r := lo; r < hi; r++ {
		for i, e := range m.ins[r].early.all() {
			if !e.fits(from, tag) {
				continue
			}
			if found == nil || e.order < found.order {
				found, at = e, i
			}
			break
		}
	}
	if found != nil && take {
		m.ins[found.from].early.remove(at)
	}
	return found
}

// untaken says which messages have come that a waiting receive or probe from a rank does not take. It names those of that
// rank, and if there are none those of all ranks.
func (m *Mailbox) untaken(kind comm.Kind, from int) string {
	if kind == comm.TaggedSendKind {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if from != AnySource && len(m.ins[from].early.all()) == 0 {
		from = AnySource
	}
	count, first := 0, (*envelope)(nil)
	for r := range m.ins {
		if from != AnySource && r != from {
			continue
		}
		for _, e := range m.ins[r].early.all() {
			if count++; first == nil || e.order < first.order {
				first = e
			}
		}
	}
	switch count {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 message has come that it does not take: %s", first.describe(m))
	}
	return fmt.Sprintf("%d messages have come that it does not take, the first of them %s", count, first.describe(m))
}

// arrive gives a message to the receive that was posted first of those that take it, and keeps it
// if there is none. e's data is the caller's.
func (m *Mailbox) arrive(e *envelope) {
	e.order = m.count
	m.count++
	for i := 0; i < len(m.posted.all()); {
		r := m.posted.all()[i]
		if !e.fits(int(r.peer), int(r.tag)) {
			i++
			continue
		}
		m.posted.remove(i)
		if r.kind != comm.TaggedProbeKind {
			m.accept(r, e)
			return
		}
		r.found(e)
		m.end(r, nil)
	}
	m.ins[e.from].early.add(m.keep(e))
}

// mostKept is how many envelopes wait to serve again.
const mostKept = 64

// keep returns a copy of a message, with its data.
func (m *Mailbox) keep(e *envelope) *envelope {
	var kept *envelope
	if n := len(m.kept); n > 0 {
		kept, m.kept = m.kept[n-1], m.kept[:n-1]
	} else {
		kept = new(envelope)
	}
	data := append(kept.data[:0], e.data...)
	*kept = *e
	kept.data = data
	return kept
}

// drop has a copy that keep has made serve again.
func (m *Mailbox) drop(kept *envelope) {
	if len(m.kept) < mostKept {
		m.kept = append(m.kept, kept)
	}
}

// accept has a receive take a message.
func (m *Mailbox) accept(r *Request, e *envelope) {
	if err := r.refuses(m, e); err != nil {
		m.end(r, err)
		m.fail(err)
		return
	}
	if r.rare != nil && r.rare.alloc != nil {
		r.buf = r.rare.alloc(e.size())
	}
	r.found(e)
	if !e.long() {
		copy(r.buf.Data(), e.data)
		if e.from != m.me {
			m.link.eat(e.from, e.bytes+lineBytes)
		}
		m.end(r, nil)
		return
	}
	m.fetch(r, e)
}

// refuses returns why r cannot take a message, nil if it can.
func (r *Request) refuses(m *Mailbox, e *envelope) error {
	if e.what != r.what {
		return fmt.Errorf("%w: what has come is %s, and this receive is of %s; give both calls one type of elements", comm.ErrMismatch,
			e.describe(m), typed(r.what, r.buf.Bytes(), int(r.width)))
	}
	if (r.rare == nil || r.rare.alloc == nil) && e.size() > r.buf.Bytes() {
		return fmt.Errorf("%w: what has come is %s, and the receive has room for %d elements; give it more, or use RecvSlice",
			comm.ErrMismatch, e.describe(m), r.buf.Bytes()/max(1, int(r.width)))
	}
	return nil
}

// A table numbers requests.
type table struct {
	requests []*Request
	unused   []uint64
}

func (t *table) add(r *Request) (id uint64) {
	if n := len(t.unused); n > 0 {
		id = t.unused[n-1]
		t.unused = t.unused[:n-1]
		t.requests[id] = r
		return id
	}
	t.requests = append(t.requests, r)
	return uint64(len(t.requests) - 1)
}

// get returns a request, nil if there is none with the number.
func (t *table) get(id uint64) *Request {
	if id >= uint64(len(t.requests)) {
		return nil
	}
	return t.requests[id]
}

func (t *table) remove(id uint64) {
	t.requests[id] = nil
	t.unused = append(t.unused, id)
}
