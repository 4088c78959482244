// Command 12-heat lets heat spread in a square plate: each rank of a grid has a block of its cells,
// with a halo of its neighbours' cells that one call brings up to date. The upper edge is held at
// 1, the others at 0.
//
//	gorun -np 4 ./examples/12-heat
//
// Output:
//
//	after 2000 steps the mean is 0.250
//	▒▓████████████████████▓▒
//	░░░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░
//	░░░░░░░░░░░░░░░░░░░░░░░░
//	░░░░░░░░░░░░░░░░░░░░░░░░
package main

import (
	"context"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/topology"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(heat) }

// The plate has size × size cells.
const size, steps = 24, 2000

// share returns the cells first to end of the plate that are those of place i of n.
func share(i, n int) (first, end int) { return i * size / n, (i + 1) * size / n }

func heat(ctx context.Context, world *comm.Comm) error {
	grid, err := topology.NewGrid(ctx, world, []int{0, 0}, nil)
	if err != nil {
		return err
	}
	at, dims := grid.Coords(), grid.Dims()
	top, bottom := share(at[0], dims[0])
	left, right := share(at[1], dims[1])
	rows, columns := bottom-top+2, right-left+2 // with the halo
	old, new := make([]float64, rows*columns), make([]float64, rows*columns)
	if top == 0 {
		for x := range columns {
			old[x], new[x] = 1, 1
		}
	}
	for range steps {
		if err := topology.Halo(ctx, grid, old, []int{rows, columns}, 1); err != nil {
			return err
		}
		for y := 1; y < rows-1; y++ {
			for x := 1; x < columns-1; x++ {
				i := y*columns + x
				new[i] = old[i] + 0.2*(old[i-1]+old[i+1]+old[i-columns]+old[i+columns]-4*old[i])
			}
		}
		old, new = new, old
	}
	return show(ctx, world, old, top, left, rows, columns)
}

// show puts the blocks together and draws each sixth row of the plate.
func show(ctx context.Context, world *comm.Comm, block []float64, top, left, rows, columns int) error {
	plate := make([]float64, size*size) // on each rank 0 except for its block
	for y := 1; y < rows-1; y++ {
		copy(plate[(top+y-1)*size+left:], block[y*columns+1:(y+1)*columns-1])
	}
	if err := comm.Reduce(ctx, world, plate, plate, comm.Sum, 0); err != nil || world.Rank() != 0 {
		return err
	}
	sum := 0.0
	for _, t := range plate {
		sum += t
	}
	fmt.Printf("after %d steps the mean is %.3f\n", steps, sum/size/size)
	for y := 0; y < size; y += 6 {
		for _, t := range plate[y*size : (y+1)*size] {
			fmt.Print(string([]rune(" ░▒▓█")[int(math.Ceil(4*t))]))
		}
		fmt.Println()
	}
	return nil
}
