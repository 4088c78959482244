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

// farBytes is the longest message of carry to another host: one that Open MPI sends over TCP without asking the receiver
// first (btl_tcp_eager_limit, 64 KiB with its header). The question and the answer would stand behind the data of other
// messages, of which the kernel takes megabytes, and the wire would rest. carry alone does so, as the receiver has begun to
// receive, or is about to: what is sent without asking a library keeps in memory until then. On two hosts with a cable
// of 1 Gbit/s an AllReduce of 16 MiB takes 140 ms, which is what the cable takes, in place of 220 with one rank on each, and
// of 162 with two.
const farBytes = 60 << 10

// carry begins messages, except for those to this rank itself and those of nothing, and returns when those that the carry before
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
			most := r.most
			if r.job.hosts[r.world[b.peer]] != r.job.hosts[r.job.rank] {
				most = min(most, r.far)
			}
			if err := r.inParts(way.receive, way.f, b.Buffer, b.peer, tagPair, most); err != nil {
				return err
			}
		}
	}
	return r.waitFor(ctx, call, before, nil)
}
