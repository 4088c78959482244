package mem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// TestManyRanks holds that calls whose work several ranks share give what their documentation says.
func TestManyRanks(t *testing.T) {
	const ranks, count = 37, 3001
	value := func(rank, i int) float32 { return 1 / float32(1+rank*count+i) }
	var sums [ranks][count]float32 // sums[r][i] is that of ranks 0 to r
	for r := range ranks {
		for i := range count {
			sums[r][i] = value(r, i)
			if r > 0 {
				sums[r][i] += sums[r-1][i]
			}
		}
	}
	commtest.Run(t, ranks, func(ctx context.Context, c *comm.Comm) error {
		me := c.Rank()
		mine, counts, each := make([]float32, count), make([]int, ranks), make([]int, ranks)
		for i := range mine {
			mine[i] = value(me, i)
		}
		for r := range ranks {
			counts[r], each[r] = count+r, count
		}
		check := func(name string, got []float32, want func(i int) float32) error {
			for i := range got {
				if got[i] != want(i) {
					return fmt.Errorf("%s: element %d is %v, want %v", name, i, got[i], want(i))
				}
			}
			return nil
		}
		part := func(i int) float32 { return value(i/count, i%count) }

		long := slices.Repeat(mine, ranks)
		sum, scan, root := slices.Clone(mine), slices.Clone(mine), slices.Clone(mine)
		gathered, dealt := make([]float32, ranks*count), slices.Clone(long)
		copy(gathered[me*count:], mine) // in place
		scattered, uneven := make([]float32, count), make([]float32, ranks*count+me*ranks)
		sent := make([]float32, 0, ranks*count+ranks*ranks)
		for r := range ranks {
			sent = append(append(sent, mine...), make([]float32, r)...)
		}
		return errors.Join(
			comm.AllReduce(ctx, c, sum, comm.Sum),
			check("AllReduce", sum, func(i int) float32 { return sums[ranks-1][i] }),
			comm.Scan(ctx, c, scan, scan, comm.Sum),
			check("Scan", scan, func(i int) float32 { return sums[me][i] }),
			comm.ReduceScatter(ctx, c, scattered, long, comm.Sum),
			check("ReduceScatter", scattered, func(i int) float32 { return sums[ranks-1][i] }),
			comm.AllGather(ctx, c, gathered, gathered[me*count:(me+1)*count]),
			check("AllGather", gathered, part),
			comm.AllGatherV(ctx, c, dealt, mine, each),
			check("AllGatherV", dealt, part),
			comm.AllToAll(ctx, c, gathered, long),
			check("AllToAll", gathered, part),
			comm.AllToAllV(ctx, c, uneven, slices.Repeat([]int{count + me}, ranks), sent, counts),
			check("AllToAllV", uneven, func(i int) float32 {
				from, at := i/(count+me), i%(count+me)
				if at >= count {
					return 0
				}
				return value(from, at)
			}),
			comm.Broadcast(ctx, c, root, ranks-1),
			check("Broadcast", root, func(i int) float32 { return value(ranks-1, i) }),
		)
	})
}

// TestFoldsOnce holds that a reduction of many ranks folds an element once, and not once for each.
func TestFoldsOnce(t *testing.T) {
	const ranks, count = 16, 5000
	var folds atomic.Int64
	commtest.Run(t, ranks, func(ctx context.Context, c *comm.Comm) error {
		add, err := comm.NewFunc("add", func(a, b int64) int64 {
			folds.Add(1)
			return a + b
		})
		if err != nil {
			return err
		}
		return comm.AllReduceFunc(ctx, c, make([]int64, count), add)
	})
	if got, want := folds.Load(), int64((ranks-1)*count); got != want {
		t.Errorf("%d elements of %d ranks took %d folds, want %d", count, ranks, got, want)
	}
}

// TestFunctionDoesNotReturn holds that no rank waits for one whose function of a reduction ends its goroutine.
func TestFunctionDoesNotReturn(t *testing.T) {
	for _, count := range []int{1, 1 << 15} {
		var ended atomic.Int64
		errs := commtest.Ranks(t.Context(), 4, func(ctx context.Context, c *comm.Comm) error {
			end, err := comm.NewFunc("end", func(a, _ int64) int64 {
				ended.Add(1)
				runtime.Goexit()
				return a
			})
			if err != nil {
				return err
			}
			return comm.AllReduceFunc(ctx, c, make([]int64, count), end)
		})
		failed := 0
		for r, err := range errs {
			switch {
			case err == nil: // it has ended
			case errors.Is(err, comm.ErrAborted) && strings.Contains(err.Error(), "did not return"):
				failed++
			default:
				t.Errorf("%d elements, rank %d: %v", count, r, err)
			}
		}
		if n := int(ended.Load()); n == 0 || n+failed != len(errs) {
			t.Errorf("%d elements: the function ended on %d ranks, and %d got an error", count, n, failed)
		}
	}
}
