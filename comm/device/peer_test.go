package device_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/device"
)

// window is small, so that calls have several parts: of 64 bytes.
const window = 256

// Windows are used after a trial that succeeded on all ranks, and on none otherwise;
// every rank gives the same reason, nothing stays mapped, and the world goes on.
func TestTryPeers(t *testing.T) {
	on := func(rank int, f func(p *peer)) func(r int, p *peer) {
		return func(r int, p *peer) {
			if r == rank {
				f(p)
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(rank int, p *peer)
		want   string // part of the reason
	}{
		{"works", func(int, *peer) {}, ""},
		{"a handle cannot be mapped", on(1, func(p *peer) { p.mapErr = errors.New("peer access is not supported") }),
			"rank 1: a trial failed: to map memory of rank 0's device: peer access is not supported"},
		{"there is no memory", on(2, func(p *peer) { p.shareErr = errors.New("out of memory") }), "rank 2: a trial failed: out of memory"},
		{"wrong bytes", on(0, func(p *peer) { p.spoils = true }),
			"rank 0: a trial failed: of 64 bytes of rank 1's device memory not all were read right"},
		{"a copy fails", on(1, func(p *peer) { p.withinErr = errors.New("an invalid address") }),
			"rank 1: a trial failed: to read memory of rank 0's device: an invalid address"},
	} {
		t.Run(test.name, func(t *testing.T) {
			noError(t, onPeers(3, test.change, func(world *comm.Comm, p *peer) error {
				reason, err := device.TryPeers(t.Context(), world, "", window)
				if err != nil || reason != test.want {
					return fmt.Errorf("got %q, %v, want %q", reason, err, test.want)
				}
				if test.want != "" && (p.own != nil || p.hall.mapped > 0) {
					return errors.New("windows are left")
				}
				p.withinErr = nil
				return swaps(t.Context(), world, p, test.want == "")
			}))
		})
	}
	noError(t, onPeers(3, func(int, *peer) {}, func(world *comm.Comm, p *peer) error {
		problem := ""
		if world.Rank() == 2 {
			problem = "GORUN_CUDA_IPC is 0"
		}
		if reason, err := device.TryPeers(t.Context(), world, problem, window); err != nil || reason != "rank 2: GORUN_CUDA_IPC is 0" {
			return fmt.Errorf("got %q, %v", reason, err)
		}
		return swaps(t.Context(), world, p, false)
	}))
}

// Ranks of several hosts, and devices that share nothing, do not try.
func TestTryPeersWhereThereAreNone(t *testing.T) {
	onAware(t, 2, func(int, *aware) {}, func(world *comm.Comm, a *aware) error {
		if reason, err := device.TryPeers(t.Context(), world, "", window); err != nil || reason != "there are no other processes of this host" {
			return fmt.Errorf("got %q, %v", reason, err)
		}
		return gathers(t.Context(), world, a, false)
	})
	noError(t, onPeers(2, func(int, *peer) {}, func(world *comm.Comm, p *peer) error {
		device.UseStage(world, &p.far)
		if reason, err := device.TryPeers(t.Context(), world, "", window); err != nil || reason != "rank 0: its device does not share memory" {
			return fmt.Errorf("got %q, %v", reason, err)
		}
		return nil
	}))
}

// swaps makes calls of all kinds on device memory and compares them with the same calls on
// host memory. It checks that windows were read and that nothing went through the host.
// Some ranks have nothing to send or to receive.
func swaps(ctx context.Context, world *comm.Comm, p *peer, direct bool) error {
	n, me := world.Size(), world.Rank()
	for _, count := range []int{0, 1, 5, 37, 200} {
		counts := func(from, to int) int { return (from + 2*to) % 3 * count } // 0 among them
		var has, wants, gathered []int
		for q := range n {
			has, wants, gathered = append(has, counts(me, q)), append(wants, counts(q, me)), append(gathered, counts(q, 1))
		}
		sum := func(list []int) (s int) {
			for _, v := range list {
				s += v
			}
			return s
		}
		own := make([]int, n)
		own[me] = (me + 1) * count
		only := func(rank, count int) int {
			if me == rank {
				return count
			}
			return 0
		}
		list := func(rank int, list []int) []int {
			if me == rank {
				return list
			}
			return nil
		}
		for _, c := range []struct {
			call     comm.Call
			dst, src int
		}{
			{comm.Call{Kind: comm.AllGatherKind}, n * count, count},
			{comm.Call{Kind: comm.AllGatherVKind, DstCounts: gathered}, sum(gathered), gathered[me]},
			{comm.Call{Kind: comm.GatherKind, Root: 1}, only(1, n*count), count},
			{comm.Call{Kind: comm.GatherVKind, Root: 1, DstCounts: list(1, gathered)}, only(1, sum(gathered)), gathered[me]},
			{comm.Call{Kind: comm.ScatterKind, Root: n - 1}, count, only(n-1, n*count)},
			{comm.Call{Kind: comm.ScatterVKind, Root: 1, SrcCounts: list(1, gathered)}, gathered[me], only(1, sum(gathered))},
			{comm.Call{Kind: comm.AllToAllKind}, n * count, n * count},
			{comm.Call{Kind: comm.AllToAllVKind, DstCounts: wants, SrcCounts: has}, sum(wants), sum(has)},
			{comm.Call{Kind: comm.AllToAllVKind, DstCounts: own, SrcCounts: own}, own[me], own[me]},
			{comm.Call{Kind: comm.BroadcastKind, Root: 1}, count, 0},
		} {
			p.copied.Store(0)
			p.read.Store(0)
			fill := func(s []float32, salt float32) {
				for i := range s {
					s[i] = salt + float32(1000*me+i)
				}
			}
			near := [2][]float32{make([]float32, c.dst), make([]float32, c.src)}
			there := [2][]float32{p.memory[:c.dst:c.dst], p.memory[2000 : 2000+c.src : 2000+c.src]}
			for i := range near {
				fill(near[i], float32(i))
				fill(there[i], -1) // until what was queued is done
			}
			p.queued = append(p.queued, func() { fill(there[0], 0); fill(there[1], 1) })
			for _, b := range [][2][]float32{near, there} {
				call := c.call
				call.Dst, call.Src = comm.Of(b[0]), comm.Of(b[1])
				if call.Kind == comm.BroadcastKind {
					call.Src = comm.Buffer{}
				}
				if err := world.Do(ctx, call); err != nil {
					return fmt.Errorf("%v of %d: %w", call.Kind, count, err)
				}
			}
			for _, f := range p.queued { // a rank that had nothing to do left it
				f()
			}
			p.queued = nil
			if !slices.Equal(near[0], there[0]) {
				return fmt.Errorf("%v of %d: got %v, want %v", c.call.Kind, count, there[0], near[0])
			}
			if got := p.copied.Load(); direct && got > 0 {
				return fmt.Errorf("%v of %d: %d copies to or from the host", c.call.Kind, count, got)
			}
			if c.call.Kind == comm.AllGatherKind && (p.read.Load() > 0) != (direct && count > 0) {
				return fmt.Errorf("%v of %d: %d times another's window was read", c.call.Kind, count, p.read.Load())
			}
			if p.open.Load() != 0 {
				return fmt.Errorf("%v: copies were not closed", c.call.Kind)
			}
		}
	}
	all := p.memory[:8]
	for i := range all {
		all[i] = float32(me)
	}
	if err := comm.AllReduce(ctx, world, all, comm.Sum); err != nil || all[7] != float32(n*(n-1)/2) { // always by way of the host
		return fmt.Errorf("a sum is %v, %v", all[7], err)
	}
	return nil
}

// Calls on groups of the world read the windows of their ranks. Calls of several
// communicators at once use different slots; some find no slot and are staged.
func TestPeersInGroups(t *testing.T) {
	noError(t, onPeers(4, func(_ int, p *peer) { p.memory = make([]float32, 1<<12) }, func(world *comm.Comm, p *peer) error {
		ctx := t.Context()
		if reason, err := device.TryPeers(ctx, world, "", window); err != nil || reason != "" {
			return fmt.Errorf("got %q, %v", reason, err)
		}
		half, err := world.Split(ctx, world.Rank()%2, -world.Rank())
		if err != nil {
			return err
		}
		if err := swaps(ctx, half, p, true); err != nil {
			return fmt.Errorf("a half: %w", err)
		}
		const groups, count = 5, 50
		pending := make([]*comm.Pending, groups)
		of, err := splits(ctx, world, groups)
		if err != nil {
			return err
		}
		for round := range 30 {
			for i, g := range of {
				src := p.memory[i*count : (i+1)*count]
				for k := range src {
					src[k] = float32(round*1000 + i*100 + world.Rank()*10 + k%7)
				}
				dst := p.memory[1000+i*4*count:][:4*count]
				pending[i] = g.Start(ctx, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(dst), Src: comm.Of(src)})
			}
			for i := range pending {
				if err := pending[i].Wait(); err != nil {
					return err
				}
				for k, v := range p.memory[1000+i*4*count:][:4*count] {
					if want := float32(round*1000 + i*100 + k/count*10 + k%count%7); v != want {
						return fmt.Errorf("round %d, group %d: element %d is %v, want %v", round, i, k, v, want)
					}
				}
			}
		}
		return nil
	}))
}

// If one rank's buffer is in host memory, the call is staged on all ranks. Ranks whose calls
// differ get an error that says so. A rank that fails ends the call on all.
func TestPeersThatDoNotAgree(t *testing.T) {
	ready := func(world *comm.Comm) error {
		if reason, err := device.TryPeers(t.Context(), world, "", window); err != nil || reason != "" {
			return fmt.Errorf("got %q, %v", reason, err)
		}
		return nil
	}
	noError(t, onPeers(3, func(int, *peer) {}, func(world *comm.Comm, p *peer) error {
		if err := ready(world); err != nil {
			return err
		}
		dst, src := p.memory[:30], p.memory[100:110]
		if world.Rank() == 1 {
			dst, src = make([]float32, 30), make([]float32, 10)
		}
		for i := range src {
			src[i] = float32(world.Rank() + 1)
		}
		if err := comm.AllGather(t.Context(), world, dst, src); err != nil {
			return err
		}
		if dst[0] != 1 || dst[10] != 2 || dst[29] != 3 {
			return fmt.Errorf("got %v", dst)
		}
		return nil
	}))
	for r, err := range onPeers(2, func(int, *peer) {}, func(world *comm.Comm, p *peer) error {
		if err := ready(world); err != nil {
			return err
		}
		n := 3 + world.Rank()
		return comm.AllGather(t.Context(), world, p.memory[:2*n], p.memory[100:100+n])
	}) {
		if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), "AllGather float32[3]") ||
			!strings.Contains(err.Error(), "AllGather float32[4]") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for r, err := range onPeers(3, func(int, *peer) {}, func(world *comm.Comm, p *peer) error {
		if err := ready(world); err != nil {
			return err
		}
		if world.Rank() == 2 {
			p.withinErr = errors.New("an illegal address")
		}
		return comm.Broadcast(t.Context(), world, p.memory[:100], 0)
	}) {
		if err == nil || !strings.Contains(err.Error(), "an illegal address") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Where GPUs read each other's memory and fold, calls on host memory still work as without
// GPUs.
func TestBackendWithPeers(t *testing.T) {
	commtest.TestBackend(t, func(ctx context.Context, n int, f func(ctx context.Context, world *comm.Comm) error) []error {
		return onPeers(n, func(int, *peer) {}, func(world *comm.Comm, p *peer) error {
			if n > 1 {
				if reason, err := device.TryPeers(ctx, world, "", window); err != nil || reason != "" {
					return fmt.Errorf("got %q, %v", reason, err)
				}
				if reason, err := device.TryFold(ctx, world, "", window/4); err != nil || reason != "" {
					return fmt.Errorf("got %q, %v", reason, err)
				}
			}
			return f(ctx, world)
		})
	})
}

// splits returns communicators of all ranks of world.
func splits(ctx context.Context, world *comm.Comm, n int) (of []*comm.Comm, err error) {
	for range n {
		c, err := world.Split(ctx, 0, world.Rank())
		if err != nil {
			return nil, err
		}
		of = append(of, c)
	}
	return of, nil
}
