package shm

import (
	"cmp"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
)

// Leave says that this rank makes no more calls on any communicator. Its error names a message that was not
// received: one to this rank, or one of this rank to a rank that has left. Sender and receiver each say that they
// leave before they look, so one of them sees the message.
func (r *Rank) Leave() error {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	for e := range j.open {
		e.region.members[e.me].over.Store(1)
	}
	lost := j.lost
	for e := range j.open {
		lost = cmp.Or(lost, e.unreceived())
	}
	return lost
}

// unreceived returns an error if a message to this rank has not been received, or one of this rank to a rank
// that has left. It passes over a communicator that has failed.
func (e *resources) unreceived() error {
	g := e.region
	if g.head.claimed.Load() != 0 {
		return nil
	}
	own := g.members[e.me].sends.Load() != 0
	for m, other := range g.members {
		if other.sends.Load() != 0 && g.cell(m, e.me).full() {
			return e.lost(m, e.me)
		}
		if own && other.over.Load() != 0 && g.cell(e.me, m).full() {
			return e.lost(e.me, m)
		}
	}
	return nil
}

// hasSent notes that the rank has sent messages. It writes the line, which the others read, only once.
func (m *member) hasSent() {
	if m.sends.Load() == 0 {
		m.sends.Store(1)
	}
}

// full reports whether the cell holds a message that nobody has received and whose sender has gone on.
func (c *cell) full() bool { return c.seq.Load() > c.taken.Load() && c.summary&0xff == inSlot }

// lost is the error for the message in a cell.
func (e *resources) lost(from, to int) error {
	return &backend.UnreceivedError{From: e.world[from], To: e.world[to], Messages: 1,
		What: e.region.cell(from, to).sent() + " in the communicator of " + control.GroupOf(e.world)}
}

// sent describes the Send whose message is in the cell.
func (c *cell) sent() string { return backend.Fingerprint{What: c.what, Count: c.count}.String() }
