package window_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/comm/window"
)

// inThree runs f on three ranks.
func inThree(f func(ctx context.Context, world *comm.Comm) error) {
	world := comm.NewWorld(mem.Open(1)[0])
	if err := mem.Run(context.Background(), world, 3, f); err != nil {
		fmt.Println(err)
	}
}

// Each rank puts its number into the memory of rank 0, which makes no call for it.
func Example() {
	inThree(func(ctx context.Context, world *comm.Comm) error {
		w, err := window.New[int](ctx, world, world.Size())
		if err != nil {
			return err
		}
		if err := w.Put(0, world.Rank(), []int{10 * world.Rank()}); err != nil {
			return err
		}
		if err := w.Fence(ctx); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(w.Local())
		}
		return w.Close(ctx)
	})
	// Output: [0 10 20]
}

// A rank takes its next job when it is free.
func ExampleQueue() {
	inThree(func(ctx context.Context, world *comm.Comm) error {
		sum := []int{0}
		for i, err := range window.Queue(ctx, world, 100) {
			if err != nil {
				return err
			}
			sum[0] += i
		}
		if err := comm.Reduce(ctx, world, sum, sum, comm.Sum, 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(sum[0])
		}
		return nil
	})
	// Output: 4950
}

func ExampleCounter() {
	inThree(func(ctx context.Context, world *comm.Comm) error {
		tickets, err := window.NewCounter(ctx, world)
		if err != nil {
			return err
		}
		mine, err := tickets.Next()
		if err != nil {
			return err
		}
		if mine == 2 { // some rank's
			fmt.Println("the last ticket is", mine)
		}
		return tickets.Close(ctx)
	})
	// Output: the last ticket is 2
}

// One rank after the other changes what is on rank 0.
func ExampleWindow_Lock() {
	inThree(func(ctx context.Context, world *comm.Comm) error {
		w, err := window.New[float64](ctx, world, 2)
		if err != nil {
			return err
		}
		if err := w.Lock(ctx, 0, window.Exclusive); err != nil {
			return err
		}
		pair := make([]float64, 2)
		if err := w.Get(0, 0, pair); err != nil {
			return err
		}
		if err := errors.Join(w.Put(0, 0, []float64{pair[0] + 1, pair[1] + 0.5}), w.Unlock(0), w.Fence(ctx)); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(w.Local())
		}
		return w.Close(ctx)
	})
	// Output: [3 1.5]
}
