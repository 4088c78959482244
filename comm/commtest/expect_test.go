package commtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
)

func TestExpect(t *testing.T) {
	Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		calls := func() error {
			if err := comm.Barrier(ctx, world); err != nil {
				return err
			}
			buf := make([]float32, 5)
			return world.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(buf), Src: comm.Of(buf), Cause: "MatMul"})
		}
		for _, budget := range []string{"AllReduce×1, Barrier×1", "AllReduce×1 20 B, Barrier×1 0 B"} {
			if err := Expect(world, budget, calls); err != nil {
				return err
			}
		}
		err := Expect(world, "AllReduce×1", calls)
		if err == nil || !strings.Contains(err.Error(), "Barrier of 0 B on world at commtest/expect_test.go:") ||
			!strings.Contains(err.Error(), "for MatMul") {
			return fmt.Errorf("got %v, want what was called and where", err)
		}
		return Expect(world, "", func() error { return nil })
	})
}
