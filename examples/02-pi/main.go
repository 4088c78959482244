// Command 02-pi divides work: each rank integrates a part of 4/(1+x²) from 0 to
// 1, and a reduction adds the parts up.
//
//	gorun -np 4 ./examples/02-pi
//
// Output:
//
//	π is 3.14159265359
package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(pi) }

func pi(ctx context.Context, world *comm.Comm) error {
	const steps = 1_000_000
	part := 0.0
	for i := world.Rank(); i < steps; i += world.Size() {
		x := (float64(i) + 0.5) / steps
		part += 4 / (1 + x*x) / steps
	}
	sum := make([]float64, 1)
	if err := comm.Reduce(ctx, world, sum, []float64{part}, comm.Sum, 0); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("π is %.11f\n", sum[0])
	}
	return nil
}
