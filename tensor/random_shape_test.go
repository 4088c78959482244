package tensor

import (
	"math"
	"slices"
	"testing"
)

// FuzzShapes runs operators over shapes that a fuzzer chooses, four bits a size,
// against their naive twins. The seeds run as an ordinary test.
func FuzzShapes(f *testing.F) {
	for seed := range uint64(60) {
		rng := newRNG()
		for range seed {
			rng.Uint64()
		}
		f.Add(rng.Uint64() & 0x3333_3333_3333_3333 & rng.Uint64())
		f.Add(rng.Uint64() & 0x7373_3737_0000_7777)
	}
	f.Fuzz(func(t *testing.T, bits uint64) {
		cpu := NewCPU(nil)
		rng := newRNG()
		next := func(n uint64) int { v := bits % n; bits /= n; return int(v) }
		shape := make([]int, next(5))
		for d := range shape {
			shape[d] = next(6)
		}
		// The other argument has some sizes of 1 and may lack the first ones.
		other := slices.Clone(shape)
		for d := range other {
			if next(3) == 0 {
				other[d] = 1
			}
		}
		other = other[next(uint64(len(shape))+1):]
		a, b := randomArray(rng, shape...), randomArray(rng, other...)
		for _, dt := range floats {
			x, y := a.tensor(cpu, dt), b.tensor(cpu, dt)
			name := label(dt, shape, other)
			check(t, "Sub"+name, Sub(x, y), build(shape, func(i []int) float64 { return a.at(i...) - b.at(i...) }), tolerance(dt))
			check(t, "Sub back"+name, Sub(y, x), build(shape, func(i []int) float64 { return b.at(i...) - a.at(i...) }), tolerance(dt))
			check(t, "Expand"+name, Expand(y, shape...), build(shape, func(i []int) float64 { return b.at(i...) }), 0)
			sums := newArray(other...)
			each(shape, func(i []int) { sums.data[sums.offset(i)] += a.at(i...) })
			check(t, "SumTo"+name, SumTo(x, other...), sums, 10*tolerance(dt))
			order := rng.Perm(len(shape))
			if got := Permute(Permute(x, order...), InversePermutation(order)...); !slices.Equal(ToSlice[float64](Cast(got, Float64)), a.data) {
				t.Errorf("Permute%s %v and back", name, order)
			}
			var dims []int
			for d := range shape {
				if rng.IntN(2) == 0 {
					dims = append(dims, d)
				}
			}
			check(t, "Amin"+name, Amin(x, dims, true), reduceWant(a, dims, true, fold(math.Inf(1), math.Min)), 0)
			check(t, "Sum"+name, Sum(x, dims, false), reduceWant(a, dims, false, sum), 10*tolerance(dt))
			for d, n := range shape {
				cut := rng.IntN(n + 1)
				check(t, "Cat"+name, Cat(d, Narrow(x, d, 0, cut), Narrow(x, d, cut, n-cut)), a, 0)
			}
		}
	})
}
