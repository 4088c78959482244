package dtensor_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

var (
	fullTime = flag.Duration("dtensor.full", 0, "how long to try operators on random layouts; 0: not at all")
	fullSeed = flag.Uint64("dtensor.seed", 0, "seed of -dtensor.full; 0: another each time")
)

// TestOperatorsFull tries operators until the time is over: each case is one
// operator on one mesh, with any placements of all its inputs, uneven sizes among
// them. A failure names the case, which -dtensor.seed gives again.
func TestOperatorsFull(t *testing.T) {
	if *fullTime == 0 {
		t.Skip("-dtensor.full is not given")
	}
	seed := *fullSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	end := time.Now().Add(*fullTime)
	tried := 0
	for ; time.Now().Before(end) && !t.Failed(); tried++ {
		randomTrial(t, seed, uint64(tried))
	}
	t.Logf("%d cases", tried)
}

// TestOperatorsSample tries a few such cases, always the same.
func TestOperatorsSample(t *testing.T) {
	for i := range 20 * most {
		randomTrial(t, 20261120, uint64(i))
	}
}

// TestOperatorsRegressions tries the cases that once failed.
func TestOperatorsRegressions(t *testing.T) {
	R, S, P := layout.Replicate(), layout.Shard, layout.Partial(layout.Sum)
	mask := func(table ...int) layout.Placement { return layout.MaskPartial(table, 0) }
	for _, c := range []struct {
		op     string
		mesh   []int
		shapes [][]int
		place  [][]layout.Placement
	}{
		// Masked rows would have to move.
		{"Mul", []int{2, 1, 2}, [][]int{{3}, {}}, [][]layout.Placement{{S(0), S(0), mask(maskRows)}, {P, P, R}}},
		{"Reshape split", []int{2, 1, 2}, [][]int{{3, 2, 4}}, [][]layout.Placement{{layout.ShardSizes(2, 1, 3), R, mask(maskRows, 2, 4)}}},
		// A reshape joins masked rows.
		{"IndexPut added", []int{2}, [][]int{{4, 8}, {5}, {5}, {5}}, [][]layout.Placement{{mask(maskRows, 8)}, {R}, {R}, {R}}},
	} {
		op := &opCases[slices.IndexFunc(opCases, func(o opCase) bool { return o.name == c.op })]
		for salt := range 2 {
			onMesh(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				return op.tryShapes(ctx, m, c.shapes, c.place, salt)
			})
		}
	}
}

// randomTrial tries the case of a number.
func randomTrial(t *testing.T, seed, number uint64) {
	t.Helper()
	pick := rand.New(rand.NewPCG(seed, number))
	c := opCases[pick.IntN(len(opCases))]
	shapes := c.shapes[pick.IntN(len(c.shapes))]
	mesh := meshes[pick.IntN(len(meshes))]
	if pick.IntN(4) == 0 {
		types := typesOf(t, c.name)
		if len(types) == 0 {
			t.Fatalf("testdata/types.txt has no type of %s; write it with go test ./dtensor -run OperatorsOfTypes -rewrite", c.name)
		}
		c = c.of(types[pick.IntN(len(types))])
	}
	onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
		rng := rand.New(rand.NewPCG(seed, number)) // the same on every rank
		p := make([][]layout.Placement, len(shapes))
		for i, s := range shapes {
			p[i] = randomPlacements(rng, m, s, c.typeOf(i))
		}
		err := c.tryShapes(ctx, m, shapes, p, rng.IntN(1000))
		if err != nil {
			return fmt.Errorf("seed %d, case %d: %s: %w", seed, number, c.name, err)
		}
		return nil
	})
}

// tryShapes is tryLayout of inputs of some shapes.
func (c *opCase) tryShapes(ctx context.Context, m *dtensor.Mesh, shapes [][]int, p [][]layout.Placement, salt int) error {
	whole := make([]T, len(shapes))
	for i, s := range shapes {
		whole[i] = c.input(m, i, s, make([]layout.Placement, len(m.Axes())))
	}
	want, err := c.run(ctx, whole)
	if err != nil {
		return fmt.Errorf("replicated: %w", err)
	}
	return c.tryLayout(ctx, m, whole, p, salt, want)
}

// randomPlacements returns placements that a tensor of the shape can have.
func randomPlacements(rng *rand.Rand, m *dtensor.Mesh, shape []int, dt tensor.DType) []layout.Placement {
	list := optionsOf(shape, dt)
	for {
		p := make([]layout.Placement, len(m.Axes()))
		for i := range p {
			p[i] = list[rng.IntN(len(list))]
			if d, ok := p[i].Dim(); ok && rng.IntN(3) == 0 {
				sizes := make([]int, m.Axes()[i].Size)
				for range shape[d] {
					sizes[rng.IntN(len(sizes))]++
				}
				p[i] = layout.ShardSizes(d, sizes...)
			}
		}
		if valid(m, shape, p) {
			return p
		}
	}
}

// kinks are cases that have no derivative where they are tried, or compute in
// single precision.
var kinks = []string{"Maximum of equals", "Cast", "Norm of maximum", "Norm of minimum"}

// The gradient of every operator is that of finite differences in double
// precision; that all layouts have this gradient is what the other tests say.
func TestOperatorsFiniteDifferences(t *testing.T) {
	onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, c := range opCases {
			if c.nograd || slices.Contains(kinks, c.name) {
				continue
			}
			if err := c.differences(ctx, m); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
}

func (c *opCase) differences(ctx context.Context, m *dtensor.Mesh) error {
	shapes := slices.MinFunc(c.shapes, func(a, b [][]int) int { return elements(a) - elements(b) })
	in := make([]T, len(shapes))
	for i, s := range shapes {
		in[i] = c.input(m, i, s, make([]layout.Placement, 1))
		if in[i].DType().Float() {
			in[i] = in[i].Cast(tensor.Float64)
		}
	}
	value := func() (v float64, err error) {
		err = dtensor.Try(ctx, m, func() {
			y := c.f(in)
			v = y.Mul(weights(m, y)).Sum(nil, false).Full().Item()
		})
		return v, err
	}
	var params []T
	var at []int
	for i, x := range in {
		if x.DType().Float() {
			params, at = append(params, x), append(at, i)
		}
	}
	_, grads, err := dtensor.ValueAndGrad(ctx, func() T { y := c.f(in); return y.Mul(weights(m, y)).Sum(nil, false) }, params...)
	if err != nil {
		return err
	}
	const h = 1e-6
	for k, i := range at {
		x := in[i]
		whole, got := tensor.ToSlice[float64](x.Local()), tensor.ToSlice[float64](grads[k].Dense().Local())
		for e := range whole {
			var v [2]float64
			for side, step := range []float64{-h, h} {
				moved := slices.Clone(whole)
				moved[e] += step
				in[i] = dtensor.Distribute(m, tensor.FromSlice(m.Device(), moved, x.Shape()...), layout.Replicate())
				if v[side], err = value(); err != nil {
					return err
				}
			}
			in[i] = x
			if want := (v[1] - v[0]) / (2 * h); math.Abs(got[e]-want) > 1e-5*(1+math.Abs(want)) {
				return fmt.Errorf("input %d, element %d: gradient %v, finite difference %v", i, e, got[e], want)
			}
		}
	}
	return nil
}

// weights are what a test multiplies a result by before it is summed.
func weights(m *dtensor.Mesh, y T) T {
	return dtensor.Normal(m, dtensor.Key{Seed: 3}, 0, 1, y.Shape(), m.Every(layout.Replicate())...).Cast(tensor.Float64)
}

// elements is the number of elements of all shapes, many if one has none.
func elements(shapes [][]int) int {
	n := 0
	for _, s := range shapes {
		size := ints.Product(s)
		if size == 0 {
			return math.MaxInt32
		}
		n += size
	}
	return n
}
