//go:build linux && !nolibs

package mpi

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// onLevels is the suite's cases on every division of the ranks into hosts, in small steps.
func onLevels(ctx context.Context, r *Rank) error {
	cases := slices.DeleteFunc(commtest.Collectives(), func(c commtest.Case) bool {
		return !slices.Contains([]string{"float64", "int32", "custom operations", "in place"}, c.Name)
	})
	for hosts := 2; hosts <= r.Size(); hosts++ {
		if r.Size()%hosts != 0 {
			continue
		}
		v := &levels{hosts: hosts, per: r.Size() / hosts, from: 1, step: 4096}
		for q := range r.Size() {
			r.job.hosts[q] = uint64(q / v.per)
		}
		var used *Rank
		world, err := variant(r, func(r *Rank) { r.levels, r.far, used = v, 1000, r })
		if err != nil {
			return err
		}
		for _, c := range cases {
			if err := c.Run(ctx, world); err != nil {
				return fmt.Errorf("%d hosts of %d ranks, %s: %w", v.hosts, v.per, c.Name, err)
			}
		}
		x := make([]float64, 9999)
		for _, call := range []struct {
			name string
			make func() error
		}{
			{"AllReduce", func() error { return comm.AllReduce(ctx, world, x, comm.Sum) }},
			{"AllGather", func() error { return comm.AllGather(ctx, world, make([]float64, len(x)*r.Size()), x) }},
			{"Broadcast", func() error { return comm.Broadcast(ctx, world, x, r.Size()-1) }},
		} {
			used.mail = mail{}
			if err := call.make(); err != nil {
				return err
			}
			if used.mail.sends == nil {
				return fmt.Errorf("%d hosts of %d ranks: %s does not go by levels", v.hosts, v.per, call.name)
			}
			for _, b := range used.mail.sends {
				if near, peer := b.peer/v.per == r.me/v.per, b.peer%v.per == r.me%v.per; !near && !peer {
					return fmt.Errorf("%d hosts of %d ranks: in %s rank %d sends to rank %d, which is no peer", v.hosts, v.per, call.name, r.me, b.peer)
				}
			}
		}
	}
	return nil
}

func TestLevels(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(2, 6) {
			t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { l.pass(t, n, "levels") })
		}
	})
}

// TestLevelsOf: the hosts of a communicator's ranks, and the levels that it has.
func TestLevelsOf(t *testing.T) {
	for _, c := range []struct {
		hosts      string
		count, per int // 0: no levels
	}{
		{"", 0, 0}, {"a", 0, 0}, {"aa", 0, 0}, {"ab", 0, 0}, {"abab", 0, 0}, {"aab", 0, 0}, {"aabbb", 0, 0}, {"aabbaa", 0, 0},
		{"aabc", 0, 0}, {"aabb", 2, 2}, {"aaabbb", 2, 3}, {"aabbcc", 3, 2},
	} {
		hosts := make([]uint64, len(c.hosts))
		for i, h := range c.hosts {
			hosts[i] = uint64(h)
		}
		got := levelsOf(hosts)
		if got == nil {
			got = &levels{}
		}
		if got.hosts != c.count || got.per != c.per {
			t.Errorf("hosts %q: %d of %d ranks, want %d of %d", c.hosts, got.hosts, got.per, c.count, c.per)
		}
	}
}
