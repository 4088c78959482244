// Command 14-work-queue deals out jobs of very different length: each goes to the rank that is
// free first, which takes its number from a counter in shared memory. A job counts the steps of
// the 3n+1 problem for a range of numbers. Ranks put what they find into memory of rank 0, which
// makes no call for it.
//
//	gorun -np 4 ./examples/14-work-queue
//
// Output:
//
//	of the numbers below 1000000, 837799 takes the most steps: 524
package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/window"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(run) }

const below, jobs = 1_000_000, 100

// A find is the number of a job that takes the most steps.
type find struct{ number, steps int64 }

func run(ctx context.Context, world *comm.Comm) error {
	mine := 0 // rank 0 has a place for each job's result, the others have none
	if world.Rank() == 0 {
		mine = jobs
	}
	results, err := window.New[find](ctx, world, mine)
	if err != nil {
		return err
	}
	for i, err := range window.Queue(ctx, world, jobs) {
		if err != nil {
			return err
		}
		if err := results.Put(0, i, []find{longest(i*below/jobs, (i+1)*below/jobs)}); err != nil {
			return err
		}
	}
	if err := results.Fence(ctx); err != nil {
		return err
	}
	if world.Rank() == 0 {
		best := find{}
		for _, f := range results.Local() {
			if f.steps > best.steps {
				best = f
			}
		}
		fmt.Printf("of the numbers below %d, %d takes the most steps: %d\n", below, best.number, best.steps)
	}
	return results.Close(ctx)
}

// longest returns the first of the numbers from lo to hi that takes the most steps to 1.
func longest(lo, hi int) (best find) {
	for n := max(1, lo); n < hi; n++ {
		steps := int64(0)
		for x := n; x != 1; steps++ {
			if x%2 == 0 {
				x /= 2
			} else {
				x = 3*x + 1
			}
		}
		if steps > best.steps {
			best = find{int64(n), steps}
		}
	}
	return best
}
