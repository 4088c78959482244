package device_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/device"
)

// A call whose buffers are all below the largest number given to StageBelow is staged, on all
// ranks, even if only some ranks know its counts.
func TestStageBelow(t *testing.T) {
	const n = 3
	for _, c := range []struct {
		kind     comm.Kind
		has      [n][n]int // elements of rank p for rank q
		smallest int       // see smallCall: with so many a buffer has 30, 120 bytes, and the call is not staged
	}{
		{comm.AllReduceKind, [n][n]int{}, 30},
		{comm.ReduceScatterKind, [n][n]int{}, 10},
		{comm.BroadcastKind, [n][n]int{}, 30},
		{comm.AllGatherKind, [n][n]int{}, 10},
		{comm.GatherKind, [n][n]int{}, 10},
		{comm.ScatterKind, [n][n]int{}, 10},
		{comm.AllToAllKind, [n][n]int{}, 10},
		{comm.AllGatherVKind, [n][n]int{{0}, {1, 1, 1}, {2, 2, 2}}, 27},
		{comm.GatherVKind, [n][n]int{{0}, {1}, {2}}, 27},
		{comm.ScatterVKind, [n][n]int{{0, 1, 2}}, 27},
		{comm.AllToAllVKind, [n][n]int{{0, 1, 2}, {3, 0, 1}, {}}, 27},
	} {
		noError(t, onPeers(n, func(int, *peer) {}, func(world *comm.Comm, p *peer) error {
			ctx, me := t.Context(), world.Rank()
			if reason, err := device.TryPeers(ctx, world, "", window); err != nil || reason != "" {
				return fmt.Errorf("TryPeers: %q, %v", reason, err)
			}
			if reason, err := device.TryFold(ctx, world, "", window/4); err != nil || reason != "" {
				return fmt.Errorf("TryFold: %q, %v", reason, err)
			}
			if err := device.StageBelow(ctx, world, 40*(me+1)); err != nil {
				return err
			}
			for _, k := range []int{c.smallest - 1, c.smallest} {
				call, dst, src := smallCall(c.kind, c.has, k, me)
				near := [2][]float32{make([]float32, dst), make([]float32, src)}
				there := [2][]float32{p.memory[:dst:dst], p.memory[100 : 100+src : 100+src]}
				p.copied.Store(0)
				p.read.Store(0)
				for _, b := range [][2][]float32{near, there} {
					for i := range b[1] {
						b[1][i] = float32(100*me + i)
					}
					for i := range b[0] {
						b[0][i] = float32(-me)
					}
					call.Dst, call.Src = comm.Of(b[0]), comm.Of(b[1])
					if src == 0 && c.kind == comm.BroadcastKind {
						call.Src = comm.Buffer{}
					}
					if err := world.Do(ctx, call); err != nil {
						return fmt.Errorf("%v of %d: %w", c.kind, k, err)
					}
				}
				staged := k < c.smallest
				if copied, read := p.copied.Load() > 0, p.read.Load() > 0; !slices.Equal(near[0], there[0]) || copied != (staged && dst+src > 0) ||
					read && staged {
					return fmt.Errorf("%v of %d: got %v, want %v; staged: %v, windows were read: %v", c.kind, k, there[0], near[0], copied, read)
				}
			}
			return nil
		}))
	}
}

// smallCall returns a call in which rank 0 has k elements for itself, or each rank has k for
// each rank, and the number of elements of its buffers.
func smallCall(kind comm.Kind, has [3][3]int, k, me int) (call comm.Call, dst, src int) {
	has[0][0] = k
	call = comm.Call{Kind: kind, Op: comm.Sum}
	n := len(has)
	root := me == 0
	sum := func(list []int) (s int) {
		for _, v := range list {
			s += v
		}
		return s
	}
	column := func(q int) (list []int) {
		for p := range has {
			list = append(list, has[p][q])
		}
		return list
	}
	switch kind {
	case comm.AllReduceKind:
		return call, k, k
	case comm.ReduceScatterKind:
		return call, k, n * k
	case comm.BroadcastKind:
		return call, k, 0
	case comm.AllGatherKind:
		return call, n * k, k
	case comm.AllToAllKind:
		return call, n * k, n * k
	case comm.GatherKind:
		if root {
			return call, n * k, k
		}
		return call, 0, k
	case comm.ScatterKind:
		if root {
			return call, k, n * k
		}
		return call, k, 0
	case comm.AllGatherVKind:
		call.DstCounts = column(0)
		return call, sum(call.DstCounts), has[me][0]
	case comm.GatherVKind:
		if root {
			call.DstCounts = column(0)
		}
		return call, sum(call.DstCounts), has[me][0]
	case comm.ScatterVKind:
		if root {
			call.SrcCounts = has[0][:]
		}
		return call, has[0][me], sum(call.SrcCounts)
	}
	call.SrcCounts, call.DstCounts = has[me][:], column(me)
	return call, sum(call.DstCounts), sum(call.SrcCounts)
}
