//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/mpi/exchange"
)

// checking says with whose calls a rank compares its own.
type checking uint8

const (
	// checkNeighbours compares with those of the ranks before and after this one:
	// if all neighbours agree, all ranks do.
	checkNeighbours checking = iota
	checkAll                 // with those of all ranks
	checkNone
)

func (c checking) String() string {
	return [...]string{"with its neighbours'", "with those of all ranks", "not at all"}[c]
}

// debugVariable chooses the checking: 0 none, 1 with all ranks.
const debugVariable = "GORUN_DEBUG"

// checkingOf is what Options and the value of the variable ask for.
func checkingOf(o Options, variable string) checking {
	switch {
	case o.Debug || variable == "1" && !o.Unchecked:
		return checkAll
	case o.Unchecked || variable == "0":
		return checkNone
	}
	return checkNeighbours
}

// noteWords is the size of a note, in words of 8 bytes.
const noteWords = 4

// note is what two ranks tell each other of a call before they make it, in words:
//
//	what, count     the fingerprint
//	sent, expected  elements for and from the other, where only the two know; else -1
type note struct {
	peer    int
	out, in [noteWords]uint64
}

// texts describe two calls that differ.
type texts struct{ out, in exchange.Text }

// errDiffers ends the wait for notes when a note describes another call.
var errDiffers = errors.New("a note tells of another call")

// agree compares call with those of other ranks that take part in it.
func (r *Rank) agree(ctx context.Context, call *backend.Call) error {
	if call.Kind.PointToPoint() && r.checks != checkAll {
		return r.compareMessage(ctx, call)
	}
	n, in, out := r.partners(call), uintptr(tagCheck), uintptr(tagCheck)
	switch call.Kind {
	case backend.SendKind:
		in, out = tagReply, tagCompare
	case backend.RecvKind:
		in, out = tagCompare, tagReply
	}
	f := call.Fingerprint()
	for i := range n {
		if err := r.receiveNote(i, in); err != nil {
			return err
		}
	}
	for i := range n {
		sent, expected := call.Lengths(r.me, r.notes[i].peer, len(r.world))
		if err := r.sendNote(i, out, f, sent, expected); err != nil {
			return err
		}
	}
	differing := -1
	err := r.wait(ctx, call, func(i int) error {
		if i >= n {
			return nil
		}
		t := &r.notes[i]
		if t.fingerprint() != f {
			differing = i
			return errDiffers
		}
		sent, expected := call.Lengths(r.me, t.peer, len(r.world))
		itSends, itExpects := int(t.in[2]), int(t.in[3])
		switch {
		case sent >= 0 && itExpects >= 0 && sent != itExpects:
			return call.Uneven(r.world[r.me], sent, r.world[t.peer], itExpects)
		case expected >= 0 && itSends >= 0 && expected != itSends:
			return call.Uneven(r.world[t.peer], itSends, r.world[r.me], expected)
		}
		return nil
	})
	if err == errDiffers {
		return r.disagree(ctx, call, n, differing)
	}
	return err
}

// disagree exchanges descriptions of the calls with the rank of note differing, which has
// seen that they differ too, and returns the error. The other ranks of the n notes are
// told as well: one of them may wait for a description by this rank.
func (r *Rank) disagree(ctx context.Context, call *backend.Call, n, differing int) error {
	mine := call.Party(r.world[r.me])
	t := &texts{out: exchange.TextOf(mine)}
	r.texts = t // MPI may use it for as long as it uses r
	answer, bytes, dt := len(r.requests), uintptr(len(t.out)), r.job.lib.handles[typeByte]
	if err := r.begin(true, irecv, pointer(&t.in), bytes, dt, uintptr(r.notes[differing].peer), tagText, r.comm); err != nil {
		return err
	}
	for i := range n {
		if err := r.begin(false, isend, pointer(&t.out), bytes, dt, uintptr(r.notes[i].peer), tagText, r.comm); err != nil {
			return err
		}
	}
	return r.wait(ctx, call, func(i int) error {
		if i != answer {
			return nil
		}
		return backend.Mismatch(mine, t.in.Party(r.world[r.notes[differing].peer]))
	})
}

// compareMessage is agree for a Send or a Recv whose note travels with the message: the receiver
// alone compares, and does not say to the sender that it is there.
func (r *Rank) compareMessage(ctx context.Context, call *backend.Call) error {
	r.partners(call)
	f := call.Fingerprint()
	if call.Kind == backend.SendKind {
		return r.sendNote(0, tagCompare, f, -1, -1)
	}
	if err := r.receiveNote(0, tagCompare); err != nil {
		return err
	}
	err := r.wait(ctx, call, func(int) error {
		if r.notes[0].fingerprint() == f {
			return nil
		}
		return errDiffers
	})
	if err == errDiffers {
		return r.differ(call)
	}
	return err
}

// partners says in r.notes with which ranks this one exchanges notes of a call, and
// returns how many they are. Those that exchange counts which nobody else knows compare
// them too.
func (r *Rank) partners(call *backend.Call) (n int) {
	size := len(r.world)
	r.makeNotes()
	defer func() { r.noted = n }()
	if call.Kind.PointToPoint() {
		r.notes[0].peer = call.Root
		return 1
	}
	step := 1
	if r.checks == checkNeighbours && !call.Kind.Shape().Pairwise() && size > 2 {
		step = size - 2 // the next rank and the one before
	}
	for i := 1; i < size; i += step {
		peer := (r.me + i) % size
		if sent, expected := call.Lengths(r.me, peer, len(r.world)); r.checks == checkAll || i == 1 || i == size-1 || sent >= 0 || expected >= 0 {
			r.notes[n].peer = peer
			n++
		}
	}
	return n
}

// makeNotes makes the notes before requests name them: they must not move.
func (r *Rank) makeNotes() {
	if r.notes == nil {
		r.notes = make([]note, len(r.world))
	}
}

// receiveNote and sendNote begin the requests of note i.
func (r *Rank) receiveNote(i int, tag uintptr) error {
	t := &r.notes[i]
	return r.begin(true, irecv, pointer(&t.in), noteWords*8, r.job.lib.handles[typeByte], uintptr(t.peer), tag, r.comm)
}

func (r *Rank) sendNote(i int, tag uintptr, f backend.Fingerprint, sent, expected int) error {
	t := &r.notes[i]
	t.out = [noteWords]uint64{f.What, f.Count, uint64(sent), uint64(expected)}
	return r.begin(false, isend, pointer(&t.out), noteWords*8, r.job.lib.handles[typeByte], uintptr(t.peer), tag, r.comm)
}

// late returns the ranks, by world number, whose notes of the call have not come.
func (r *Rank) late() (ranks []int) {
	for i, q := range r.requests {
		if q.receive && !q.done && i < r.noted {
			ranks = append(ranks, r.world[r.notes[i].peer])
		}
	}
	return ranks
}

// fingerprint is that of the other's call.
func (t *note) fingerprint() backend.Fingerprint {
	return backend.Fingerprint{What: t.in[0], Count: t.in[1]}
}
