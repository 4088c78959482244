package topology_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/topology"
)

var sizes = []int{1, 2, 3, 4, 6, 7}

func TestDims(t *testing.T) {
	for _, try := range []struct {
		n          int
		dims, want []int
	}{
		{6, []int{0, 0}, []int{3, 2}}, {7, []int{0, 0}, []int{7, 1}},
		{24, []int{0, 0, 0}, []int{4, 3, 2}}, {12, []int{0, 3}, []int{4, 3}},
		{1, []int{0, 0}, []int{1, 1}}, {16, []int{0, 0}, []int{4, 4}},
		{6, []int{2, 3}, []int{2, 3}}, {6, []int{2, 2}, nil}, {6, []int{4, 0}, nil},
		{0, []int{0}, nil}, {-6, []int{0, 0}, nil},
		{360, []int{0, 0, 0}, []int{8, 9, 5}},
	} {
		got, err := topology.Dims(try.n, try.dims)
		if try.n == 360 && err == nil { // any order
			slices.Sort(got)
			slices.Sort(try.want)
		}
		if (err != nil) != (try.want == nil) || !slices.Equal(got, try.want) {
			t.Errorf("Dims(%d, %v): %v, %v; want %v", try.n, try.dims, got, err, try.want)
		}
	}
}

// value is the content of a cell of the whole array.
func value(at []int) int {
	v := 1
	for _, x := range at {
		v = v*1000 + x
	}
	return v
}

// cells calls f with the coordinates of each cell of an array and its index.
func cells(shape []int, f func(at []int, i int)) {
	at := make([]int, len(shape))
	n := 1
	for _, s := range shape {
		n *= s
	}
	for i := range n {
		rest := i
		for d := len(shape) - 1; d >= 0; d-- {
			at[d] = rest % shape[d]
			rest /= shape[d]
		}
		f(at, i)
	}
}

// Halo fills each cell of the halo with its owner's value, for any grid, width and
// blocks, and leaves the cells beyond open borders alone.
func TestHalo(t *testing.T) {
	for _, n := range sizes {
		for mask := range 8 {
			for _, dims := range [][]int{{0}, {0, 0}, {0, 0, 0}, {1, 0}} {
				commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error { return halo(ctx, world, dims, mask) })
			}
		}
	}
}

func halo(ctx context.Context, world *comm.Comm, dims []int, mask int) error {
	var periodic []bool
	for d := range dims {
		periodic = append(periodic, mask>>d&1 == 1)
	}
	g, err := topology.NewGrid(ctx, world, dims, periodic)
	if err != nil {
		return err
	}
	if !slices.Equal(g.Periodic(), periodic) {
		return fmt.Errorf("periodic %v, want %v", g.Periodic(), periodic)
	}
	dims = g.Dims()
	for width := 1; width <= 2; width++ {
		first, total, shape := make([]int, len(dims)), make([]int, len(dims)), make([]int, len(dims))
		for d, n := range dims {
			for x := range n { // blocks of different sizes
				own := 2 + x%3
				if x == g.Coords()[d] {
					first[d], shape[d] = total[d], own+2*width
				}
				total[d] += own
			}
		}
		shape = append(shape, 2) // not divided
		n := 1
		for _, s := range shape {
			n *= s
		}
		block, want := make([]int, n), make([]int, n)
		cells(shape, func(at []int, i int) {
			global, own, outside := slices.Clone(at), true, false
			for d := range dims {
				global[d] += first[d] - width
				own = own && at[d] >= width && at[d] < shape[d]-width
				if periodic[d] {
					global[d] = (global[d] + total[d]) % total[d]
				}
				outside = outside || global[d] < 0 || global[d] >= total[d]
			}
			if want[i] = value(global); outside {
				want[i] = -1
			}
			if block[i] = -1; own {
				block[i] = want[i]
			}
		})
		if err := topology.Halo(ctx, g, block, shape, width); err != nil {
			return err
		}
		if !slices.Equal(block, want) {
			return fmt.Errorf("grid %v, periodic %v, width %d, rank at %v of shape %v: got %v, want %v",
				dims, periodic, width, g.Coords(), shape, block, want)
		}
	}
	return nil
}

// Shift moves data by any number of places.
func TestShift(t *testing.T) {
	for _, n := range sizes {
		for _, periodic := range []bool{false, true} {
			for _, dims := range [][]int{{0}, {0, 0}} {
				commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
					g, err := topology.NewGrid(ctx, world, dims, slices.Repeat([]bool{periodic}, len(dims)))
					if err != nil {
						return err
					}
					for dim := range dims {
						for by := -n - 1; by <= n+1; by++ {
							for _, count := range []int{1, 3000} {
								src, dst := slices.Repeat([]int{g.Comm().Rank()}, count), slices.Repeat([]int{topology.None}, count)
								if err := topology.Shift(ctx, g, dst, src, dim, by); err != nil {
									return err
								}
								if from, _ := g.Shift(dim, by); !slices.Equal(dst, slices.Repeat([]int{from}, count)) {
									return fmt.Errorf("by %d along %d of %v: got %d, want %d", by, dim, g.Dims(), dst[0], from)
								}
							}
						}
					}
					return nil
				})
			}
		}
	}
}

// The neighbourhood collectives move what their documentation says, on random graphs.
func TestGraph(t *testing.T) {
	for _, n := range sizes {
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			out := make([][]int, n)
			for r := range out {
				for range rng.IntN(5) {
					out[r] = append(out[r], rng.IntN(n)) // some more than once, some to itself
				}
			}
			commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error { return graph(ctx, world, out, seed%2 == 1) })
		}
	}
}

func graph(ctx context.Context, world *comm.Comm, out [][]int, given bool) error {
	me := world.Rank()
	var in []int
	for r, list := range out {
		for _, to := range list {
			if to == me {
				in = append(in, r)
			}
		}
	}
	var sources []int
	if given { // in an order of its own
		sources = append([]int{}, in...)
		slices.Reverse(sources)
		in = sources
	}
	g, err := topology.NewGraph(ctx, world, sources, out[me])
	if err != nil {
		return err
	}
	// message k from rank p to rank q, of those between them
	text := func(p, q, k int) int { return 10000*p + 100*q + k }
	number := func(list []int, i int) (k int) {
		for _, r := range list[:i] {
			if r == list[i] {
				k++
			}
		}
		return k
	}
	for _, count := range []int{1, 3000} {
		src, dst := make([][]int, len(out[me])), make([][]int, len(in))
		want := make([][]int, len(in))
		for i, to := range out[me] {
			src[i] = slices.Repeat([]int{text(me, to, number(out[me], i))}, count+to)
		}
		for i, from := range in {
			dst[i] = make([]int, count+me)
			want[i] = slices.Repeat([]int{text(from, me, number(in, i))}, count+me)
		}
		if err := topology.AllToAllV(ctx, g, dst, src); err != nil {
			return err
		}
		if fmt.Sprint(dst) != fmt.Sprint(want) {
			return fmt.Errorf("AllToAllV from %v: got %v, want %v", in, dst, want)
		}
		gathered, ranks := make([]int, len(in)), make([]int, len(out[me]))
		if err := topology.AllGather(ctx, g, gathered, []int{me}); err != nil || !slices.Equal(gathered, in) {
			return fmt.Errorf("AllGather: got %v, want %v: %w", gathered, in, err)
		}
		for i := range ranks {
			ranks[i] = me
		}
		if err := topology.AllToAll(ctx, g, gathered, ranks, 1); err != nil || !slices.Equal(gathered, in) {
			return fmt.Errorf("AllToAll: got %v, want %v: %w", gathered, in, err)
		}
	}
	return nil
}

// A grid's neighbours are those before and after along each dimension, in that order.
func TestNeighborsOfAGrid(t *testing.T) {
	for _, n := range sizes {
		commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
			g, err := topology.NewGrid(ctx, world, []int{0, 0}, []bool{true, false})
			if err != nil {
				return err
			}
			me, neighbors := world.Rank(), g.Sources()
			src, dst := make([]int, 4), make([]int, 4)
			for i := range src {
				src[i] = 10*me + i
			}
			if err := topology.AllToAll(ctx, g, dst, src, 1); err != nil {
				return err
			}
			for i, r := range neighbors {
				want := 0
				if r != topology.None {
					want = 10*r + (i ^ 1) // what it sends the other way
				}
				if dst[i] != want {
					return fmt.Errorf("part %d from rank %d is %d, want %d", i, r, dst[i], want)
				}
			}
			return nil
		})
	}
}

// A wrong argument is an error on every rank that says what to do.
func TestRefused(t *testing.T) {
	for name, try := range map[string]struct {
		f    func(ctx context.Context, world *comm.Comm) error
		want string
	}{
		"dims that differ": {func(ctx context.Context, world *comm.Comm) error {
			_, err := topology.NewGrid(ctx, world, []int{1 + 3*world.Rank(), 0}, nil)
			return err
		}, "rank 0 gives [1 0 0 0] and rank 1 [4 0 0 0]"},
		"dims of other ranks": {func(ctx context.Context, world *comm.Comm) error {
			_, err := topology.NewGrid(ctx, world, []int{3}, nil)
			return err
		}, "give divisors of 4"},
		"sources that do not send": {func(ctx context.Context, world *comm.Comm) error {
			_, err := topology.NewGraph(ctx, world, []int{0}, []int{1})
			return err
		}, "rank 0 receives from [0], but ranks [] send to it"},
		"a block without cells": {func(ctx context.Context, world *comm.Comm) error {
			g, err := topology.NewGrid(ctx, world, []int{0}, nil)
			if err != nil {
				return err
			}
			return topology.Halo(ctx, g, make([]int, 2), []int{2}, 1)
		}, "at least 1 must be its own"},
		"blocks that do not fit": {func(ctx context.Context, world *comm.Comm) error {
			g, err := topology.NewGrid(ctx, world, []int{0, 0}, nil)
			if err != nil {
				return err
			}
			shape := []int{3, 3}
			if world.Rank() == 1 {
				shape[0] = 4
			}
			if err := topology.Halo(ctx, g, make([]int, shape[0]*shape[1]), shape, 1); err != nil {
				return err
			}
			return comm.Barrier(ctx, world) // ranks 2 and 3 have exchanged theirs, perhaps before ranks 0 and 1 disagree
		}, "neighbours along it must have blocks of as many cells along all other dimensions"},
		"parts of other sizes": {func(ctx context.Context, world *comm.Comm) error {
			g, err := topology.NewGrid(ctx, world, []int{0}, nil)
			if err != nil {
				return err
			}
			return topology.AllGather(ctx, g, make([]int, 3), make([]int, 2))
		}, "it must be 4"},
	} {
		for r, err := range commtest.Ranks(t.Context(), 4, try.f) {
			if err == nil || !strings.Contains(err.Error(), try.want) && !errors.Is(err, comm.ErrAborted) {
				t.Errorf("%s: rank %d: got %v, want %q", name, r, err, try.want)
			}
		}
	}
}
