package main

import (
	"context"
	"errors"
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/topology"
	"github.com/gorun-spmd/gorun/comm/window"
)

// halo returns the exchange of the borders of a square block on a grid of two dimensions. The
// block has at most as many cells as a has elements.
func halo() func(ctx context.Context, c *comm.Comm, a, b []float32) error {
	var grid *topology.Grid
	var block []float32
	return func(ctx context.Context, c *comm.Comm, a, _ []float32) (err error) {
		if grid == nil {
			if grid, err = topology.NewGrid(ctx, c, []int{0, 0}, nil); err != nil {
				return err
			}
		}
		side := int(math.Sqrt(float64(len(a)))) + 2
		if len(block) != side*side {
			block = make([]float32, side*side)
		}
		return topology.Halo(ctx, grid, block, []int{side, side}, 1)
	}
}

// oneSided returns the calls on windows of most elements. In each, all ranks at once reach the
// memory of the next rank. It returns none if the ranks have no windows.
func oneSided(ctx context.Context, c *comm.Comm, most int) ([]benchmark, error) {
	w, err := window.New[float32](ctx, c, most)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	number, err := window.New[int64](ctx, c, 1)
	if err != nil {
		return nil, err
	}
	next := (c.Rank() + 1) % c.Size()
	return []benchmark{
		{"put", 0, true, func(_ context.Context, _ *comm.Comm, a, _ []float32) error {
			return errors.Join(w.Put(next, 0, a), w.Flush(next))
		}},
		{"get", 0, true, func(_ context.Context, _ *comm.Comm, a, _ []float32) error { return w.Get(next, 0, a) }},
		{"fetch_and_add", smallest, true, func(context.Context, *comm.Comm, []float32, []float32) error {
			_, err := number.FetchAndAdd(next, 0, 1)
			return err
		}},
	}, nil
}
