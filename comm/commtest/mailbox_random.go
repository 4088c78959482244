package commtest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
	"github.com/gorun-spmd/gorun/internal/invariant"
)

// A drawnMessage is one of a random schedule. All ranks know all.
type drawnMessage struct{ from, to, tag, count int }

// RandomMessages has all ranks send each other what they draw alike, in a number of rounds of about 50
// messages a rank: it checks that each message comes once, as it was sent, and in the order of MPI's rules.
func RandomMessages(ctx context.Context, c *comm.Comm, rounds int) error {
	return mailbox(ctx, c, func(m *message.Mailbox) error {
		random := drawn(uint64(c.Size()))
		counts := []int{0, 1, 3, 8, 9, 100, 1000, 1024, 1025, 3000, 30_000}
		if invariant.Enabled { // slow under the race detector
			counts = counts[:10]
		}
		for round := range rounds {
			all := make([]drawnMessage, c.Size()*(1+random.IntN(100)))
			for i := range all {
				all[i] = drawnMessage{random.IntN(c.Size()), random.IntN(c.Size()), random.IntN(6), counts[random.IntN(len(counts))]}
			}
			own := rand.New(rand.NewPCG(random.Uint64(), uint64(c.Rank()))) // how this rank does it
			if err := randomRound(ctx, m, all, own, random.IntN(3)); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	})
}

// A drawnReceive is a receive of a random schedule.
type drawnReceive struct {
	from, tag int
	buf       []int32
	request   *message.Request
	got       int // the message
}

// randomRound carries out messages. Collectives are made, as many on all ranks, in the middle.
func randomRound(ctx context.Context, m *message.Mailbox, all []drawnMessage, own *rand.Rand, collectives int) error {
	c := m.Comm()
	var in []drawnReceive
	var out []int
	most := 0
	style := own.IntN(4)
	for i, d := range all {
		if d.from == c.Rank() {
			out = append(out, i)
		}
		if d.to != c.Rank() {
			continue
		}
		r := drawnReceive{from: d.from, tag: d.tag}
		if style == 1 && d.tag%2 == 0 || style == 3 {
			r.from = message.AnySource
		}
		if style >= 2 {
			r.tag = message.AnyTag
		}
		most = max(most, d.count)
		in = append(in, r)
	}
	own.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	var sent []*message.Request
	late := own.IntN(2) * own.IntN(len(in)+1) // receives that come after sends
	post := func(rs []drawnReceive) {
		for i := range rs {
			rs[i].buf = make([]int32, most)
			rs[i].request = message.IRecv(m, rs[i].buf, rs[i].from, rs[i].tag)
		}
	}
	post(in[:len(in)-late])
	for _, i := range out {
		x := make([]int32, all[i].count)
		letter(x, all[i].from, i)
		send := message.ISend[int32]
		if own.IntN(4) == 0 {
			send = message.ISSend[int32]
		}
		sent = append(sent, send(m, x, all[i].to, all[i].tag))
	}
	for range collectives {
		if sum, err := total(ctx, c, 1); err != nil || sum != c.Size() {
			return fmt.Errorf("a sum of %d, %w", sum, err)
		}
	}
	post(in[len(in)-late:])
	for _, i := range own.Perm(len(in)) {
		if _, err := in[i].request.Wait(ctx); err != nil {
			return err
		}
	}
	if err := message.WaitAll(ctx, sent...); err != nil {
		return err
	}
	if err := identify(all, in, c.Rank()); err != nil {
		return err
	}
	return comm.Barrier(ctx, c) // the next round's messages must not meet this one's receives
}

// identify finds which message each receive got. Of two messages of one sender the later must not be
// got by a receive that was begun earlier and takes both.
func identify(all []drawnMessage, in []drawnReceive, me int) error {
	sent := map[[2]int][]int{} // messages by sender and tag, in their order
	for i, d := range all {
		if d.to == me {
			key := [2]int{d.from, d.tag}
			sent[key] = append(sent[key], i)
		}
	}
	for k := range in { // in the order in which they were begun
		r := &in[k]
		st, err := r.request.Wait(context.Background())
		if err != nil {
			return err
		}
		key := [2]int{st.Source, st.Tag}
		if len(sent[key]) == 0 || r.from >= 0 && r.from != st.Source || r.tag >= 0 && r.tag != st.Tag {
			return fmt.Errorf("a receive from %d, tag %d: got %+v", r.from, r.tag, st)
		}
		i := sent[key][0] // receives of one style overlap wholly, so one sender's messages of a tag come in order
		sent[key] = sent[key][1:]
		if st.Count != all[i].count {
			return fmt.Errorf("a receive from %d, tag %d: got %+v, want message %d, %+v", r.from, r.tag, st, i, all[i])
		}
		if err := isLetter(r.buf[:st.Count], st.Source, i); err != nil {
			return err
		}
		r.got = i
	}
	for k := range in {
		for j := range in[:k] {
			a, b := &in[j], &in[k] // a was begun before b
			if d := all[b.got]; d.from == all[a.got].from && b.got < a.got && (a.tag == message.AnyTag || a.tag == d.tag) {
				return fmt.Errorf("message %d, %+v, was overtaken by message %d, %+v", b.got, d, a.got, all[a.got])
			}
		}
	}
	return nil
}
