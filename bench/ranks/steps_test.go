package main

import (
	"context"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// TestManyGoroutineRanks holds that 256 goroutine ranks, which divide the model and the batch, train as one does.
func TestManyGoroutineRanks(t *testing.T) {
	const ranks, made = 256, 3
	var want []float64
	commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) (err error) {
		want, _, err = steps(ctx, world, 1, ranks/tensorAxis, made)
		return err
	})
	commtest.Run(t, ranks, func(ctx context.Context, world *comm.Comm) error {
		got, _, err := steps(ctx, world, tensorAxis, ranks/tensorAxis, made)
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-4*want[i] {
				t.Errorf("rank %d, step %d: the loss is %v, of one rank %v", world.Rank(), i, got[i], want[i])
			}
		}
		return err
	})
	if len(want) != made || !(want[made-1] < want[0]) {
		t.Errorf("the losses are %v", want)
	}
}
