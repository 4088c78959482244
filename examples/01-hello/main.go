// Command 01-hello is the smallest job: every rank says who it is, then all add up
// their numbers.
//
//	gorun -np 4 ./examples/01-hello
package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(hello) }

// hello runs once on every rank.
func hello(ctx context.Context, world *comm.Comm) error {
	fmt.Printf("hello from rank %d of %d\n", world.Rank(), world.Size())
	sum := []int64{int64(world.Rank())}
	if err := comm.AllReduce(ctx, world, sum, comm.Sum); err != nil { // 0+1+…+N-1, on every rank
		return err
	}
	if world.Rank() == 0 {
		fmt.Println("the ranks' numbers add up to", sum[0])
	}
	return nil
}
