package comm_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// Ranks 0, 2 and 4 are on one machine, 1 and 3 on another.
func TestSplitHosts(t *testing.T) {
	commtest.Run(t, 5, func(ctx context.Context, world *comm.Comm) error {
		host, peers, err := comm.SplitOnHost(world, ctx, uint64(world.Rank()%2))
		if err != nil {
			return err
		}
		all := make([]int, host.Size())
		if err := comm.AllGather(ctx, host, all, []int{world.Rank()}); err != nil {
			return err
		}
		sum := []int{world.Rank()}
		if err := comm.AllReduce(ctx, peers, sum, comm.Sum); err != nil {
			return err
		}
		want := [][]any{{[]int{0, 2, 4}, 1}, {[]int{1, 3}, 1}, {[]int{0, 2, 4}, 5}, {[]int{1, 3}, 5}, {[]int{0, 2, 4}, 4}}[world.Rank()]
		if got := fmt.Sprint(all, sum[0]); got != fmt.Sprint(want...) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}
