//go:build linux && !nolibs

package mpi

import (
	"context"
	"encoding/binary"

	"github.com/gorun-spmd/gorun/comm"
)

// noteBytes is the size of a note.
const noteBytes = 512

// note is what two ranks tell each other of a call before they make it:
//
//	what, count     8 bytes each   the fingerprint
//	sent, expected  8 bytes each   elements for and from the other, where only the two know; else -1
//	lengths         2 bytes each   of the two texts
//	call, site      texts
type note struct {
	peer    int
	out, in [noteBytes]byte
}

// agree compares call with those of the ranks that take part in it.
func (r *Rank) agree(ctx context.Context, call *comm.Call) error {
	text, site := call.String(), call.Site()
	if r.notes == nil {
		r.notes = make([]note, len(r.world)) // before requests name them: they must not move
	}
	tag, n := uintptr(tagCheck), 0
	for i := 1; i < len(r.world); i++ {
		peer := (r.me + i) % len(r.world)
		if !call.Kind.PointToPoint() || peer == call.Root {
			r.notes[n].peer = peer
			n++
		}
	}
	if call.Kind.PointToPoint() {
		tag = tagGreet
	}
	f := call.Fingerprint()
	for i := range n {
		t := &r.notes[i]
		if err := r.begin(true, irecv, pointer(&t.in), noteBytes, r.job.lib.handles[typeByte], uintptr(t.peer), tag, r.comm); err != nil {
			return err
		}
	}
	for i := range n {
		t := &r.notes[i]
		t.write(f, text, site)
		sent, expected := between(call, r.me, t.peer)
		t.writeCounts(sent, expected)
		if err := r.begin(false, isend, pointer(&t.out), noteBytes, r.job.lib.handles[typeByte], uintptr(t.peer), tag, r.comm); err != nil {
			return err
		}
	}
	return r.wait(ctx, call, func(i int) error {
		if i >= n {
			return nil
		}
		t := &r.notes[i]
		its, itsText, itsSite := t.read()
		if its != f {
			return comm.Mismatch(comm.Party{Rank: r.world[r.me], Call: text, Site: site},
				comm.Party{Rank: r.world[t.peer], Call: itsText, Site: itsSite})
		}
		sent, expected := between(call, r.me, t.peer)
		itSends, itExpects := t.readCounts()
		switch {
		case sent >= 0 && itExpects >= 0 && sent != itExpects:
			return comm.Uneven(call.Kind, r.world[r.me], sent, r.world[t.peer], itExpects)
		case expected >= 0 && itSends >= 0 && expected != itSends:
			return comm.Uneven(call.Kind, r.world[t.peer], itSends, r.world[r.me], expected)
		}
		return nil
	})
}

// late returns the ranks, by world number, whose notes have not come.
func (r *Rank) late(checking bool) (ranks []int) {
	if !checking {
		return nil
	}
	for i, q := range r.requests {
		if q.receive && !q.done {
			ranks = append(ranks, r.world[r.notes[i].peer])
		}
	}
	return ranks
}

// between returns the elements that rank me sends peer and expects of it in a
// call, where its fingerprint does not say; -1 where it does, or me cannot know.
func between(call *comm.Call, me, peer int) (sent, expected int) {
	sent, expected = -1, -1
	switch call.Kind {
	case comm.AllToAllVKind:
		return call.SrcCounts[peer], call.DstCounts[peer]
	case comm.GatherVKind:
		if peer == call.Root {
			sent = call.Src.Count
		} else if me == call.Root {
			expected = call.DstCounts[peer]
		}
	case comm.ScatterVKind:
		if me == call.Root {
			sent = call.SrcCounts[peer]
		} else if peer == call.Root {
			expected = call.Dst.Count
		}
	}
	return sent, expected
}

func (t *note) write(f comm.Fingerprint, call, site string) {
	const head = 36
	call = call[:min(len(call), noteBytes-head)]
	site = site[:min(len(site), noteBytes-head-len(call))]
	b := t.out[:]
	binary.LittleEndian.PutUint64(b, f.What)
	binary.LittleEndian.PutUint64(b[8:], f.Count)
	binary.LittleEndian.PutUint16(b[32:], uint16(len(call)))
	binary.LittleEndian.PutUint16(b[34:], uint16(len(site)))
	copy(b[head+copy(b[head:], call):], site)
}

func (t *note) writeCounts(sent, expected int) {
	binary.LittleEndian.PutUint64(t.out[16:], uint64(sent))
	binary.LittleEndian.PutUint64(t.out[24:], uint64(expected))
}

func (t *note) read() (f comm.Fingerprint, call, site string) {
	b := t.in[:]
	f = comm.Fingerprint{What: binary.LittleEndian.Uint64(b), Count: binary.LittleEndian.Uint64(b[8:])}
	n := min(int(binary.LittleEndian.Uint16(b[32:])), noteBytes-36)
	m := min(int(binary.LittleEndian.Uint16(b[34:])), noteBytes-36-n)
	return f, string(b[36 : 36+n]), string(b[36+n : 36+n+m])
}

func (t *note) readCounts() (sent, expected int) {
	return int(binary.LittleEndian.Uint64(t.in[16:])), int(binary.LittleEndian.Uint64(t.in[24:]))
}
