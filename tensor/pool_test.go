package tensor

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// randomSpans returns windows over a dimension, some of them empty.
func randomSpans(rng *rand.Rand, mean bool) kernel.Spans {
	s := kernel.Spans{Size: 1 + rng.IntN(40), Step: 1}
	if !mean {
		s.Step = 1 + rng.IntN(2)
	}
	for range rng.IntN(9) {
		from := rng.IntN(s.Size)
		s.From, s.To = append(s.From, from), append(s.To, min(s.Size, from+rng.IntN(25)))
		s.Over = append(s.Over, 1+rng.IntN(5))
	}
	return s
}

// naivePool calls f for each element of each window of a plane, and before with -1 for each window.
func naivePool(spans []kernel.Spans, f func(x, y, over int)) {
	at := make([]int, len(spans))
	var windows func(d, y, over int)
	var elements func(d, x, y, over int)
	windows = func(d, y, over int) {
		if d == len(spans) {
			f(-1, y, over)
			elements(0, 0, y, over)
			return
		}
		for i := range spans[d].From {
			at[d] = i
			windows(d+1, y*len(spans[d].From)+i, over*spans[d].Over[i])
		}
	}
	elements = func(d, x, y, over int) {
		if d == len(spans) {
			f(x, y, over)
			return
		}
		for i := spans[d].From[at[d]]; i < spans[d].To[at[d]]; i += spans[d].Step {
			elements(d+1, x*spans[d].Size+i, y, over)
		}
	}
	windows(0, 0, 1)
}

func testPool[T float32 | float64](t *testing.T, rounding float64) {
	dev, rng := NewCPU(nil), rand.New(rand.NewPCG(5, 6))
	for turn := range 200 {
		mean := turn%2 == 0
		spans := make([]kernel.Spans, 1+rng.IntN(3))
		xs, ys := []int{rng.IntN(3), 2}, []int{0, 2}
		for d := range spans {
			spans[d] = randomSpans(rng, mean)
			if turn%10 == 0 { // one window of all
				n := spans[d].Size
				spans[d] = kernel.Spans{Size: n, From: []int{0}, To: []int{n}, Over: []int{n}, Step: 1}
			}
			xs, ys = append(xs, spans[d].Size), append(ys, len(spans[d].From))
		}
		ys[0] = xs[0]
		x, dy := make([]T, ints.Product(xs)), make([]T, ints.Product(ys))
		for i := range x {
			if x[i] = T(rng.IntN(5)); rng.IntN(40) == 0 { // some are equal
				x[i] = T(math.NaN())
			}
			if mean {
				x[i] = T(rng.NormFloat64())
			}
		}
		for i := range dy {
			dy[i] = T(rng.NormFloat64())
		}
		y, dx := make([]float64, len(dy)), make([]float64, len(x))
		nx, ny := ints.Product(xs[2:]), ints.Product(ys[2:])
		for c := range xs[0] * 2 {
			from, first := x[c*nx:], make([]int, ny)
			naivePool(spans, func(i, j, over int) {
				to := &y[c*ny+j]
				switch {
				case i < 0 && mean:
				case i < 0:
					*to, first[j] = math.Inf(-1), -1
				case mean:
					*to += float64(from[i]) / float64(over)
					dx[c*nx+i] += float64(dy[c*ny+j]) / float64(over)
				case first[j] < 0 || float64(from[i]) > *to || from[i] != from[i] && *to == *to:
					*to, first[j] = float64(from[i]), i
				}
			})
			for j, i := range first {
				if !mean && i >= 0 {
					dx[c*nx+i] += float64(dy[c*ny+j])
				}
			}
		}
		in := FromSlice(dev, x, xs...)
		got := Pool(in, mean, spans)
		grad := PoolGrad(FromSlice(dev, dy, ys...), in, got, mean, spans)
		for name, r := range map[string]struct {
			got   *Tensor
			want  []float64
			shape []int
		}{"Pool": {got, y, ys}, "PoolGrad": {grad, dx, xs}} {
			if !slices.Equal(r.got.Shape(), r.shape) {
				t.Fatalf("%s, mean %v, %+v: the shape is %v, want %v", name, mean, spans, r.got.Shape(), r.shape)
			}
			for i, v := range ToSlice[T](r.got) {
				if off := math.Abs(float64(v) - r.want[i]); !(off <= rounding*(1+math.Abs(r.want[i])) || float64(v) == r.want[i]) &&
					(v == v || r.want[i] == r.want[i]) {
					t.Fatalf("%s, mean %v, %+v: element %d is %v, want %v", name, mean, spans, i, v, r.want[i])
				}
			}
		}
	}
}

func TestPool(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	testPool[float32](t, 1e-4)
	testPool[float64](t, 1e-12)
}
