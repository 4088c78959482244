package commtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/message"
	"github.com/gorun-spmd/gorun/comm/topology"
	"github.com/gorun-spmd/gorun/comm/window"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A call on what is nil, zero or out of range names itself and the line of the program.
func TestMisuseIsExplained(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		g, err := topology.NewGrid(ctx, world, []int{2}, nil)
		if err != nil {
			return err
		}
		w, err := window.New[int](ctx, world, 1)
		if err != nil {
			return err
		}
		for want, f := range map[string]func(){
			"message.(*Mailbox).Close (at commtest/misuse_test.go:":     func() { _ = (*message.Mailbox)(nil).Close(ctx) },
			"message.(*Request).Wait (at commtest/misuse_test.go:":      func() { _, _ = new(message.Request).Wait(ctx) },
			"window.(*Window[...]).Fence (at commtest/misuse_test.go:":  func() { _ = (*window.Window[int])(nil).Fence(ctx) },
			"window.(*Counter).Next (at commtest/misuse_test.go:":       func() { _, _ = new(window.Counter).Next() },
			"topology.(*Graph).Sources (at commtest/misuse_test.go:":    func() { (*topology.Graph)(nil).Sources() },
			"comm.(*Comm).Rank (at commtest/misuse_test.go:":            func() { (*comm.Comm)(nil).Rank() },
			"window: Len: rank 2 of a window of 2 ranks; give 0 to 1":   func() { w.Len(2) },
			"Grid.Shift: dimension 1 of a grid [2]; give 0 to 0":        func() { g.Shift(1, 1) },
			"Grid.CoordsOf: rank -1 of a grid [2]; give 0 to 1":         func() { g.CoordsOf(-1) },
			"Grid.RankAt: coordinates [] in a grid [2]; give one for e": func() { g.RankAt(nil) },
		} {
			if got := panicOf(f); !strings.Contains(got, want) {
				return fmt.Errorf("it panics with %q, want %q", got, want)
			}
		}
		none := "the communicator is nil: this rank is in none of the groups"
		for call, f := range map[string]func(c *comm.Comm) error{
			"GatherSlices":    func(c *comm.Comm) error { _, err := comm.GatherSlices(ctx, c, []int{1}, 0); return err },
			"AllGatherSlices": func(c *comm.Comm) error { _, err := comm.AllGatherSlices(ctx, c, []int{1}); return err },
			"BroadcastSlices": func(c *comm.Comm) error { _, err := comm.BroadcastSlices(ctx, c, []int{1}, 0); return err },
			"ScatterSlices":   func(c *comm.Comm) error { _, err := comm.ScatterSlices(ctx, c, [][]int{{1}}, 0); return err },
			"AllToAllSlices":  func(c *comm.Comm) error { _, err := comm.AllToAllSlices(ctx, c, [][]int{{1}}); return err },
			"BroadcastObject": func(c *comm.Comm) error { _, err := comm.BroadcastObject(ctx, c, "a", 0); return err },
			"GatherObjects":   func(c *comm.Comm) error { _, err := comm.GatherObjects(ctx, c, "a", 0); return err },
			"NewGrid":         func(c *comm.Comm) error { _, err := topology.NewGrid(ctx, c, []int{0}, nil); return err },
			"NewGraph":        func(c *comm.Comm) error { _, err := topology.NewGraph(ctx, c, nil, nil); return err },
		} {
			for _, c := range []*comm.Comm{nil, new(comm.Comm)} {
				if err := f(c); err == nil || !strings.Contains(err.Error(), none) {
					return fmt.Errorf("%s of no communicator: %v", call, err)
				}
			}
		}
		var noContext context.Context
		if err := comm.Barrier(noContext, world); err == nil || !strings.Contains(err.Error(), "the context is nil; pass the ctx") {
			return fmt.Errorf("no context: %v", err)
		}
		return nil
	})
}

// panicOf returns what f panics with where the runtime catches what is thrown.
func panicOf(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	func() (err error) {
		defer fault.Catch(&err)
		f()
		return nil
	}()
	return ""
}
