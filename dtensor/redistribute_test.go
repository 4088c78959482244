package dtensor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// numbers is a tensor whose elements are their positions, from 1.
func numbers(m *dtensor.Mesh, shape []int) *tensor.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i + 1)
	}
	return tensor.FromSlice(m.Device(), data, shape...)
}

// spread makes a tensor of the numbers whose Partial addends no rank alone
// explains: of a sum over n ranks the first holds 3x, the last -2x; of a
// maximum rank i mod n holds element i and the others less.
func spread(m *dtensor.Mesh, shape []int, p []layout.Placement) (*dtensor.Tensor, error) {
	whole := slices.Clone(p)
	local := tensor.ToSlice[float32](numbers(m, shape))
	for axis := range p {
		op, partial := p[axis].Op()
		if !partial {
			continue
		}
		whole[axis] = layout.Replicate()
		n, at := m.Axes()[axis].Size, m.Coord()[axis]
		for i := range local {
			if n == 1 {
				continue
			}
			switch {
			case op == layout.Max && i%n != at:
				local[i]--
			case op == layout.Min && i%n != at:
				local[i]++
			case op == layout.Sum || op == layout.Avg:
				k := float32(0)
				if at == 0 {
					k = 3
				} else if at == n-1 {
					k = -2
				}
				if op == layout.Avg {
					k *= float32(n)
				}
				local[i] *= k
			case op == layout.Prod && at == 0:
				local[i] *= 2
			case op == layout.Prod && at == n-1:
				local[i] = 0.5
			case op == layout.Prod:
				local[i] = 1
			}
		}
	}
	// Distribute would say that ranks have other parts.
	t := m.Wrap("spread", tensor.FromSlice(m.Device(), local, shape...), nil, false, shape,
		m.Every(layout.Replicate())...).Redistribute(whole...)
	return dtensor.FromLocal(m, t.Local(), shape, p...)
}

// largest is the largest number that spread makes, or more.
func largest(m *dtensor.Mesh, shape []int, p []layout.Placement) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	for axis := range p {
		switch op, _ := p[axis].Op(); {
		case !p[axis].IsPartial():
		case op == layout.Avg:
			n *= 3 * m.Axes()[axis].Size
		default:
			n *= 3
		}
	}
	return n
}

// piece is what this rank must hold of the numbers in a layout without Partial.
func piece(m *dtensor.Mesh, shape []int, l layout.Layout) []float32 {
	all := tensor.ToSlice[float32](numbers(m, shape))
	offset, size := l.Offset(m.Coord()), l.LocalShape(m.Coord())
	var out []float32
	at := make([]int, len(shape))
	var walk func(d, base int)
	walk = func(d, base int) {
		if d == len(shape) {
			out = append(out, all[base])
			return
		}
		for at[d] = range size[d] {
			i := offset[d] + at[d]
			if axis := l.Cyclic(); axis >= 0 && d == 0 {
				i = m.Coord()[axis] + at[d]*m.Axes()[axis].Size
			}
			walk(d+1, base*shape[d]+i)
		}
	}
	walk(0, 0)
	return out
}

// Every redistribution leaves each rank with the part that the layout names.
func TestRedistribute(t *testing.T) {
	for _, mesh := range meshes {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			rng := rand.New(rand.NewPCG(5, 6))
			for _, shape := range [][]int{{4, 8}, {5, 3}, {1, 3}, {0, 3}, {7}, {2, 3, 5}, {}} {
				list := slices.DeleteFunc(options(shape, false), layout.Placement.IsMask)
				if len(shape) > 0 && shape[0] > 2 {
					list = append(list, layout.Shard(-1))
					if len(mesh) == 1 && mesh[0] > 1 {
						sizes := make([]int, mesh[0])
						sizes[0], sizes[mesh[0]-1] = 1, shape[0]-1
						list = append(list, layout.ShardSizes(0, sizes...))
					}
				}
				for range 5 * most {
					from, to := placementsOf(m, list, rng.IntN(1<<20)), placementsOf(m, list, rng.IntN(1<<20))
					if !valid(m, shape, from) || !valid(m, shape, to) {
						continue
					}
					dt := tensor.Float32
					if rng.IntN(2) == 0 && largest(m, shape, from) <= 256 { // bfloat16 holds them all
						dt = tensor.BFloat16
					}
					if err := redistributed(ctx, m, dt, shape, from, to); err != nil {
						return fmt.Errorf("%v%v %s → %s on %v: %w", dt, shape, layout.FormatPlacements(from), layout.FormatPlacements(to), m, err)
					}
				}
			}
			return nil
		})
	}
}

// redistributed takes numbers of type dt, which holds them all, from one layout to
// another.
func redistributed(ctx context.Context, m *dtensor.Mesh, dt tensor.DType, shape []int, from, to []layout.Placement) error {
	x, err := spread(m, shape, from)
	if err == nil && dt != tensor.Float32 {
		x, err = dtensor.FromLocal(m, tensor.Cast(x.Local(), dt), shape, from...)
	}
	if err != nil {
		return err
	}
	var got, whole []float32
	var l layout.Layout
	err = dtensor.Try(ctx, m, func() {
		y := x.Redistribute(to...)
		l = y.Layout()
		got = tensor.ToSlice[float32](tensor.Cast(y.ToLocal(), tensor.Float32))
		whole = tensor.ToSlice[float32](tensor.Cast(y.Full(), tensor.Float32))
	})
	if err != nil {
		return err
	}
	if want := tensor.ToSlice[float32](numbers(m, shape)); !slices.Equal(whole, want) {
		return fmt.Errorf("the whole is %v, want %v", whole, want)
	}
	if !l.IsPartial() {
		if want := piece(m, shape, l); !slices.Equal(got, want) {
			return fmt.Errorf("rank at %v holds %v, want %v", m.Coord(), got, want)
		}
	}
	return nil
}

// R → P is exact: the first rank holds the value of a sum and the others
// nothing, of avg, max and min all hold it.
func TestReplicateToPartial(t *testing.T) {
	onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Distribute(m, numbers(m, []int{4}), layout.Replicate())
		for op, others := range map[layout.ReduceOp]float32{layout.Sum: 0, layout.Prod: 1, layout.Avg: -1, layout.Min: -1, layout.Max: -1} {
			for i, v := range tensor.ToSlice[float32](x.Redistribute(layout.Partial(op)).ToLocal()) {
				want := float32(i + 1)
				if m.Coord()[0] > 0 && others >= 0 {
					want = others
				}
				if v != want {
					return fmt.Errorf("%v: element %d of rank %v is %v, want %v", op, i, m.Coord(), v, want)
				}
			}
		}
		return nil
	})
}

// The same numbers come for every layout.
func TestRandomByGlobalIndex(t *testing.T) {
	for _, mesh := range meshes {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			for _, shape := range [][]int{{4, 8}, {5, 3}, {1, 3}, {0, 3}, {7}} {
				list := options(shape, true) // an average of three equal numbers may round
				for k := range 40 {
					p := placementsOf(m, list, k)
					if !valid(m, shape, p) {
						continue
					}
					key := dtensor.Key{Seed: 1, Stream: 2}
					make1 := func(p ...layout.Placement) []*dtensor.Tensor {
						return []*dtensor.Tensor{dtensor.Normal(m, key, 1, 2, shape, p...), dtensor.Uniform(m, key, -1, 1, shape, p...)}
					}
					want := make1(make([]layout.Placement, len(mesh))...)
					err := dtensor.Try(ctx, m, func() {
						for i, x := range make1(p...) {
							if !slices.Equal(tensor.ToSlice[float32](x.Full()), tensor.ToSlice[float32](want[i].Full())) {
								failf("%v differs: %v, want %v", x, x.Full(), want[i].Full())
							}
						}
					})
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}
