package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

// Elements are of any numeric type, named types of these, and bool.
func ExampleAllReduce_elements() {
	type votes uint16
	onRanks(3, func(ctx context.Context, world *comm.Comm) error {
		count := []int{1}
		most := []votes{votes(10 * world.Rank())}
		waves := []complex128{complex(0, 1)}
		ready := []bool{world.Rank() > 0}
		if err := errors.Join(
			comm.AllReduce(ctx, world, count, comm.Sum),
			comm.AllReduce(ctx, world, most, comm.Max),
			comm.AllReduce(ctx, world, waves, comm.Sum),
			comm.AllReduce(ctx, world, ready, comm.And),
		); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(count, most, waves, ready)
		}
		return nil
	})
	// Output: [3] [20] [(0+3i)] [false]
}

// Calls that only move elements take structs and arrays too.
func ExampleAllGather_structs() {
	type particle struct {
		Position [2]float32
		Charge   int8
	}
	onRanks(2, func(ctx context.Context, world *comm.Comm) error {
		mine := []particle{{Position: [2]float32{float32(world.Rank()), 0.5}, Charge: -1}}
		all := make([]particle, world.Size())
		if err := comm.AllGather(ctx, world, all, mine); err != nil {
			return err
		}
		if world.Rank() == 1 {
			fmt.Println(all)
		}
		return nil
	})
	// Output: [{[0 0.5] -1} {[1 0.5] -1}]
}

// The rank with the smallest loss.
func ExampleMinLoc() {
	onRanks(3, func(ctx context.Context, world *comm.Comm) error {
		loss := []float64{0.5, 0.25, 0.75}[world.Rank()]
		best := []comm.Loc[float64]{{Value: loss, Index: int64(world.Rank())}}
		if err := comm.AllReduceFunc(ctx, world, best, comm.MinLoc[float64]()); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Printf("%+v\n", best[0])
		}
		return nil
	})
	// Output: {Value:0.25 Index:1}
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

// Rank 0 hands out tasks to whoever asks next: it has a communicator with each
// worker, and a goroutine for each.
func ExampleComm_Group() {
	onRanks(4, func(ctx context.Context, world *comm.Comm) error {
		lines := make([]*comm.Comm, world.Size())
		for r := 1; r < world.Size(); r++ {
			line, err := world.Group(ctx, []int{0, r})
			if err != nil {
				return err
			}
			lines[r] = line
		}
		if me := world.Rank(); me > 0 {
			for task, result := []int64{0}, []int64{0}; ; result[0] = task[0] * task[0] {
				if err := comm.Send(ctx, lines[me], result, 0); err != nil {
					return err
				}
				if err := comm.Recv(ctx, lines[me], task, 0); err != nil || task[0] == 0 {
					return err
				}
			}
		}

		tasks := make(chan int64, 20)
		for t := range cap(tasks) {
			tasks <- int64(t + 1)
		}
		close(tasks) // then it gives 0
		sums, errs := make([]int64, world.Size()), make([]error, world.Size())
		var workers sync.WaitGroup
		for r := 1; r < world.Size(); r++ {
			workers.Go(func() {
				for task, result := []int64{1}, []int64{0}; task[0] != 0 && errs[r] == nil; sums[r] += result[0] {
					if errs[r] = comm.Recv(ctx, lines[r], result, 1); errs[r] == nil {
						task[0] = <-tasks
						errs[r] = comm.Send(ctx, lines[r], task, 1)
					}
				}
			})
		}
		workers.Wait()
		fmt.Println(sums[1] + sums[2] + sums[3])
		return errors.Join(errs...)
	})
	// Output: 2870
}

// Each rank of a ring sends a number to the next and receives one from the rank before.
func ExampleSendRecv() {
	onRanks(4, func(ctx context.Context, world *comm.Comm) error {
		n, me := world.Size(), world.Rank()
		got := make([]int, 1)
		if err := comm.SendRecv(ctx, world, got, (me+n-1)%n, []int{10 * me}, (me+1)%n); err != nil {
			return err
		}
		if me == 0 {
			fmt.Println(got)
		}
		return nil
	})
	// Output: [30]
}

// Neighbours along a line trade a number; the counts of all other ranks are 0.
func ExampleAllToAllV() {
	onRanks(4, func(ctx context.Context, world *comm.Comm) error {
		counts := make([]int, world.Size())
		var edges []float64
		for _, r := range []int{world.Rank() - 1, world.Rank() + 1} {
			if r >= 0 && r < world.Size() {
				counts[r] = 1
				edges = append(edges, float64(world.Rank()))
			}
		}
		halo := make([]float64, len(edges))
		if err := comm.AllToAllV(ctx, world, halo, counts, edges, counts); err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Println(halo)
		}
		return nil
	})
	// Output: [1 3]
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
