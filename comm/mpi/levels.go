//go:build linux && !nolibs

package mpi

import (
	"context"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// levels are the two levels of a communicator whose ranks are on several hosts: the same number on each, one
// host after the other. Between the hosts, where a byte costs most, each rank talks with its peers alone: the ranks
// with its own number on the other hosts.
type levels struct {
	hosts, per int // ranks on each
	from, step int // bytes of a rank from which a call goes by levels, and of those that go at a time
}

// levelsFrom is from how many bytes of a rank a call goes by levels, levelsStep how many of them go at a time. On two hosts
// with a cable of 1 Gbit/s and two ranks each, an AllReduce of 16 MiB takes half of what it takes without levels: 141 ms in
// such steps, and 147 in steps of twice as much, as the cable rests in the first and in the last.
const (
	levelsFrom = 64 << 10
	levelsStep = 256 << 10
)

// levelsOf returns the levels of the ranks that are on these hosts, nil if there is one level alone.
func levelsOf(hosts []uint64) *levels {
	per := 0
	for per < len(hosts) && hosts[per] == hosts[0] {
		per++
	}
	if per < 2 || per == len(hosts) || len(hosts)%per != 0 {
		return nil
	}
	seen := map[uint64]bool{}
	for at := 0; at < len(hosts); at += per {
		if seen[hosts[at]] {
			return nil
		}
		seen[hosts[at]] = true
		for _, h := range hosts[at : at+per] {
			if h != hosts[at] {
				return nil
			}
		}
	}
	return &levels{hosts: len(hosts) / per, per: per, from: levelsFrom, step: levelsStep}
}

// levels returns those of a communicator of these ranks of the world.
func (j *job) levels(world []int) *levels {
	return levelsOf(ints.Pick(j.hosts, world))
}

// levelled reports whether a call goes by levels. Sums of 16-bit floats do not: they would be rounded on each host.
func (r *Rank) levelled(call *backend.Call) bool {
	if r.levels == nil {
		return false
	}
	long := func(b backend.Buffer) bool { return b.Bytes() >= r.levels.from }
	switch call.Kind {
	case backend.AllReduceKind:
		return long(call.Src) && call.DType() != dtype.Float16 && call.DType() != dtype.BFloat16
	case backend.AllGatherKind:
		return long(call.Src)
	case backend.BroadcastKind:
		return long(call.Dst)
	}
	return false
}

// share is what a rank of a host, by its number there, carries of step s of b: steps have step elements, in units of unit.
func (v *levels) share(b backend.Buffer, s, step, unit, number int) backend.Buffer {
	b = b.Slice(s*step, min((s+1)*step, b.Count))
	units := b.Count / unit
	return b.Slice(units*number/v.per*unit, units*(number+1)/v.per*unit)
}

// foldLevels is an AllReduce by levels, in rank order. The values go in steps, and of each step every rank of a host
// has a share. What the hosts before have folded of it comes from the peer there; with the values of this
// host's ranks it goes on to the next. The last host has the result, which goes back from host to host. At tick t
// host h of H begins to
//
//	get its shares of step t-2h from its own ranks, and what the hosts before have folded of it
//	pass on what it has folded of step t-2h-2
//	get the result of step t-2(2H-2-h) from the next host
//	pass on that of step t-2(2H-1-h), to the host before and to its own ranks
//
// so a link carries each value once in each direction, both at a time.
func (r *Rank) foldLevels(ctx context.Context, call *backend.Call) error {
	levels, summing := r.levels, *call
	if summing.Op == fold.Avg {
		summing.Op = fold.Sum
	}
	unit, count := call.Unit()/call.DType().Size(), call.Src.Count
	step := max(1, levels.step/call.Unit()) * unit
	steps := ints.DivUp(count, step)
	host, mine := r.me/levels.per, r.me%levels.per
	first, last := host == 0, host == levels.hosts-1
	own := r.me - mine // the first rank of this host
	share := func(b backend.Buffer, s, of int) backend.Buffer { return levels.share(b, s, step, unit, of) }
	slots := r.slots(share(call.Src, 0, levels.per-1), lag*(levels.per+2)) // the last share is the longest
	slot := func(i, s int) backend.Buffer { return slots(lag*i+s%lag).Slice(0, share(call.Src, s, mine).Count) }
	before, folded := levels.per, levels.per+1
	there := func(s int) bool { return s >= 0 && s < steps }
	for t := range steps + lag*(2*levels.hosts-1) {
		gets, result := t-lag*host, t-lag*(2*levels.hosts-1-host)
		messages := r.mail.empty()
		if there(gets) {
			for q := range levels.per {
				messages.swap(own+q, share(call.Src, gets, q), slot(q, gets))
			}
			if !first {
				messages.recv(r.me-levels.per, slot(before, gets))
			}
		}
		if there(gets-lag) && !last {
			messages.send(r.me+levels.per, slot(folded, gets-lag))
		}
		if there(result+lag) && !last {
			messages.recv(r.me+levels.per, share(call.Dst, result+lag, mine))
		}
		if there(result) {
			if !first {
				messages.send(r.me-levels.per, share(call.Dst, result, mine))
			}
			for q := range levels.per {
				messages.swap(own+q, share(call.Dst, result, mine), share(call.Dst, result, q))
			}
		}
		if err := r.carry(ctx, call, messages); err != nil {
			return err
		}
		s := gets - 1 // has come
		if !there(s) {
			continue
		}
		r.srcs = r.srcs[:0]
		if !first {
			r.srcs = append(r.srcs, slot(before, s).Ptr)
		}
		for q := range levels.per {
			from := slot(q, s)
			if q == mine {
				from = share(call.Src, s, mine)
			}
			r.srcs = append(r.srcs, from.Ptr)
		}
		n := 1
		if r.dsts[0] = slot(folded, s).Ptr; last {
			r.dsts[1], n = share(call.Dst, s, mine).Ptr, 2
		}
		summing.Fold(r.dsts[:n], r.srcs, slot(folded, s).Bytes()/call.Unit())
	}
	if err := r.wait(ctx, call, nil); err != nil {
		return err
	}
	r.average(call, call.Dst)
	return nil
}

// gatherLevels is an AllGather by levels. At tick t a rank sends step t of its part to its peers and to the ranks of
// its host, and step t-2 of its peers' parts to the latter.
func (r *Rank) gatherLevels(ctx context.Context, call *backend.Call) error {
	levels, count := r.levels, call.Src.Count
	step := max(1, levels.step/call.DType().Size())
	steps := ints.DivUp(count, step)
	mine := r.me % levels.per
	own := r.me - mine
	part := func(rank, s int) backend.Buffer {
		return call.Dst.Slice(rank*count+s*step, rank*count+min((s+1)*step, count))
	}
	if to := call.Dst.Slice(r.me*count, (r.me+1)*count); to.Ptr != call.Src.Ptr {
		simd.Copy(to.Data(), call.Src.Data())
	}
	for t := range steps + lag {
		messages := r.mail.empty()
		for h := range levels.hosts {
			peer, s := h*levels.per+mine, t // whose part it is
			if peer != r.me {
				if t < steps {
					messages.swap(peer, part(r.me, t), part(peer, t))
				}
				s -= lag
			}
			if s < 0 || s >= steps {
				continue
			}
			for q := range levels.per {
				messages.swap(own+q, part(peer, s), part(h*levels.per+q, s))
			}
		}
		if err := r.carry(ctx, call, messages); err != nil {
			return err
		}
	}
	return r.wait(ctx, call, nil)
}

// broadcastLevels is a Broadcast by levels. It goes in steps, and of each step every rank of a host has a share. At tick t
//
//	the root sends step t to the ranks of its host
//	a rank h hosts after the root's gets its share of step t-2h from its peer on the host before
//	and sends its share of step t-2h-2 to its peer on the next host, and, but on the root's host, to the ranks of its own
//
// so a link carries each value once.
func (r *Rank) broadcastLevels(ctx context.Context, call *backend.Call) error {
	levels, count := r.levels, call.Dst.Count
	step := max(1, levels.step/call.DType().Size())
	steps := ints.DivUp(count, step)
	mine, root := r.me%levels.per, call.Root
	own := r.me - mine // the first rank of this host
	after := (own - root/levels.per*levels.per + len(r.world)) % len(r.world) / levels.per
	next, before := (r.me+levels.per)%len(r.world), (r.me-levels.per+len(r.world))%len(r.world)
	part := func(s int) backend.Buffer { return call.Dst.Slice(s*step, min((s+1)*step, count)) }
	share := func(s, of int) backend.Buffer { return levels.share(call.Dst, s, step, 1, of) }
	there := func(s int) bool { return s >= 0 && s < steps }
	for t := range steps + lag*levels.hosts {
		messages := r.mail.empty()
		gets := t - lag*after
		has := gets - lag
		switch {
		case !there(gets):
		case after > 0:
			messages.recv(before, share(gets, mine))
		case r.me == root:
			for q := range levels.per {
				messages.send(own+q, part(gets))
			}
		default:
			messages.recv(root, part(gets))
		}
		if there(has) && after < levels.hosts-1 {
			messages.send(next, share(has, mine))
		}
		if there(has) && after > 0 {
			for q := range levels.per {
				messages.swap(own+q, share(has, mine), share(has, q))
			}
		}
		if err := r.carry(ctx, call, messages); err != nil {
			return err
		}
	}
	return r.wait(ctx, call, nil)
}
