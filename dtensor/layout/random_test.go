package layout

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

var (
	caseCount = flag.Int("layout.cases", randomCases, "cases of each random test")
	caseSeed  = flag.Uint64("layout.seed", 20261120, "seed of the random tests")
)

// eachCase runs check on random numbers of its own, for case 0, 1, and so on, so
// that a failure names one case that can be run alone.
func eachCase(t *testing.T, check func(rnd *rand.Rand) error) {
	t.Helper()
	for i := range *caseCount {
		if err := check(rand.New(rand.NewPCG(*caseSeed, uint64(i)))); err != nil {
			t.Fatalf("seed %d case %d: %v", *caseSeed, i, err)
		}
	}
}

// randomAxes returns a mesh of up to 3 axes of 1 to 4 ranks.
func randomAxes(rnd *rand.Rand) Axes {
	names := []string{"a", "b", "c"}
	axes := make([]Axis, 1+rnd.IntN(3))
	for i := range axes {
		axes[i] = Axis{names[i], 1 + rnd.IntN(4)}
	}
	a, err := NewAxes(axes...)
	if err != nil {
		panic(err)
	}
	return a
}

// randomShape returns up to 3 dimensions of 0 to 7 elements, small ones often.
func randomShape(rnd *rand.Rand) []int {
	shape := make([]int, rnd.IntN(4))
	for d := range shape {
		shape[d] = rnd.IntN(8)
		if shape[d] == 0 && rnd.IntN(3) > 0 {
			shape[d] = 1 + rnd.IntN(3)
		}
	}
	return shape
}

// maskRows is the length of the table of a MaskPartial of random layouts.
const maskRows = 9

// randomLayout returns a valid layout; its partial placements are all of one
// reduction, or Sum, Avg and MaskPartial.
func randomLayout(rnd *rand.Rand, axes Axes, shape []int, partials bool) Layout {
	op := ReduceOp(rnd.IntN(int(reduceOps)))
	placements := make([]Placement, axes.Len())
	for i := range placements {
		switch r := rnd.IntN(10); {
		case r < 3:
			placements[i] = Replicate()
		case r < 5 && partials:
			placements[i] = Partial(op)
			if op == Sum {
				placements[i] = []Placement{Partial(Sum), Partial(Avg), MaskPartial([]int{maskRows}, 0)}[rnd.IntN(3)]
			}
		case len(shape) == 0:
			placements[i] = Replicate()
		case r < 7:
			dim := rnd.IntN(len(shape))
			left := remainders(axes, shape, placements[:i], dim)
			if len(left) == 1 {
				placements[i] = ShardSizes(dim, randomSizes(rnd, left[0], axes.Size(i))...)
				break
			}
			fallthrough
		default:
			placements[i] = Shard(rnd.IntN(len(shape)))
		}
	}
	l, err := New(axes, shape, placements...)
	if err != nil {
		panic(err)
	}
	return l
}

// randomSizes splits total into n sizes, some of them 0.
func randomSizes(rnd *rand.Rand, total, n int) []int {
	cuts := make([]int, n+1)
	for i := 1; i < n; i++ {
		cuts[i] = rnd.IntN(total + 1)
	}
	cuts[n] = total
	slices.Sort(cuts)
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = cuts[i+1] - cuts[i]
	}
	return sizes
}
