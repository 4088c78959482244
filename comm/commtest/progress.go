package commtest

import (
	"context"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

// ProgressBesideWork checks that started calls end though nobody waits for them,
// while the goroutine that started them computes and never gives way: for a test
// that has one processor a rank, or for all of them.
func ProgressBesideWork(ctx context.Context, c *comm.Comm) error {
	for _, count := range []int{1, 700, 100_000} { // the last takes several rounds
		buf := make([]int32, count)
		for i := range buf {
			buf[i] = int32(i + c.Rank())
		}
		var pending []*comm.Pending
		for range 3 {
			pending = append(pending, c.Start(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Max, Dst: comm.Of(buf), Src: comm.Of(buf)}))
		}
		last := pending[len(pending)-1]
		if err := compute(last.Done()); err != nil {
			return fmt.Errorf("%d elements: %w", count, err)
		}
		for _, p := range pending {
			if err := p.Wait(); err != nil {
				return err
			}
		}
		for i, x := range buf {
			if want := int32(i + c.Size() - 1); x != want {
				return fmt.Errorf("[%d] of %d is %d, want %d", i, count, x, want)
			}
		}
	}
	return nil
}

// compute keeps its processor busy until done; a minute is for ever.
func compute(done <-chan struct{}) error {
	x := uint64(1)
	for began := time.Now(); time.Since(began) < time.Minute; {
		for range 100_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		select {
		case <-done:
			return nil
		default:
		}
	}
	return fmt.Errorf("a started call has not ended beside a computation, which came to %d", x)
}
