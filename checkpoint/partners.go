package checkpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	kept "github.com/gorun-spmd/gorun/internal/snapshot"
)

// On several hosts each has a memory for snapshots of its own, and the host after it, in a circle,
// keeps a copy of its parts:
//
//	host 0:  parts of its ranks, copies of host 2's
//	host 1:  parts of its ranks, copies of host 0's
//	host 2:  parts of its ranks, copies of host 1's
//
// A rank sends its part while the program goes on. No rank begins the next snapshot before all
// parts of this one have arrived: so at each moment one snapshot is whole on any hosts but one.

// several reports whether gorun's memory is that of a job over hosts, of which one may be left.
func (s *Snapshots) several() bool { return s.at.Hosts != nil }

// hosts is how many hosts there are.
func (s *Snapshots) hosts() int { return max(1, len(s.at.Hosts)) }

// hostOf returns the host of a rank.
func (s *Snapshots) hostOf(rank int) int {
	if s.several() {
		return s.at.HostOf[rank]
	}
	return 0
}

// here is this rank's host.
func (s *Snapshots) here() int { return s.hostOf(s.c.Rank()) }

// ranksOn returns the ranks of a host.
func (s *Snapshots) ranksOn(host int) (ranks []int) {
	for r := range s.c.Size() {
		if s.hostOf(r) == host {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// first reports whether this rank is the first of its host.
func (s *Snapshots) first() bool { return s.ranksOn(s.here())[0] == s.c.Rank() }

// choose has the first host of each part be the one from which all ranks read it: where the rank
// of its number is now, if that has it.
func (s *Snapshots) choose(last *kept.Snapshot) {
	for r := range last.Parts {
		p := &last.Parts[r]
		if r < s.c.Size() && slices.Contains(p.Hosts, s.hostOf(r)) {
			p.Hosts = []int{s.hostOf(r)}
		}
	}
}

// memory returns the memory from which a part is read.
func (s *Snapshots) memory(p *kept.Part) kept.Memory {
	if !s.several() || p.Hosts[0] == s.here() {
		return s.at.File
	}
	if idle := p.Hosts[0] - s.hosts(); idle >= 0 {
		return s.at.Idle[idle]
	}
	return s.at.Hosts[p.Hosts[0]]
}

// idle returns what the hosts without ranks of this attempt have, in their order.
func (s *Snapshots) idle(entries []kept.Entry) (all [][]kept.Entry) {
	most := 0
	for _, e := range entries {
		most = max(most, int(e.Ranks))
	}
	for _, m := range s.at.Idle {
		its, _ := kept.EntriesOf(m, most) // none if the host is lost now
		all = append(all, its)
	}
	return all
}

// verifier returns the rank that checks the part of rank part: one of a host that has it, if ranks are there.
func (s *Snapshots) verifier(last *kept.Snapshot, part int) int {
	if part < 0 || part >= len(last.Parts) {
		return 0 // whose reading of it fails
	}
	there := s.ranksOn(last.Parts[part].Hosts[0])
	if len(there) == 0 { // an idle host
		return part % s.c.Size()
	}
	return there[part%len(there)]
}

// reserveHost finds out what this host has to keep, two parts of each of its ranks and of those
// of the host before, and whether that fits. It is collective.
func (s *Snapshots) reserveHost(ctx context.Context) error {
	bytes := make([]int64, s.c.Size())
	if err := comm.AllGather(ctx, s.c, bytes, []int64{s.plan.dataBytes()}); err != nil {
		return err
	}
	s.taken = 2 * s.plan.dataBytes()
	before := (s.here() + s.hosts() - 1) % s.hosts()
	for r, n := range bytes {
		if host := s.hostOf(r); host == s.here() || host == before {
			s.room += 2 * n
		}
	}
	return agree(ctx, s.c, s.fits())
}

// grow is reserveHost for one rank whose state takes more bytes than before.
func (s *Snapshots) grow(bytes int64) error {
	more := 2*bytes - s.taken
	if more <= 0 {
		return nil
	}
	s.taken += more
	s.room += more
	return s.fits()
}

func (s *Snapshots) fits() error {
	if s.at.Fits == nil {
		return nil
	}
	if err := s.at.Fits(int(s.room)); err != nil {
		return fmt.Errorf("snapshots in memory, with those kept for another host, need %d bytes on this host: %w%s", s.room, err, onDisk)
	}
	return nil
}

// send begins to copy this rank's part of the last snapshot to the next host.
func (s *Snapshots) send() {
	if s.hosts() == 1 {
		return
	}
	s.away = make(chan error, 1)
	to, done, sequence := s.at.Hosts[(s.here()+1)%s.hosts()], s.away, s.last.Sequence
	go func() { done <- kept.Copy(s.at.File, to, sequence, s.c.Rank()) }()
}

// arrived waits until the copy has arrived.
func (s *Snapshots) arrived() error {
	if s.away == nil {
		return nil
	}
	err := <-s.away
	s.away = nil
	return err
}

// Busy reports whether this rank's part of the last snapshot is still on its way to another host:
// Save would wait for it.
func (s *Snapshots) Busy() bool { return s.away != nil && len(s.away) == 0 }

// Hosts returns on how many hosts snapshots are kept.
func (s *Snapshots) Hosts() int { return s.hosts() }
