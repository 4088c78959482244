package dtensor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// A call is a collective that a plan predicts, or one that was made.
type call struct {
	kind  comm.Kind
	bytes int // that this rank hands in; -1: as many as it owns rows
	cause string
	pack  string // collectives of one pack are one
}

func (t call) String() string { return fmt.Sprintf("%v of %d B for %s", t.kind, t.bytes, t.cause) }

// accounted returns an error unless f communicates what its redistributions are
// planned to, call by call and to the byte, and nothing else.
func accounted(m *dtensor.Mesh, f func() error) error {
	var want []call
	var broken error
	m.Watch(func(v dtensor.Move) {
		plan, err := planOf(v)
		if err != nil {
			broken = err
			return
		}
		for i := range plan.Steps {
			t, ok := predicted(&plan.Steps[i], plan.said[i], m.Coord(), v)
			if n := len(want); ok && t.pack != "" && n > 0 && want[n-1].pack == t.pack {
				want[n-1].bytes += t.bytes
			} else if ok {
				want = append(want, t)
			}
		}
	})
	record := m.Comm().Record()
	err := f()
	var got []call
	for _, e := range record.Stop() {
		// A group of axes is made when it is first used. What rows in turn take beside the
		// plans TestCyclicMovesEachRowOnce counts.
		if e.Kind != comm.SplitKind && !strings.HasSuffix(e.Cause, ": rows in turn") {
			got = append(got, call{kind: e.Kind, bytes: e.Bytes, cause: e.Cause})
		}
	}
	m.Watch(nil)
	if err != nil {
		return err
	}
	if broken != nil {
		return broken
	}
	same := slices.EqualFunc(got, want, func(got, want call) bool {
		return got.kind == want.kind && got.cause == want.cause && (got.bytes == want.bytes || want.bytes < 0)
	})
	if !same {
		return fmt.Errorf("communicates\n\t%v\nwhere the plans say\n\t%v", got, want)
	}
	return nil
}

// plans has what planOf found: all ranks of all meshes ask for the same few.
var plans sync.Map

// A planned is a plan with what its steps print.
type planned struct {
	*layout.Plan
	said []string
}

// planOf returns the plan of a redistribution.
func planOf(v dtensor.Move) (planned, error) {
	key := dtensor.Move{From: v.From, To: v.To, Size: v.Size}
	if p, ok := plans.Load(key); ok {
		return p.(planned), nil
	}
	plan, err := layout.NewPlan(v.From, v.To, v.Size, layout.Costs{})
	if err != nil {
		return planned{}, err
	}
	p := planned{Plan: plan}
	for i := range plan.Steps {
		p.said = append(p.said, plan.Steps[i].String())
	}
	plans.Store(key, p)
	return p, nil
}

// predicted is the collective of a step, which prints what is said, on the rank at coord; ok is false for a
// local step.
func predicted(s *layout.Step, said string, coord []int, v dtensor.Move) (t call, ok bool) {
	total := func(counts []int) (n int) {
		for _, c := range counts {
			n += c
		}
		return n
	}
	var in, out int // elements that go into the call and come out
	switch s.Kind {
	case layout.AllReduce:
		t.kind, in = comm.AllReduceKind, s.From.LocalNumel(coord)
	case layout.ReduceScatter:
		t.kind, in, out = comm.ReduceScatterVKind, total(s.SendCounts(coord)), s.To.LocalNumel(coord)
	case layout.AllGather:
		t.kind, in, out = comm.AllGatherVKind, s.From.LocalNumel(coord), total(s.RecvCounts(coord))
	case layout.AllToAll, layout.Exchange:
		t.kind, in, out = comm.AllToAllVKind, total(s.SendCounts(coord)), total(s.RecvCounts(coord))
	case layout.Rows:
		t.kind, t.bytes = comm.AllToAllVKind, -1
		everywhere := !slices.ContainsFunc(s.Axes, func(a int) bool { return !s.To.Placement(a).IsReplicate() })
		if everywhere && s.GroupSize() > 2 {
			t.kind = comm.AllGatherVKind
		}
	default:
		return call{}, false
	}
	if t.bytes == 0 {
		t.bytes = in * v.Size
		if in == 0 {
			t.bytes = out * v.Size
		}
	}
	t.cause = v.Cause + ": " + said
	if v.Packed {
		t.cause, t.pack = v.Cause, fmt.Sprint(s.Kind, s.Axes, v.Size)
	}
	return t, true
}

// What is sent is counted, and a call too many, another one or another size is
// an error that says so.
func TestAccounted(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{4, 6}, layout.Shard(0))
		run := func(f func()) error {
			return accounted(m, func() error { return dtensor.Try(ctx, m, f) })
		}
		if err := run(func() { x.Redistribute(layout.Replicate()); x.Softmax(0) }); err != nil {
			return err
		}
		err := run(func() {
			x.Redistribute(layout.Replicate())
			if err := comm.AllReduce(ctx, m.Comm(), make([]float32, 1), comm.Sum); err != nil {
				failf("%w", err)
			}
		})
		if err == nil || !strings.Contains(err.Error(), "AllReduce of 4 B") {
			return fmt.Errorf("a collective beside the plans: %v", err)
		}
		return nil
	})
}

// The numbers of collectives that other systems make for these are upper bounds here.
func TestCountsOfPeers(t *testing.T) {
	R, S, P := layout.Replicate(), layout.Shard, layout.Partial(layout.Sum)
	shapes := [][]int{{8, 12}, {5, 7}, {1, 3}, {3, 4, 2}}
	for _, mesh := range [][]int{{1}, {2}, {3}, {4}} {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			return dtensor.Try(ctx, m, func() {
				for _, shape := range shapes {
					for _, c := range []struct {
						from, to layout.Placement
						kind     comm.Kind // Invalid: nothing is communicated
					}{
						{S(0), R, comm.AllGatherVKind}, {S(1), R, comm.AllGatherVKind},
						{R, S(0), comm.Invalid}, {R, S(1), comm.Invalid}, {R, P, comm.Invalid},
						{P, R, comm.AllReduceKind}, {P, S(0), comm.ReduceScatterVKind}, {P, S(1), comm.ReduceScatterVKind},
						{S(0), S(1), comm.AllToAllVKind}, {S(1), S(0), comm.AllToAllVKind},
					} {
						x := dtensor.Normal(m, dtensor.Key{}, 0, 1, shape, R).Redistribute(c.from)
						s := counted(m, func() { x.Redistribute(c.to) })
						want := 1
						if m.Size() == 1 || c.kind == comm.Invalid {
							want = 0
						}
						few := slices.Min(shape) < m.Size() // another kind may be as cheap
						if got := s.Kinds[c.kind].Calls; s.Total().Calls != want || want == 1 && got != 1 && !few {
							failf("%v, %v → %v: communicates %q, want %d %v", x, c.from, c.to, s.Calls(), want, c.kind)
						}
					}
				}
			})
		})
	}
}
