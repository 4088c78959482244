// Package meshtest has the helpers of tests of operators over meshes: ranks on a mesh,
// whole tensors placed on it, and comparisons with the results of plain loops.
package meshtest

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

var (
	cases = flag.Int("cases", 40, "how many random cases are compared with loops")
	seed  = flag.Uint64("seed", 1, "of the random cases")
)

// Random calls f for each of -cases cases, with random numbers that depend on -seed and
// the case, and logs the seed.
func Random(t testing.TB, f func(rng *rand.Rand, i int)) {
	t.Helper()
	t.Logf("%d random cases of -seed %d", *cases, *seed)
	for i := range *cases {
		f(rand.New(rand.NewPCG(*seed, uint64(i))), i)
	}
}

// On runs f on every rank of a mesh of the given shape, axes a, b, …, in a scope of its
// own. An error that f throws counts as one that it returns.
func On(t testing.TB, shape []int, f func(ctx context.Context, m *dtensor.Mesh) error) {
	t.Helper()
	on(t, shape, func(*comm.Comm) {}, f)
}

// on is On, but calls prepare with each rank's world first.
func on(t testing.TB, shape []int, prepare func(world *comm.Comm), f func(ctx context.Context, m *dtensor.Mesh) error) {
	t.Helper()
	n := 1
	var axes []dtensor.Axis
	for i, size := range shape {
		axes = append(axes, dtensor.Axis{Name: string(rune('a' + i)), Size: size})
		n *= size
	}
	commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
		prepare(world)
		m, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return err
		}
		var failed error
		if err := dtensor.Try(ctx, m, func() { failed = f(ctx, m) }); err != nil {
			return err
		}
		return failed
	})
}

// Numbers returns n numbers between -size and size that look random.
func Numbers(n int, seed, size float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = size * math.Sin(seed*7+float64(i*i)*1.3+float64(i))
	}
	return x
}

// Place puts a whole tensor on the mesh, in memory of its own.
func Place[T tensor.Elem](m *dtensor.Mesh, data []T, shape []int, places ...layout.Placement) *dtensor.Tensor {
	t := dtensor.Distribute(m, tensor.FromSlice(m.Device(), data, shape...), places...)
	if !m.Inside() {
		return t
	}
	return m.Wrap("Place", tensor.Clone(t.Local()), nil, false, shape, places...)
}

// Combinations returns every way to choose one of the options for each axis.
func Combinations[P any](axes int, options ...P) [][]P {
	if axes == 0 {
		return [][]P{nil}
	}
	var all [][]P
	for _, rest := range Combinations(axes-1, options...) {
		for _, o := range options {
			all = append(all, append(slices.Clone(rest), o))
		}
	}
	return all
}

// SomeMesh returns the shape of a random mesh of at most 6 ranks.
func SomeMesh(rng *rand.Rand) []int {
	shapes := [][]int{{1}, {2}, {3}, {4}, {2, 2}, {1, 3}, {2, 1}, {3, 2}, {2, 1, 2}}
	return shapes[rng.IntN(len(shapes))]
}

// someShard returns Replicate or a sharding of one of the dimensions of shape over
// ranks: in equal chunks, or with uneven in random sizes, some of them 0.
func someShard(rng *rand.Rand, ranks int, uneven bool, shape ...int) layout.Placement {
	d := rng.IntN(len(shape) + 1)
	switch {
	case d == len(shape):
		return layout.Replicate()
	case !uneven || rng.IntN(2) == 0:
		return layout.Shard(d)
	}
	sizes := make([]int, ranks)
	for range shape[d] {
		sizes[rng.IntN(ranks)]++
	}
	return layout.ShardSizes(d, sizes...)
}

// SomePlaces returns a random layout of a tensor: someShard for each axis of a mesh of
// the given shape. Sizes are uneven only if the axes before leave all ranks the same part
// of the dimension.
func SomePlaces(rng *rand.Rand, mesh []int, shape ...int) []layout.Placement {
	places, left := make([]layout.Placement, len(mesh)), slices.Clone(shape) // left is -1 where ranks have not as much
	for axis, ranks := range mesh {
		p := someShard(rng, ranks, true, left...)
		if d, ok := p.Dim(); ok {
			if left[d] < 0 {
				p = layout.Shard(d)
			}
			if left[d] >= 0 && len(p.Sizes()) == 0 && left[d]%ranks == 0 {
				left[d] /= ranks
			} else if ranks > 1 {
				left[d] = -1
			}
		}
		places[axis] = p
	}
	return places
}

// OrPartial returns places with some Replicate replaced by Partial.
func OrPartial(rng *rand.Rand, places []layout.Placement) []layout.Placement {
	for axis, p := range places {
		if p.IsReplicate() && rng.IntN(4) == 0 {
			places[axis] = layout.Partial(layout.Sum)
		}
	}
	return places
}

// Calls returns how many of the events have a cause that begins with cause, and their
// bytes in all.
func Calls(events []comm.Event, cause string) (n, bytes int) {
	for _, e := range events {
		if strings.HasPrefix(e.Cause, cause) {
			n++
			bytes += e.Bytes
		}
	}
	return n, bytes
}

// Near returns an error unless each element of t is equal to that of want, both are NaN,
// or |got - want| <= atol + rtol·|want|.
func Near(what string, t *tensor.Tensor, want []float64, rtol, atol float64) error {
	got := Values(t)
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) || math.Abs(g-w) <= atol+rtol*math.Abs(w) {
			continue
		}
		return fmt.Errorf("%s: element %d is %v, want %v", what, i, g, w)
	}
	return nil
}

// Values returns the elements of t.
func Values(t *tensor.Tensor) []float64 {
	return tensor.ToSlice[float64](tensor.Cast(t, tensor.Float64))
}
