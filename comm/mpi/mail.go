//go:build linux && !nolibs

package mpi

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// A mail is messages that a rank sends and receives at once. Several between the same two arrive in their order.
type mail struct{ sends, recvs []item }

type item struct {
	peer int
	backend.Buffer
}

func (m *mail) empty() *mail {
	m.sends, m.recvs = m.sends[:0], m.recvs[:0]
	return m
}

func (m *mail) send(to int, b backend.Buffer)   { m.sends = append(m.sends, item{to, b}) }
func (m *mail) recv(from int, b backend.Buffer) { m.recvs = append(m.recvs, item{from, b}) }

// swap sends and receives, with the same rank.
func (m *mail) swap(peer int, out, in backend.Buffer) {
	m.send(peer, out)
	m.recv(peer, in)
}

// lag is how many ticks after messages were begun what they bring can be used: while a rank waits for those of one tick, those
// of the next are on their way, so that the wires do not rest meanwhile.
const lag = 2

// carry begins messages, but for those to this rank itself and those of nothing, and returns when those that the carry before
// has begun have gone and come.
func (r *Rank) carry(ctx context.Context, call *backend.Call, m *mail) error {
	before := len(r.requests)
	for _, way := range []struct {
		receive bool
		f       function
		items   []item
	}{{true, irecv, m.recvs}, {false, isend, m.sends}} {
		for _, b := range way.items {
			if b.peer == r.me || b.Count == 0 {
				continue
			}
			if err := r.message(way.receive, way.f, b.Buffer, b.peer, tagPair); err != nil {
				return err
			}
		}
	}
	return r.waitFor(ctx, call, before, nil)
}
