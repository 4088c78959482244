// Command 13-sample-sort sorts numbers that lie on all ranks. Each rank sorts its own, samples of
// them say where to cut, and an exchange of parts of any length gives each rank the numbers
// between two cuts.
//
//	gorun -np 4 ./examples/13-sample-sort
//
// Output:
//
//	1000000 numbers are in order, and none is lost
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(run) }

func run(ctx context.Context, world *comm.Comm) error {
	const all = 1_000_000
	numbers := make([]float64, 0, all/world.Size()+1)
	before := make([]float64, 2) // how many there are, and a sum that shows if they change
	random := rand.New(rand.NewPCG(1, uint64(world.Rank())))
	for i := world.Rank(); i < all; i += world.Size() {
		x := float64(random.IntN(1 << 30)) // whole numbers, so that no order of a sum changes it
		numbers = append(numbers, x)
		before[0], before[1] = before[0]+1, before[1]+x
	}
	sorted, err := sampleSort(ctx, world, numbers)
	if err != nil {
		return err
	}
	after := make([]float64, 2)
	for _, x := range sorted {
		after[0], after[1] = after[0]+1, after[1]+x
	}
	if err := errors.Join(comm.AllReduce(ctx, world, before, comm.Sum), comm.AllReduce(ctx, world, after, comm.Sum)); err != nil {
		return err
	}
	last := []float64{0} // the largest number of this rank, and then of those below
	if len(sorted) > 0 {
		last[0] = sorted[len(sorted)-1]
	}
	below := []float64{0}
	if err := comm.Exscan(ctx, world, below, last, comm.Max); err != nil {
		return err
	}
	if !slices.IsSorted(sorted) || len(sorted) > 0 && sorted[0] < below[0] || !slices.Equal(before, after) {
		return fmt.Errorf("%d numbers are not in order, or not those that were: %v, %v", len(sorted), before, after)
	}
	if world.Rank() == 0 {
		fmt.Printf("%.0f numbers are in order, and none is lost\n", after[0])
	}
	return nil
}

// sampleSort sorts the numbers of all ranks: rank 0 returns the least.
func sampleSort(ctx context.Context, world *comm.Comm, numbers []float64) ([]float64, error) {
	slices.Sort(numbers)
	n := world.Size()
	samples := make([]float64, 0, 8*n)
	for i := range 8 * n { // more than one for each cut, so that the parts become alike
		samples = append(samples, numbers[i*len(numbers)/(8*n)])
	}
	gathered := make([]float64, n*len(samples))
	if err := comm.AllGather(ctx, world, gathered, samples); err != nil {
		return nil, err
	}
	slices.Sort(gathered)
	parts, first := make([][]float64, n), 0
	for r := range n {
		end := len(numbers)
		if r < n-1 {
			end, _ = slices.BinarySearch(numbers, gathered[(r+1)*len(samples)])
		}
		parts[r], first = numbers[first:end], end
	}
	received, err := comm.AllToAllSlices(ctx, world, parts)
	sorted := slices.Concat(received...)
	slices.Sort(sorted)
	return sorted, err
}
