package comm_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// onRanks runs f on n ranks that are goroutines, as gorun -np n runs it on n processes.
func onRanks(n int, f func(ctx context.Context, world *comm.Comm) error) {
	for _, err := range commtest.Ranks(context.Background(), n, f) {
		if err != nil {
			fmt.Println(err)
		}
	}
}

func ExampleAllReduce() {
	onRanks(3, func(ctx context.Context, world *comm.Comm) error {
		x := []float32{1, float32(world.Rank())}
		if err := comm.AllReduce(ctx, world, x, comm.Sum); err != nil {
			return err
		}
		if world.Rank() == 2 { // as on every other
			fmt.Println(x)
		}
		return nil
	})
	// Output: [3 3]
}

func ExampleGatherSlices() {
	onRanks(3, func(ctx context.Context, world *comm.Comm) error {
		words := []string{"", "one", "two ranks"}
		all, err := comm.GatherSlices(ctx, world, []byte(words[world.Rank()]), 0)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Printf("%q\n", all)
		}
		return nil
	})
	// Output: ["" "one" "two ranks"]
}

func ExampleComm_Split() {
	onRanks(4, func(ctx context.Context, world *comm.Comm) error {
		row, err := world.Split(ctx, world.Rank()/2, world.Rank())
		if err != nil {
			return err
		}
		sum := []int64{int64(world.Rank())}
		if err := comm.AllReduce(ctx, row, sum, comm.Sum); err != nil {
			return err
		}
		all := make([]int64, world.Size())
		if err := comm.AllGather(ctx, world, all, sum); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(all)
		}
		return nil
	})
	// Output: [1 1 5 5]
}

func ExampleNewFunc() {
	type best struct{ Value, Index int64 }
	largest, err := comm.NewFunc("largest", func(a, b best) best {
		if b.Value > a.Value {
			return b
		}
		return a // of equal ones the first rank's
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	onRanks(3, func(ctx context.Context, world *comm.Comm) error {
		x := []best{{Value: []int64{4, 9, 9}[world.Rank()], Index: int64(world.Rank())}}
		if err := comm.AllReduceFunc(ctx, world, x, largest); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Printf("%+v\n", x[0])
		}
		return nil
	})
	// Output: {Value:9 Index:1}
}
