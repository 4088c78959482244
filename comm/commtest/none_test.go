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
)

// A receive from beyond an open border is refused, and does not take what another rank has sent.
func TestNoneIsNotAnySource(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		g, err := topology.NewGrid(ctx, world, []int{2}, nil)
		if err != nil {
			return err
		}
		m, err := message.New(ctx, world)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			if err := message.Send(ctx, m, []int{5}, 0, 7); err != nil {
				return err
			}
			return m.Close(ctx)
		}
		x := []int{0}
		from, _ := g.Shift(0, 1)
		if _, err := message.Recv(ctx, m, x, from, 7); err == nil || !strings.Contains(err.Error(), "there is no rank") {
			return fmt.Errorf("a receive from None got %v, and the error %w", x, err)
		}
		if _, err := message.Recv(ctx, m, x, 1, 7); err != nil {
			return err
		}
		return m.Close(ctx)
	})
}
